"""Reads the answer of a fleet to one of its clients, of the REST API or of the control API."""

from typing import TYPE_CHECKING, Final

from pallas.model import Fault, FaultType

from . import in_mib

if TYPE_CHECKING:
    import httpx2

MAX_ANSWER: Final = 32 * 1024 * 1024
"""Bytes of one answer."""


async def read_answer(answer: "httpx2.Response", most: int = MAX_ANSWER) -> bytes:
    """Return the body of a response. Raises Fault (PROTOCOL) above ``most`` bytes."""
    body = bytearray()
    async for chunk in answer.aiter_bytes():
        body += chunk
        if len(body) > most:
            raise Fault(FaultType.PROTOCOL, f"the fleet's answer is larger than {in_mib(most)}")
    return bytes(body)
