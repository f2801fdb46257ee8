"""Reads a thread from its end: the newest messages first, older ones when the user scrolls up.

One that was opened because of what was said in it is read up to that message. An answer that is in progress,
for example because the fleet was started again, is read until it is there.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from textual import on
from textual.containers import Vertical
from textual.timer import Timer

from pallas.model import Fault, FaultType

from ...chat.conversation import ChatConversation, ChatEntry
from ...chat.stored_thread import FIRST, ROWS
from .transcript import Transcript

_PASSING: Final = frozenset({FaultType.TRANSPORT, FaultType.TIMEOUT})
_AGAIN: Final = 1.0
_MOST: Final = 6
"""Reads in a row, without the user, to fill the screen."""


class ThreadReader(Vertical):
    """The base of a conversation on the screen."""

    conversation: ChatConversation
    transcript: Transcript
    _said = ""
    _next: Timer | None = None

    def show_said(self, snippet: str) -> None:
        """Read the thread until the newest message with that part of its text is shown, and select it."""
        self._said = snippet
        if self.conversation.entries and not self.transcript.reading:
            self.transcript.reading = True
            self.run_worker(self._read_older(0, fill=False), group="older", description="read a thread")

    def look(self) -> None:
        """Read the thread when the user first sees the conversation."""
        conversation = self.conversation
        if conversation.stored is not None and not conversation.entries and not self.transcript.reading:
            self._said = conversation.stored.record.snippet
            self._read(FIRST, fill=True)
        elif conversation.in_progress:
            self._follow_answer()

    def _look_again(self) -> None:
        if self.display:
            self.look()

    def _follow_answer(self) -> None:
        self.run_worker(self._read_answer(), group="answer", exclusive=True, description="read an answer")

    async def _read_answer(self) -> None:
        with suppress(Fault):  # the next look may succeed
            await self.conversation.read_answer_again()
        self._follow_soon()

    def _follow_soon(self) -> None:
        if self._next is not None:
            self._next.stop()
        if self.conversation.in_progress:
            self._next = self.set_timer(_AGAIN, self._look_again)

    @on(Transcript.Top)
    def _on_top(self, event: Transcript.Top) -> None:
        event.stop()
        self._read(ROWS)

    def _read(self, rows: int, *, fill: bool = False) -> None:
        transcript = self.transcript
        if transcript.reading or not self.conversation.more_above:
            return
        transcript.reading, transcript.problem = True, ""
        self.run_worker(self._read_older(rows, fill), group="older", description="read a thread")

    async def _read_older(self, rows: int, fill: bool) -> None:
        transcript, conversation = self.transcript, self.conversation
        conversation.changed()
        try:
            for _ in range(_MOST if rows else 0):
                more = await conversation.read_older(rows)
                if not fill or not more or len(conversation.entries) >= rows // 2:
                    break
            await self._reach()
        except Fault as fault:
            transcript.problem = fault.message
            if fault.type in _PASSING and not conversation.entries:
                # For example a fleet that is still starting.
                self.set_timer(_AGAIN, self._look_again)
        finally:
            transcript.reading = False
            conversation.changed()
        self._follow_soon()

    async def _reach(self) -> None:
        """Read on until the message that is looked for is there; it may be further up than is ever shown."""
        conversation, said = self.conversation, self._said
        self._said = ""
        while said:
            if (key := _key_of(conversation.entries, said)) is not None:
                self.transcript.show_message(key)
                return
            if not conversation.more_above or not await conversation.read_older(ROWS):
                return


def _key_of(entries: Iterable[ChatEntry], snippet: str) -> int | None:
    """Return the key of the newest entry with that text, whose line breaks may have become spaces."""
    wanted = " ".join(snippet.strip("\N{HORIZONTAL ELLIPSIS}").split())
    keys = (entry.key for entry in entries if wanted in " ".join(entry.text.split()))
    return max(keys, default=None) if wanted else None
