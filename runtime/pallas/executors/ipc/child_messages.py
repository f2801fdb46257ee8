"""The messages that every child process and its fleet exchange, and how a message becomes a frame.

A request has the number of its call, which the answer repeats. A message travels as the fields of its
dataclass, with the name of the class under ``say``; each stack adds messages of its own.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from pydantic import Field

from pallas.model.codec import Undecodable, decode, encode_fields

PROTOCOL: Final = 6
"""Raised with each change of a message within one version of Pallas."""
OUT_OF_MEMORY: Final = 97
"""The exit status of a child that has no memory to go on with."""

# The child runs user code, so the fields of its messages have bounds.
Number = Annotated[int, Field(ge=0, lt=2**53)]
Name = Annotated[str, Field(max_length=500)]


# From the fleet.


@dataclass(frozen=True, slots=True)
class FleetHello:
    """The fleet's first message."""

    version: str
    protocol: int


@dataclass(frozen=True, slots=True)
class CancelCall:
    """Cancel that call, and say when it is over."""

    call: int


@dataclass(frozen=True, slots=True)
class FormAnswer:
    """The answer to a question of the child, or the body of a Fault."""

    question: int
    result: Any = field(default=None, repr=False)
    fault: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class CloseChild:
    """Cancel all calls and close within ``seconds``, then end."""

    seconds: float


# From the child.


@dataclass(frozen=True, slots=True)
class ChildHello:
    """The child's first message."""

    version: Name
    protocol: Number
    pid: Number


@dataclass(frozen=True, slots=True)
class CallCancelled:
    """The answer to a call that was cancelled."""

    call: Number


@dataclass(frozen=True, slots=True)
class DropQuestion:
    """No code waits for the answer to that question any more."""

    question: Number


@dataclass(frozen=True, slots=True)
class FormQuestion:
    """The work of the call has a person fill a form, as ``pallas.asking.Asker.form``."""

    call: Number
    question: Number
    message: Annotated[str, Field(max_length=100_000)] = field(repr=False)
    schema: dict[str, Any] = field(repr=False)
    seconds: Annotated[float, Field(ge=0)] | None = None
    server: Name = ""
    call_id: Name = ""


@dataclass(frozen=True, slots=True)
class ForwardedRecord:
    """A log record, as ``pallas.telemetry.log.Forwarder`` makes it."""

    record: dict[str, Any]


FROM_FLEET: Final = (FleetHello, CancelCall, FormAnswer, CloseChild)
FROM_CHILD: Final = (ChildHello, CallCancelled, DropQuestion, ForwardedRecord)


class MessageDecoder:
    """Decodes the messages of the given ``kinds``, dataclasses that are found by their names."""

    def __init__(self, *kinds: type[Any]) -> None:
        self.kinds: Final = {kind.__name__: kind for kind in kinds}

    def __call__(self, document: Any) -> Any:
        """Return the message that a frame holds. Raises Undecodable."""
        kind = self.kinds.get(str(document.get("say", ""))) if isinstance(document, dict) else None
        if kind is None:
            raise Undecodable("a frame holds no known message")
        return decode(kind, document)


def encode_message(message: Any) -> dict[str, Any]:
    """Return a message as plain values for a frame."""
    return {"say": type(message).__name__, **encode_fields(message)}
