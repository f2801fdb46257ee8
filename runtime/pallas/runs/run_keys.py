"""Idempotency keys: a request that is sent twice with the same key runs once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from pallas.model import Fault
from pallas.model.ids import mint_run

if TYPE_CHECKING:  # the database is imported by a fleet that has one
    from pallas.ledger import Ledger


MAX_KEY: Final = 255
"""Characters of a key."""


def is_key(text: str) -> bool:
    """Whether a text may be a key."""
    return 1 <= len(text) <= MAX_KEY and text.isascii() and text.isprintable()


class RunKeys:
    """The run of each owner's key, stored in the ledger for a day."""

    def __init__(self, ledger: "Ledger") -> None:
        self._ledger = ledger
        self._held: dict[tuple[str, str], tuple[asyncio.Lock, int]] = {}

    @property
    def are_durable(self) -> bool:
        """Whether they outlive this fleet."""
        return not self._ledger.is_private

    async def run_to_cancel(self, owner: str, key: str) -> str:
        """The run of that key, empty if it has none; a request that comes later with that key is refused.

        A request with that key that is about to begin its run is waited for.
        """
        async with self._alone(owner, key):
            minted = mint_run()
            run_id = await self._ledger.runs.close_key(owner, key, minted)
            return run_id if run_id != minted else ""

    @asynccontextmanager
    async def asking(
        self, owner: str, key: str, digest: str, *, joins: bool = False
    ) -> AsyncIterator[tuple[str, bool]]:
        """Yield the run that belongs to the key from now on, and whether it is new.

        The key is stored before the run begins, so that a fleet that dies in between does not run it twice.
        Other requests with that key wait until the block ends. A Fault raised in the block releases a new
        key. Raises Fault (conflict) for the key of another request; ``joins`` as in ``claim_key``.
        """
        async with self._alone(owner, key):
            minted = mint_run()
            run_id = await self._ledger.runs.claim_key(owner, key, minted, digest, joins=joins)
            try:
                yield run_id, run_id == minted
            except Fault:
                if run_id == minted:  # it was refused and never ran
                    await self._ledger.runs.release_key(owner, key, run_id)
                raise

    @asynccontextmanager
    async def _alone(self, owner: str, key: str) -> AsyncIterator[None]:
        lock, waiting = self._held.get((owner, key), (asyncio.Lock(), 0))
        self._held[owner, key] = lock, waiting + 1
        try:
            async with lock:
                yield
        finally:
            lock, waiting = self._held.pop((owner, key))
            if waiting > 1:
                self._held[owner, key] = lock, waiting - 1
