"""What the two ends of a channel say to each other, as values.

A request has a ``call``, a number that its answer carries; what comes without one is news.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from pallas.config import Project
from pallas.executors import ExecutorInfo
from pallas.executors.fastagent.peers import PeerTool
from pallas.model import (
    NO_PARAMS,
    Exchange,
    Image,
    Message,
    Params,
    ToolAnswer,
    ToolCall,
    TraceContext,
    Usage,
)
from pallas.model.codec import Undecodable, decode, encode_fields
from pallas.model.packed import Packed, packed_of
from pallas.model.runs import Role

PROTOCOL: Final = 2


@dataclass(frozen=True, slots=True)
class Piece:
    """A message of a thread on its way; ``native`` is the JSON of the agent library's own form."""

    role: Role
    text: str = ""
    images: tuple[Image, ...] = ()
    native: str | None = None
    calls: tuple[ToolCall, ...] = ()
    answers: tuple[ToolAnswer, ...] = ()
    summary: bool = False

    @staticmethod
    def of(message: Message, *, whole: bool) -> "Piece":
        """``message`` as it travels; ``whole`` with all of it beside the native form."""
        native = packed_of(message.native)
        if native is not None and not whole:
            return Piece(message.role, native=native, summary=message.summary)
        return Piece(
            message.role,
            message.text,
            message.images,
            native,
            message.calls,
            message.answers,
            message.summary,
        )

    def message(self) -> Message:
        """The entry of a thread that it stands for; its native form stays packed."""
        return Message(
            self.role,
            self.text,
            self.images,
            Packed(self.native) if self.native is not None else None,
            self.calls,
            self.answers,
            self.summary,
        )


# What the fleet says.


@dataclass(frozen=True, slots=True)
class Begin:
    """The first word: who speaks, and for what agent it is. ``salt`` is that of fingerprints, in hex.

    ``sources`` are modules as they were when the agent was loaded before, as in ``Done``.
    """

    version: str
    protocol: int
    agent: str
    project: Project = field(repr=False)
    salt: str = field(repr=False)
    sources: dict[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Do:
    """``load``, ``start``, ``park`` or ``close``; ``seconds`` is the timeout of the last two."""

    call: int
    what: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Given:
    """Messages of the thread that a run is going to be about, in parts, before it."""

    call: int
    pieces: tuple[Piece, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Run:
    """A turn. ``keep`` messages are known from earlier runs of that lease; those that were given follow."""

    call: int
    run_id: str
    agent: str
    text: str = field(repr=False)
    images: tuple[Image, ...] = field(default=(), repr=False)
    lease: str | None = field(default=None, repr=False)
    keep: int = 0
    principal: str = ""
    stream_text: bool = False
    trace: TraceContext | None = None
    record: bool = False
    bearer: str | None = field(default=None, repr=False)
    durable: bool = False
    params: Params = field(default=NO_PARAMS, repr=False)
    provider: str = ""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop that run."""

    call: int


@dataclass(frozen=True, slots=True)
class Forget:
    """The thread of a conversation need not be known any more; ``over``: nor the conversation."""

    lease: str = field(repr=False)
    over: bool = False


@dataclass(frozen=True, slots=True)
class Peers:
    """The agents that it may ask from now on, as tools."""

    tools: tuple[PeerTool, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Doubt:
    """Downstreams that a health probe did not reach."""

    servers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Replied:
    """What a peer answered to ``ask``; ``fault`` is the body of its Fault where it did not."""

    ask: int
    text: str = field(default="", repr=False)
    fault: dict[str, Any] = field(default_factory=dict)


# What the process says.


@dataclass(frozen=True, slots=True)
class Hello:
    """The first word: who answers."""

    version: str
    protocol: int
    pid: int


@dataclass(frozen=True, slots=True)
class Done:
    """It was done; ``info`` is what is known of the agent now.

    ``sources`` are the project's modules that were imported, by path: their bytes, as Latin-1.
    """

    call: int
    info: ExecutorInfo | None = None
    sources: dict[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Failed:
    """It was not: ``fault`` is the body of the Fault, ``story`` the traceback. A run may be ``cancelled``."""

    call: int
    fault: dict[str, Any] = field(default_factory=dict)
    story: str = ""
    cancelled: bool = False
    info: ExecutorInfo | None = None


@dataclass(frozen=True, slots=True)
class Made:
    """Messages that a run adds to its thread, in parts, before its result."""

    call: int
    pieces: tuple[Piece, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Result:
    """A run was answered."""

    call: int
    texts: tuple[str, ...]
    usage: Usage
    stop_reason: str
    replaces: bool
    backend: str = ""
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Happened:
    """An event of a run, as the codec has it."""

    call: int
    event: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wired:
    """An exchange of a run as it is now, new or known by its number."""

    call: int
    number: int
    exchange: Exchange


@dataclass(frozen=True, slots=True)
class Logged:
    """A record of the log."""

    record: dict[str, Any]


@dataclass(frozen=True, slots=True)
class State:
    """How the executor is: runs that wait for an instance, downstreams that could not be reached."""

    waiting: int
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Broken:
    """It can answer no more, by itself."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ask:
    """The run ``call`` asks a peer; ``ask`` is the number of the question, ``span`` that of the tool call."""

    call: int
    ask: int
    peer: str
    text: str = field(repr=False)
    span: str = ""


@dataclass(frozen=True, slots=True)
class Leave:
    """Nobody waits for the answer to that question any more."""

    ask: int


From = Begin | Do | Given | Run | Cancel | Forget | Peers | Doubt | Replied
To = Hello | Done | Failed | Made | Result | Happened | Wired | Logged | State | Broken | Ask | Leave

_KINDS: Final[dict[str, type[Any]]] = {
    kind.__name__: kind
    for kind in (
        Begin, Do, Given, Run, Cancel, Forget, Peers, Doubt, Replied,
        Hello, Done, Failed, Made, Result, Happened, Wired, Logged, State, Broken, Ask, Leave,
    )
}  # fmt: skip
LOSABLE: Final = frozenset({"Logged", "Wired"})
"""Kinds that may be lost where nobody reads for long; so may an event of streamed text."""


def packed(message: From | To) -> dict[str, Any]:
    """A message as plain values for a frame."""
    return {"say": type(message).__name__, **encode_fields(message)}


def unpacked(document: Any) -> Any:
    """The message that a frame holds. Raises Undecodable."""
    kind = _KINDS.get(str(document.get("say", ""))) if isinstance(document, dict) else None
    if kind is None:
        raise Undecodable("a frame says nothing that is known")
    return decode(kind, document)


class Elsewhere(Exception):
    """Stands for an exception in the other process: its text is the traceback from there."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])
