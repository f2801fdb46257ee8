"""Opens sessions, and opens failed ones again."""

import secrets
from collections.abc import Awaitable, Callable
from typing import Final

from pallas.config.kinds import SessionLimits
from pallas.model import Fault, FaultType, Principal, SessionRecord, StoredSession, TraceContext
from pallas.model.ids import mint
from pallas.model.refusals import REASON
from pallas.runs.agent_directory import AgentDirectory
from pallas.runs.conversations import key_of
from pallas.runs.kernel import Kernel
from pallas.safe_text import one_line

from . import session_hooks
from .lease import SessionLease
from .session_faults import is_busy, is_replaced, no_session, no_thread
from .session_metadata import RESUME, SessionMetadata, check_provider, check_room
from .session_table import SessionTable

REOPENED: Final = "reopened"
CLOSED: Final = "closed"

Permit = Callable[[str, Principal, TraceContext | None], None]
"""Raises Fault if the principal may not use the agent (any more)."""


class SessionOpener:
    """Opens sessions and adds them to the ``table``. Arguments as in ``Sessions``.

    ``make_room`` is called when no more may be open, before one is refused.
    """

    def __init__(
        self,
        kernel: Kernel,
        directory: AgentDirectory,
        table: SessionTable,
        limits: Callable[[], SessionLimits],
        permit: Permit,
        clock: Callable[[], float],
        make_room: Callable[[], Awaitable[object]],
    ) -> None:
        self._kernel = kernel
        self._directory = directory
        self._table = table
        self._limits = limits
        self._permit = permit
        self._clock = clock
        self._make_room = make_room

    async def new(
        self, agent: str, principal: Principal, metadata: SessionMetadata, *, is_private: bool = False
    ) -> SessionRecord:
        """Open a session with that agent; a private one is only for the call that opens it.

        Raises Fault, and then leaves nothing behind.
        """
        known = await self._thread(agent, principal, metadata.thread) if metadata.thread else ""
        entry = self._directory.entry(agent)
        if entry is not None and self._kernel.session_counts.full(agent, entry.kind, entry.capacity):
            await self._make_room()
        lease = self._lease(agent, principal, metadata)
        if metadata.thread:
            lease.handle = lease.joined = metadata.thread
            lease.begun, lease.thread = True, known
        self._table.add(lease)
        try:
            await session_hooks.begin(lease)
            if self._table.stored is not None and not is_private:
                await self._table.stored.put(lease)
        except BaseException:
            lease.opening = False
            self._table.end(lease, CLOSED)
            raise
        return await self._opened(lease)

    async def _thread(self, agent: str, principal: Principal, handle: str) -> str:
        """The durable thread of that handle, empty if none is stored.

        Raises Fault if it is not this principal's.
        """
        self._kernel.ready(agent)
        try:
            key = key_of(handle, None)
            found = await self._kernel.find(agent, key, handle, principal) if key else None
        except Fault as fault:
            if fault.type is FaultType.PROTOCOL or fault.data.get(REASON) == "not_found":
                raise no_thread(handle, agent) from None
            raise
        return found.thread if found is not None else ""

    def _lease(self, agent: str, principal: Principal, metadata: SessionMetadata) -> SessionLease:
        """A lease that is not in the table yet. Raises Fault if no session can be opened."""
        answering, executor = self._kernel.ready(agent)
        entry = self._directory.entry(agent)
        if entry is None or entry.agent is not answering:  # it is being removed
            raise Fault(FaultType.TRANSPORT, f"{agent} is being exchanged; try again in a moment")
        check_provider(executor.info, metadata.provider)
        check_room(self._kernel.session_counts, entry)
        now = self._clock()
        return SessionLease(
            id=secrets.token_hex(16),
            agent=agent,
            kind=entry.kind,
            owner=principal,
            answering=answering,
            handle=mint(),
            created_at=now,
            used_at=now,
            metadata=metadata.metadata,
            provider=metadata.provider,
            params=metadata.layer,
        )

    def of_stored(self, found: StoredSession) -> SessionLease:
        """The lease of a session that another fleet opened, or this one in another life.

        Raises Fault (UPSTREAM, DR-17) if its agent is not here.
        """
        entry = self._directory.entry(found.agent)
        if entry is None or entry.kind != found.kind:
            raise is_replaced(found.id, found.agent)
        lease = SessionLease(
            id=found.id,
            agent=found.agent,
            kind=found.kind,
            owner=Principal(found.owner),
            answering=entry.agent,
            handle=found.handle,
            created_at=found.created_at,
            used_at=found.used_at,
            opening=False,
            is_own=False,
            is_stored=True,
        )
        lease.refresh(found)
        return lease

    async def resume(
        self, lease: SessionLease, metadata: SessionMetadata, agent: str | None, principal: Principal
    ) -> SessionRecord:
        """Open a failed session again, with its thread.

        A session that did not fail stays as it is (DR-10).
        """
        if agent is not None and agent != lease.agent:
            text = f"the session to resume is one with {lease.agent}, not with {one_line(agent, 80)}"
            raise Fault(FaultType.CONFIG, f"{text}; leave agentId out, or name that one")
        self._permit(lease.agent, principal, None)
        if lease.opening:
            raise is_busy(lease.id)
        if not lease.failed:
            return lease.record(self._limits())
        _, executor = self._kernel.ready(lease.agent)
        check_provider(executor.info, metadata.provider)
        lease.opening = True
        before = lease.failed, lease.had_prompt
        try:
            async with lease.beginning:
                await session_hooks.end(lease, REOPENED)
                self._kernel.let_go(lease.answering, lease.handle)
                await session_hooks.opened(lease.answering, lease.id, metadata.metadata)
                lease.failed, lease.had_prompt, lease.is_known = "", False, True
            given = {key: value for key, value in metadata.metadata.items() if value is not None}
            lease.take({**lease.metadata, **given, RESUME: None})
            if lease.is_stored and self._table.stored is not None:
                await self._table.stored.put(lease)
        except BaseException:
            lease.failed, lease.had_prompt = before
            lease.opening = False
            if lease.end_reason:
                self._table.end(lease, lease.end_reason)
            raise
        return await self._opened(lease)

    async def _opened(self, lease: SessionLease) -> SessionRecord:
        lease.opening, lease.used_at = False, self._clock()
        lease.last = lease.answering.executor
        if lease.end_reason:  # it ended while it was being opened
            if lease.is_stored and self._table.stored is not None:
                await self._table.stored.close_quietly(lease.id, lease.end_reason)
            await session_hooks.end(lease, lease.end_reason)
            raise no_session(lease.id, lease.end_reason)
        self._table.tell(lease)
        self._table.find(lease.id, lease.owner)
        return lease.record(self._limits())
