"""The lines of the inspector: the messages of a run, and below each call the runs it started."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pallas.model import Envelope

from ..runs.feed_run import MAX_NESTING, FeedRun
from .message_book import MessageBook, RunEnvelopes

HEAD: Final = 0
_UP: Final = frozenset({"respond", "result", "end"})


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A line: a message of a run by its number, or with ``HEAD`` the run; ``level`` is its indentation."""

    run: str
    number: int
    level: int


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """The filter: all messages or only undelivered ones, in which each of ``words`` occurs."""

    refused: bool = False
    words: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.refused or bool(self.words)

    def fits(self, letter: Envelope) -> bool:
        """Return whether a message is shown."""
        if self.refused and letter.outcome == "delivered":
            return False
        if not self.words:
            return True
        text = " ".join(
            (f"{letter.number}", letter.sender, letter.to, letter.route, letter.outcome, letter.payload)
        )
        text = f"{text} {letter.code} {letter.detail} {letter.xml}".lower()
        return all(word in text for word in self.words)


def level_of(messages: RunEnvelopes, letter: Envelope) -> int:
    """Return the level of a message: that of the frame that it opens, continues or ends."""
    up = letter.route in _UP and letter.left
    return messages.depth(letter.left if up else letter.frame)


def rows_of(book: MessageBook, run_id: str, run: FeedRun | None, wanted: MessageQuery) -> list[MessageRow]:
    """Return the lines of a run: its messages by number, each followed by the runs that its frame called.

    ``run`` is the run of the feed, None where the feed does not know it. A filtered list has only messages,
    at their places.
    """
    rows: list[MessageRow] = []
    _collect(book, run_id, run, 0, wanted, rows)
    return rows


class MessageLines:
    """The lines of one run at a time, kept between two calls, so that appending lines is cheap."""

    def __init__(self, book: MessageBook) -> None:
        self._book = book
        self._key: object = None
        self._rows: list[MessageRow] = []
        self._last = 0

    def of(self, run_id: str, run: FeedRun | None, wanted: MessageQuery) -> list[MessageRow]:
        """Return the same as ``rows_of``; the same list as before where lines were only added to it."""
        messages = self._book.run(run_id)
        children = tuple(child.id for child in run.children()) if run is not None else ()
        key = (run_id, wanted, children, messages.shuffled if messages is not None else -1)
        if key != self._key or children or messages is None or wanted.words:
            self._key, self._rows = key, rows_of(self._book, run_id, run, wanted)
        else:
            for letter in messages.after(self._last):
                if wanted.fits(letter):
                    deep = min(level_of(messages, letter), MAX_NESTING)
                    self._rows.append(MessageRow(run_id, letter.number, deep))
        self._last = messages.last if messages is not None else 0
        return self._rows


def _collect(
    book: MessageBook,
    run_id: str,
    run: FeedRun | None,
    level: int,
    wanted: MessageQuery,
    into: list[MessageRow],
) -> None:
    messages = book.run(run_id)
    waiting = _children(run)
    if messages is not None:
        everything = not wanted
        for letter in messages:
            deep = level + min(level_of(messages, letter), MAX_NESTING)
            if everything or wanted.fits(letter):
                into.append(MessageRow(run_id, letter.number, deep))
            if waiting and letter.route == "call" and (span := messages.span(letter.frame)):
                for child in waiting.pop(span, ()):
                    _nested(book, child, deep + 1, wanted, into)
    for children in waiting.values():
        for child in children:
            _nested(book, child, level + 1 if messages is not None else level, wanted, into)


def _nested(
    book: MessageBook, run: FeedRun, level: int, wanted: MessageQuery, into: list[MessageRow]
) -> None:
    if not wanted:
        into.append(MessageRow(run.id, HEAD, level))
    _collect(book, run.id, run, level + 1, wanted, into)


def _children(run: FeedRun | None) -> dict[str, list[FeedRun]]:
    found: dict[str, list[FeedRun]] = {}
    for child in run.children() if run is not None else ():
        found.setdefault(child.parent_span, []).append(child)
    return found


def answer_to(messages: RunEnvelopes, letter: Envelope) -> Envelope | None:
    """Return the reply to a message: the first after it that ends its frame; None while there is none.

    For a message that was refused, or failed, that is the SystemError.
    """
    for each in messages:
        if each.number <= letter.number:
            continue
        if letter.outcome != "delivered":
            if each.route == "error" and each.to == letter.sender and each.frame == letter.frame:
                return each
        elif (each.route in _UP and each.left == letter.frame) or (
            each.route == "error" and each.to == letter.sender and each.left == letter.frame
        ):
            return each
    return None


def newest(rows: Sequence[MessageRow], run_id: str) -> int:
    """Return the highest number of a run among the lines."""
    return max((row.number for row in rows if row.run == run_id), default=0)
