"""Run `pallas chat`: find the fleet, the agent and the thread, and return the exit status."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, Final

from pallas.client import FleetAddress, NoFleetAnswers, RestClient, connect, place_of, token_of
from pallas.client.rest_client import part
from pallas.config import ConfigError, Project, export_env, load_project
from pallas.model import Fault, FaultType
from pallas.model.refusals import not_found
from pallas.safe_text import one_line, sanitize

from .chat_options import ChatOptions
from .chat_terminal import ChatTerminal
from .chat_turn import ChatAnswer, ChatTurn, figures, tell_end, tell_thread
from .exit_status import ABSENT, FAILED, OK, SIGNALLED, USAGE, ChatExit

_BROKEN_PIPE: Final = SIGNALLED + signal.SIGPIPE
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


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


class Ending:
    """Handles SIGINT and SIGTERM: the first calls the current listener, the second exits at once.

    The handlers are Python's own and not the loop's: a write to a pipe that has no reader blocks the loop for
    as long as it lasts.
    """

    def __init__(self, terminal: ChatTerminal) -> None:
        self._terminal = terminal
        self._heard = 0
        self._action: Callable[[], object] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.signal = 0

    def __enter__(self) -> "Ending":
        self._earlier = {number: signal.signal(number, self._hear) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._earlier.items():
            signal.signal(number, handler)

    def listen(self, action: Callable[[], object]) -> None:
        """Call ``action`` in the running loop on the first signal from now on."""
        self._heard, self.signal = 0, 0
        self._action, self._loop = action, asyncio.get_running_loop()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self._heard += 1
        self.signal = number
        if self._heard > 1 or self._action is None or self._loop is None:
            self._leave(number)
            return
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._action)

    def _leave(self, number: int) -> None:
        from pallas.cli.child_processes import end_children

        with suppress(OSError):
            self._terminal.settle()
        end_children()
        os._exit(SIGNALLED + number)


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
        place = place_of(options.url)
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
        terminal.note("warning: the project's files have mistakes now; the fleet that runs is asked", "")
        async with connect(there, token) as api:
            yield api
        return
    from pallas.client.own_fleet import running_or_own
    from pallas.telemetry.log import close_logging

    own: list[Silence] = []

    def starting() -> None:
        _log(project)
        terminal.note(f"no fleet of {one_line(project.name, 60)} runs: it is started for this one call")
        own.append(Silence())

    try:
        async with running_or_own(
            project, options.agent, token, starting=starting, tell=lambda text: terminal.note(text, "")
        ) as api:
            yield api
    finally:
        for silence in own:
            silence.end()
            close_logging()


async def _in_spite(root: Path) -> FleetAddress | None:
    """Return the running fleet of a project that cannot be read, if there is one."""
    from pallas.cli.resources.name_completion import _port
    from pallas.client.own_fleet import is_there

    try:
        place = FleetAddress(f"http://127.0.0.1:{_port(root)}", root)
    except OSError:
        return None
    return place if await is_there(place) else None


def _log(project: Project) -> None:
    from pallas.telemetry.log import redact_project, setup_logging

    setup_logging(project.log_level, stderr=False)
    redact_project(project)


class Silence:
    """Keeps the output of agents' code and their programs away from stdout and stderr, until ``end``."""

    def __init__(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        self._saved = [(number, os.dup(number)) for number in (1, 2) if _is_open(number)]
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for number, _ in self._saved:
            os.dup2(nowhere, number)
        os.close(nowhere)

    def end(self) -> None:
        """Restore both descriptors."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        for number, saved in self._saved:
            os.dup2(saved, number)
            os.close(saved)
        self._saved.clear()


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


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
        terminal.text(json.dumps(await _document(api, answer), ensure_ascii=False, indent=2) + "\n")
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


async def _document(api: RestClient, answer: ChatAnswer) -> dict[str, Any]:
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
    document |= {key: facts[key] for key in ("seconds", "steps", "tools", "usage") if key in facts}
    fault = answer.fault
    if answer.cancelled:
        document["cancelled"] = True
    elif isinstance(fault, Fault):
        document |= fault.to_body()
    return document


async def check_agent(api: RestClient, options: ChatOptions) -> dict[str, Any]:
    """Return the agent's facts, empty when the caller may not see it. Raises ChatExit (ABSENT)."""
    try:
        found = await api.get(f"/agents/{part(options.agent)}")
    except Fault as fault:
        if fault.data.get("reason") == "forbidden":
            return {}  # A caller may talk to an agent without the right to read it.
        if fault.data.get("reason") != "not_found":
            raise
        raise ChatExit(ABSENT, await _no_agent(api, options.agent)) from None
    return found if isinstance(found, dict) else {}


async def thread_named(api: RestClient, name: str, agent: str) -> Any:
    """Return the thread with that id or handle. Raises Fault ("not found")."""
    if "/" not in name:
        return await api.get(f"/threads/{part(name)}", agent=agent)
    page = await api.get("/threads", handle=name)
    items = page.get("items", ()) if isinstance(page, dict) else ()
    mine = [each for each in items if isinstance(each, dict) and each.get("agent") == agent]
    if not (found := [*mine, *items]):
        raise not_found("thread not found: it is unknown, deleted, or belongs to another caller")
    return found[0]


async def check_thread(api: RestClient, options: ChatOptions) -> dict[str, Any]:
    """Return the thread to continue.

    Raises ChatExit (ABSENT) when it is unknown, or belongs to another caller or another agent.
    """
    try:
        found = await thread_named(api, options.thread, options.agent)
    except Fault as fault:
        if fault.data.get("reason") != "not_found":
            raise
        raise ChatExit(ABSENT, f"thread {one_line(options.thread, 200)}: {fault.message}") from None
    theirs = found.get("agent") if isinstance(found, dict) else None
    if isinstance(theirs, dict):
        theirs = theirs.get("name")
    if isinstance(theirs, str) and theirs != options.agent:
        raise ChatExit(
            ABSENT,
            f"thread {one_line(options.thread, 200)} belongs to the agent {one_line(theirs, 100)}, not to "
            f"{one_line(options.agent, 100)}: pallas chat {one_line(theirs, 100)} --thread ...",
        )
    return found if isinstance(found, dict) else {}


async def _no_agent(api: RestClient, name: str) -> str:
    from difflib import get_close_matches

    known: list[str] = []
    with suppress(Fault):
        known = [str(each.get("name")) async for each in api.items("/agents", most=200)]
    near = get_close_matches(name, known, 1, 0.6)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known[:20])}" if known else ""
    told = f"there is no agent {one_line(name, 100)} at {api.place.origin}"
    return f"{told}; {hint}" if hint else told


async def run_facts(api: RestClient, run: str) -> dict[str, Any]:
    """Return the fleet's facts about a run; empty when it does not answer soon."""
    if not run:
        return {}
    with suppress(Fault):
        found = await api.get(f"/runs/{part(run)}", timeout=3.0)
        return found if isinstance(found, dict) else {}
    return {}


def status_of(fault: Fault) -> int:
    """Return the exit status for a message that got no answer."""
    if isinstance(fault, NoFleetAnswers) or fault.data.get("reason") == "not_found":
        return ABSENT
    wrong = fault.type is FaultType.PROTOCOL and "key" in fault.data
    return USAGE if wrong else FAILED
