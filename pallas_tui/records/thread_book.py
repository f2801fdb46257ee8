"""The threads of a fleet, read in pages as far as the user wants them; nothing of the screen in here."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from pallas.model import MessageRecord, Page, ThreadRecord
from pallas.safe_text import one_line, sanitize

from .record_pages import PAGE, ListedRecord, RecordPages

MAX_ROWS: Final = 20_000
"""Rows of one thread that are exported at most."""
_ROWS: Final = 200


class ThreadBook(RecordPages[ThreadRecord]):
    """The threads that were read so far, the one used last first.

    ``hits`` are those that a search found, with a snippet each, by id; ``has_more_hits`` if it found others.
    """

    def __init__(self, port: Callable[[], Any]) -> None:
        super().__init__(port)
        self.hits: dict[str, ThreadRecord] = {}
        self.has_more_hits = False

    async def search(self, text: str) -> None:
        """Find the newest ``PAGE`` threads in which that was said; an empty text finds none."""
        page = await self.fleet().threads(self.agent, PAGE, "", text) if text else Page(())
        # A fleet of an older release does not search, and returns all its threads, without snippets.
        found = [_listed(each).record for each in page.items if each.snippet]
        self.hits, self.has_more_hits = {each.id: each for each in found}, bool(page.next and found)

    def forget_hits(self) -> None:
        """Begin another search, or none."""
        self.hits, self.has_more_hits = {}, False

    async def page(self, start: str) -> Page[ThreadRecord]:
        return await self.fleet().threads(self.agent, PAGE, start)

    def line_of(self, record: ThreadRecord) -> ListedRecord[ThreadRecord]:
        return _listed(record)

    async def rename(self, thread: str, title: str) -> None:
        """Give a thread another title."""
        renamed = await self.fleet().rename_thread(thread, one_line(title, 200))
        if thread in self.hits:
            self.hits[thread] = _listed(replace(renamed, snippet=self.hits[thread].snippet)).record
        self.put(renamed)

    def learn(self, record: ThreadRecord) -> None:
        """List a thread as it is now, if it is listed and has another title there."""
        line = _listed(record)
        for each in self.listed:
            if each.record.id == record.id and each.record.title != line.record.title:
                self.put(record)
                return

    async def delete(self, thread: str) -> None:
        """Delete a thread for good."""
        await self.fleet().delete_thread(thread)
        self.hits.pop(thread, None)
        self.drop(thread)

    async def newest(self, thread: str, rows: int) -> tuple[MessageRecord, ...]:
        """The last rows of a thread, oldest first."""
        page = await self.fleet().thread_messages(thread, rows, "", True)
        return tuple(reversed(page.items))

    async def branches(self, thread: str) -> tuple[ThreadRecord, ...]:
        """The threads that go on from a thread, the one used last first; at most ``PAGE``."""
        page = await self.fleet().threads("", PAGE, "", "", thread)
        # A fleet of an older release returns all its threads.
        return tuple(_listed(each).record for each in page.items if each.branched_from == thread)

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


def _listed(record: ThreadRecord) -> ListedRecord[ThreadRecord]:
    safe = replace(
        record,
        title=one_line(sanitize(record.title), 300),
        agent=one_line(record.agent, 100),
        owner=one_line(record.owner, 100),
        origin=one_line(record.origin, 30),
        snippet=one_line(record.snippet, 300),
    )
    words = f"{safe.title} {safe.agent} {safe.owner} {safe.origin} {safe.id}".lower()
    return ListedRecord(safe, words)
