"""``Idempotency-Key``: a request that is sent twice runs once."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request

from pallas.model import Fault, FaultType
from pallas.runs.kernel import mint_run

from .request_body import canonical

if TYPE_CHECKING:
    from pallas.ledger import Ledger

HEADER: Final = "idempotency-key"
MAX_KEY: Final = 255


def key_in(request: Request) -> str:
    """Return the key of a request, empty without one. Raises Fault (PROTOCOL)."""
    given = request.headers.getlist(HEADER)
    if not given:
        return ""
    key = given[0].strip()
    if len(given) > 1 or not 1 <= len(key) <= MAX_KEY or not (key.isascii() and key.isprintable()):
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


class Keys:
    """The run of each owner's key, stored in the ledger for a day."""

    def __init__(self, ledger: "Ledger") -> None:
        self._ledger = ledger
        self._held: dict[tuple[str, str], tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def asking(self, owner: str, key: str, digest: str) -> AsyncIterator[tuple[str, bool]]:
        """Yield the run that belongs to the key from now on, and whether it is new.

        The key is stored before the run begins, so that a fleet that dies in between does not run it twice.
        Other requests with that key wait until the block ends. A Fault raised in the block releases a new
        key. Raises Fault (conflict) for the key of another request.
        """
        lock, waiting = self._held.get((owner, key), (asyncio.Lock(), 0))
        self._held[owner, key] = lock, waiting + 1
        try:
            async with lock:
                minted = mint_run()
                run_id = await self._ledger.runs.claim_key(owner, key, minted, digest)
                try:
                    yield run_id, run_id == minted
                except Fault:
                    if run_id == minted:  # it was refused and never ran
                        await self._ledger.runs.release_key(owner, key, run_id)
                    raise
        finally:
            lock, waiting = self._held.pop((owner, key))
            if waiting > 1:
                self._held[owner, key] = lock, waiting - 1
