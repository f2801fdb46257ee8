"""What the fleet and the process of an isolated handler say to each other, as values.

User code lives at one end: what comes from there has bounds, and means nothing beyond its own handler.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from pallas.contract import HandlerMetadata
from pallas.invocation import LLMResponse
from pallas.model.codec import Undecodable, decode, encode_fields

PROTOCOL: Final = 3
MAX_SOURCES: Final = 4 * 1024 * 1024
"""Bytes of the sources that a process tells of; as Latin-1 in JSON they are twice that at most."""
MAX_FILES: Final = 500
MAX_MESSAGES: Final = 1_000
"""Messages of one return; only what was written as bytes can be several."""
MAX_ASKS: Final = 16
"""Models that one message asks at a time."""
MAX_NAME: Final = 500
"""Characters of a name: those of agents have far less."""

Number = Annotated[int, Field(ge=0, lt=2**53)]
Name = Annotated[str, Field(max_length=MAX_NAME)]
Line = Annotated[str, Field(max_length=4_000)]
Story = Annotated[str, Field(max_length=65_536)]
Failure = Literal["raised", "no-answer", "unfit", "not-taken", "fault", "cancelled"]


# What the fleet says.


@dataclass(frozen=True, slots=True)
class Begin:
    """The first word. Of the project it says where that is and this one handler; nothing of all others.

    ``sources`` are modules as they were when the handler was loaded before; ``memory`` is in bytes;
    ``listener`` as ``TypedConfig`` has it. ``hidden`` are files beside the project's that it is kept
    from, ``own_files`` those that it may open and change: its scratch folder is the first.
    """

    version: str
    protocol: int
    agent: str
    root: str
    handler: str
    payload: str
    file: str = "agents.yaml"
    line: int = 0
    level: str | None = None
    lag: float = 1.0
    memory: int = 0
    bytes: int = 1_048_576
    sources: dict[str, str] = field(default_factory=dict, repr=False)
    listener: bool = False
    hidden: tuple[str, ...] = ()
    own_files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Load:
    """Import the handler's code and say what it is."""

    call: int


@dataclass(frozen=True, slots=True)
class Invoke:
    """A message. ``key`` is its class, ``tag`` the name of that, ``xml`` its element."""

    call: int
    key: str
    tag: str
    xml: str = field(repr=False)
    metadata: HandlerMetadata
    frame: str
    models: bool = False


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop handling that message, and say when that is done; without one it is done at once."""

    call: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A frame is over: what is kept for it goes."""

    frame: str


@dataclass(frozen=True, slots=True)
class Answered:
    """What a model answered, or ``fault``: the body of the Fault in its place."""

    call: int
    ask: int
    response: dict[str, Any] | None = field(default=None, repr=False)
    fault: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Close:
    """Cancel what still runs within ``seconds``, then end."""

    seconds: float


# What the process says.


@dataclass(frozen=True, slots=True)
class Hello:
    """The first word: who answers."""

    version: Name
    protocol: Number
    pid: Number


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the handler is. ``place`` is ``file:line``; ``files`` are those of the project it was made of."""

    call: Number
    payload: dict[str, Any]
    place: Name = ""
    files: Annotated[tuple[Name, ...], Field(max_length=MAX_FILES)] = ()
    sources: dict[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class NotLoaded:
    """Why it cannot be used: the words of a Fault (CONFIG), and the traceback behind them."""

    call: Number
    message: Line
    place: Name = ""
    files: Annotated[tuple[Name, ...], Field(max_length=MAX_FILES)] = ()
    story: Story = ""


@dataclass(frozen=True, slots=True)
class Begun:
    """The handler was called: from here on nobody can tell what it did."""

    call: Number


@dataclass(frozen=True, slots=True)
class Kind:
    """A class of payloads by its key, before the first message of it."""

    key: Name
    described: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """One message that a handler returned: for whom (None: its caller), of which class, the element."""

    to: Name | None
    key: Name
    xml: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Returned:
    """What a handler returned: a message, nothing, or ``data``: bytes, as Latin-1."""

    call: Number
    said: Said | None = None
    data: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Failed:
    """What a handler did instead: it raised, returned what is no answer, or what does not fit its own class
    (``field`` names what), let a ``fault`` of a model pass, or was cancelled; its class did not take the
    message."""

    call: Number
    how: Failure
    message: Line = ""
    field: Name = ""
    fault: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """``complete`` was called while that message is handled."""

    call: Number
    ask: Number
    model: Name
    messages: tuple[dict[str, Any], ...] = field(repr=False)
    params: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Drop:
    """Nobody waits for that model any more."""

    call: Number
    ask: Number


@dataclass(frozen=True, slots=True)
class Logged:
    """A record of the log."""

    record: dict[str, Any]


From = Begin | Load | Invoke | Cancel | Ended | Answered | Close
To = Hello | Loaded | NotLoaded | Begun | Kind | Returned | Failed | Ask | Drop | Logged

_FROM: Final[dict[str, type[Any]]] = {
    kind.__name__: kind for kind in (Begin, Load, Invoke, Cancel, Ended, Answered, Close)
}
_TO: Final[dict[str, type[Any]]] = {
    kind.__name__: kind
    for kind in (Hello, Loaded, NotLoaded, Begun, Kind, Returned, Failed, Ask, Drop, Logged)
}


def frame_of(most: int) -> int:
    """Bytes of a frame with a message of ``most`` bytes in it, which JSON makes twice as long at worst."""
    return 2 * most + 1024 * 1024


def packed(message: From | To) -> dict[str, Any]:
    """A message as plain values for a frame."""
    return {"say": type(message).__name__, **encode_fields(message)}


def from_fleet(document: Any) -> Any:
    """What the fleet says. Raises Undecodable."""
    return _unpacked(_FROM, document)


def from_process(document: Any) -> Any:
    """What the process says, within its bounds. Raises Undecodable."""
    return _unpacked(_TO, document)


def response_fields(response: LLMResponse) -> dict[str, Any]:
    """What a model answered, as plain values."""
    return {**encode_fields(response), "raw": dict(response.raw)}


def response_of(fields: dict[str, Any]) -> LLMResponse:
    """What ``response_fields`` made. Raises Undecodable."""
    return decode(LLMResponse, fields)


def _unpacked(kinds: dict[str, type[Any]], document: Any) -> Any:
    kind = kinds.get(str(document.get("say", ""))) if isinstance(document, dict) else None
    if kind is None:
        raise Undecodable("a frame says nothing that is known")
    return decode(kind, document)
