"""What a handler returned, as messages: each with whom it is for (HC-3 to HC-5, HC-22)."""

from dataclasses import fields, is_dataclass
from typing import Any, Final

from pallas.contract import HandlerResponse
from pallas.messaging.port import Reply
from pallas.model import Fault
from pallas.model.safe_text import one_line
from pallas.payloads import Payload, PayloadFault

from .binding import packed

_RETURN: Final = "return HandlerResponse(payload, to=...), HandlerResponse.respond(payload), or None"


class Unfit(TypeError):
    """What a handler returned is no answer; the text is for the log alone."""


def reply_of(returned: Any) -> Reply:
    """What a handler returned. Raises Unfit, and PayloadFault where a payload does not fit its own class.

    Bytes are deprecated, and left as they are: whom they are for is for the pump to say (HC-21).
    """
    if returned is None:
        return Reply()
    if isinstance(returned, HandlerResponse):
        return Reply((_one(returned.payload, returned.to),))
    if _is_foreign(returned):
        return Reply((_one(returned.payload, None if returned.is_response is True else returned.to),))
    if isinstance(returned, bytes | bytearray):
        return Reply(raw=b"".join((returned,)))
    raise Unfit(f"it returned {_a(returned)}; {_RETURN}")


def _is_foreign(returned: Any) -> bool:
    """Whether it is xml-pipeline's own HandlerResponse: a dataclass of that name with the same fields."""
    kind = type(returned)
    return (
        kind.__name__ == HandlerResponse.__name__
        and is_dataclass(returned)
        and {field.name for field in fields(returned)} == {"payload", "to"}
        and isinstance(getattr(returned, "is_response", None), bool)
    )


def _one(value: Any, to: Any) -> tuple[str | None, Payload]:
    if to is not None and not isinstance(to, str):
        raise Unfit(f"its HandlerResponse is to {_a(to)}; name an agent, or respond()")
    if not is_dataclass(value) or isinstance(value, type):
        raise Unfit(f"the payload of its HandlerResponse is {_a(value)}; give an instance of a dataclass")
    try:
        # As it is, whatever a class of its own says that it equals.
        return to if to is None else str.__str__(to), packed(value)
    except PayloadFault:
        raise
    except Fault as fault:  # of its class, not of its values
        raise Unfit(f"the payload of its HandlerResponse is {_a(value)}: {fault.message}") from None


def _a(value: Any) -> str:
    return f"a value of type {one_line(type(value).__name__, 60)}"
