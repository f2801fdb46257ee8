"""The open sessions. Ends each session once and publishes that."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from pallas.access.identity import may_continue
from pallas.config.kinds import SessionLimits
from pallas.model import Principal, SessionChanged
from pallas.runs.kernel import Kernel
from pallas.telemetry.event_hub import EventHub

from . import session_hooks
from .lease import SessionLease
from .session_faults import SHUTDOWN, is_replaced, no_session, not_theirs
from .stored_sessions import StoredSessions

EXPIRED: Final = "expired"
GONE: Final = "agent-gone"
"""Reasons why a session ends without a request of its client, as is ``SHUTDOWN``."""
KEPT: Final = 1_000
"""How many of the last ended sessions are remembered, with the reason."""
END_SECONDS: Final = 1.5
STOP_SECONDS: Final = 2.0
"""Seconds for all sessions to end when the fleet stops, and for the prompts of a session that ends."""


class SessionTable:
    """The open sessions by id. Belongs to the fleet's event loop; any thread may copy ``all``.

    ``gone`` says whether the agent that a session was opened with has left the fleet or lost its name.
    """

    def __init__(
        self,
        kernel: Kernel,
        hub: EventHub,
        limits: Callable[[], SessionLimits],
        clock: Callable[[], float],
        gone: Callable[[SessionLease], bool],
    ) -> None:
        self._kernel = kernel
        self._hub = hub
        self._limits = limits
        self._clock = clock
        self._gone = gone
        self._ended: OrderedDict[str, tuple[Principal, str]] = OrderedDict()
        self._endings: set[asyncio.Task[None]] = set()
        self.all: dict[str, SessionLease] = {}
        self.stored: StoredSessions | None = None

    def add(self, lease: SessionLease) -> None:
        """Add a session. It is not published yet. One that another fleet opened does not count here."""
        self.all[lease.id] = lease
        if lease.is_own:
            self._kernel.session_counts.taken(lease.agent, lease.kind)

    def find(self, session: str, principal: Principal) -> SessionLease:
        """The open session of that id.

        Raises Fault (UPSTREAM): there is none, it is another caller's, or its agent is gone.
        """
        lease = self.all.get(session)
        if lease is None:
            owner, why = self._ended.get(session, (None, ""))
            known = owner is not None and may_continue(owner.id, principal, secret=True)
            raise no_session(session, why if known else "")
        if not may_continue(lease.owner.id, principal, secret=True):
            raise not_theirs(session)
        if lease.expired(self._limits(), self._clock()):
            self.end(lease, EXPIRED, everywhere=False)  # where it is stored, it expires as well
            raise no_session(session, EXPIRED)
        if not lease.opening and not lease.busy and self._gone(lease):
            self.end(lease, GONE)
            raise is_replaced(lease.id, lease.agent)
        return lease

    def look(self) -> None:
        """End the sessions whose agent is gone; busy ones end when they are no longer busy."""
        for lease in tuple(self.all.values()):
            if not lease.opening and self._gone(lease):
                lease.left = lease.executor  # the agent is about to lose it
                if not lease.busy:
                    self.end(lease, GONE)

    def expire(self) -> set[asyncio.Task[None]]:
        """End the sessions that are too old or idle for too long, except those that other fleets may use."""
        limits, now = self._limits(), self._clock()
        late = [lease for lease in self.all.values() if not lease.is_stored and lease.expired(limits, now)]
        return {self.end(lease, EXPIRED) for lease in late}

    def end(self, lease: SessionLease, reason: str, *, everywhere: bool = True) -> asyncio.Task[None]:
        """End a session at once, if it is open; the returned task does the clean-up.

        Other fleets end it too, unless they have: then it shall not be ``everywhere``.
        """
        self.take_out(lease, reason)
        lease.left = lease.executor
        # A session that is being opened is closed by the task that opens it, when it finds that it is over.
        settles = not (lease.opening or lease.is_settled)
        lease.is_settled = lease.is_settled or settles
        everywhere = everywhere and lease.is_stored and lease.end_reason != SHUTDOWN
        work = self._settle(lease, settles=settles, everywhere=everywhere)
        task = asyncio.create_task(work, name=f"session {lease.id[:8]} ends")
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)
        return task

    def take_out(self, lease: SessionLease, reason: str) -> bool:
        """Remove a session; False if it is over already.

        Only a session that was opened is published as closed.
        """
        if lease.end_reason:
            return False
        lease.end_reason = reason
        del self.all[lease.id]
        if lease.is_own:
            self._kernel.session_counts.given_back(lease.agent, lease.kind)
        self._ended[lease.id] = lease.owner, reason
        if len(self._ended) > KEPT:
            self._ended.popitem(last=False)
        if lease.is_published:
            self.publish(lease, "closed", reason)
        return True

    def tell(self, lease: SessionLease) -> None:
        """Publish its status."""
        lease.is_published = True
        self.publish(lease, lease.status, lease.failed)

    def publish(self, lease: SessionLease, status: str, reason: str) -> None:
        """Publish an event with the beginning of its id: the whole id would open the session."""
        self._hub.publish(
            SessionChanged(agent=lease.agent, session=lease.id[:8], status=status, reason=reason)
        )

    async def close(self) -> None:
        """End all sessions within a short time. Runs in flight are not ended here."""
        for lease in tuple(self.all.values()):
            self.end(lease, SHUTDOWN)
        if self._endings:
            _, late = await asyncio.wait(set(self._endings), timeout=END_SECONDS)
            for task in late:
                task.cancel()

    async def _settle(self, lease: SessionLease, *, settles: bool, everywhere: bool) -> None:
        if not settles:
            return
        if everywhere and self.stored is not None:
            await self.stored.close_quietly(lease.id, lease.end_reason)
        if lease.end_reason != SHUTDOWN:
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await lease.quiet.wait()
        await session_hooks.end(lease, lease.end_reason)
        if lease.handle != lease.joined:
            self._kernel.let_go(lease.answering, lease.handle)
