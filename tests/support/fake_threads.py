"""Durable threads that a test makes up, for a fleet that does what a test says."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pallas.model import Fault, MessageRecord, Page, ThreadRecord, refusals


class FakeThreads:
    """Threads by id, the one that was used last first, and their rows. ``asked`` has each page asked for,
    ``searches`` each search, which waits for ``gate``, ``looked`` each thread looked up.

    While ``problem`` is set everything is refused with it.
    """

    def __init__(self) -> None:
        self.records: dict[str, ThreadRecord] = {}
        self.rows: dict[str, list[MessageRecord]] = {}
        self.handles: dict[str, str] = {}
        self.saved: list[tuple[str, dict[str, Any]]] = []
        self.asked: list[tuple[str, int, str]] = []
        self.searches: list[str] = []
        self.looked: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.problem: Fault | None = None

    def add(self, record: ThreadRecord, *rows: MessageRecord) -> None:
        """Another thread."""
        self.records[record.id] = replace(record, messages=record.messages or len(rows))
        self.rows[record.id] = list(rows)

    def page(self, agent: str, limit: int, cursor: str) -> Page[ThreadRecord]:
        """Some of the threads."""
        self.check()
        self.asked.append((agent, limit, cursor))
        found = sorted(
            (one for one in self.records.values() if agent in ("", one.agent)),
            key=lambda one: -(one.last_turn_at or one.created_at),
        )
        return _page(found, limit, cursor)

    def branches(self, thread: str) -> Page[ThreadRecord]:
        """Those that go on from a thread."""
        self.check()
        return Page(tuple(one for one in self.records.values() if one.branched_from == thread))

    async def search(self, search: str, agent: str, limit: int, cursor: str) -> Page[ThreadRecord]:
        """Those with a message in which all words are, with that as their snippet."""
        self.searches.append(search)
        await self.gate.wait()
        self.check()
        words, found = search.lower().split(), []
        for record in self.records.values():
            said = [
                row.content for row in self.rows[record.id] if all(it in row.content.lower() for it in words)
            ]
            if said and agent in ("", record.agent):
                found.append(replace(record, snippet=said[-1]))
        return _page(found, limit, cursor)

    def find(self, agent: str, which: str) -> ThreadRecord:
        """By its id or its handle."""
        self.looked.append(which)
        self.check()
        found = self.records.get(self.handles.get(which, which))
        if found is None or found.agent != agent:
            raise refusals.not_found("there is no such thread (any more); it may have been deleted")
        return found

    def messages(self, thread: str, limit: int, cursor: str, newest_first: bool) -> Page[MessageRecord]:
        """Some rows of a thread."""
        self.check()
        self.asked.append((thread, limit, cursor))
        if thread not in self.rows:
            raise refusals.not_found("there is no such thread (any more); it may have been deleted")
        rows = self.rows[thread]
        return _page(rows[::-1] if newest_first else rows, limit, cursor)

    def rename(self, thread: str, title: str) -> ThreadRecord:
        """Another title."""
        self.check()
        self.records[thread] = replace(self.records[thread], title=title)
        return self.records[thread]

    def delete(self, thread: str) -> None:
        """It was there."""
        self.check()
        del self.records[thread], self.rows[thread]

    def save_params(self, agent: str, params: Mapping[str, Any]) -> str:
        """Note it."""
        self.check()
        self.saved.append((agent, dict(params)))
        return f"{', '.join(params)} saved: {agent} has them for every caller from now on."

    def check(self) -> None:
        """Refuse where everything is refused."""
        if self.problem is not None:
            raise self.problem


def _page[T](found: list[T], limit: int, cursor: str) -> Page[T]:
    start = int(cursor or 0)
    end = start + limit
    return Page(tuple(found[start:end]), str(end) if end < len(found) else "")
