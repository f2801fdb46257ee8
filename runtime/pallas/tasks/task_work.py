"""One task under way: its work, its progress, and the questions that it asks its caller."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import time
from typing import Any, Final

from pallas.asking import Answered
from pallas.model import Event, Fault, FaultType, RunStarted, StepStarted, TaskRecord, ToolEvent
from pallas.runs.run import Listener
from pallas.safe_text import one_line, sanitize

MAX_LINE: Final = 200
MAX_QUESTION: Final = 4_000
MAX_QUESTIONS: Final = 16
"""Questions of one task that wait for an answer at a time."""


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
    task: asyncio.Task[None] | None = None  # does the work
    cancelled: bool = False  # its caller asked for that
    stopped: bool = False  # the fleet ends it
    doing: bool = False  # it can be interrupted; afterwards its end is only written
    unkept: asyncio.Event = field(default_factory=asyncio.Event)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _questions_open: dict[str, asyncio.Future[Answered]] = field(default_factory=dict)
    _questions: int = 0

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
        elif line := _line(event):
            self.change(progress=line)

    async def ask(self, message: str, schema: Mapping[str, Any], seconds: float) -> Answered:
        """Ask the task's owner, and wait for the answer. Raises Fault (UPSTREAM, TIMEOUT)."""
        if len(self._questions_open) >= MAX_QUESTIONS:
            raise Fault(FaultType.UPSTREAM, f"{MAX_QUESTIONS} questions of this task wait for an answer")
        self._questions += 1
        key = f"question-{self._questions}"
        params = {
            "mode": "form",
            "message": sanitize(message, MAX_QUESTION),
            "requestedSchema": dict(schema),
        }
        answer: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._questions_open[key] = answer
        self._wants({**(self.record.request or {}), key: {"method": "elicitation/create", "params": params}})
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            raise Fault(
                FaultType.TIMEOUT, f"no answer within {seconds:g} s: {one_line(message, 120)}"
            ) from None
        finally:
            del self._questions_open[key]
            self._has_answers({key})

    def answer(self, answers: Mapping[str, Answered]) -> None:
        """Set answers by the keys of their questions. Answers to unknown questions are ignored.

        When this returns, an answered question is no longer listed, even if the work has not continued yet.
        """
        answered = set()
        for key, answer in answers.items():
            if (waiting := self._questions_open.get(key)) is not None and not waiting.done():
                waiting.set_result(answer)
                answered.add(key)
        self._has_answers(answered)

    def _has_answers(self, keys: Set[str]) -> None:
        asked = self.record.request or {}
        if asked.keys() & keys:
            self._wants({key: each for key, each in asked.items() if key not in keys})

    def _wants(self, questions: Mapping[str, Any]) -> None:
        if not is_ended(self.record):
            self.change(status="input_required" if questions else "working", request=questions or None)


def _line(event: Event) -> str:
    """The progress line of an event in the words of C2; empty for an event without progress."""
    if isinstance(event, StepStarted):
        return one_line(f"{event.actor} step {event.step} ({event.kind})", MAX_LINE)
    if isinstance(event, ToolEvent):
        return one_line(f"{event.server}/{event.tool}: {event.phase}", MAX_LINE)
    return ""
