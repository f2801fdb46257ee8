"""Conversations in the ledger: found again after a restart, loaded once, written while they happen.

The kernel holds a conversation's turn while it calls in here, so no other run of this fleet writes to that
thread. A run of another fleet on the same database may have the thread: then the turn begins after it, and
the index of the next row reveals that the messages in memory are outdated.
"""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import replace
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pallas.access.identity import is_secret, may_continue
from pallas.model import (
    Fault,
    Message,
    NewThread,
    Principal,
    RunRequest,
    StoredRequest,
)
from pallas.model.codec import encode_sparse
from pallas.model.refusals import REASON, taken_over
from pallas.runs.conversations import Conversation, Conversations, not_theirs
from pallas.runs.ledger_writes import WRITE_TIMEOUT, LedgerWrites, Progressed, finished
from pallas.runs.retry_queue import Write
from pallas.runs.run import ActiveRun
from pallas.runs.turn_writer import TurnWriter
from pallas.telemetry.event_hub import EventHub

if TYPE_CHECKING:  # the database is imported by a fleet that has one
    from pallas.ledger import Ledger


log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.05
"""Seconds between two looks whether the lock of this fleet is held again."""


class BegunElsewhere(Exception):
    """Another fleet created the thread of a handle at the same moment; ``thread`` is that one."""

    def __init__(self, thread: "KnownThread") -> None:
        super().__init__(thread.id)
        self.thread = thread


class ThreadBusy(Exception):
    """Another run has the thread, or comes before this one, which has a place in the queue now."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class KnownThread(NamedTuple):
    """A durable thread: its id, the caller's own handle (empty without one), and its owner."""

    id: str
    handle: str
    owner: str


class ThreadStore:
    """What the kernel reads and writes in its ledger. One event loop only.

    ``progressed`` is called now and again with each run under way.
    """

    def __init__(self, ledger: "Ledger", hub: EventHub, progressed: Progressed = lambda run: None) -> None:
        self._ledger = ledger
        self._writes = LedgerWrites(ledger, hub, progressed)
        self._learning: asyncio.Task[None] | None = None

    async def close(self, seconds: float) -> None:
        """Wait ``seconds`` for the writes under way and stop retrying. The next start finds the rest."""
        await self._writes.close(seconds)

    @property
    def is_shared(self) -> bool:
        """Whether other fleets use the ledger."""
        return self._ledger.has_others

    def ask_cancel(self, run_id: str) -> None:
        """Ask the fleet that has a run to cancel it; returns at once."""
        work = self._quietly(run_id, self._ledger.runs.ask_cancel(run_id))
        self._writes.own(work, f"cancel {run_id} elsewhere")

    async def recall(
        self,
        conversations: Conversations,
        agent: str,
        key: str,
        handle: str | None,
        principal: Principal,
        *,
        new: bool,
    ) -> None:
        """Bind a key that is not in memory to its thread, if it has one; a ``new`` one may have none.

        Raises Fault if the principal may not continue it.
        """
        named = handle or conversations.thread_of(key)
        if named is None or (new and handle is not None and self.is_unused(handle)):
            return
        if (known := await self.known(agent, named, principal)) is not None:
            conversations.bind(key, known.id, known.handle, Principal(known.owner))

    async def known(self, agent: str, handle: str, principal: Principal) -> KnownThread | None:
        """The durable thread of that handle. Raises Fault if the principal may not continue it."""
        found = await self._writes.within(self._ledger.threads.resolve(agent, handle))
        if found is None:
            return None
        thread, own = found
        if not may_continue(thread.owner, principal, secret=is_secret(handle)):
            raise not_theirs(handle)
        return KnownThread(thread.id, own, thread.owner)

    def is_unused(self, handle: str) -> bool:
        """Whether no thread has that handle of a caller. Another fleet may just have made one: ``begin``
        finds it then.
        """
        if self._learning is None:
            self._learning = self._writes.own(self._learn(), "learn handles")
        return not self._ledger.has_others and not self._ledger.threads.may_have(handle)

    async def _learn(self) -> None:
        try:
            await self._writes.within(self._ledger.threads.learn_handles())
        except Fault as fault:
            log.warning("each new handle is looked for in the ledger: %s", fault.message)

    async def has_run(self, run_id: str) -> bool:
        """Whether the ledger has a run of that id."""
        return await self._writes.within(self._ledger.runs.get(run_id)) is not None

    async def load(
        self, conversations: Conversations, conversation: Conversation, *, again: bool = False
    ) -> None:
        """Load the messages of a conversation's thread, unless they are loaded and not wanted ``again``."""
        if not conversation.loaded or (again and conversation.thread):
            await self._writes.retries.settle(conversation.thread)
            found, free = await self._writes.within(self._ledger.threads.history(conversation.thread))
            conversations.store(conversation, (), found)
            conversation.next = free

    async def begin(
        self,
        run: ActiveRun,
        request: RunRequest,
        conversations: Conversations,
        conversation: Conversation,
    ) -> TurnWriter:
        """Write that a run begins, before the executor is asked.

        Raises Fault (TRANSPORT), BegunElsewhere, ThreadBusy. If the caller is cancelled while this is being
        written, the write finishes first and is then undone.
        """
        await self._until_known()
        try:
            return await self._begun(run, request, conversations, conversation)
        except Fault as fault:
            if run.place is not None and await self._is_elsewhere(run, fault):
                # It waited here while this fleet was taken for dead, and another one has begun it.
                run.broken = taken_over()
                raise run.broken from None
            if fault.data.get(REASON) != "busy":
                raise
            await self.join(run, request, conversation)
            conversation.settle()
            raise ThreadBusy(fault) from None

    async def _is_elsewhere(self, run: ActiveRun, fault: Fault) -> bool:
        """Whether another fleet has begun a run that waited here, which a failed begin may not show."""
        if REASON in fault.data:
            return bool(fault.data[REASON] == "conflict")
        await self._until_known()
        try:
            return await self._writes.within(self._ledger.runs.is_elsewhere(run.id))
        except Fault:
            return False

    async def _until_known(self) -> None:
        """Wait until other fleets know that this one lives: they would take over at once what it begins."""
        until = monotonic() + WRITE_TIMEOUT
        while not self._ledger.is_fresh and monotonic() < until:  # noqa: ASYNC110 - a clock, no event
            await asyncio.sleep(_LOOK_SECONDS)

    async def join(self, run: ActiveRun, request: RunRequest, conversation: Conversation) -> None:
        """Queue a run for its thread, unless it is queued. Raises Fault if too many wait."""
        if run.place is None:
            stored = encode_sparse(stored_request(request, whole=True))
            thread = conversation.thread or conversation.key or ""
            work = self._writes.within(self._ledger.threads.wait(thread, run.record, stored))
            task = self._writes.own(work, f"wait {run.id}")
            cancelled = await finished(task)
            try:
                run.place = task.result()
            except Fault:
                self.leave(run)  # it may have a place all the same, with others behind it
                raise
            if cancelled:
                raise asyncio.CancelledError

    def leave(self, run: ActiveRun) -> None:
        """Give up the place of a run; one that is handed over waits on in another fleet. Returns at once."""
        run.place = None
        threads = self._ledger.threads
        leave = threads.hand_over_place if run.goes_on_elsewhere else threads.stop_waiting

        async def write() -> None:
            await self._writes.within(leave(run.id))

        self._writes.own(self._leave(run, write), f"stop waiting {run.id}")

    async def _leave(self, run: ActiveRun, write: Write) -> None:
        try:
            await write()
        except Fault as fault:
            log.warning("run %s still waits for its thread: %s", run.id, fault.message)
            # Those behind it would wait for as long as this fleet lives.
            self._writes.retries.add(f"place of {run.id}", run.about, write)

    def owes(self, run_id: str) -> bool:
        """Whether the end of a run is still to be written."""
        return self._writes.retries.has(run_id)

    async def _quietly(self, run_id: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await self._writes.within(work)
        except Fault as fault:
            log.warning("run %s is left as it is: %s", run_id, fault.message)

    async def _begun(
        self,
        run: ActiveRun,
        request: RunRequest,
        conversations: Conversations,
        conversation: Conversation,
    ) -> TurnWriter:
        work = self._begin(run, request, conversations, conversation)
        task = self._writes.own(work, f"begin {run.id}")
        cancelled = await finished(task)
        if cancelled and task.exception() is not None:  # its caller does not want another try
            raise asyncio.CancelledError
        try:
            writer = task.result()
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
        new = None
        thread = conversation.thread
        if thread:
            await self.load(conversations, conversation)
        else:
            assert conversation.key is not None
            thread = conversation.key
            new = NewThread(conversation.handle or None, request.surface, await self._origin_of(request))
            conversations.store(conversation, (), ())
        # History that models see before the first turn with a result is part of the thread.
        before = request.history if run.given is None and not conversation.messages else ()
        record = replace(run.record, owner=request.principal.id, thread=thread)
        given = run.given or request
        question = Message("user", given.text, given.images)
        writer = TurnWriter(self._writes, self._ledger, conversation, record, run)
        try:
            stored = encode_sparse(stored_request(request))
            index = await self._writes.within(
                self._ledger.threads.begin(
                    thread,
                    record,
                    question,
                    before=before,
                    new=new,
                    request=stored,
                    **({} if run.place is None else {"place": run.place}),
                )
            )
            conversation.thread = thread
            run.place, writer.question = None, index
            if conversation.next not in (None, index - len(before)):
                # Another fleet wrote to this thread since: the messages in memory are outdated.
                conversation.loaded = False
                await self.load(conversations, conversation)
        except Fault as fault:
            if fault.data.get(REASON) is None:  # it is unknown whether it was written
                writer.owe("error", fault.message)
            if new is not None and fault.data.get(REASON) == "conflict":
                try:
                    found = await self.known(request.agent, conversation.handle or thread, request.principal)
                except Fault:
                    # It is another caller's, who must find it here.
                    conversations.drop(thread)
                    raise
                if found is not None:
                    raise BegunElsewhere(found) from None
            raise
        self._has_begun(run, writer, conversation)
        return writer

    async def _origin_of(self, request: RunRequest) -> str:
        """The id of the thread of which the request's new one is a branch, if its caller may read that."""
        if not request.branch_of:
            return ""
        try:
            found = await self.known(request.agent, request.branch_of, request.principal)
        except Fault as fault:
            if fault.data.get(REASON) is None:  # the ledger does not answer
                raise
            return ""
        return "" if found is None else found.id

    async def resume(
        self, run: ActiveRun, conversations: Conversations, conversation: Conversation
    ) -> TurnWriter:
        """Go on with a turn that another fleet began. Raises Fault."""
        assert run.said is not None
        await self.load(conversations, conversation, again=True)
        record = replace(run.record, thread=conversation.thread)
        writer = TurnWriter(self._writes, self._ledger, conversation, record, run)
        writer.question, writer.part = run.said.question, run.said.part
        self._has_begun(run, writer, conversation)
        return writer

    def _has_begun(self, run: ActiveRun, writer: TurnWriter, conversation: Conversation) -> None:
        conversation.settle()
        run.thread = conversation.thread
        run.journal, run.turn_journal = writer.hear, writer
        self._writes.progress.begin(run)


def stored_request(request: RunRequest, *, whole: bool = False) -> StoredRequest:
    """The part of a request that a fleet needs to continue its run; ``whole`` to begin it."""
    until = None if request.timeout is None else time() + request.timeout
    had_bearer = request.bearer is not None or request.bearer_lost
    # The thread has what is said before a fork.
    bare = replace(request, bearer=None, bearer_lost=False, fork=None)
    if not whole:
        bare = replace(bare, text="", images=(), history=())
    return StoredRequest(bare, had_bearer, until)
