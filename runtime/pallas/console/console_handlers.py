"""The console's two handlers: one shows and asks, the other decides where a line goes.

All communication between them is messages. ``console`` receives a prompt, shows its output, reads a line and
sends it to ``router``. The router sends the line to its agent, and answers with the next prompt. At the end
of the input the handler returns None.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any, Final, Protocol

from pallas.contract import (
    ConsoleInput,
    ConsolePrompt,
    Document,
    HandlerMetadata,
    HandlerResponse,
    SystemError,
    Text,
)
from pallas.payloads import PayloadType
from pallas.safe_text import one_line, sanitize

CONSOLE: Final = "system.console"
ROUTER: Final = "system.console.router"
MAX_LINE: Final = 1_000_000
_HELP: Final = """\
@agent text     send a message: text, or JSON or XML for an agent that takes a typed one
text            the same, to the agent that you asked last
/agents         the agents and their state
/schema agent   what a typed agent takes
/status         the state of the fleet
/quit           leave, as ctrl-d does"""


class ConsoleDesk(Protocol):
    """The terminal or pane of a person."""

    async def show(self, output: str, source: str) -> None:
        """Show a sanitised message; ``source`` is its sender, ``system`` for the console itself."""
        ...

    async def read(self, to: str) -> str | None:
        """Return a line; None at the end of the input. ``to`` is the default addressee, or empty."""
        ...


@dataclass(frozen=True, slots=True)
class Seen:
    """An agent in the console's list; ``takes`` is None when it takes text."""

    name: str
    kind: str
    status: str
    description: str = ""
    takes: PayloadType | None = None


class Console:
    """Shows and asks. ``lines`` counts those sent on; ``left`` is set when the person has gone."""

    def __init__(self, desk: ConsoleDesk, last: Callable[[], str] = lambda: "", router: str = ROUTER) -> None:
        self._desk = desk
        self._last = last
        self._router = router
        self.lines = 0
        self.left = False

    async def handle(
        self, payload: ConsolePrompt | SystemError, metadata: HandlerMetadata
    ) -> HandlerResponse | None:
        """Show the prompt's output and send the next line. Exceptions of the desk end the conversation."""
        if isinstance(payload, SystemError):
            await self._desk.show(payload_text(payload), "system")
        elif payload.output:
            await self._desk.show(sanitize(payload.output), one_line(payload.source or "system", 100))
        line = await self._line()
        if line is None or line.strip().lower() in ("/quit", "/exit"):
            self.left = True
            return None
        self.lines += 1
        return HandlerResponse(ConsoleInput(sanitize(line)), to=self._router)

    async def _line(self) -> str | None:
        """Return the next line that is not empty; None at the end of the input."""
        while (line := await self._desk.read(self._last())) is not None:
            if len(line) > MAX_LINE:
                problem = f"it has {len(line):,} characters, and at most {MAX_LINE:,} are sent; shorten it"
                await self._desk.show(problem, "system")
            elif line.strip():
                return line
        return None


class LineRouter:
    """Sends lines to agents and turns their answers into prompts; ``last`` is the last addressee.

    ``reasons`` says where the person finds why an agent failed: handlers do not receive the reason.
    """

    def __init__(
        self,
        agents: Callable[[], Sequence[Seen]],
        status: Callable[[], str],
        first: Callable[[], str] = lambda: "",
        reasons: str = "",
    ) -> None:
        self._agents = agents
        self._status = status
        self._first = first
        self._reasons = reasons
        self.last = ""

    async def handle(self, payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        """Send a line to an agent, or run it as a command; anything else is an answer."""
        if not isinstance(payload, ConsoleInput):
            if not isinstance(payload, SystemError):
                return _prompt(payload_text(payload), metadata.from_id)
            hidden = self._reasons and payload.code not in ("routing", "validation")
            return _prompt(f"{payload_text(payload)} ({self._reasons})" if hidden else payload_text(payload))
        line = payload.text.strip()
        if line.startswith("/"):
            return _prompt(self._command(line))
        name, text = self.addressed(line)
        known = {each.name for each in self._agents()}
        if not name:
            return _prompt("name an agent: @agent text; /agents lists them")
        if name not in known:
            return _prompt(f"there is no agent {one_line(name, 80)}; /agents lists them")
        if not text:
            self.last = name
            return _prompt(f"text without a name goes to {name} now")
        self.last = name
        return HandlerResponse(Text(text), to=name)

    @property
    def addressee(self) -> str:
        """The agent that text without a name goes to; empty if there is none."""
        return self.last or self._first()

    def addressed(self, line: str) -> tuple[str, str]:
        """Return the line's addressee, empty if there is none, and its text."""
        if not line.startswith("@"):
            return self.addressee, line
        name = line[1:].split(maxsplit=1)[0] if line[1:2].strip() else ""
        return name.rstrip(":,"), line[1 + len(name) :].strip()

    def _command(self, line: str) -> str:
        name, _, rest = line.partition(" ")
        match name.lower():
            case "/help" | "/?":
                return _HELP
            case "/status":
                return self._status()
            case "/agents" | "/listeners":
                return self._listed()
            case "/schema":
                return self._schema(rest.strip().removeprefix("@"))
        return f"there is no command {one_line(name, 40)}; /help lists them"

    def _listed(self) -> str:
        agents = self._agents()
        width = max((len(each.name) for each in agents), default=0)
        lines = (
            f"{each.name:<{width}}  {each.kind:<8} {each.status:<12} {each.description}".rstrip()
            for each in agents
        )
        return "\n".join(lines) or "there is no agent"

    def _schema(self, name: str) -> str:
        if not name:
            return "name an agent: /schema agent; /agents lists them"
        found = next((each for each in self._agents() if each.name == name), None)
        if found is None:
            return f"there is no agent {one_line(name, 80)}; /agents lists them"
        if found.takes is None:
            return f"{name} takes text"
        return f"{name} takes {found.takes.name}, for example\n{found.takes.example}"


def payload_text(payload: Any) -> str:
    """Return a payload as text for a person."""
    if isinstance(payload, SystemError):
        again = "; you may try again" if payload.retry_allowed and "try again" not in payload.message else ""
        return f"{payload.code}: {payload.message}{again}"
    if isinstance(payload, Text):
        return payload.text
    if isinstance(payload, Document):
        return payload.xml
    if is_dataclass(payload) and not isinstance(payload, type):
        kind = PayloadType.of(type(payload))
        return kind.write(kind.pack(payload), "text")
    return str(payload)


def _prompt(output: str, source: str = "system") -> HandlerResponse:
    return HandlerResponse.respond(ConsolePrompt(sanitize(output), source))
