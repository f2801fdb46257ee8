"""Conversations in the ledger: found again after a restart, loaded once, written while they happen.

The kernel holds a conversation's turn while it calls in here, so no other run of this fleet writes to that
thread. Another fleet on the same database may; the index of the next row reveals that.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pallas.access.identity import is_secret, may_continue
from pallas.model import (
    Fault,
    FaultType,
    Message,
    Notice,
    Principal,
    RunRecord,
    RunRequest,
)
from pallas.model.refusals import REASON
from pallas.runs.conversations import Conversation, Conversations, not_theirs
from pallas.runs.retry_queue import RetryQueue
from pallas.runs.run import ActiveRun
from pallas.runs.turn_writer import WRITE_TIMEOUT, TurnWriter, finished
from pallas.telemetry.event_hub import EventHub

if TYPE_CHECKING:  # the database is imported by a fleet that has one
    from pallas.ledger import Ledger

log = logging.getLogger(__name__)

PROGRESS_EVERY: Final = 1.0
"""Seconds between two writes of the progress of runs."""


class BegunElsewhere(Exception):
    """Another fleet created the thread of a handle at the same moment; ``thread`` is that one."""

    def __init__(self, thread: "KnownThread") -> None:
        super().__init__(thread.id)
        self.thread = thread


class KnownThread(NamedTuple):
    """A durable thread: its id, the caller's own handle (empty without one), and its owner."""

    id: str
    handle: str
    owner: str


class _Progress:
    """Writes the progress of running runs at intervals, so that a kill does not lose it."""

    def __init__(self, ledger: "Ledger") -> None:
        self._ledger = ledger
        self._runs: dict[str, ActiveRun] = {}
        self._task: asyncio.Task[None] | None = None

    def begin(self, run: ActiveRun) -> None:
        """Write the progress of this run until ``end``."""
        self._runs[run.id] = run
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write(), name="progress of runs")

    def end(self, run: ActiveRun) -> None:
        """Stop writing the progress of this run. How it ended is written elsewhere."""
        self._runs.pop(run.id, None)

    async def close(self) -> None:
        """Stop writing."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _write(self) -> None:
        while self._runs:
            await asyncio.sleep(PROGRESS_EVERY)
            if under_way := [run.record for run in self._runs.values()]:
                try:
                    async with asyncio.timeout(WRITE_TIMEOUT):
                        await self._ledger.threads.progress(under_way)
                except Exception:
                    log.warning("the progress of %d runs was not written", len(under_way), exc_info=True)


class ThreadStore:
    """What the kernel reads and writes in its ledger. One event loop only."""

    def __init__(self, ledger: "Ledger", hub: EventHub) -> None:
        self._ledger = ledger
        self._hub = hub
        self.retries = RetryQueue()
        self.progress = _Progress(ledger)
        # Writes of turn beginnings and ends that are under way.
        self._last: set[asyncio.Task[Any]] = set()

    async def close(self, seconds: float) -> None:
        """Wait ``seconds`` for the writes under way and stop retrying. The next start finds the rest."""
        await self.retries.close()
        await self.progress.close()
        if self._last:
            await asyncio.wait(self._last, timeout=seconds)
        for task in self._last:
            task.cancel()

    async def known(self, agent: str, handle: str, principal: Principal) -> KnownThread | None:
        """The durable thread of that handle. Raises Fault if the principal may not continue it."""
        found = await self.within(self._ledger.threads.resolve(agent, handle))
        if found is None:
            return None
        thread, own = found
        if not may_continue(thread.owner, principal, secret=is_secret(handle)):
            raise not_theirs(handle)
        return KnownThread(thread.id, own, thread.owner)

    async def has_run(self, run_id: str) -> bool:
        """Whether the ledger has a run of that id."""
        return await self.within(self._ledger.runs.get(run_id)) is not None

    async def load(self, conversations: Conversations, conversation: Conversation) -> None:
        """Load the messages of a conversation's thread, unless they are loaded."""
        if not conversation.loaded:
            await self.retries.settle(conversation.thread)
            found, free = await self.within(self._ledger.threads.history(conversation.thread))
            conversations.store(conversation, (), found)
            conversation.next = free

    async def begin(
        self,
        run: ActiveRun,
        request: RunRequest,
        conversations: Conversations,
        conversation: Conversation,
    ) -> TurnWriter:
        """Write that a run begins, before the executor is asked. Raises Fault (TRANSPORT), BegunElsewhere.

        If the caller is cancelled while this is being written, the write finishes first and is then undone.
        """
        work = self._begin(run, request, conversations, conversation)
        task = self.own(work, f"begin {run.id}")
        try:
            writer, cancelled = await finished(task)
        except Fault as fault:
            if fault.data.get(REASON) == "not_found":
                # Another fleet deleted it: a caller that sends its own handle again begins a new one.
                conversations.drop(conversation.thread)
            raise
        if cancelled:
            error = asyncio.CancelledError()
            await writer.fail(*run.end_of(error), "")
            raise error
        return writer

    async def _begin(
        self,
        run: ActiveRun,
        request: RunRequest,
        conversations: Conversations,
        conversation: Conversation,
    ) -> TurnWriter:
        if not conversation.thread:
            await self._create(request, conversation)
        await self.load(conversations, conversation)
        # History that models see before the first turn with a result is part of the thread.
        before = request.history if run.given is None and not conversation.messages else ()
        record = RunRecord(
            run.id,
            run.agent,
            request.principal.id,
            conversation.thread,
            request.surface,
            started_at=run.started_at,
        )
        said = run.given or request
        question = Message("user", said.text, said.images)
        writer = TurnWriter(self, self._ledger, conversation, record, run)
        try:
            index = await self.within(
                self._ledger.threads.begin(conversation.thread, record, question, before=before)
            )
            writer.question = index
            if conversation.next not in (None, index - len(before)):
                # Another fleet wrote to this thread since: the messages in memory are outdated.
                conversation.loaded = False
                await self.load(conversations, conversation)
        except Fault as fault:
            if fault.data.get(REASON) is None:  # it is unknown whether it was written
                writer.owe("error", fault.message)
            raise
        run.thread = conversation.thread
        run.journal = writer.hear
        self.progress.begin(run)
        return writer

    def own[T](self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run ``work`` in a task that a cancelled caller does not cancel: half a turn must not be stored."""
        task = asyncio.create_task(work, name=name)
        self._last.add(task)
        task.add_done_callback(self._last.discard)
        return task

    async def _create(self, request: RunRequest, conversation: Conversation) -> None:
        threads = self._ledger.threads
        try:
            made = await self.within(
                threads.create(
                    request.agent,
                    request.principal.id,
                    id=conversation.key,
                    handle=conversation.handle or None,
                    origin=request.surface,
                )
            )
        except Fault as fault:
            if fault.data.get(REASON) != "conflict" or not conversation.handle:
                raise
            found = await self.known(request.agent, conversation.handle, request.principal)
            if found is None:
                raise
            raise BegunElsewhere(found) from None
        conversation.thread = made.id

    async def within[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Await ``work`` within the deadline. Raises Fault (TRANSPORT) if the ledger cannot be used."""
        try:
            async with asyncio.timeout(WRITE_TIMEOUT):
                return await work
        except Fault as fault:
            if fault.type is not FaultType.TIMEOUT:
                raise
            # TRANSPORT, since not the run took too long: the caller may send the same again.
            raise Fault(FaultType.TRANSPORT, fault.message) from None
        except Exception as error:
            log.exception("the ledger failed")
            text = f"the ledger could not be used ({type(error).__name__}): what is said cannot be kept"
            self._hub.publish(Notice(level="error", text=f"{text}; the log has the details"))
            raise Fault(
                FaultType.TRANSPORT, f"{text}; try again, and look at database_url and the disk"
            ) from error
