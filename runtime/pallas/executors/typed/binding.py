"""A message as the instance that its handler gets: of the receiver's own version of its class (HC-7)."""

from contextlib import suppress
from typing import Any, Final
from weakref import WeakValueDictionary

from pallas.contract import Document
from pallas.model import Fault, FaultType
from pallas.payloads import MAX_BYTES, NotTaken, Payload, PayloadFault, PayloadType

from .loading import Loaded, key_of

LARGEST: Final = 16 * MAX_BYTES
"""Bytes of a message that a project may allow at most; what it does allow is the pump's business."""
# Classes whose instances were sent in this process, as their senders have them: none is kept for that.
_sent: WeakValueDictionary[int, type] = WeakValueDictionary()


def packed(value: Any) -> Payload:
    """An instance of a dataclass as a message of its own class. Raises Fault."""
    kind = type(value)
    made = PayloadType.of(kind)
    payload = made.pack(value, limit=LARGEST)
    _sent[id(made)] = kind
    return payload


def bound(payload: Payload, loaded: Loaded) -> Any:
    """The instance that the handler gets: always a new one, never the sender's.

    A class that the handler's code can name comes as that class, which after a reload is another than the
    sender's; one that it cannot name as the sender's class, and where that is elsewhere as a ``Document``.
    An answer that its class refuses is a ``Document``. Raises Fault where the handler's own class refuses the
    message (NotTaken), or is another by now, and it does not fit (TRANSPORT).
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
                    FaultType.TRANSPORT, f"{payload.name} was changed meanwhile: {fault.message}"
                ) from None
    sender = _sent.get(id(payload.type))
    if sender is not None and key_of(sender) == payload.key:
        with suppress(PayloadFault):
            return payload.type.bind(payload, sender)
    return Document(payload.name, payload.xml.decode())


def _named(name: str, loaded: Loaded) -> type | None:
    """The one class of that name that a handler knows: of what came as bytes no more is known."""
    found = [kind for kind in loaded.known.values() if kind.__name__ == name]
    return loaded.kind if loaded.kind in found else found[0] if len(found) == 1 else None
