"""The sessions of a fleet: open, prompt, close, expire."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final

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
    refusals,
)
from pallas.model.discovery import IN_PROCESS
from pallas.model.ids import mint_run
from pallas.model.other_workers import CANCEL_PROMPT, CLOSE_SESSION, OtherWorkers
from pallas.runs.agent_directory import AgentDirectory
from pallas.runs.kernel import Kernel
from pallas.runs.run import Listener
from pallas.safe_text import one_line
from pallas.telemetry.event_hub import EventHub

from . import session_hooks
from .lease import SessionLease, SessionPrompt
from .session_faults import (
    SHUTDOWN,
    VALID,
    check_prompt,
    has_failed,
    is_busy,
    is_replaced,
)
from .session_lookup import SessionLookup
from .session_metadata import metadata_of
from .session_opener import CLOSED, SessionOpener
from .session_prompt import PromptRequestFacts, about, answer
from .session_table import END_SECONDS, EXPIRED, GONE, SessionTable
from .stored_sessions import StoredSessions

if TYPE_CHECKING:  # the database is imported by a fleet that has one
    from pallas.ledger import Ledger

log = logging.getLogger(__name__)

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


class SessionAdmission:
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
    outlives it. ``limits`` is called each time; ``permit`` raises Fault if a principal may not use an
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
        self._table = SessionTable(kernel, hub, limits, clock, self._gone)
        self._opening = SessionOpener(kernel, directory, self._table, limits, permit, clock, self._make_room)
        self._lookup = SessionLookup(kernel, self._table, self._opening)
        self._counts = kernel.session_counts
        self._counts.limits = limits

    def use_ledger(self, ledger: "Ledger", others: OtherWorkers | None) -> None:
        """Store sessions in this ledger, and go on with those that its other fleets store.

        ``others`` can be told of a session that ends. Call it before the first session.
        """
        self._table.stored = StoredSessions(ledger, others, self._limits, self._clock)
        if others is not None:
            others.hear(CANCEL_PROMPT, self._lookup.hear_cancel)
            others.hear(CLOSE_SESSION, self._lookup.hear_close)

    @property
    def active(self) -> int:
        """The number of open sessions that were opened here."""
        return self._counts.active

    @property
    def capacity(self) -> int:
        """The most sessions that may be open: those of all agents in this process, plus those of each other
        agent.
        """
        others = (entry for entry in self._directory.entries() if entry.kind not in IN_PROCESS)
        return self._limits().max + sum(self._counts.capacity(each.kind, each.capacity) for each in others)

    def of(self, agent: str) -> int:
        """The number of open sessions with an agent that were opened here."""
        return self._counts.of(agent)

    def records(self, principal: Principal | None = None) -> tuple[SessionRecord, ...]:
        """The sessions of a principal, or all, that this fleet has in memory, oldest first."""
        limits = self._limits()
        found = (each for each in tuple(self._table.all.values()) if principal in (None, each.owner))
        return tuple(lease.record(limits) for lease in found if not lease.opening)

    async def create(
        self,
        agent: str | None,
        principal: Principal,
        *,
        metadata: Mapping[str, Any] | None = None,
        is_private: bool = False,
    ) -> SessionRecord:
        """Open a session with that agent, or with the one that ``AgentDirectory.resolve`` chooses without.

        ``metadata`` may have ``provider`` (which of the agent's providers to use), ``runtimeParams`` (for all
        prompts), ``threadId`` (a thread of the principal with that agent, to continue) and ``resume`` (the id
        of a failed session, which is opened again in place of a new one). A private session is only for the
        call that opens it: no other fleet knows it. Raises Fault, and then leaves nothing behind.
        """
        limits = self._limits()
        wanted = metadata_of(metadata, limits.metadata_bytes)
        if self._lookup.is_closing:
            raise refusals.stopping()
        if wanted.resume:
            lease = await self._lookup.find(wanted.resume, principal)
            return await self._opening.resume(lease, wanted, agent, principal)
        found = self._directory.resolve(agent, principal)
        return await self._opening.new(found, principal, wanted, is_private=is_private)

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
        lease = await self._lookup.find(session_id, principal)
        try:
            self._permit(lease.agent, principal, trace)
            check_prompt(text, self._limits().prompt_bytes)
            if lease.failed:
                raise has_failed(lease.id, lease.failed)
            if self._gone(lease):
                raise is_replaced(lease.id, lease.agent)
            if (lease.busy or lease.elsewhere) and not queue:
                raise is_busy(lease.id)
            question = PromptRequestFacts(
                text, principal, timeout, params, listener, bearer, trace, caller, queue
            )
            return await self._ask(lease, question)
        except Fault as fault:
            is_over = lease.end_reason and not (lease.is_stored and lease.end_reason == SHUTDOWN)
            raise about(fault, valid=not (lease.failed or is_over)) from fault.__cause__

    async def begin(self, session_id: str) -> None:
        """Tell the agent of a session here that it begins, unless it knows: a run of it goes on here.

        Does nothing for a session that is over. Raises Fault if the agent refuses it.
        """
        found = await self._lookup.stored(session_id)
        if found is not None:
            await session_hooks.begin(await self._lookup.find(session_id, Principal(found.owner)))

    async def cancel(self, session_id: str, principal: Principal, run_id: str | None = None) -> bool:
        """Stop the prompt that runs in a session, or only that run; False if none runs. Raises Fault."""
        lease = await self._lookup.find(session_id, principal)
        # With a prompt of another fleet under way, those here wait for it.
        wanted = run_id or lease.elsewhere
        found = next((each for each in lease.prompts if wanted in ("", each.run_id)), None)
        if found is not None:
            await self._lookup.stop(lease, found)
        elif wanted and wanted == lease.elsewhere and self._table.stored is not None:
            await self._table.stored.cancel(lease.id, wanted)
            self._kernel.cancel(wanted)
        else:
            return False
        return True

    async def status(self, session_id: str, principal: Principal) -> SessionRecord:
        """The session. Raises Fault (UPSTREAM) ``Session not found: ...``."""
        return (await self._lookup.find(session_id, principal)).record(self._limits())

    async def close(self, session_id: str, principal: Principal, reason: str = CLOSED) -> bool:
        """End a session; False, and no error, if there is no open one of that id.

        Raises Fault (TRANSPORT, TIMEOUT) if other fleets may use it and cannot be told.
        """
        reason = one_line(reason) or CLOSED
        found = await self._lookup.stored(session_id)
        lease = self._table.all.get(session_id)
        owner = lease.owner.id if lease is not None else found.owner if found is not None else None
        if owner is None or not may_continue(owner, principal, secret=True):
            return False
        if self._table.stored is not None and (found is not None or (lease is not None and lease.is_stored)):
            await self._table.stored.close(session_id, reason)
        ending = self._lookup.end_here(session_id, reason)
        if found is not None and found.run:
            self._kernel.cancel(found.run)
        if ending is not None:
            # Wait, not await: a cancelled caller must not cancel the clean-up.
            await asyncio.wait({ending})
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
            opened = await self.create(agent, principal, metadata=metadata, is_private=True)
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
            with suppress(Fault):  # a session that was resumed may stay open then
                await self.close(opened.id, principal, reason)

    def look(self) -> None:
        """End the sessions of agents that left the fleet; busy ones end when they are no longer busy."""
        self._table.look()

    async def reap(self) -> int:
        """End the sessions that are too old or idle for too long, none that is busy; returns how many
        (DR-13).
        """
        ended = await self._expire()
        if ended:
            await asyncio.wait(ended)
        return len(ended)

    async def _make_room(self) -> None:
        """End the sessions that count here and are due, if there are any; their agents are told later."""
        limits, now = self._limits(), self._clock()
        if any(lease.is_own and lease.expired(limits, now) for lease in self._table.all.values()):
            await self._expire()

    async def _expire(self) -> set[asyncio.Task[None]]:
        """End the sessions that are due; the tasks do the clean-up."""
        ended = self._table.expire()
        if self._table.stored is not None:
            try:
                gone = await self._table.stored.expire(tuple(self._table.all.values()))
            except Fault as fault:
                log.warning("sessions that expired stay open: %s", fault.message)
            else:
                ended |= {self._table.end(lease, EXPIRED, everywhere=False) for lease in gone}
        return ended

    async def tend(self) -> None:
        """Call ``reap`` at intervals until cancelled."""
        while True:
            await asyncio.sleep(max(0.01, self._limits().reap_every))
            await self.reap()

    async def end(self) -> None:
        """End all sessions within two seconds, because the fleet stops. Runs in flight are not ended here.

        Those that are stored go on in other fleets, or when this one is started again.
        """
        self._lookup.is_closing = True
        if self._table.stored is not None:
            with suppress(TimeoutError, Fault):
                async with asyncio.timeout(END_SECONDS / 3):
                    await self._table.stored.save(self._table.all.values())
        await self._table.close()

    async def close_records(self, seconds: float = 1.0) -> None:
        """Store what became of the last prompts, within ``seconds``. Call it when the runs are over."""
        if self._table.stored is not None:
            await self._table.stored.close_all(seconds)
        self._lookup.close()

    async def _ask(self, lease: SessionLease, question: PromptRequestFacts) -> RunResult:
        prompt = SessionPrompt(mint_run())
        lease.prompts.append(prompt)
        lease.quiet.clear()
        lease.use(self._clock())
        if len(lease.prompts) == 1:
            self._table.tell(lease)
        try:
            stored = self._table.stored
            return await answer(self._kernel, lease, prompt, question, self._gone, self._clock, stored)
        finally:
            lease.prompts.remove(prompt)
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
