"""One task under way: its work, its progress, and the open questions of its runs."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import time
from typing import Any, Final

from pallas.model import (
    Event,
    Fault,
    QuestionAnswered,
    QuestionAsked,
    RunStarted,
    StepStarted,
    TaskRecord,
    ToolEvent,
)
from pallas.model.questions import Question
from pallas.questions.question_form import elicitation_request
from pallas.runs.run import Listener
from pallas.safe_text import one_line

MAX_LINE: Final = 200


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """The outcome of a task's work."""

    result: Mapping[str, Any]  # the result of its tool: a CallToolResult as JSON
    text: str = ""  # the answer in it
    thread: str = ""  # the durable thread, if that is known
    fault: Fault | None = None  # the error, if ``result`` reports it in another form


MakeRun = Callable[[Listener], Awaitable[TaskOutcome]]
"""Does the work and passes the run's events to the listener. Raises Fault."""


def is_ended(task: TaskRecord) -> bool:
    """Whether the task has ended."""
    return task.status not in ("working", "input_required")


@dataclass(slots=True, eq=False)
class TaskWork:
    """A task under way. Belongs to one event loop."""

    record: TaskRecord  # the task as it is now
    publish: Callable[[TaskRecord], None]  # called when the status changes
    open_questions: Callable[[str], Sequence[Question]]  # those below a run
    lists_questions: bool = False  # its client can be asked: otherwise they are only in its progress
    task: asyncio.Task[None] | None = None  # does the work
    cancelled: bool = False  # its caller asked for that
    stopped: bool = False  # the fleet ends it
    doing: bool = False  # it can be interrupted; afterwards its end is only written
    unkept: asyncio.Event = field(default_factory=asyncio.Event)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _answered: set[str] = field(default_factory=set)

    def change(self, **values: Any) -> None:
        """Change fields of the record, and wake its followers."""
        before = self.record.status
        self.record = replace(self.record, updated_at=time(), **values)
        self.unkept.set()
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        if self.record.status != before:
            self.publish(self.record)

    def interrupt(self) -> None:
        """End it, at once or before it begins."""
        # An asyncio task that is cancelled before its first step would never record its end.
        if self.doing and self.task is not None:
            self.task.cancel()

    async def changes(self, seconds: float) -> None:
        """Wait until the record changes, at most ``seconds``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def hear(self, event: Event) -> None:
        """Take one event of its run."""
        if isinstance(event, RunStarted):
            if not self.record.run_id:
                self.change(run_id=event.run_id)
        elif isinstance(event, QuestionAsked | QuestionAnswered):
            if isinstance(event, QuestionAsked):
                self.change(progress=_line(event))
            self.list_questions()
        elif line := _line(event):
            self.change(progress=line)

    def list_questions(self, answered: Set[str] = frozenset()) -> None:
        """List the questions that are open now, without the ``answered`` ones, whose runs go on soon."""
        self._answered |= answered
        if self.lists_questions and self.record.run_id:
            found = self.open_questions(self.record.run_id)
            wanted = {each.id: elicitation_request(each) for each in found if each.id not in self._answered}
            if wanted != (self.record.request or {}):
                self._wants(wanted)

    def _wants(self, questions: Mapping[str, Any]) -> None:
        if not is_ended(self.record):
            self.change(status="input_required" if questions else "working", request=questions or None)


def _line(event: Event) -> str:
    """The progress line of an event in its fixed words; empty for an event without progress."""
    if isinstance(event, StepStarted):
        return one_line(f"{event.actor} step {event.step} ({event.kind})", MAX_LINE)
    if isinstance(event, QuestionAsked):
        what = f"approval of {event.tool}" if event.kind == "approval" else "an answer"
        return one_line(f"{event.agent} waits for {what} (question {event.question})", MAX_LINE)
    if isinstance(event, ToolEvent):
        return one_line(f"{event.server}/{event.tool}: {event.phase}", MAX_LINE)
    return ""
