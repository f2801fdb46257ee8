"""Finds sessions in memory and in the ledger, and hears what other fleets do with those here."""

import asyncio
import re
from typing import Final

from pallas.access.identity import may_continue
from pallas.model import Principal, StoredSession, refusals
from pallas.runs.kernel import Kernel

from . import session_hooks
from .lease import SessionLease, SessionPrompt
from .session_faults import not_theirs
from .session_opener import CLOSED, SessionOpener
from .session_prompt import stop
from .session_table import SessionTable

_ID: Final = re.compile("[0-9a-f]{32}")


class SessionLookup:
    """Finds the sessions of one fleet. One event loop only; ``is_closing`` once the fleet stops."""

    def __init__(self, kernel: Kernel, table: SessionTable, opener: SessionOpener) -> None:
        self._kernel = kernel
        self._table = table
        self._opener = opener
        self._stopping: set[asyncio.Task[None]] = set()
        self.is_closing = False

    async def find(self, session_id: str, principal: Principal) -> SessionLease:
        """The open session of that id, which another fleet may have opened.

        Raises Fault (UPSTREAM): there is none, it is another caller's, or its agent is gone.
        """
        lease = self._table.all.get(session_id)
        saves = lease.saves if lease is not None else 0
        found = await self.stored(session_id)
        lease = self._table.all.get(session_id)
        if found is not None and not may_continue(found.owner, principal, secret=True):
            raise not_theirs(session_id)
        if lease is not None and found is not None:
            lease.refresh(found, saves)
        elif found is not None:
            self._table.add(self._opener.of_stored(found))
        return self._table.find(session_id, principal)

    async def stored(self, session_id: str) -> StoredSession | None:
        """The session in the ledger, if it may differ from the one in memory.

        One that another fleet has ended ends here too. Raises Fault (TRANSPORT, TIMEOUT).
        """
        stored, lease = self._table.stored, self._table.all.get(session_id)
        if stored is None or not _ID.fullmatch(session_id):
            return None
        if lease is not None and not (lease.is_stored and (stored.is_shared or lease.elsewhere)):
            return None
        if self.is_closing:
            raise refusals.stopping()
        found = await stored.get(session_id)
        if found is None and lease is not None and lease.unclaimed is not None:
            found = await stored.claim_late(lease, lease.unclaimed)
        if found is None:
            self.end_here(session_id, CLOSED)
        return found

    def end_here(self, session_id: str, reason: str) -> asyncio.Task[None] | None:
        """End a session with its prompts that has ended for all other fleets; None if it is not here."""
        lease = self._table.all.get(session_id)
        if lease is None:
            return None
        for each in tuple(lease.prompts):
            stop(self._kernel, each)
        return self._table.end(lease, reason, everywhere=False)

    async def stop(self, lease: SessionLease, prompt: SessionPrompt) -> None:
        """Cancel a prompt of this fleet."""
        stop(self._kernel, prompt)
        await session_hooks.cancelled(lease.agent, lease.executor, lease.id)

    def hear_cancel(self, told: tuple[str, str]) -> None:
        """A client cancelled a prompt, perhaps of this fleet, at another one: its session and its run."""
        session_id, run_id = told
        if (lease := self._table.all.get(session_id)) is None:
            return
        for each in lease.prompts:
            if each.run_id == run_id:
                task = asyncio.create_task(self.stop(lease, each), name=f"cancel {run_id}")
                self._stopping.add(task)
                task.add_done_callback(self._stopping.discard)

    def hear_close(self, told: tuple[str, str]) -> None:
        """Another fleet has ended a session: its id and the reason."""
        self.end_here(*told)

    def close(self) -> None:
        """Cancel what is under way."""
        for task in self._stopping:
            task.cancel()
