"""Run `pallas chat`: find the fleet, the agent and the thread, and return the exit status."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pallas.cli.quiet_output import quietly
from pallas.client import FleetAddress, NoFleetAnswers, RestClient, connect, place_named, token_of
from pallas.config import ConfigError, export_env, load_project
from pallas.model import Fault, FaultType
from pallas.safe_text import one_line, sanitize

from .chat_options import ChatOptions
from .chat_requests import check_agent, check_thread, run_facts, wait_until_started
from .chat_signals import Ending
from .chat_terminal import ChatTerminal
from .chat_turn import ChatReply, ChatTurn, as_json, figures, tell_end, tell_thread
from .exit_status import ABSENT, FAILED, OK, SIGNALLED, USAGE, ChatExit

_FACTS: Final = (
    "seconds", "steps", "tools", "usage", "cost", "unpriced", "treeCost", "treeUnpriced",
)  # fmt: skip
"""What the answer's document has of its run."""
_BROKEN_PIPE: Final = SIGNALLED + signal.SIGPIPE


def run(options: ChatOptions) -> int:
    """Run the command and return its exit status."""
    terminal = ChatTerminal()
    try:
        with asyncio.Runner() as runner, Ending(terminal) as ending:
            return runner.run(_run(options, terminal, ending))
    except ChatExit as left:
        if left.message:
            terminal.note(f"pallas chat: {left.message}", "")
        return left.status
    except ConfigError as error:
        terminal.note(sanitize(str(error)), "")
        return USAGE
    except NoFleetAnswers as fault:
        terminal.note(f"pallas chat: {fault.message}", "")
        return ABSENT
    except Fault as fault:
        terminal.note(f"pallas chat: {sanitize(fault.message)}", "")
        return ABSENT if fault.data.get("reason") == "not_found" else FAILED
    except BrokenPipeError:
        return _BROKEN_PIPE
    except (KeyboardInterrupt, asyncio.CancelledError):
        return SIGNALLED + signal.SIGINT


async def _run(options: ChatOptions, terminal: ChatTerminal, ending: Ending) -> int:
    task = asyncio.current_task()
    assert task is not None
    ending.listen(task.cancel)
    base = Path.cwd()
    try:
        async with _fleet(options, terminal) as api:
            about = await check_agent(api, options)
            # The user may have given the agent's id.
            options = replace(options, agent=str(about.get("name") or options.agent))
            about = await wait_until_started(api, options.agent, about, terminal.note)
            if options.message is not None:
                return await once(api, options, terminal, ending)
            from .repl import repl

            return await repl(api, options, terminal, ending, base, about)
    except asyncio.CancelledError:
        if ending.signal:
            raise ChatExit(SIGNALLED + ending.signal) from None
        raise


@asynccontextmanager
async def _fleet(options: ChatOptions, terminal: ChatTerminal) -> AsyncIterator[RestClient]:
    token = token_of(options.token)
    if options.url or os.environ.get("PALLAS_URL", "").strip():
        place = await asyncio.to_thread(place_named, options.url, options.root)
        if token and place.in_the_clear:
            terminal.note(
                "warning: the token goes to another machine unencrypted; use `ssh -L`, or TLS in front of it",
                "",
            )
        async with connect(place, token) as api:
            yield api
        return
    try:
        export_env(options.root)
        project = load_project(options.root)
    except ConfigError:
        # Someone is editing the files: a running fleet answers as before.
        if (there := await _in_spite(options.root)) is None:
            raise
        terminal.note(
            "warning: the project's files have mistakes now; the running fleet answers with its "
            "last valid files",
            "",
        )
        async with connect(there, token) as api:
            yield api
        return
    from pallas.client.own_fleet import running_or_own

    with ExitStack() as quiet:

        def starting() -> None:
            terminal.note(f"no fleet of {one_line(project.name, 60)} runs: one is started for this call")
            quiet.enter_context(quietly(project))

        async with running_or_own(
            project, options.agent, token, starting=starting, tell=lambda text: terminal.note(text, "")
        ) as api:
            yield api


async def _in_spite(root: Path) -> FleetAddress | None:
    """Return the running fleet of a project that cannot be read, if there is one."""
    from pallas.cli.resources.name_completion import port_of
    from pallas.client.own_fleet import is_there

    try:
        place = FleetAddress(f"http://127.0.0.1:{port_of(root)}", root)
    except OSError:
        return None
    return place if await is_there(place) else None


async def once(api: RestClient, options: ChatOptions, terminal: ChatTerminal, ending: Ending) -> int:
    """Send one message, show the answer, and return the exit status.

    With ``--json`` stdout gets one document, the API's answer without a stream. With ``--stream`` as well it
    gets one line of JSON for each chunk.
    """
    if options.thread:
        await check_thread(api, options)
    frames = options.as_json and options.stream is True
    turn = ChatTurn(api, options.agent, terminal, frames=frames, quiet=options.as_json)
    ending.listen(turn.cancel)
    answer = await turn.ask(body_of(options), stream=options.stream is not False)
    if options.as_json and not frames:
        terminal.text(as_json(await _document(api, answer), indent=2) + "\n")
    elif terminal.err_tty and answer.fault is None and not answer.cancelled:
        terminal.note(figures(answer, await run_facts(api, answer.run)))
    tell_end(terminal, answer)
    tell_thread(terminal, answer.thread)
    if answer.cancelled:
        return SIGNALLED + (ending.signal or 2)
    return status_of(answer.fault) if answer.fault is not None else OK


def body_of(options: ChatOptions) -> dict[str, Any]:
    """Return the body of a chat request."""
    body: dict[str, Any] = {"message": options.message or "", **options.params.to_json()}
    if options.thread:
        body["threadId"] = options.thread
    if options.images:
        body["images"] = [{"data": image.data, "mimeType": image.mime_type} for image in options.images]
    return body


async def _document(api: RestClient, answer: ChatReply) -> dict[str, Any]:
    if answer.document:
        return answer.document
    document: dict[str, Any] = {
        "text": answer.text,
        "threadId": answer.thread or None,
        "turnIndex": answer.turn_index,
        "runId": answer.run or None,
        **answer.chosen,
    }
    facts = await run_facts(api, answer.run)
    document |= {key: facts[key] for key in _FACTS if key in facts}
    fault = answer.fault
    if answer.cancelled:
        document["cancelled"] = True
    elif isinstance(fault, Fault):
        document |= fault.to_body()
    return document


def status_of(fault: Fault) -> int:
    """Return the exit status for a message that got no answer."""
    if isinstance(fault, NoFleetAnswers) or fault.data.get("reason") == "not_found":
        return ABSENT
    wrong = fault.type is FaultType.PROTOCOL and "key" in fault.data
    return USAGE if wrong else FAILED
