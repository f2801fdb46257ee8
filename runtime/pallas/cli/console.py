"""`pallas console`: a prompt for the whole fleet, built from messages between handlers (HC-26)."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pallas.config import ConfigError, Project, export_env, load_project
from pallas.model import Fault
from pallas.model.redaction import redact_text
from pallas.safe_text import one_line, sanitize

from .chat_client.chat_signals import Ending
from .chat_client.chat_terminal import BOLD, DIM, ChatTerminal
from .chat_client.exit_status import FAILED, OK, SIGNALLED, USAGE
from .chat_client.line_input import Interrupted, LineInput, Plain, goes_on, typed
from .quiet_output import Silence

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer

    from pallas.fleet.fleet import Fleet

_GREETING = "@agent text sends a message, /agents lists the agents, /help the rest"
_INTERRUPT = 130
printed_log = logging.getLogger("pallas.agents.printed")


def console(root: Path) -> int:
    """Start the project's fleet, hold the conversation, and return the exit status."""
    terminal = ChatTerminal()
    try:
        export_env(root)
        project = load_project(root)
    except ConfigError as error:
        terminal.note(sanitize(str(error)), "")
        return USAGE
    try:
        with asyncio.Runner() as runner, Ending(terminal) as ending:
            return runner.run(_held(project, terminal, ending))
    except Fault as fault:
        terminal.note(f"pallas console: {sanitize(fault.message)}", "")
        return FAILED
    except BrokenPipeError:
        return FAILED
    except (KeyboardInterrupt, asyncio.CancelledError):
        return _INTERRUPT


async def _held(project: Project, terminal: ChatTerminal, ending: Ending) -> int:
    from pallas.client import place_of
    from pallas.client.own_fleet import PORTS_TIMEOUT, is_there, own_fleet
    from pallas.telemetry.log import close_logging, redact_project, setup_logging
    from pallas.telemetry.log.printed_lines import logging_prints

    task = asyncio.current_task()
    assert task is not None
    ending.listen(task.cancel)
    setup_logging(project.log_level, stderr=False, project=project.root)
    redact_project(project)
    own_loop = asyncio.get_running_loop()

    def show(line: str) -> None:
        text = sanitize(redact_text(line))
        if text.strip():
            own_loop.call_soon_threadsafe(terminal.note, text)

    def printed(line: str) -> None:
        if line.strip():
            printed_log.info("%s", sanitize(line))
            show(line)

    silence, prints = Silence(printed), ExitStack()
    prints.enter_context(logging_prints(on_line=show))
    running: list[tuple[Fleet, asyncio.AbstractEventLoop]] = []
    serves = False
    try:
        terminal.note(f"{one_line(project.name, 60)} starts")
        serves = await is_there(place_of(project=project, environ={}))
        async with own_fleet(
            project,
            "",
            lambda text: terminal.note(text, ""),
            started=lambda fleet: running.append((fleet, asyncio.get_running_loop())),
            grace_s=0 if serves else PORTS_TIMEOUT,  # another console ends soon
        ):
            fleet, loop = running[0]
            stop = asyncio.Event()

            def interrupted() -> None:
                # A signal before the next prompt is the second one, which exits at once.
                if ending.signal == signal.SIGINT and not desk.reading:
                    loop.call_soon_threadsafe(stop.set)
                else:
                    task.cancel()

            names = [each.name for each in fleet.agents]
            desk = TerminalDesk(terminal, names, lambda: ending.listen(interrupted))
            await _in(loop, _conversation(fleet, desk, stop))
            if desk.unread:
                raise BrokenPipeError
    except asyncio.CancelledError:
        if ending.signal:
            return SIGNALLED + ending.signal
        raise
    except Fault as fault:
        if serves and not running:
            raise Fault(
                fault.type,
                f"{fault.message}\nthe fleet of this project runs already: ask it with `pallas chat AGENT`, "
                "or stop it first",
            ) from fault
        raise
    finally:
        prints.close()
        silence.end()
        close_logging()
    return OK


async def _conversation(fleet: "Fleet", desk: "TerminalDesk", stop: asyncio.Event) -> None:
    from pallas.console.console_session import hold

    await hold(fleet, desk, greeting=_GREETING, stop=stop)


async def _in[T](loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` on another thread's loop; cancelling this cancels it."""
    future: Future[T] = asyncio.run_coroutine_threadsafe(work, loop)
    return await asyncio.wrap_future(future)


class TerminalDesk:
    """A person at this terminal, as a ``ConsoleDesk``: called from the fleet's loop, runs in ours.

    ``asks`` is called before each line is read; ``reading`` is set during the read.
    """

    def __init__(
        self, terminal: ChatTerminal, agents: Iterable[str], asks: Callable[[], None] = lambda: None
    ) -> None:
        self._terminal = terminal
        self._asks = asks
        self.reading = False
        self._loop = asyncio.get_running_loop()
        self._lines = _lines(terminal, tuple(agents))
        self.unread = False
        """Whether an answer could not be written because its reader is gone."""

    async def show(self, output: str, source: str) -> None:
        """Show a message behind the name of its source. Does nothing once the reader is gone."""
        await _in(self._loop, self._show(output, source))

    async def read(self, to: str) -> str | None:
        """Return a line, or None at the end of input and on ctrl-c with nothing typed."""
        return await _in(self._loop, self._read_line(to))

    async def _show(self, output: str, source: str) -> None:
        if source == "system":
            self._terminal.note(output)
            return
        self._terminal.note(f"{source}:", BOLD)
        try:
            self._terminal.text(output)
            self._terminal.end_text()
        except BrokenPipeError:
            self.unread = True

    async def _read_line(self, to: str) -> str | None:
        self._asks()
        self.reading = True
        try:
            return await self._read(to)
        finally:
            self.reading = False

    async def _read(self, to: str) -> str | None:
        while not self.unread:
            try:
                return typed(await self._lines.read(f"@{to}> " if to else "> "))
            except EOFError:
                self._terminal.settle()
                return None
            except Interrupted as stopped:
                if stopped.empty:
                    return None
                self._terminal.note("(thrown away)", DIM)
        return None


def _lines(terminal: ChatTerminal, agents: tuple[str, ...]) -> LineInput:
    on_screen = terminal.out_tty and sys.stdin is not None and sys.stdin.isatty()
    if on_screen and os.environ.get("TERM", "dumb") != "dumb":
        return _Edited(terminal, agents)
    return Plain(terminal)


class _Edited:
    """Reads a line from an editor that completes names of agents and commands."""

    def __init__(self, terminal: ChatTerminal, agents: tuple[str, ...]) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.output.defaults import create_output

        self._session: PromptSession[str] = PromptSession(
            completer=_completer(agents),
            complete_while_typing=False,
            output=create_output(stdout=terminal.editor_output()),
        )

    async def read(self, prompt: str) -> str:
        """Return the next line. Raises EOFError, Interrupted."""
        text = ""
        try:
            while True:
                text += await self._session.prompt_async(prompt, handle_sigint=False)
                if not goes_on(text):
                    return text
                text, prompt = f"{text}\n", "... "
        except KeyboardInterrupt:
            raise Interrupted(not (text + self._session.default_buffer.text).strip()) from None


def _completer(agents: tuple[str, ...]) -> "Completer":
    from prompt_toolkit.completion import WordCompleter

    commands = ("/help", "/agents", "/schema", "/status", "/quit")
    return WordCompleter([*(f"@{name}" for name in agents), *commands], sentence=False, WORD=True)
