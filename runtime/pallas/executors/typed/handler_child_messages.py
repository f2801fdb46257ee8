"""The messages between the fleet and the process of an isolated handler.

The process runs user code, so its messages have bounds and concern its own handler alone.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from pallas.contract import HandlerMetadata
from pallas.executors.ipc.child_messages import FormQuestion, Name, Number
from pallas.invocation import LLMResponse
from pallas.model.codec import decode, encode_fields

MAX_SOURCES: Final = 4 * 1024 * 1024
"""Bytes of the sources that a process sends; as Latin-1 in JSON they are twice that at most."""
MAX_FILES: Final = 500
MAX_MODEL_QUESTIONS: Final = 16
"""Models that one message asks at a time."""
MAX_NAME: Final = 500
"""Characters of a name; names of agents have far fewer."""

Line = Annotated[str, Field(max_length=4_000)]
Files = Annotated[tuple[Name, ...], Field(max_length=MAX_FILES)]
FailureKind = Literal["raised", "no-answer", "unfit", "not-taken", "fault"]


# From the fleet.


@dataclass(frozen=True, slots=True)
class HandlerSetup:
    """Which handler this process is for; follows the hello. It says nothing of the rest of the project."""

    agent: str
    root: str
    handler: str
    payload: str
    file: str = "agents.yaml"
    line: int = 0
    level: str | None = None
    lag: float = 1.0
    memory: int = 0
    """Bytes, 0 for any."""
    bytes: int = 1_048_576
    """Bytes of a message."""
    sources: dict[str, str] = field(default_factory=dict, repr=False)
    """Modules as they were when the handler was loaded before."""
    listener: bool = False
    """As in ``TypedConfig``."""
    hidden: tuple[str, ...] = ()
    """Files outside the project that it must not open."""
    own_files: tuple[str, ...] = ()
    """Files that it may open and change; the first is its scratch folder."""


@dataclass(frozen=True, slots=True)
class LoadHandler:
    """Import the handler's code and describe the handler."""

    call: int


@dataclass(frozen=True, slots=True)
class HandleMessage:
    """A message for the handler: the key and the tag of its class, and its element."""

    call: int
    key: str
    tag: str
    xml: str = field(repr=False)
    metadata: HandlerMetadata
    frame: str
    models: bool = False


@dataclass(frozen=True, slots=True)
class FrameEnded:
    """A frame is over: its scratch storage can go."""

    frame: str


# From the child.


@dataclass(frozen=True, slots=True)
class HandlerLoaded:
    """The handler's payload, ``file:line``, and the files of the project that it was made of."""

    call: Number
    payload: dict[str, Any]
    place: Name = ""
    files: Files = ()
    sources: dict[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class HandlerNotLoaded:
    """Why it cannot be used: the message and the place of a Fault (CONFIG)."""

    call: Number
    message: Line
    place: Name = ""
    files: Files = ()


@dataclass(frozen=True, slots=True)
class HandlingBegun:
    """The handler was called; from here on the fleet cannot know what it did."""

    call: Number


@dataclass(frozen=True, slots=True)
class PayloadClass:
    """A class of payloads by its key, before the first message of it."""

    key: Name
    described: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReturnedMessage:
    """A message that the handler returned: the receiver (None: its caller), the class and the element."""

    to: Name | None
    key: Name
    xml: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class HandlerReturned:
    """What the handler returned: a message, nothing, or ``data``, bytes as Latin-1."""

    call: Number
    message: ReturnedMessage | None = None
    data: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class HandlerFailed:
    """Why there is no reply.

    ``raised``: the handler raised. ``no-answer``: it returned something that is no reply. ``unfit``: its
    payload does not fit its own class; ``field`` names what. ``not-taken``: its class refused the message.
    ``fault``: it let the Fault of a model pass.
    """

    call: Number
    kind: FailureKind
    message: Line = ""
    field: Name = ""
    fault: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ModelQuestion:
    """The handler of the message ``call`` called ``complete``."""

    call: Number
    question: Number
    model: Name
    messages: tuple[dict[str, Any], ...] = field(repr=False)
    params: dict[str, Any] = field(default_factory=dict, repr=False)


TO_HANDLER: Final = (HandlerSetup, LoadHandler, HandleMessage, FrameEnded)
FROM_HANDLER: Final = (
    HandlerLoaded,
    HandlerNotLoaded,
    HandlingBegun,
    PayloadClass,
    HandlerReturned,
    HandlerFailed,
    ModelQuestion,
    FormQuestion,
)


def max_frame_of(message_bytes: int) -> int:
    """Bytes of a frame with a message of ``message_bytes``, which JSON doubles at worst."""
    return 2 * message_bytes + 1024 * 1024


def encode_response(response: LLMResponse) -> dict[str, Any]:
    """Return a model's response as plain values."""
    return {**encode_fields(response), "raw": dict(response.raw)}


def decode_response(fields: Any) -> LLMResponse:
    """Return the response that ``encode_response`` encoded. Raises Undecodable."""
    return decode(LLMResponse, fields)
