"""A durable thread as messages on the screen: rows of the ledger, read from the newest on."""

import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from pallas.model import MessageRecord, Page, ThreadRecord
from pallas.safe_text import one_line, sanitize, without_controls

from ..pictures.images import ChatPicture, received
from .answer_parts import CallPlace, add_place
from .call_tree import MAX_CALLS, State, Tree
from .chat_entry import ChatEntry

FIRST: Final = 40
"""Rows that are read when a thread is opened."""
ROWS: Final = 60
"""Rows that are read at once further up."""
MAX_PAGES: Final = 20
"""Pages that are searched for the beginning of one turn."""
MAX_TEXT: Final = 1_000_000
_JOINT: Final = "\n\n"
_IN_PROGRESS: Final = "This is still being answered."

Fetch = Callable[[int, str], Awaitable[Page[MessageRecord]]]
"""Returns so many rows from a cursor on, the newest first. Raises Fault."""


class StoredThread:
    """The part of a thread that is not read yet. ``complete`` once nothing is left."""

    def __init__(
        self,
        record: ThreadRecord,
        fetch: Fetch,
        find: Callable[[], Awaitable[ThreadRecord]] | None = None,
    ) -> None:
        """``find`` returns the record where only a name of it is known so far."""
        self.record = record
        self.complete = False
        self._fetch = fetch
        self._find = find
        self._cursor = ""
        self._rows: list[MessageRecord] = []
        self._newest: list[MessageRecord] = []

    async def found(self) -> ThreadRecord | None:
        """Return the record; look it up the first time only. Raises Fault."""
        if self._find is None:
            return None
        self.record = await self._find()
        self._find = None
        return self.record

    async def changed_rows(self) -> list[MessageRecord] | None:
        """Return the newest rows, oldest first, whole turns only; None if they are those of the last call.

        Raises Fault.
        """
        before, self._newest = self._newest, await StoredThread(self.record, self._fetch).older(FIRST)
        return self._newest if self._newest != before else None

    async def older(self, rows: int = ROWS) -> list[MessageRecord]:
        """Return the next rows further up, oldest first, whole turns only; empty at the end. Raises Fault."""
        for _ in range(MAX_PAGES):
            if self.complete:
                break
            page = await self._fetch(rows, self._cursor)
            self._rows = [*reversed(page.items), *self._rows]
            self._cursor, self.complete = page.next, not page.next
            if any(_begins(row) for row in self._rows):
                break
        # Rows before the first question in here belong to a question further up.
        begins = (index for index, row in enumerate(self._rows) if _begins(row))
        start = 0 if self.complete else next(begins, 0)
        found, self._rows = self._rows[start:], self._rows[:start]
        return found


@dataclass(slots=True)
class _Answer:
    """The calls and the text with which an agent answered one question."""

    at: float
    run: str
    texts: list[str] = field(default_factory=list)
    images: list[tuple[str, str]] = field(default_factory=list)
    calls: list[tuple[str, str, str]] = field(default_factory=list)  # id, name, arguments
    places: list[CallPlace] = field(default_factory=list)
    results: dict[str, str] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    reason: str = ""
    pending: bool = False


def entries_of(rows: Iterable[MessageRecord], agent: str) -> list[ChatEntry]:
    """Return the messages of these rows of a thread, oldest first. Slow with pictures: call in a thread.

    An answer with all its calls is one message, as it was while it was streamed. Rows in error show their
    reason; a note with the id of its run stands below an answer that is still in progress.
    """
    entries: list[ChatEntry] = []
    answer: _Answer | None = None
    for row in rows:
        if row.role in ("user", "system") or (answer is not None and row.run != answer.run):
            entries += _settled(answer, agent)
            answer = None
        if row.role == "user":
            pictures = _pictures(row)
            entries.append(
                ChatEntry(
                    "user", without_controls(row.content, MAX_TEXT), row.created_at, attachments=pictures
                )
            )
            answer = _Answer(row.created_at, row.run, reason=_reason(row), pending=row.status == "pending")
        elif row.role == "system":
            head = "For older messages the agent receives this summary:\n\n" if row.summary else ""
            entries.append(ChatEntry("note", head + without_controls(row.content, MAX_TEXT), row.created_at))
        else:
            answer = answer or _Answer(row.created_at, row.run)
            _take(answer, row)
    return entries + _settled(answer, agent)


def _take(answer: _Answer, row: MessageRecord) -> None:
    answer.at = row.created_at
    answer.reason = answer.reason or _reason(row)
    answer.pending = answer.pending or row.status == "pending"
    if row.role == "tool":
        answer.results[row.tool_call_id] = without_controls(row.content, MAX_TEXT)
        if not row.tool_ok:
            answer.failed.add(row.tool_call_id)
    else:
        if row.content:
            answer.texts.append(without_controls(row.content, MAX_TEXT))
        answer.calls += [
            (call.id, one_line(call.name, 200), _json(call.arguments)) for call in row.tool_calls
        ]
        add_place(answer.places, len(_JOINT.join(answer.texts)), min(len(answer.calls), MAX_CALLS))
    answer.images += [(image.data, image.mime_type) for image in row.images]


def _settled(answer: _Answer | None, agent: str) -> list[ChatEntry]:
    if answer is None:
        return []
    found: list[ChatEntry] = []
    tree = _tree(answer, agent)
    wrong = bool(answer.reason)
    if answer.texts or tree is not None or answer.images:
        found.append(
            ChatEntry(
                "assistant",
                _JOINT.join(answer.texts),
                answer.at,
                attachments=received(answer.images),
                tools=len(answer.calls),
                cut="broke off" if wrong else "not finished" if answer.pending else "",
                tree=tree,
                places=tuple(answer.places),
                run_id=one_line(answer.run, 60),
            )
        )
    if wrong:
        found.append(ChatEntry("error", answer.reason, answer.at, run_id=one_line(answer.run, 60)))
    elif answer.pending:
        found.append(ChatEntry("note", _IN_PROGRESS, answer.at, run_id=one_line(answer.run, 60)))
    return found


def _tree(answer: _Answer, agent: str) -> Tree | None:
    if not answer.calls:
        return None
    tree = Tree(agent)
    for call, name, arguments in answer.calls:
        result = answer.results.get(call)
        known: State = "unknown" if result is None else "error" if call in answer.failed else "ok"
        tree.add_stored(name.replace("__", "/", 1), known, arguments, result or "")
    return tree


def _begins(row: MessageRecord) -> bool:
    return row.role in ("user", "system")


def _reason(row: MessageRecord) -> str:
    if row.status != "error":
        return ""
    return sanitize(row.reason, 2_000) or "It failed; no reason was stored."


def _pictures(row: MessageRecord) -> tuple[ChatPicture, ...]:
    return received([(image.data, image.mime_type) for image in row.images])


def _json(arguments: object) -> str:
    try:
        return json.dumps(arguments, indent=2, ensure_ascii=False)
    except (TypeError, ValueError):
        return str(arguments)


def text_of(rows: Sequence[MessageRecord]) -> str:
    """Return the last messages for a preview: one line for each message with text."""
    names = {"user": "you", "assistant": "agent", "system": "summary"}
    return "\n".join(
        f"{names[row.role]}: {one_line(row.content, 400)}"
        for row in rows
        if row.role in names and row.content
    )
