"""Convert a payload to the class that its receiver takes."""

from functools import lru_cache
from typing import Final

from pallas.contract import SystemError, Text
from pallas.model import Fault
from pallas.payloads import Payload, PayloadFault, PayloadType, read_text
from pallas.safe_text import sanitize

from .messaging_port import HandlerEndpoint

_TEXT: Final = "pallas.contract:Text"


def fit(endpoint: HandlerEndpoint, payload: Payload, limit: int) -> Payload:
    """Return a payload for a typed handler: of its class, checked by its schema. Raises PayloadFault.

    Text is read as in ``send_message``, unless the handler's own class has that name.
    """
    request = endpoint.payload
    if payload.type is request:
        return payload
    if payload.type.same(request):
        return Payload(request, payload.element)
    if payload.name == request.name or not payload.key:  # Untyped: only the schema decides.
        return request.adopt(payload.element)
    if payload.key == _TEXT:
        return read_text(request, text_of(payload), limit=limit)[0]
    raise PayloadFault(f"{payload.name} is not accepted here; it takes {request.name}")


def text_of(payload: Payload) -> str:
    """Return a payload as text: a Text's, the only text field of another class, else its JSON."""
    return payload.type.write(payload, "text")


def answer_of(text: str, limit: int) -> Payload:
    """Return an agent's answer as a payload. Raises PayloadFault above ``limit`` bytes."""
    kind = PayloadType.of(Text)
    return kind.pack(Text(sanitize(text)), limit=limit)


def system_error(fault: Fault) -> Payload:
    """Return the payload that reports a fault to a handler (UN-4): its code, and why its message failed."""
    return _system_error(fault.system_code, fault.system_message, fault.system_retryable)


@lru_cache(maxsize=64)
def _system_error(code: str, message: str, retry: bool) -> Payload:
    return PayloadType.of(SystemError).pack(SystemError(code, message, retry))
