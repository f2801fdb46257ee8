"""One task while it is under way: what it does, how far it has come, what it waits to be told."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import time
from typing import Any, Final

from pallas.asking import Answered
from pallas.model import Event, Fault, FaultType, RunStarted, StepStarted, TaskRecord, ToolEvent
from pallas.model.safe_text import one_line, sanitize
from pallas.runs.run import Listener

MAX_LINE: Final = 200
MAX_QUESTION: Final = 4_000
MAX_QUESTIONS: Final = 16
"""Questions of one task that wait for an answer at a time."""


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """What came of the work: ``result`` is what its tool answers (a CallToolResult as JSON), ``text`` the
    answer in it. ``fault`` is what went wrong where that is told in a result of another form; ``thread`` the
    durable thread that it was said in, where it is known.
    """

    result: Mapping[str, Any]
    text: str = ""
    thread: str = ""
    fault: Fault | None = None


MakeRun = Callable[[Listener], Awaitable[TaskOutcome]]
"""Does the work; the listener is to hear the run's events. Raises Fault."""


def is_over(task: TaskRecord) -> bool:
    """Whether it has come to its end."""
    return task.status not in ("working", "input_required")


@dataclass(slots=True, eq=False)
class TaskWork:
    """``record`` is the task as it is now; ``task`` does the work.

    ``cancelled`` once somebody asked for that, ``stopped`` once the fleet ends it; ``doing`` from the moment
    that it can be interrupted to its end, from which on it is only written down.

    Belongs to one event loop. ``told`` hears each change of the status.
    """

    record: TaskRecord
    told: Callable[[TaskRecord], None]
    task: asyncio.Task[None] | None = None
    cancelled: bool = False
    stopped: bool = False
    doing: bool = False
    unkept: asyncio.Event = field(default_factory=asyncio.Event)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _asked: dict[str, asyncio.Future[Answered]] = field(default_factory=dict)
    _questions: int = 0

    def change(self, **values: Any) -> None:
        """The record has these from now on; who follows it hears of that."""
        before = self.record.status
        self.record = replace(self.record, updated_at=time(), **values)
        self.unkept.set()
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        if self.record.status != before:
            self.told(self.record)

    def interrupt(self) -> None:
        """End it: at once, or before it begins."""
        # A task that is cancelled before its first step would never say that it was.
        if self.doing and self.task is not None:
            self.task.cancel()

    async def changes(self, seconds: float) -> None:
        """Until something is different, ``seconds`` at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def hear(self, event: Event) -> None:
        """An event of its run."""
        if isinstance(event, RunStarted):
            if not self.record.run_id:
                self.change(run_id=event.run_id)
        elif line := _line(event):
            self.change(progress=line)

    async def ask(self, message: str, schema: Mapping[str, Any], seconds: float) -> Answered:
        """Ask the task's owner, and wait. Raises Fault (UPSTREAM, TIMEOUT)."""
        if len(self._asked) >= MAX_QUESTIONS:
            raise Fault(FaultType.UPSTREAM, f"{MAX_QUESTIONS} questions of this task wait for an answer")
        self._questions += 1
        key = f"question-{self._questions}"
        params = {
            "mode": "form",
            "message": sanitize(message, MAX_QUESTION),
            "requestedSchema": dict(schema),
        }
        answer: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._asked[key] = answer
        self._wants({**(self.record.request or {}), key: {"method": "elicitation/create", "params": params}})
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            raise Fault(
                FaultType.TIMEOUT, f"nobody answered within {seconds:g} s: {one_line(message, 120)}"
            ) from None
        finally:
            del self._asked[key]
            self._has_answers({key})

    def answer(self, answers: Mapping[str, Answered]) -> None:
        """Answers by the keys of their questions; those that nobody waits for say nothing.

        An answered question is no longer asked once this returns, whenever the work goes on.
        """
        heard = set()
        for key, answer in answers.items():
            if (waiting := self._asked.get(key)) is not None and not waiting.done():
                waiting.set_result(answer)
                heard.add(key)
        self._has_answers(heard)

    def _has_answers(self, keys: Set[str]) -> None:
        asked = self.record.request or {}
        if asked.keys() & keys:
            self._wants({key: each for key, each in asked.items() if key not in keys})

    def _wants(self, questions: Mapping[str, Any]) -> None:
        if not is_over(self.record):
            self.change(status="input_required" if questions else "working", request=questions or None)


def _line(event: Event) -> str:
    """What an event says of how far it is, in the words of C2; empty for one that says nothing of that."""
    if isinstance(event, StepStarted):
        return one_line(f"{event.actor} step {event.step} ({event.kind})", MAX_LINE)
    if isinstance(event, ToolEvent):
        return one_line(f"{event.server}/{event.tool}: {event.phase}", MAX_LINE)
    return ""
