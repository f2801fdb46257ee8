"""``Idempotency-Key``: a request that is sent twice runs once."""

import hashlib
from typing import Any, Final

from starlette.requests import Request

from pallas.model import Fault, FaultType
from pallas.runs.run_keys import MAX_KEY, is_key

from .request_body import canonical

HEADER: Final = "idempotency-key"


def key_in(request: Request) -> str:
    """Return the key of a request, empty without one. Raises Fault (PROTOCOL)."""
    given = request.headers.getlist(HEADER)
    if not given:
        return ""
    key = given[0].strip()
    if len(given) > 1 or not is_key(key):
        raise Fault(
            FaultType.PROTOCOL,
            f"Idempotency-Key: must be one of 1 to {MAX_KEY} printable ASCII characters, for example a UUID",
            data={"key": "Idempotency-Key"},
        )
    return key


def digest_of(agent: str, body: dict[str, Any]) -> str:
    """Return the digest of the request that a key belongs to, whether or not the answer is streamed."""
    asked = {name: value for name, value in body.items() if name != "stream"}
    return hashlib.sha256(canonical([agent, asked])).hexdigest()
