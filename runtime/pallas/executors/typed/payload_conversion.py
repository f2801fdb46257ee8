"""Messages as the instances that a handler gets, and what it returns as messages.

A handler gets an instance of its own version of a class (HC-7); what it returns says who gets it
(HC-3, HC-4, HC-5, HC-22).
"""

from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any, Final
from weakref import WeakValueDictionary

from pallas.contract import Document, HandlerResponse
from pallas.messaging.messaging_port import HandlerReply
from pallas.model import Fault, FaultType
from pallas.payloads import MAX_BYTES, NotTaken, Payload, PayloadFault, PayloadType
from pallas.safe_text import one_line

from .typed_handler_loader import LoadedHandler, key_of

LARGEST: Final = 16 * MAX_BYTES
"""Bytes of a message that a project may allow at most; a project's own limit is checked on delivery."""
# Classes whose instances were sent in this process, by the id of their type.
_sent: WeakValueDictionary[int, type] = WeakValueDictionary()


def pack_payload(value: Any) -> Payload:
    """Return an instance of a dataclass as a message of its own class. Raises Fault."""
    kind = type(value)
    payload_type = PayloadType.of(kind)
    payload = payload_type.pack(value, limit=LARGEST)
    _sent[id(payload_type)] = kind
    return payload


def bind_payload(payload: Payload, loaded: LoadedHandler) -> Any:
    """Return the instance that the handler gets: always a new one, never the sender's.

    It is of the class that the handler's code can name, which after a reload differs from the sender's; else
    of the sender's class; else, if that is in another process or refuses the message, a ``Document``. Raises
    Fault: NotTaken if the handler's own class refuses the message, TRANSPORT if the class was changed since.
    """
    known = loaded.known.get(payload.key) if payload.key else _named(payload.name, loaded)
    if known is not None:
        try:
            return payload.type.bind(payload, known)
        except NotTaken:
            if known is loaded.kind:
                raise
        except PayloadFault as fault:  # another version of the class
            if known is loaded.kind:
                raise Fault(
                    FaultType.TRANSPORT, f"{payload.name} was changed in the meantime: {fault.message}"
                ) from None
    sender = _sent.get(id(payload.type))
    if sender is not None and key_of(sender) == payload.key:
        with suppress(PayloadFault):
            return payload.type.bind(payload, sender)
    return Document(payload.name, payload.xml.decode())


def _named(name: str, loaded: LoadedHandler) -> type | None:
    """Return the one class of that name that a handler knows: a message in bytes has no other key."""
    found = [kind for kind in loaded.known.values() if kind.__name__ == name]
    return loaded.kind if loaded.kind in found else found[0] if len(found) == 1 else None


_RETURN: Final = "return HandlerResponse(payload, to=...), HandlerResponse.respond(payload), or None"


class InvalidReply(TypeError):
    """A handler returned something that is no reply; the text is for the log alone."""


def reply_of(returned: Any) -> HandlerReply:
    """Return the reply. Raises InvalidReply, and PayloadFault for a payload that does not fit its own class.

    Bytes are deprecated, and kept as they are: who gets them is decided where they are delivered (HC-21).
    """
    if returned is None:
        return HandlerReply()
    if isinstance(returned, HandlerResponse):
        return HandlerReply((_one(returned.payload, returned.to),))
    if _is_foreign(returned):
        return HandlerReply((_one(returned.payload, None if returned.is_response is True else returned.to),))
    if isinstance(returned, bytes | bytearray):
        return HandlerReply(raw=b"".join((returned,)))
    raise InvalidReply(f"it returned {_a(returned)}; {_RETURN}")


def _is_foreign(returned: Any) -> bool:
    """Return whether it is xml-pipeline's own HandlerResponse: a dataclass of that name and those fields."""
    kind = type(returned)
    return (
        kind.__name__ == HandlerResponse.__name__
        and is_dataclass(returned)
        and {field.name for field in fields(returned)} == {"payload", "to"}
        and isinstance(getattr(returned, "is_response", None), bool)
    )


def _one(value: Any, to: Any) -> tuple[str | None, Payload]:
    if to is not None and not isinstance(to, str):
        raise InvalidReply(f"its HandlerResponse is to {_a(to)}; name an agent, or respond()")
    if not is_dataclass(value) or isinstance(value, type):
        raise InvalidReply(
            f"the payload of its HandlerResponse is {_a(value)}; give an instance of a dataclass"
        )
    try:
        # A plain string: a subclass could claim to equal any name.
        return to if to is None else str.__str__(to), pack_payload(value)
    except PayloadFault:
        raise
    except Fault as fault:  # about its class, not its values
        raise InvalidReply(f"the payload of its HandlerResponse is {_a(value)}: {fault.message}") from None


def _a(value: Any) -> str:
    return f"a value of type {one_line(type(value).__name__, 60)}"
