"""Opens sessions, and opens failed ones again."""

import secrets
from collections.abc import Callable
from typing import Final

from pallas.config.kinds import SessionLimits
from pallas.model import Fault, FaultType, Principal, SessionRecord, TraceContext
from pallas.model.ids import mint
from pallas.model.refusals import REASON
from pallas.runs.agent_directory import AgentDirectory
from pallas.runs.conversations import key_of
from pallas.runs.kernel import Kernel
from pallas.safe_text import one_line

from . import session_hooks
from .lease import SessionLease
from .session_faults import is_busy, no_session, no_thread
from .session_metadata import SessionMetadata, check_provider, check_room
from .session_table import SessionTable

REOPENED: Final = "reopened"
CLOSED: Final = "closed"

Permit = Callable[[str, Principal, TraceContext | None], None]
"""Raises Fault if the principal may not use the agent (any more)."""


class SessionOpener:
    """Opens sessions and adds them to the ``table``. Arguments as in ``Sessions``."""

    def __init__(
        self,
        kernel: Kernel,
        directory: AgentDirectory,
        table: SessionTable,
        limits: Callable[[], SessionLimits],
        permit: Permit,
        clock: Callable[[], float],
    ) -> None:
        self._kernel = kernel
        self._directory = directory
        self._table = table
        self._limits = limits
        self._permit = permit
        self._clock = clock

    async def new(self, agent: str, principal: Principal, metadata: SessionMetadata) -> SessionRecord:
        """Open a session with that agent. Raises Fault, and then leaves nothing behind."""
        known = await self._thread(agent, principal, metadata.thread) if metadata.thread else ""
        lease = self._lease(agent, principal, metadata)
        if metadata.thread:
            lease.handle = lease.joined = metadata.thread
            lease.begun, lease.thread = True, known
        self._table.add(lease)
        try:
            await session_hooks.opened(lease.answering, lease.id, metadata.metadata)
        except BaseException:
            self._table.take_out(lease, CLOSED)
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
        self._table.expire()
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
            provider=metadata.provider,
            params=metadata.layer,
        )

    async def resume(
        self, metadata: SessionMetadata, agent: str | None, principal: Principal
    ) -> SessionRecord:
        """Open a failed session again, with its thread.

        A session that did not fail stays as it is (DR-10).
        """
        lease = self._table.find(metadata.resume, principal)
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
        try:
            await session_hooks.closed(lease.agent, lease.executor, lease.id, REOPENED)
            self._kernel.let_go(lease.answering, lease.handle)
            await session_hooks.opened(lease.answering, lease.id, metadata.metadata)
        except BaseException:
            lease.opening = False
            raise
        lease.failed, lease.had_prompt = "", False
        lease.provider = metadata.provider or lease.provider
        lease.params = lease.params if metadata.params is None else metadata.params
        return await self._opened(lease)

    async def _opened(self, lease: SessionLease) -> SessionRecord:
        lease.opening, lease.used_at = False, self._clock()
        lease.last = lease.answering.executor
        if lease.end_reason:  # it ended while it was being opened
            await session_hooks.closed(lease.agent, lease.executor, lease.id, lease.end_reason)
            raise no_session(lease.id, lease.end_reason)
        self._table.tell(lease)
        self._table.find(lease.id, lease.owner)
        return lease.record(self._limits())
