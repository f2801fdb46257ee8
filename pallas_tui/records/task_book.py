"""The tasks of a fleet, read in pages as far as the user wants them; nothing of the screen in here."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, cast

from pallas.model import Page, TaskChanged, TaskRecord, TaskStatus, ThreadRecord
from pallas.safe_text import one_line, sanitize

from ..frame import FleetFrame
from .record_pages import PAGE, ListedRecord, RecordPages

SHOWN_ID: Final = 8
"""Characters of an id that are shown: all of it opens the task for its owner."""
MAX_TEXT: Final = 200_000
"""Characters of an answer that are shown."""
_MOVED: Final = 1_000
"""Changes that are remembered between two readings; beyond them everything is read again."""
_STATUSES: Final = ("working", "input_required", "completed", "failed", "cancelled")
UNDER_WAY: Final = frozenset({"working", "input_required"})


class TaskBook(RecordPages[TaskRecord]):
    """The tasks that were read so far, the newest first.

    ``absorb`` only notes that something moved (``stale``): nothing is read before the user looks, and then
    once for all of it.
    """

    def __init__(self, port: Callable[[], Any]) -> None:
        super().__init__(port)
        self.stale = False
        self._moved: dict[str, TaskStatus] = {}

    async def page(self, start: str) -> Page[TaskRecord]:
        return await self.fleet().tasks(self.agent, PAGE, start)

    def line_of(self, record: TaskRecord) -> ListedRecord[TaskRecord]:
        return listed_of(record)

    def absorb(self, frame: FleetFrame) -> None:
        """Note what a frame tells of tasks."""
        if frame.dropped:
            self.stale = True
        for event in frame.events:
            if isinstance(event, TaskChanged):
                self.stale = True
                if event.status in _STATUSES and len(self._moved) < _MOVED:
                    self._moved[event.task[:SHOWN_ID]] = cast(TaskStatus, event.status)

    @property
    def under_way(self) -> bool:
        """Whether one of those that were read is not over."""
        return any(each.record.status in UNDER_WAY for each in self.listed[:PAGE])

    async def refresh(self) -> None:
        """Read the first page again; records read further down stay below it, as events report them."""
        self.stale = False
        moved, self._moved = self._moved, {}
        try:
            await self._refresh(lambda each: _moved(each, moved))
        except BaseException:
            self._moved = {**moved, **self._moved}
            raise

    async def whole(self, task: str) -> TaskRecord:
        """One task with its answer, safe to show."""
        return safe(await self.fleet().task(task))

    async def cancel(self, task: str) -> TaskRecord:
        """Ask for one to be cancelled; it is listed as it is then."""
        record = safe(await self.fleet().cancel_task(task))
        self.put(record)
        self.stale = True
        return record

    async def thread(self, record: TaskRecord) -> ThreadRecord:
        """The durable thread that a task was said in."""
        return await self.fleet().thread(record.agent, record.thread)


def safe(record: TaskRecord) -> TaskRecord:
    """A task whose texts can be shown."""
    return replace(
        record,
        agent=one_line(record.agent, 100),
        owner=one_line(record.owner, 100),
        kind=one_line(record.kind, 40),
        preview=one_line(sanitize(record.preview), 300),
        progress=one_line(sanitize(record.progress), 300),
        text=sanitize(record.text, MAX_TEXT),
    )


def listed_of(record: TaskRecord) -> ListedRecord[TaskRecord]:
    """A line of the list."""
    record = safe(record)
    words = f"{record.preview} {record.agent} {record.status} {record.owner} {record.kind} {record.id}"
    return ListedRecord(record, f"{words} {record.progress}".lower())


def _moved(listed: ListedRecord[TaskRecord], moved: dict[str, TaskStatus]) -> ListedRecord[TaskRecord]:
    status = moved.get(listed.record.id[:SHOWN_ID], listed.record.status)
    return listed if status == listed.record.status else listed_of(replace(listed.record, status=status))
