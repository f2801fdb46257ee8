"""A run's events as MCP progress notifications (PI-18..PI-26)."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from fastmcp.server.dependencies import FastMCPRequestContext

from pallas.model import Event, QuestionAsked, StepStarted, TextDelta, ToolEvent
from pallas.runs.retried_text import BEGINS_AGAIN, RetriedText, TextPart
from pallas.safe_text import one_line

Report = Callable[[float, float | None, str], Awaitable[None]]

# Seconds between two messages of text: the pieces that come meanwhile are joined. A caller sees text at
# most this late, and a message costs about as much processor time as three pieces.
TEXT_EVERY: Final = 0.02
# A caller that does not read loses the oldest lines and never delays the run.
QUEUE: Final = 2_000
SEND_TIMEOUT: Final = 5.0
TEXT_LIMIT: Final = 16_000
MAX_QUESTION_LINE: Final = 600


class ProgressSender:
    """Sends a run's events as progress notifications, in order, from its own task.

    One counter per request grows by one with each notification; ``total`` equals it exactly if a tool call
    completed or failed, and is null otherwise. A failed notification does not affect the run. Use as
    ``async with``: leaving it flushes the queue, so the last line comes before the result.

    ``with_questions`` says where questions of the run can be answered: for a client that cannot be asked.
    """

    def __init__(self, report: Report, *, with_text: bool, with_questions: bool = True) -> None:
        self._report = report
        self._with_text = with_text
        self._with_questions = with_questions
        self._lines: deque[tuple[str, bool]] = deque(maxlen=QUEUE)
        self._text: dict[str, list[str]] = {}
        self._block = RetriedText()
        self._n = 0
        self._wake = asyncio.Event()
        self._done = False
        self._task: asyncio.Task[None] | None = None

    def hear(self, event: Event) -> None:
        """Queue one event; returns at once."""
        if isinstance(event, TextDelta):
            if not self._with_text or event.reasoning:
                return
            self._add_text(event)
        elif isinstance(event, StepStarted):
            self._end_block(event.agent)
            self._flush_text()
            self._lines.append((f"{event.actor} step {event.step} ({event.kind})", False))
        elif isinstance(event, ToolEvent):
            self._end_block(event.agent)
            self._flush_text()
            self._lines.append((f"{event.server}/{event.tool}: {event.phase}", event.phase != "started"))
        elif isinstance(event, QuestionAsked) and self._with_questions:
            self.tell_question(event)
        else:
            return
        self._wake.set()

    def tell_question(self, event: QuestionAsked) -> None:
        """Queue the line that says what is waited for, and where it can be answered."""
        self._end_block(event.agent)
        self._flush_text()
        self._lines.append((question_line(event), False))
        self._wake.set()

    async def __aenter__(self) -> "ProgressSender":
        self._task = asyncio.create_task(self._send())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._done = True
        self._flush_text()
        self._wake.set()
        try:
            await asyncio.wait({self._task}, timeout=SEND_TIMEOUT)
        finally:
            self._task.cancel()

    def _add_text(self, event: TextDelta) -> None:
        if event.actor not in ("", event.agent):
            self._say(event.actor, event.text)
        else:
            self._say_part(event.agent, self._block.add(event.text, rollback=event.rollback))

    def _end_block(self, agent: str) -> None:
        if self._block.sent:
            self._say_part(agent, self._block.settle())
            self._block = RetriedText()

    def _say_part(self, agent: str, part: TextPart | None) -> None:
        if part is not None:
            self._say(agent, f"\n\n{BEGINS_AGAIN}\n\n{part.text}" if part.voids else part.text)

    def _say(self, speaker: str, text: str) -> None:
        if text:
            self._text.setdefault(speaker, []).append(text)

    def _flush_text(self) -> None:
        while self._text:
            self._flush_speaker()

    def _flush_speaker(self) -> None:
        """Send the text of the speaker that has waited longest: each tick sends one line."""
        speaker = next(iter(self._text))
        text = "".join(self._text.pop(speaker))
        for start in range(0, len(text), TEXT_LIMIT):
            self._lines.append((f"{speaker} » {text[start : start + TEXT_LIMIT]}", False))

    async def _send(self) -> None:
        clock = asyncio.get_running_loop().time
        text_due = 0.0
        while True:
            while self._lines:
                message, ended = self._lines.popleft()
                self._n += 1
                with suppress(Exception):
                    await self._report(float(self._n), float(self._n) if ended else None, message)
            if self._text and clock() >= text_due:
                self._flush_speaker()
                text_due = clock() + TEXT_EVERY
                continue
            if self._done:
                return
            self._wake.clear()
            if not self._text:
                await self._wake.wait()
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, text_due - clock())):
                    await self._wake.wait()


def question_line(event: QuestionAsked) -> str:
    """Return what a question waits for, and where it can be answered, in one line."""
    what = f"approval of {event.tool}" if event.kind == "approval" else "an answer"
    where = f"POST /api/v1/questions/{event.question}/answer, or pallas answer {event.question}"
    said = f": {event.message}" if event.message else ""
    return one_line(f"{event.agent} waits for {what} ({where}){said}", MAX_QUESTION_LINE)


def reporter(context: FastMCPRequestContext) -> Report:
    """Return what sends progress notifications for the request of that context."""
    session, request_id = context.session, context.request_id
    token: Any = (context.meta or {}).get("progressToken")

    async def report(progress: float, total: float | None, message: str) -> None:
        await session.send_progress_notification(
            progress_token=token,
            progress=progress,
            total=total,
            message=message,
            related_request_id=request_id,
        )

    return report
