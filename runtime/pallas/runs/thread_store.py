"""Conversations in the ledger: found again after a restart, loaded once, written while they happen.

The kernel holds a conversation's turn while it calls in here, so no other run of this fleet writes to that
thread. Another fleet on the same database may; the index of the next row reveals that.
"""

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from pallas.access.identity import is_secret, may_continue
from pallas.model import (
    Fault,
    Message,
    Principal,
    RunRecord,
    RunRequest,
)
from pallas.model.refusals import REASON
from pallas.runs.conversations import Conversation, Conversations, not_theirs
from pallas.runs.ledger_writes import LedgerWrites, finished
from pallas.runs.run import ActiveRun
from pallas.runs.turn_writer import TurnWriter
from pallas.telemetry.event_hub import EventHub

if TYPE_CHECKING:  # the database is imported by a fleet that has one
    from pallas.ledger import Ledger


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


class ThreadStore:
    """What the kernel reads and writes in its ledger. One event loop only."""

    def __init__(self, ledger: "Ledger", hub: EventHub) -> None:
        self._ledger = ledger
        self._writes = LedgerWrites(ledger, hub)

    async def close(self, seconds: float) -> None:
        """Wait ``seconds`` for the writes under way and stop retrying. The next start finds the rest."""
        await self._writes.close(seconds)

    async def known(self, agent: str, handle: str, principal: Principal) -> KnownThread | None:
        """The durable thread of that handle. Raises Fault if the principal may not continue it."""
        found = await self._writes.within(self._ledger.threads.resolve(agent, handle))
        if found is None:
            return None
        thread, own = found
        if not may_continue(thread.owner, principal, secret=is_secret(handle)):
            raise not_theirs(handle)
        return KnownThread(thread.id, own, thread.owner)

    async def has_run(self, run_id: str) -> bool:
        """Whether the ledger has a run of that id."""
        return await self._writes.within(self._ledger.runs.get(run_id)) is not None

    async def load(self, conversations: Conversations, conversation: Conversation) -> None:
        """Load the messages of a conversation's thread, unless they are loaded."""
        if not conversation.loaded:
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
        """Write that a run begins, before the executor is asked. Raises Fault (TRANSPORT), BegunElsewhere.

        If the caller is cancelled while this is being written, the write finishes first and is then undone.
        """
        work = self._begin(run, request, conversations, conversation)
        task = self._writes.own(work, f"begin {run.id}")
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
        given = run.given or request
        question = Message("user", given.text, given.images)
        writer = TurnWriter(self._writes, self._ledger, conversation, record, run)
        try:
            index = await self._writes.within(
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
        self._writes.progress.begin(run)
        return writer

    async def _create(self, request: RunRequest, conversation: Conversation) -> None:
        threads = self._ledger.threads
        try:
            thread = await self._writes.within(
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
        conversation.thread = thread.id
