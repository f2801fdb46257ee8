"""Writes one turn of a durable thread while it happens: its question, its messages, its end."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from time import time
from typing import TYPE_CHECKING, Any, Final

from pallas.executors import TurnResult
from pallas.model import Event, Fault, LoopMessage, Message, RunRecord, RunStatus, Usage
from pallas.model.packed import Packed
from pallas.model.refusals import REASON
from pallas.runs.conversations import Conversation
from pallas.runs.ledger_writes import WRITE_TIMEOUT, LedgerWrites, finished
from pallas.runs.retry_queue import Write
from pallas.runs.run import ActiveRun
from pallas.safe_text import one_line

if TYPE_CHECKING:  # the database is imported by a fleet that has one
    from pallas.ledger import Ledger

log = logging.getLogger(__name__)

_NO_USAGE: Final = Usage()
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
        self._is_ended = False
        # The index of its question.
        self.question: int | None = None

    def hear(self, event: Event) -> None:
        """Queue a message of the loop to be written after those before it. Returns at once."""
        if isinstance(event, LoopMessage) and not self._is_ended:  # later messages belong to no turn
            native = Packed(event.native) if event.native else None
            message = Message(event.role, event.text, (), native, event.calls, event.answers)
            self._waiting.append(message)
            if self._writer is None or self._writer.done():
                self._writer = asyncio.create_task(self._write(), name=f"journal {self._record.id}")

    async def summarise(self, summary: Message, messages: int) -> None:
        """Replace the thread's ``messages`` oldest entries that models see by a summary."""
        await self._writes.within(
            self._ledger.threads.summarise(self._record.thread, summary, messages, before=self._record.id)
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
            if fault.data.get(REASON) != "not_found":
                self.owe("error", f"the answer could not be kept: {fault.message}", "\n\n".join(result.texts))
            raise
        alone = self.question is not None and index - self.question + 1 == sum(map(_rows, messages))
        self._conversation.next = index + 1 if alone and not replaces else OTHERS_TOO
        return index

    async def fail(
        self, status: RunStatus, reason: str, partial: str, messages: Sequence[Message] = ()
    ) -> None:
        """End the turn without an answer, storing ``messages``. Never raises: failed writes are retried."""
        write = self._failing(status, reason, partial, messages)
        try:
            await self._last(write())
        except Fault as fault:
            if fault.data.get(REASON) != "not_found":
                log.warning("run %s: how it ended could not be kept yet", self._record.id)
                self._writes.retries.add(self._record.id, self._record.thread, write)

    def owe(self, status: RunStatus, reason: str, partial: str = "") -> None:
        """Queue the end of a turn whose beginning the ledger may have, until the ledger answers again."""
        write = self._failing(status, reason, partial)
        self._writes.retries.add(self._record.id, self._record.thread, write)

    def _failing(
        self, status: RunStatus, reason: str, partial: str, messages: Sequence[Message] = ()
    ) -> Write:
        # Its rows are read again when the conversation is continued.
        self._conversation.loaded, self._conversation.next = False, None
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

    async def _last[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Do the last write of the turn. It ends before another run gets the conversation."""
        self._is_ended = True
        self._writes.progress.end(self._run)

        async def last() -> T:
            await self._written()
            return await self._writes.within(work)

        is_stored, _ = await finished(self._writes.own(last(), f"keep {self._record.id}"))
        return is_stored

    async def _write(self) -> None:
        while self._waiting:
            try:
                async with asyncio.timeout(WRITE_TIMEOUT):
                    await self._ledger.threads.add_message(
                        self._record.thread, self._record.id, self._waiting[0]
                    )
            except Exception:
                # The end of the turn writes all of it once more.
                log.exception("run %s: what was said could not be kept yet", self._record.id)
                self._waiting.clear()
                return
            self._waiting.pop(0)

    async def _written(self) -> None:
        if self._writer is not None:
            await asyncio.wait({self._writer}, timeout=WRITE_TIMEOUT)
            self._writer.cancel()


def _rows(message: Message) -> int:
    """How many rows a message takes."""
    return len(message.answers) or 1 if message.role == "tool" else 1
