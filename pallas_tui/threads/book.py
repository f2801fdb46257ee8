"""The threads of a fleet, read in pages as far as somebody wants them; nothing of the screen in here."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from pallas.model import Fault, FaultType, FleetPort, MessageRecord, ThreadRecord
from pallas.text import one_line, sanitize

PAGE: Final = 100
MOST: Final = 20_000
"""Threads that are listed at most; beyond them a filter by agent helps."""
MAX_ROWS: Final = 20_000
"""Rows of one thread that are exported at most."""
_ROWS: Final = 200


@dataclass(frozen=True, slots=True)
class Listed:
    """A thread in the list, made safe to show; ``words`` is what a filter looks through."""

    record: ThreadRecord
    words: str


class ThreadBook:
    """The threads that were read so far, the one used last first; ``complete`` once there are no more.

    ``port`` gives the fleet, None while there is none. ``agent`` limits the list to one. Whatever is asked of
    the fleet raises Fault. ``version`` changes with what is known.
    """

    def __init__(self, port: Callable[[], Any]) -> None:
        self._port = port
        self.agent = ""
        self.listed: list[Listed] = []
        self.complete = False
        self.version = 0
        self._next = ""
        self._known: set[str] = set()
        self._round = 0

    @property
    def records(self) -> list[ThreadRecord]:
        """The threads that were read so far."""
        return [each.record for each in self.listed]

    def choose(self, agent: str) -> None:
        """List those of one agent only, of all with an empty name; nothing of them is read yet."""
        self.agent, self._round = agent, self._round + 1
        self._take([], "", complete=False)

    async def refresh(self) -> None:
        """Read the first page again; what was read further down stays below it."""
        at = self._round
        page = await self.fleet().threads(self.agent, PAGE)
        if at != self._round:
            return
        new = [_listed(record) for record in page.items]
        known = {each.record.id for each in new}
        if not page.next:
            self._take(new, "", complete=True)
        elif not self.listed or not self._known & known:
            # Nothing of what was known is near: what is between the two is not.
            self._take(new, page.next, complete=False)
        else:
            rest = [each for each in self.listed if each.record.id not in known]
            self._take(new + rest, self._next, complete=self.complete)

    async def more(self) -> bool:
        """Read the next page; False when there is none."""
        if self.complete:
            return False
        at, start = self._round, self._next
        page = await self.fleet().threads(self.agent, PAGE, start)
        if at != self._round or start != self._next:
            return False
        new = [_listed(record) for record in page.items if record.id not in self._known]
        full = len(self.listed) + len(new) >= MOST
        self._take(self.listed + new, page.next, complete=full or not page.next)
        return True

    async def rename(self, thread: str, title: str) -> None:
        """Give a thread another title."""
        record = await self.fleet().rename_thread(thread, one_line(title, 200))
        self.listed = [_listed(record) if each.record.id == thread else each for each in self.listed]
        self.version += 1

    async def delete(self, thread: str) -> None:
        """Delete a thread for good."""
        await self.fleet().delete_thread(thread)
        self._take(
            [each for each in self.listed if each.record.id != thread], self._next, complete=self.complete
        )

    async def newest(self, thread: str, rows: int) -> tuple[MessageRecord, ...]:
        """The last rows of a thread, oldest first."""
        page = await self.fleet().thread_messages(thread, rows, "", True)
        return tuple(reversed(page.items))

    async def whole(self, thread: str) -> list[MessageRecord]:
        """All rows of a thread, oldest first, at most ``MAX_ROWS``."""
        rows: list[MessageRecord] = []
        cursor = ""
        while len(rows) < MAX_ROWS:
            page = await self.fleet().thread_messages(thread, _ROWS, cursor)
            rows += page.items
            cursor = page.next
            if not cursor:
                break
        return rows

    def _take(self, listed: list[Listed], cursor: str, *, complete: bool) -> None:
        self.listed, self._next, self.complete = listed, cursor, complete
        self._known = {each.record.id for each in listed}
        self.version += 1

    def fleet(self) -> FleetPort:
        """The fleet. Raises Fault where there is none."""
        port: FleetPort | None = self._port()
        if port is None:
            raise Fault(FaultType.TRANSPORT, "there is no fleet to ask")
        return port


def _listed(record: ThreadRecord) -> Listed:
    safe = replace(
        record,
        title=one_line(sanitize(record.title), 300),
        agent=one_line(record.agent, 100),
        owner=one_line(record.owner, 100),
        origin=one_line(record.origin, 30),
    )
    words = f"{safe.title} {safe.agent} {safe.owner} {safe.origin} {safe.id}".lower()
    return Listed(safe, words)
