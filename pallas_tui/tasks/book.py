"""The tasks of a fleet, read in pages as far as somebody wants them; nothing of the screen in here."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from pallas.model import Fault, FaultType, FleetPort, TaskChanged, TaskRecord, TaskStatus, ThreadRecord
from pallas.text import one_line, sanitize

from ..frame import Frame

PAGE: Final = 100
MOST: Final = 20_000
"""Tasks that are listed at most; beyond them a list of one agent's helps."""
SHOWN_ID: Final = 8
"""Characters of an id that are shown: all of it opens the task for its owner."""
MAX_TEXT: Final = 200_000
"""Characters of an answer that are shown."""
_MOVED: Final = 1_000
"""Changes that are remembered between two readings; beyond them everything is read anew."""
_STATUSES: Final = ("working", "input_required", "completed", "failed", "cancelled")
UNDER_WAY: Final = frozenset({"working", "input_required"})


@dataclass(frozen=True, slots=True)
class Listed:
    """A task in the list, made safe to show; ``words`` is what a filter looks through."""

    record: TaskRecord
    words: str


class TaskBook:
    """The tasks that were read so far, the newest first; ``complete`` once there are no more.

    ``port`` gives the fleet, None while there is none. ``agent`` limits the list to one. Whatever is asked of
    the fleet raises Fault. ``absorb`` only notes that something moved (``stale``): nothing is read before
    somebody looks, and then once for all of it.
    """

    def __init__(self, port: Callable[[], Any]) -> None:
        self._port = port
        self.agent = ""
        self.listed: list[Listed] = []
        self.complete = False
        self.stale = False
        self._next = ""
        self._known: set[str] = set()
        self._round = 0
        self._moved: dict[str, TaskStatus] = {}

    def absorb(self, frame: Frame) -> None:
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

    def choose(self, agent: str) -> None:
        """List those of one agent only, of all with an empty name; nothing of them is read yet."""
        self.agent, self._round = agent, self._round + 1
        self._take([], "", complete=False)

    async def refresh(self) -> None:
        """Read the first page again; what was read further down stays below it, as events told of it."""
        at, self.stale = self._round, False
        moved, self._moved = self._moved, {}
        try:
            page = await self.fleet().tasks(self.agent, PAGE)
        except BaseException:
            self._moved = {**moved, **self._moved}
            raise
        if at != self._round:
            return
        new = [listed_of(record) for record in page.items]
        known = {each.record.id for each in new}
        if not page.next:
            self._take(new, "", complete=True)
        elif not self.listed or not self._known & known:
            # Nothing of what was known is near: what is between the two is not.
            self._take(new, page.next, complete=False)
        else:
            rest = [_moved(each, moved) for each in self.listed if each.record.id not in known]
            self._take(new + rest, self._next, complete=self.complete)

    async def more(self) -> bool:
        """Read the next page; False when there is none."""
        if self.complete:
            return False
        at, start = self._round, self._next
        page = await self.fleet().tasks(self.agent, PAGE, start)
        if at != self._round or start != self._next:
            return False
        new = [listed_of(record) for record in page.items if record.id not in self._known]
        full = len(self.listed) + len(new) >= MOST
        self._take(self.listed + new, page.next, complete=full or not page.next)
        return True

    async def whole(self, task: str) -> TaskRecord:
        """One task with its answer, safe to show."""
        return safe(await self.fleet().task(task))

    async def cancel(self, task: str) -> TaskRecord:
        """Ask for one to be cancelled; it is listed as it is then."""
        record = safe(await self.fleet().cancel_task(task))
        self.listed = [listed_of(record) if each.record.id == task else each for each in self.listed]
        self.stale = True
        return record

    async def thread(self, record: TaskRecord) -> ThreadRecord:
        """The durable thread that a task was said in."""
        return await self.fleet().thread(record.agent, record.thread)

    def _take(self, listed: list[Listed], cursor: str, *, complete: bool) -> None:
        self.listed, self._next, self.complete = listed, cursor, complete
        self._known = {each.record.id for each in listed}

    def fleet(self) -> FleetPort:
        """The fleet. Raises Fault where there is none."""
        port: FleetPort | None = self._port()
        if port is None:
            raise Fault(FaultType.TRANSPORT, "there is no fleet to ask")
        return port


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


def listed_of(record: TaskRecord) -> Listed:
    """A line of the list."""
    record = safe(record)
    words = f"{record.preview} {record.agent} {record.status} {record.owner} {record.kind} {record.id}"
    return Listed(record, f"{words} {record.progress}".lower())


def _moved(listed: Listed, moved: dict[str, TaskStatus]) -> Listed:
    status = moved.get(listed.record.id[:SHOWN_ID], listed.record.status)
    return listed if status == listed.record.status else listed_of(replace(listed.record, status=status))
