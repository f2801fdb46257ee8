"""Writes one turn of a durable thread while it happens: its question, its messages, its end."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from time import time
from typing import TYPE_CHECKING, Any, Final

from pallas.executors import TurnResult
from pallas.model import Event, Fault, FaultType, LoopMessage, Message, RunFork, RunRecord, RunStatus, Usage
from pallas.model.packed import Packed
from pallas.model.refusals import GONE, REASON, handed_over, taken_over
from pallas.runs.conversations import Conversation
from pallas.runs.ledger_writes import WRITE_TIMEOUT, LedgerWrites, finished
from pallas.runs.retry_queue import Write
from pallas.runs.run import ActiveRun
from pallas.safe_text import one_line

if TYPE_CHECKING:  # the database is imported by a fleet that has one
    from pallas.ledger import Ledger

log = logging.getLogger(__name__)

_NO_USAGE: Final = Usage()
_RETRY_SECONDS: Final = 0.5
_CUT_SECONDS: Final = 5.0
_NOT_KEPT: Final = "the conversation could not be stored; the log has the details"
OTHERS_TOO: Final = -1
"""An index that no row has: another fleet wrote during the turn, so the messages in memory are outdated."""


class TurnWriter:
    """One turn of a durable thread, from its question to its end.

    Await exactly one of ``finish`` and ``fail``.
    """

    def __init__(
        self,
        writes: LedgerWrites,
        ledger: "Ledger",
        conversation: Conversation,
        record: RunRecord,
        run: ActiveRun,
    ) -> None:
        self._writes = writes
        self._ledger = ledger
        self._conversation = conversation
        self._record = record
        self._run = run
        self._waiting: list[Message] = []
        self._writer: asyncio.Task[None] | None = None
        self._results: set[asyncio.Task[None]] = set()
        self._is_ended = False
        # What ``times_lost`` was when the run was known to be ours.
        self._times_lost = ledger.times_lost
        # Why a message could not be stored.
        self._lost: Fault | None = None
        # The index of the last message of the loop.
        self.part = 0
        # The index of its question.
        self.question: int | None = None

    def hear(self, event: Event) -> None:
        """Queue a message of the loop to be written after those before it. Returns at once."""
        if isinstance(event, LoopMessage) and not self._is_over:  # later messages belong to no turn
            native = Packed(event.native) if event.native else None
            message = Message(event.role, event.text, (), native, event.calls, event.answers)
            self._waiting.append(message)
            if self._writer is None or self._writer.done():
                self._writer = asyncio.create_task(self._write(), name=f"journal {self._record.id}")

    async def say_first(self, fork: RunFork) -> None:
        """Store what had been said before, in the run from which this one goes on. Raises Fault."""
        for each in fork.said:
            self.hear(
                LoopMessage(
                    run_id=self._run.id,
                    agent=self._run.agent,
                    role=each.role,
                    text=each.text,
                    calls=each.calls,
                    answers=each.answers,
                )
            )
        await self.committed()
        for call_id, result in fork.results.items():
            self.returned(call_id, result)
        if self._results:
            await asyncio.wait(self._results, timeout=WRITE_TIMEOUT)

    @property
    def _is_over(self) -> bool:
        """Whether nothing more is stored here. What a run says that was just cut to go on elsewhere, such as
        that its calls were cancelled, is not so there.
        """
        return self._is_ended or self._run.goes_on_elsewhere

    @property
    def is_left(self) -> bool:
        """As ``TurnJournal``."""
        return self._run.goes_on_elsewhere

    async def committed(self) -> None:
        """As ``TurnJournal``."""
        if self._writer is not None:
            await asyncio.wait({self._writer})
        if self._lost is not None:
            text = f"{self._lost.message}; its tools are not called, since the calls could not be recorded"
            await self._cut(Fault(self._lost.type, text, data=self._lost.data))

    async def still_ours(self) -> None:
        """As ``TurnJournal``."""
        times_lost = self._ledger.times_lost
        if not self._ledger.is_fresh or times_lost != self._times_lost:
            try:
                ours = await self._writes.within(self._ledger.threads.has(self._record.thread, self._record))
            except Fault as fault:
                await self._cut(fault)
            else:
                if not ours:
                    await self._cut(taken_over())
                self._times_lost = times_lost

    async def step_over(self) -> None:
        """As ``TurnJournal``."""
        if self._run.is_leaving:
            await self.committed()
            await self._cut(handed_over(self._run.id))

    def returned(self, call_id: str, native: str) -> None:
        """As ``TurnJournal``. A result that cannot be stored is that of a call whose answer was lost."""
        if self._is_over:
            return
        work = self._ledger.threads.keep_result(self._record, self.part, call_id, native)
        task = asyncio.create_task(_quietly(work), name=f"result of {self._record.id}")
        self._results.add(task)
        task.add_done_callback(self._results.discard)

    async def _cut(self, fault: Fault) -> None:
        """End the run, which this is called in. Raises Fault where that does not cancel the caller."""
        self._run.break_off(fault)
        await asyncio.sleep(_CUT_SECONDS)
        raise fault

    async def summarise(self, summary: Message, messages: int) -> None:
        """Replace the thread's ``messages`` oldest entries that models see by a summary."""
        await self._writes.within(
            self._ledger.threads.summarise(self._record.thread, summary, messages, before=self._record)
        )

    async def finish(self, result: TurnResult, messages: Sequence[Message], *, replaces: bool) -> int:
        """Complete the turn; returns the index of its answer, which is durable then. Raises Fault.

        A cancellation that arrives during this call comes too late: the answer is stored.
        """
        done = self._ended("ok", usage=result.usage)
        try:
            index = await self._last(
                self._ledger.threads.finish(self._record.thread, done, messages, replaces=replaces)
            )
        except Fault as fault:
            self._read_again()
            if fault.data.get(REASON) not in GONE:
                self.owe(
                    "error", f"the answer could not be stored: {fault.message}", "\n\n".join(result.texts)
                )
            raise
        alone = self.question is not None and index - self.question + 1 == sum(map(_rows, messages))
        self._conversation.next = index + 1 if alone and not replaces else OTHERS_TOO
        return index

    async def fail(
        self, status: RunStatus, reason: str, partial: str, messages: Sequence[Message] = ()
    ) -> None:
        """End the turn without an answer, storing ``messages``. Never raises: failed writes are retried.

        A run that goes on elsewhere is left as it is.
        """
        write = self._handing_over() if self._run.goes_on_elsewhere else None
        write = write or self._failing(status, reason, partial, messages)
        try:
            await self._last(write())
        except Fault as fault:
            if fault.data.get(REASON) not in GONE:
                log.warning("run %s: how it ended could not be kept yet", self._record.id)
                self._writes.retries.add(self._record.id, self._record.thread, write)

    def _read_again(self) -> None:
        """Have the rows of the conversation read when it is continued."""
        self._conversation.loaded, self._conversation.next = False, None

    def _handing_over(self) -> Write:
        self._read_again()

        async def write() -> None:
            # Does nothing for one that another fleet has already.
            await self._writes.within(self._ledger.threads.hand_over(self._record))

        return write

    def owe(self, status: RunStatus, reason: str, partial: str = "") -> None:
        """Queue the end of a turn whose beginning the ledger may have, until the ledger answers again."""
        write = self._failing(status, reason, partial)
        self._writes.retries.add(self._record.id, self._record.thread, write)

    def _failing(
        self, status: RunStatus, reason: str, partial: str, messages: Sequence[Message] = ()
    ) -> Write:
        self._read_again()
        self._is_ended = True
        self._writes.progress.end(self._run)
        thread, done = self._record.thread, self._ended(status, fault=reason, partial=partial)

        async def write() -> None:
            await self._writes.within(
                self._ledger.threads.fail(thread, done, one_line(reason, 300), messages)
            )

        return write

    def _ended(
        self, status: RunStatus, *, usage: Usage = _NO_USAGE, fault: str = "", partial: str = ""
    ) -> RunRecord:
        whole = self._run.priced(usage)
        return replace(
            self._record,
            status=status,
            finished_at=time(),
            seconds=self._run.end_clock(),
            steps=self._run.steps,
            tools=self._run.tools,
            tokens_in=usage.input_tokens,
            tokens_out=usage.output_tokens,
            cost=whole.cost,
            unpriced=whole.unpriced,
            version=self._run.record.version,
            fault=one_line(fault, 500),
            partial=partial,
        )

    async def _last[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Do the last write of the turn. It ends before another run gets the conversation."""
        self._is_ended = True
        self._writes.progress.end(self._run)

        async def last() -> T:
            await self._written()
            return await self._writes.within(work)

        task = self._writes.own(last(), f"keep {self._record.id}")
        await finished(task)
        return task.result()

    async def _write(self) -> None:
        while self._waiting:
            try:
                self.part = await self._stored(self._waiting[0])
            except Exception as error:
                # The end of the turn writes all of it once more.
                log.warning("run %s: its messages could not be stored", self._record.id, exc_info=error)
                self._lost = error if isinstance(error, Fault) else Fault(FaultType.INTERNAL, _NOT_KEPT)
                self._waiting.clear()
                return
            self._waiting.pop(0)

    async def _stored(self, message: Message) -> int:
        """Write a message; tries again for ``WRITE_TIMEOUT`` seconds. Raises Fault."""
        again = False
        async with asyncio.timeout(WRITE_TIMEOUT) as deadline:
            while True:
                try:
                    return await self._ledger.threads.add_message(
                        self._record.thread, self._record, message, again=again
                    )
                except Fault as fault:
                    when = deadline.when()
                    left = 0.0 if when is None else when - asyncio.get_running_loop().time()
                    if fault.data.get(REASON) in GONE or left < 2 * _RETRY_SECONDS:
                        raise
                again = True
                await asyncio.sleep(_RETRY_SECONDS)

    async def _written(self) -> None:
        if self._writer is not None:
            await asyncio.wait({self._writer}, timeout=WRITE_TIMEOUT)
            self._writer.cancel()


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    try:
        async with asyncio.timeout(WRITE_TIMEOUT):
            await work
    except Exception as error:
        log.warning("the result of a call could not be kept", exc_info=error)


def _rows(message: Message) -> int:
    """How many rows a message takes."""
    return len(message.answers) or 1 if message.role == "tool" else 1
