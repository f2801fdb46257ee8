"""Sessions in the ledger, where the other fleets on it find them, and the next life of this one."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable
from contextlib import ExitStack, asynccontextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from pallas.config.kinds import SessionLimits
from pallas.model import Fault, StoredSession
from pallas.model.discovery import IN_PROCESS
from pallas.model.other_workers import CANCEL_PROMPT, CLOSE_SESSION, OtherWorkers
from pallas.model.refusals import OTHERS, REASON
from pallas.runs.conversations import QUEUE_TIMEOUT

from .lease import SessionLease, SessionPrompt
from .session_faults import has_failed, is_busy, is_late, no_session

if TYPE_CHECKING:  # the database is imported by a fleet that has one
    from pallas.ledger import Ledger

log = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.5
"""Seconds between two looks whether the prompt of another fleet is over."""
_SAVE_SECONDS: Final = 2.0
"""Seconds that the caller of a prompt waits at most until the session is stored."""
_TRIES: Final = (1.0, 5.0, 20.0)
"""Seconds after which a write is tried again that was not done."""


class StoredSessions:
    """The sessions of one fleet in its ledger. One event loop only; ``others`` are its other fleets, if they
    can be told something. ``limits`` and ``clock`` are as in ``Sessions``.

    While no other fleet uses the ledger, those in memory are up to date and are stored now and again.
    """

    def __init__(
        self,
        ledger: "Ledger",
        others: OtherWorkers | None,
        limits: Callable[[], SessionLimits],
        clock: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._others = others
        self._limits = limits
        self._clock = clock
        self._saving: set[asyncio.Task[None]] = set()

    @property
    def is_shared(self) -> bool:
        """Whether other fleets may use the same sessions."""
        return self._others is not None or self._ledger.has_others

    async def get(self, session: str) -> StoredSession | None:
        """The session of that id. Raises Fault (TRANSPORT, TIMEOUT), as all methods here."""
        return await self._ledger.sessions.get(session)

    async def put(self, lease: SessionLease) -> None:
        """Store a session that was opened, or opened again."""
        lease.is_stored = True  # it may be so though this fails
        was_changed, lease.is_changed = lease.is_changed, False
        try:
            with lease.being_saved():
                await self._ledger.sessions.put(lease.stored)
        except BaseException:
            lease.is_changed = lease.is_changed or was_changed
            raise

    @asynccontextmanager
    async def prompt(
        self, lease: SessionLease, prompt: SessionPrompt, seconds: float | None, *, queue: bool
    ) -> AsyncIterator[None]:
        """Have no other fleet prompt the session meanwhile, and store what became of it.

        With ``queue`` wait for prompts of other fleets, ``seconds`` at most. Raises Fault: busy, failed,
        over, late.
        """
        if self.is_shared:
            await self._claim(lease, prompt, seconds, queue=queue)
            prompt.is_claimed = True
        lease.current = prompt
        lease.is_changed = not prompt.is_claimed
        goes_on = False
        try:
            yield
        except Fault as fault:
            goes_on = fault.data.get(REASON) in OTHERS
            raise
        finally:
            lease.current = None
            lease.is_changed = not (prompt.is_claimed and goes_on)
            if prompt.is_claimed and not goes_on:
                lease.over = prompt.run_id
                task = self._own(self._save_quietly(lease))
                await asyncio.wait({task}, timeout=_SAVE_SECONDS)

    async def _claim(
        self, lease: SessionLease, prompt: SessionPrompt, seconds: float | None, *, queue: bool
    ) -> None:
        until = monotonic() + (QUEUE_TIMEOUT if seconds is None else min(QUEUE_TIMEOUT, seconds))
        pause = _FIRST_PAUSE
        while not prompt.stopped:
            saves = lease.saves
            try:
                found = await self._ledger.sessions.claim(lease.id, prompt.run_id)
            except BaseException:  # it may be done all the same
                self._own(self._free(lease.id, prompt.run_id))
                raise
            if found is None:
                raise no_session(lease.id)
            lease.refresh(found, saves)
            if found.run == prompt.run_id:
                return
            if found.failed:
                raise has_failed(lease.id, found.failed)
            if not queue:
                raise is_busy(lease.id)
            if monotonic() + pause > until:
                raise is_late()
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def claim_late(self, lease: SessionLease, prompt: SessionPrompt) -> StoredSession | None:
        """Claim a session for its ``unclaimed`` prompt.

        Another fleet may have let it expire since: then it is stored again. Returns None if it was closed.
        """
        found = await self._ledger.sessions.claim(lease.id, prompt.run_id)
        if found is None and lease.current is prompt and self._may_have_expired(lease):
            await self.put(lease)
            found = await self._ledger.sessions.claim(lease.id, prompt.run_id)
        if found is not None and found.run == prompt.run_id:
            if lease.current is prompt:
                prompt.is_claimed = True
            elif not prompt.is_claimed:  # it ended meanwhile
                self._own(self._free(lease.id, prompt.run_id))
        return found

    def _may_have_expired(self, lease: SessionLease) -> bool:
        """Whether a session that is busy here is due where its prompt is not known.

        What is stored is at most one reaping older than the lease.
        """
        limits = self._limits()
        return lease.reaped and self._clock() >= lease.expires_at(limits) - limits.reap_every

    async def cancel(self, session: str, run_id: str) -> None:
        """Have the fleet that has this prompt cancel it."""
        await self._ledger.sessions.ask_cancel(session, run_id)
        if self._others is not None:
            self._others.tell(CANCEL_PROMPT, [session, run_id])

    async def is_cancelled(self, lease: SessionLease, prompt: SessionPrompt) -> bool:
        """Whether the session's client cancelled a prompt at another fleet."""
        try:
            return self.is_shared and await self._ledger.sessions.is_cancelled(lease.id, prompt.run_id)
        except Fault as fault:
            log.warning("it is unknown who cancelled run %s: %s", prompt.run_id, fault.message)
            return False

    async def close(self, session: str, reason: str) -> None:
        """End a session in all fleets but this one."""
        await self._ledger.sessions.delete(session)
        if self._others is not None:
            self._others.tell(CLOSE_SESSION, [session, reason])

    async def close_quietly(self, session: str, reason: str) -> None:
        """As ``close``. If that fails, the session expires in the ledger."""
        try:
            await self.close(session, reason)
        except Fault as fault:
            log.warning("session %s is still stored: %s", session[:8], fault.message)

    async def expire(self, leases: Collection[SessionLease]) -> list[SessionLease]:
        """Delete sessions that expired; returns those of ``leases`` that are no longer stored.

        What changed of others is stored before.
        """
        limits = self._limits()
        stored = [lease for lease in leases if lease.is_stored and not lease.opening]
        await self.save(stored)
        for lease in stored:
            if lease.unclaimed is not None and self.is_shared:
                await self.claim_late(lease, lease.unclaimed)
        busy = [lease.id for lease in stored if lease.busy]
        await self._ledger.sessions.expire(limits.idle, limits.ttl, IN_PROCESS, but=busy)
        known = await self._ledger.sessions.known([lease.id for lease in stored])
        for lease in stored:
            lease.used_at = max(lease.used_at, known.get(lease.id, 0.0))
        return [lease for lease in stored if lease.id not in known]

    async def save(self, leases: Iterable[SessionLease]) -> None:
        """Store what changed of these sessions."""
        changed = [(lease, lease.over) for lease in leases if lease.is_stored and lease.is_changed]
        for lease, _ in changed:
            lease.is_changed = False
        try:
            with ExitStack() as stack:
                for lease, _ in changed:
                    stack.enter_context(lease.being_saved())
                await self._ledger.sessions.save([(lease.stored, over) for lease, over in changed])
        except BaseException:
            for lease, _ in changed:
                lease.is_changed = True
            raise
        for lease, over in changed:
            lease.over = "" if lease.over == over else lease.over

    async def close_all(self, seconds: float) -> None:
        """Wait for what is being stored, at most so many seconds."""
        if self._saving:
            await asyncio.wait(self._saving, timeout=seconds)
        for task in self._saving:
            task.cancel()

    def _own(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` in a task that a cancelled caller does not cancel."""
        task = asyncio.create_task(work, name="store a session")
        self._saving.add(task)
        task.add_done_callback(self._saving.discard)
        return task

    async def _save_quietly(self, lease: SessionLease) -> None:
        try:
            await self.save([lease])
        except Fault as fault:
            log.warning("session %s is stored later: %s", lease.id[:8], fault.message)

    async def _free(self, session: str, run_id: str) -> None:
        for pause in (*_TRIES, None):
            try:
                await self._ledger.sessions.free(session, run_id)
            except Fault as fault:
                if pause is None:
                    log.warning("session %s stays busy until this fleet ends: %s", session[:8], fault.message)
                    return
                await asyncio.sleep(pause)
            else:
                return
