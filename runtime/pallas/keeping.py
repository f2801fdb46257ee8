"""Conversations in the ledger: found again after a restart, loaded once, written as they happen.

The kernel holds a conversation's turn while it calls in here, so within one fleet nobody else writes to that
thread; another fleet on the same database may, and is noticed by the index that the next row gets.
"""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from time import time
from typing import TYPE_CHECKING, Any, Final

from pallas.conversations import GONE, Conversation, Conversations, minted
from pallas.events import Hub
from pallas.executors import TurnResult
from pallas.executors.packed import Packed
from pallas.model import (
    Event,
    Fault,
    FaultType,
    Message,
    Notice,
    Principal,
    RunRecord,
    RunRequest,
    RunStatus,
    Said,
    ThreadRecord,
    Usage,
)
from pallas.refusals import REASON, not_found
from pallas.runs import Run
from pallas.text import one_line

if TYPE_CHECKING:  # the database is imported by a fleet that has one
    from pallas.ledger import Ledger

log = logging.getLogger(__name__)

_NO_USAGE: Final = Usage()
WRITE_TIMEOUT: Final = 30.0
"""Seconds that a write may take, with all tries, before a run is told that it could not be kept."""


class Keeper:
    """What a kernel asks of its ledger. One event loop only."""

    def __init__(self, ledger: "Ledger", hub: Hub) -> None:
        self._ledger = ledger
        self._hub = hub
        # Turns whose end is being written.
        self.last: set[asyncio.Task[Any]] = set()

    async def known(self, agent: str, handle: str, principal: Principal) -> ThreadRecord | None:
        """The durable thread of that handle. Raises Fault ("not found") when it is another principal's."""
        thread = await self.within(self._ledger.threads.find(agent, handle))
        if thread is not None and thread.owner != principal.id:
            raise not_found(GONE)
        return thread

    async def load(self, conversations: Conversations, conversation: Conversation) -> None:
        """Fill a conversation with what was said in its thread, if that has not been done."""
        if not conversation.loaded:
            found, free = await self.within(self._ledger.threads.history(conversation.thread))
            conversations.store(conversation, (), found)
            conversation.next = free

    async def begin(
        self,
        run: Run,
        request: RunRequest,
        conversations: Conversations,
        conversation: Conversation,
        handle: str | None = None,
    ) -> "Kept":
        """Write down that a run begins, before anybody is asked. Raises Fault (TRANSPORT).

        ``handle`` is what a conversation is known by that gets one only now.
        """
        before: Sequence[Message] = ()
        if not conversation.thread:
            before = request.history if run.given is None else ()
            await self._create(request, conversation, handle or request.conversation)
        await self.load(conversations, conversation)
        record = RunRecord(
            run.id,
            run.agent,
            request.principal.id,
            conversation.thread,
            request.surface,
            started_at=time() - run.seconds,
        )
        said = run.given or request
        question = Message("user", said.text, said.images)
        index = await self.within(
            self._ledger.threads.begin(conversation.thread, record, question, before=before)
        )
        if conversation.next not in (None, index - len(before)):
            # Another fleet wrote to this thread since: what is known of it here is old.
            conversation.loaded = False
            await self.load(conversations, conversation)
        run.thread = conversation.thread
        kept = Kept(self, self._ledger, conversation, record, run)
        run.journal = kept.hear
        return kept

    async def _create(self, request: RunRequest, conversation: Conversation, handle: str | None) -> None:
        ours = handle if minted(handle) else None
        threads = self._ledger.threads
        try:
            made = await self.within(
                threads.create(
                    request.agent,
                    request.principal.id,
                    id=ours,
                    handle=None if ours else handle,
                    origin=request.surface,
                )
            )
        except Fault as fault:
            if fault.data.get(REASON) != "conflict" or handle is None:
                raise
            # Another fleet made it in this moment.
            found = await self.known(request.agent, handle, request.principal)
            if found is None:
                raise
            made = found
            conversation.loaded = False
        conversation.thread = made.id

    async def within[T](self, work: Coroutine[Any, Any, T]) -> T:
        """What the ledger says, within the deadline. Raises Fault (TRANSPORT) when it cannot be asked."""
        try:
            async with asyncio.timeout(WRITE_TIMEOUT):
                return await work
        except Fault:
            raise
        except Exception as error:
            log.exception("the ledger failed")
            text = f"the ledger could not be used ({type(error).__name__}): what is said cannot be kept"
            self._hub.publish(Notice(level="error", text=f"{text}; the log has the details"))
            raise Fault(
                FaultType.TRANSPORT, f"{text}; try again, and look at database_url and the disk"
            ) from error


class Kept:
    """One turn of a durable thread, from its question to its end; exactly one of the ends is awaited."""

    def __init__(
        self, keeper: Keeper, ledger: "Ledger", conversation: Conversation, record: RunRecord, run: Run
    ) -> None:
        self._keeper = keeper
        self._ledger = ledger
        self._conversation = conversation
        self._record = record
        self._run = run
        self._waiting: list[Message] = []
        self._writer: asyncio.Task[None] | None = None

    def hear(self, event: Event) -> None:
        """Keep a message of the loop, behind those before it; returns at once."""
        if isinstance(event, Said):
            native = Packed(event.native) if event.native else None
            message = Message(event.role, event.text, (), native, event.calls, event.answers)
            self._waiting.append(message)
            if self._writer is None or self._writer.done():
                self._writer = asyncio.create_task(self._write(), name=f"journal {self._record.id}")

    async def summarise(self, summary: Message, messages: int) -> None:
        """The thread's ``messages`` oldest entries, of those that models see, are told by a summary now."""
        await self._keeper.within(
            self._ledger.threads.summarise(self._record.thread, summary, messages, before=self._record.id)
        )

    async def finish(self, result: TurnResult, messages: Sequence[Message], *, replaces: bool) -> int:
        """The turn is complete: returns the place of its answer, which is safe then. Raises Fault."""
        done = self._ended("ok", usage=result.usage)
        index = await self._to_its_end(
            self._ledger.threads.finish(self._record.thread, done, messages, replaces=replaces)
        )
        self._conversation.next = index + 1
        return index

    async def fail(self, status: RunStatus, reason: str, partial: str, kept: Sequence[Message] = ()) -> None:
        """The turn came to nothing, or to ``kept`` alone. Never raises: the next start would find it."""
        # What became of its rows is read again when somebody comes back.
        self._conversation.loaded, self._conversation.next = False, None
        try:
            done = self._ended(status, fault=reason, partial=partial)
            await self._to_its_end(
                self._ledger.threads.fail(self._record.thread, done, one_line(reason, 300), kept)
            )
        except Fault:
            log.warning("run %s: how it ended could not be kept", self._record.id)

    def _ended(
        self, status: RunStatus, *, usage: Usage = _NO_USAGE, fault: str = "", partial: str = ""
    ) -> RunRecord:
        return replace(
            self._record,
            status=status,
            finished_at=time(),
            seconds=self._run.seconds,
            steps=self._run.steps,
            tools=self._run.tools,
            tokens_in=usage.input_tokens,
            tokens_out=usage.output_tokens,
            fault=one_line(fault, 500),
            partial=partial,
        )

    async def _to_its_end[T](self, work: Coroutine[Any, Any, T]) -> T:
        """A last write goes on whatever becomes of who waits for it: half a turn is kept by nobody.

        Who is cancelled once may be cancelled again while it is written, by whoever stops the same run too.
        """

        async def last() -> T:
            await self._written()
            return await self._keeper.within(work)

        task = asyncio.create_task(last(), name=f"keep {self._record.id}")
        self._keeper.last.add(task)
        task.add_done_callback(self._keeper.last.discard)
        return await asyncio.shield(task)

    async def _write(self) -> None:
        while self._waiting:
            try:
                async with asyncio.timeout(WRITE_TIMEOUT):
                    await self._ledger.threads.said(self._record.thread, self._record.id, self._waiting[0])
            except Exception:
                # The end of the turn tries once more, with all of it.
                log.exception("run %s: what was said could not be kept yet", self._record.id)
                self._waiting.clear()
                return
            self._waiting.pop(0)

    async def _written(self) -> None:
        if self._writer is not None:
            await asyncio.wait({self._writer}, timeout=WRITE_TIMEOUT)
