"""The sessions of a fleet: open, prompt, close, expire (SPEC 7.4)."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic, time
from typing import Any, Final

from pallas.access.identity import may_continue
from pallas.config.kinds import SessionLimits
from pallas.model import (
    NO_PARAMS,
    Fault,
    FaultType,
    Params,
    Principal,
    RunResult,
    SessionRecord,
    TraceContext,
)
from pallas.runs.agent_directory import IN_PROCESS, AgentDirectory
from pallas.runs.kernel import RETRY_AFTER, Kernel, mint_run
from pallas.runs.run import Listener
from pallas.safe_text import one_line
from pallas.telemetry.event_hub import EventHub

from . import session_hooks
from .lease import SessionLease, SessionPrompt
from .session_faults import VALID, check_prompt, has_failed, is_busy, is_replaced
from .session_metadata import metadata_of
from .session_opener import CLOSED, SessionOpener
from .session_prompt import PromptRequestFacts, about, answer, stop
from .session_table import GONE, SessionTable

COMPLETE: Final = "task-complete"
FAILED: Final = "task-failed"


@dataclass(frozen=True, slots=True)
class DelegationOutcome:
    """The outcome of a delegation: ``result``, else ``fault``. Its session is closed by then."""

    session_id: str  # empty if no session could be opened
    agent: str  # empty if no agent was found
    result: RunResult | None = None
    fault: Fault | None = None


AGAIN: float = 1.0
"""Seconds after which a refused client should try again."""


class Admission:
    """Counts the requests under way. ``limit`` is called at each. One event loop only."""

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self.active = 0

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Count one request while the block runs.

        Raises Fault (TRANSPORT, retryable) ``Server overloaded`` if too many are under way; no request waits.
        """
        limit = self._limit()
        if self.active >= limit:
            data = {"limit": limit, "active": self.active, "retry_after": AGAIN}
            raise Fault(FaultType.TRANSPORT, "Server overloaded", data=data)
        self.active += 1
        try:
            yield
        finally:
            self.active -= 1


class Sessions:
    """Leases on threads. Belongs to the fleet's event loop; any thread may read counts and records.

    A session belongs to its principal; for all others there is none of that id. It remembers which agent it
    was opened with, and no other agent answers in it (DR-17). Its first prompt begins a thread, which
    outlives it (C11). ``limits`` is called each time; ``permit`` raises Fault if a principal may not use an
    agent (any more); ``clock`` is Unix seconds.
    """

    def __init__(
        self,
        kernel: Kernel,
        directory: AgentDirectory,
        *,
        hub: EventHub,
        limits: Callable[[], SessionLimits] = SessionLimits,
        permit: Callable[[str, Principal, TraceContext | None], None] = lambda agent, principal, trace: None,
        clock: Callable[[], float] = time,
    ) -> None:
        self._kernel = kernel
        self._directory = directory
        self._limits = limits
        self._permit = permit
        self._clock = clock
        self._closing = False
        self._table = SessionTable(kernel, hub, limits, clock, self._gone)
        self._opening = SessionOpener(kernel, directory, self._table, limits, permit, clock)
        self._counts = kernel.session_counts
        self._counts.limits = limits

    @property
    def active(self) -> int:
        """The number of open sessions."""
        return self._counts.active

    @property
    def capacity(self) -> int:
        """The most sessions that may be open: those of all agents in this process, plus those of each other
        agent.
        """
        others = (entry for entry in self._directory.entries() if entry.kind not in IN_PROCESS)
        return self._limits().max + sum(self._counts.capacity(each.kind, each.capacity) for each in others)

    def of(self, agent: str) -> int:
        """The number of open sessions with an agent."""
        return self._counts.of(agent)

    def records(self, principal: Principal | None = None) -> tuple[SessionRecord, ...]:
        """The sessions of a principal, or all, oldest first."""
        limits = self._limits()
        found = (each for each in tuple(self._table.all.values()) if principal in (None, each.owner))
        return tuple(lease.record(limits) for lease in found if not lease.opening)

    async def create(
        self,
        agent: str | None,
        principal: Principal,
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> SessionRecord:
        """Open a session with that agent, or with the one that ``AgentDirectory.resolve`` chooses without.

        ``metadata`` may have ``provider`` (which of the agent's providers to use), ``runtimeParams`` (for all
        prompts), ``threadId`` (a thread of the principal with that agent, to continue) and ``resume`` (the id
        of a failed session, which is opened again in place of a new one). Raises Fault, and then leaves
        nothing behind.
        """
        limits = self._limits()
        wanted = metadata_of(metadata, limits.metadata_bytes)
        if self._closing:
            text = "the fleet is stopping; try again when it is back"
            raise Fault(FaultType.TRANSPORT, text, data={"retry_after": RETRY_AFTER})
        if wanted.resume:
            return await self._opening.resume(wanted, agent, principal)
        return await self._opening.new(self._directory.resolve(agent, principal), principal, wanted)

    async def prompt(
        self,
        session_id: str,
        text: str,
        principal: Principal,
        *,
        timeout: float | None = None,
        params: Params = NO_PARAMS,
        queue: bool = False,
        listener: Listener | None = None,
        bearer: str | None = None,
        trace: TraceContext | None = None,
        caller: str = "",
    ) -> RunResult:
        """Send a prompt to a session; ``timeout`` in seconds includes the wait.

        A busy session refuses unless ``queue`` is set. A cancelled run ends with the ``stop_reason``
        ``cancelled`` and the text it had written. Raises Fault; its data says ``sessionValid``.
        """
        lease = self._table.find(session_id, principal)
        try:
            self._permit(lease.agent, principal, trace)
            check_prompt(text, self._limits().prompt_bytes)
            if lease.failed:
                raise has_failed(lease.id, lease.failed)
            if self._gone(lease):
                raise is_replaced(lease.id, lease.agent)
            if lease.busy and not queue:
                raise is_busy(lease.id)
            question = PromptRequestFacts(text, principal, timeout, params, listener, bearer, trace, caller)
            return await self._ask(lease, question)
        except Fault as fault:
            raise about(fault, valid=not (lease.failed or lease.end_reason)) from fault.__cause__

    async def cancel(self, session_id: str, principal: Principal, run_id: str | None = None) -> bool:
        """Stop the prompt that runs in a session, or only that run; False if none runs. Raises Fault."""
        lease = self._table.find(session_id, principal)
        found = next((each for each in lease.prompts if run_id in (None, each.run_id)), None)
        if found is None:
            return False
        stop(self._kernel, found)
        await session_hooks.cancelled(lease.agent, lease.executor, lease.id)
        return True

    def status(self, session_id: str, principal: Principal) -> SessionRecord:
        """The session. Raises Fault (UPSTREAM) ``Session not found: ...``."""
        return self._table.find(session_id, principal).record(self._limits())

    async def close(self, session_id: str, principal: Principal, reason: str = CLOSED) -> bool:
        """End a session; False, and no error, if there is no open one of that id."""
        lease = self._table.all.get(session_id)
        if lease is None or not may_continue(lease.owner.id, principal, secret=True):
            return False
        for each in tuple(lease.prompts):
            stop(self._kernel, each)
        # Wait, not await: a cancelled caller must not cancel the clean-up.
        await asyncio.wait({self._table.end(lease, one_line(reason) or CLOSED)})
        return True

    async def delegate(
        self,
        text: str,
        principal: Principal,
        *,
        agent: str | None = None,
        timeout: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        params: Params = NO_PARAMS,
        listener: Listener | None = None,
        bearer: str | None = None,
        trace: TraceContext | None = None,
        caller: str = "",
    ) -> DelegationOutcome:
        """Run one prompt in a session of its own, which is closed afterwards. Raises only CancelledError."""
        began = monotonic()
        try:
            opened = await self.create(agent, principal, metadata=metadata)
        except Fault as fault:
            return DelegationOutcome("", "", fault=fault)
        reason = FAILED
        try:
            left = None if timeout is None else max(0.0, timeout - (monotonic() - began))
            result = await self.prompt(
                opened.id,
                text,
                principal,
                timeout=left,
                params=params,
                listener=listener,
                bearer=bearer,
                trace=trace,
                caller=caller,
            )
            reason = COMPLETE
            return DelegationOutcome(opened.id, opened.agent, result)
        except Fault as fault:
            data = {**fault.data, VALID: False}
            closed = Fault(fault.type, fault.message, retryable=fault.retryable, code=fault.code, data=data)
            return DelegationOutcome(opened.id, opened.agent, fault=closed)
        finally:
            await self.close(opened.id, principal, reason)

    def look(self) -> None:
        """End the sessions of agents that left the fleet; busy ones end when they are no longer busy."""
        self._table.look()

    async def reap(self) -> int:
        """End the sessions that are too old or idle for too long, none that is busy; returns how many
        (DR-13).
        """
        if ended := self._table.expire():
            await asyncio.wait(ended)
        return len(ended)

    async def tend(self) -> None:
        """Call ``reap`` at intervals until cancelled."""
        while True:
            await asyncio.sleep(max(0.01, self._limits().reap_every))
            await self.reap()

    async def end(self) -> None:
        """End all sessions within two seconds, because the fleet stops. Runs in flight are not ended here."""
        self._closing = True
        await self._table.close()

    async def _ask(self, lease: SessionLease, question: PromptRequestFacts) -> RunResult:
        prompt = SessionPrompt(mint_run())
        lease.prompts.append(prompt)
        lease.quiet.clear()
        lease.used_at = self._clock()
        if len(lease.prompts) == 1:
            self._table.tell(lease)
        try:
            return await answer(self._kernel, lease, prompt, question, self._gone)
        finally:
            lease.prompts.remove(prompt)
            lease.used_at = self._clock()
            if not lease.prompts:
                lease.quiet.set()
                if not lease.end_reason:
                    self._table.tell(lease)
                    if self._gone(lease):
                        self._table.end(lease, GONE)

    def _gone(self, lease: SessionLease) -> bool:
        """Whether the agent that it was opened with has left, or another agent has its name (DR-17)."""
        entry = self._directory.entry(lease.agent)
        return entry is None or entry.agent is not lease.answering or entry.kind != lease.kind
