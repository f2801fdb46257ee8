"""A list of the fleet's records, read in pages as far as the user wants it; nothing of the screen in here."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pallas.model import Fault, FaultType, FleetPort, Page

PAGE: Final = 100
MOST: Final = 20_000
"""Records that are listed at most; beyond them a list of one agent's helps."""


class PagedRecord(Protocol):
    """A listed record of an agent, identified by its id."""

    @property
    def id(self) -> str:
        """By what it is known again."""

    @property
    def agent(self) -> str:
        """Whose it is."""


@dataclass(frozen=True, slots=True)
class ListedRecord[R]:
    """A record in the list, made safe to show; ``words`` is what a filter looks through."""

    record: R
    words: str


class RecordPages[R: PagedRecord](ABC):
    """The records that were read so far, in the fleet's order; ``complete`` once there are no more.

    ``port`` gives the fleet, None while there is none. ``agent`` limits the list to one. Every
    request to the fleet raises Fault. ``version`` changes with the records.
    """

    def __init__(self, port: Callable[[], Any]) -> None:
        self._port = port
        self.agent = ""
        self.listed: list[ListedRecord[R]] = []
        self.complete = False
        self.version = 0
        self._next = ""
        self._known: set[str] = set()
        self._round = 0

    @abstractmethod
    async def page(self, start: str) -> Page[R]:
        """At most ``PAGE`` records of ``agent`` from ``start`` on, as the fleet gives them."""

    @abstractmethod
    def line_of(self, record: R) -> ListedRecord[R]:
        """A record made safe to show."""

    @property
    def records(self) -> list[R]:
        """The records that were read so far."""
        return [each.record for each in self.listed]

    def choose(self, agent: str) -> None:
        """List those of one agent only, of all with an empty name; nothing of them is read yet."""
        self.agent, self._round = agent, self._round + 1
        self._take([], "", complete=False)

    async def refresh(self) -> None:
        """Read the first page again; records read further down stay below it."""
        await self._refresh(lambda each: each)

    async def _refresh(self, updated: Callable[[ListedRecord[R]], ListedRecord[R]]) -> None:
        """The same, with what becomes of each that stays."""
        at = self._round
        page = await self.page("")
        if at != self._round:
            return
        new = [self.line_of(record) for record in page.items]
        known = {each.record.id for each in new}
        if not page.next:
            self._take(new, "", complete=True)
        elif not self.listed or not self._known & known:
            # No known record is on this page: those in between are missing.
            self._take(new, page.next, complete=False)
        else:
            rest = [updated(each) for each in self.listed if each.record.id not in known]
            self._take(new + rest, self._next, complete=self.complete)

    async def more(self) -> bool:
        """Read the next page; False when there is none."""
        if self.complete:
            return False
        at, start = self._round, self._next
        page = await self.page(start)
        if at != self._round or start != self._next:
            return False
        new = [self.line_of(record) for record in page.items if record.id not in self._known]
        full = len(self.listed) + len(new) >= MOST
        self._take(self.listed + new, page.next, complete=full or not page.next)
        return True

    def put(self, record: R) -> None:
        """List one that is listed already as it is now."""
        self.listed = [self.line_of(record) if each.record.id == record.id else each for each in self.listed]
        self.version += 1

    def drop(self, identity: str) -> None:
        """List one no longer."""
        rest = [each for each in self.listed if each.record.id != identity]
        self._take(rest, self._next, complete=self.complete)

    def _take(self, listed: list[ListedRecord[R]], cursor: str, *, complete: bool) -> None:
        self.listed, self._next, self.complete = listed, cursor, complete
        self._known = {each.record.id for each in listed}
        self.version += 1

    def fleet(self) -> FleetPort:
        """The fleet. Raises Fault where there is none."""
        port: FleetPort | None = self._port()
        if port is None:
            raise Fault(FaultType.TRANSPORT, "the fleet is not running")
        return port
