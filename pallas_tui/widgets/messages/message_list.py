"""The list of messages: one line each, with the runs of other agents below their calls."""

from collections.abc import Hashable, Sequence
from typing import Final

from pallas.model import Envelope

from ...messages import MessageBook
from ...messages.message_book import pending
from ...messages.message_tree import HEAD, MessageRow
from ...runs.feed_run import FeedRun
from ...state import Tone
from ...text import DURATION_WIDTH, Glyphs, Line, Part, cropped, duration, fit, right, width_of
from ..line_view import LineView
from ..tones import DIM, STRONG, STYLES, shape

EMPTY: Final = (
    "No messages yet.\n"
    "\n"
    "Handlers with a class of messages (payload: in agents.yaml) send each other messages. Each is listed "
    "here: its sender, its recipient, its frame, whether it fits its schema, and why it was refused. Ask "
    "such an agent something in the chat, or write to it with w in the list of agents.\n"
    "\n"
    "Escape goes back."
)
UNFIT: Final = "A payload that does not fit its recipient's schema is refused before it becomes a message."
_NUMBER = 5
_ROUTE = 8
_MOST_INDENT = 8
_ROOMY = 64
_TONES = {"delivered": Tone.OK, "refused": Tone.ERROR, "dropped": Tone.STOPPED}
_RUN_TONES = {"ok": Tone.OK, "error": Tone.ERROR, "cancelled": Tone.STOPPED, "unknown": Tone.STOPPED}


class MessageList(LineView):
    """``take`` sets its lines; it follows at the end once the user goes there."""

    def __init__(self, book: MessageBook, glyphs: Glyphs, *, id: str) -> None:  # noqa: A002 - Textual's word
        super().__init__(id=id)
        self._book, self._glyphs = book, glyphs
        self._rows: Sequence[MessageRow] = ()
        self._places: dict[tuple[str, int], int] = {}
        self._runs: dict[str, FeedRun] = {}
        self._now = 0.0
        self._hint = ""

    @property
    def rows(self) -> Sequence[MessageRow]:
        """The lines."""
        return self._rows

    @property
    def row(self) -> MessageRow | None:
        """The line under the cursor."""
        return self._rows[self.cursor] if self.cursor < len(self._rows) else None

    @property
    def selected(self) -> Envelope | None:
        """The message under the cursor; None on the head of a run."""
        row = self.row
        return self.letter(row) if row is not None and row.number != HEAD else None

    def letter(self, row: MessageRow) -> Envelope | None:
        """The message of a line."""
        run = self._book.run(row.run)
        return run.get(row.number) if run is not None else None

    def take(self, rows: Sequence[MessageRow], runs: dict[str, FeedRun], now: float, hint: str) -> None:
        """Show these; ``runs`` are the known ones by id, ``hint`` is shown where there are no lines."""
        if rows is not self._rows or len(rows) < len(self._places):
            self._rows, self._places = rows, {}
        for index in range(len(self._places), len(rows)):
            self._places[rows[index].run, rows[index].number] = index
        self._runs, self._now, self._hint = runs, now, hint
        self.reload()
        if not rows:
            self.refresh()

    def tick(self, now: float) -> None:
        """Update the time."""
        self._now = now
        self.repaint()

    def moved(self, scrolled: bool) -> None:
        self.follow_from(scrolled)
        super().moved(scrolled)

    def running(self, run_id: str) -> bool:
        """Return whether a run is still running, as far as that is known."""
        run = self._runs.get(run_id)
        return run is not None and run.running

    def line_count(self) -> int:
        return len(self._rows)

    def key_at(self, index: int) -> Hashable:
        row = self._rows[index]
        return row.run, row.number

    def find(self, key: Hashable) -> int | None:
        return self._places.get(key) if isinstance(key, tuple) else None

    def empty_text(self) -> str:
        return self._hint

    def line_at(self, index: int, width: int) -> Line:
        row = self._rows[index]
        if row.number == HEAD:
            return self._head(row, width)
        letter = self.letter(row)
        return self._message(row, letter, width) if letter is not None else ()

    @property
    def _at_work(self) -> Part:
        return self._glyphs.running, STYLES[Tone.STARTING]

    def _indent(self, row: MessageRow) -> Part:
        glyphs = self._glyphs
        if row.level <= _MOST_INDENT:
            return f"{glyphs.pipe} " * row.level, DIM
        return f"{glyphs.pipe} " * (_MOST_INDENT - 1) + f"{row.level:<2}"[:2].replace(" ", glyphs.pipe), DIM

    def _head(self, row: MessageRow, width: int) -> Line:
        run = self._runs.get(row.run)
        lead: list[Part] = [(" " * (_NUMBER + 1), ""), (f"{'run':<{_ROUTE}}", DIM)]
        if run is None:
            return cropped((*lead, self._indent(row), (row.run, DIM)), width)
        tone = _RUN_TONES.get(run.state)
        mark = shape(tone, self._glyphs) if tone is not None else self._at_work
        took = run.elapsed(self._now)
        tail = right("" if took is None else duration(took, run.running), DURATION_WIDTH)
        lead += [mark, (" ", ""), self._indent(row), (run.agent, STRONG), (f" {run.preview}", DIM)]
        room = width - len(tail) - 1
        return cropped((*_fitted(lead, room, self._glyphs), (f" {tail}", DIM)), width)

    def _message(self, row: MessageRow, letter: Envelope, width: int) -> Line:
        glyphs, wrong = self._glyphs, letter.outcome != "delivered"
        at_work = pending(letter) and self.running(row.run)
        tone = _TONES.get(letter.outcome, Tone.ERROR)
        mark = self._at_work if at_work else shape(tone, glyphs)
        if letter.route == "error" and not wrong:
            mark = shape(Tone.DEGRADED, glyphs)
        if letter.seconds is not None:
            took = duration(letter.seconds)
        else:
            took = duration(max(0.0, self._now - letter.at), running=True) if at_work else ""
        tail = right(took, DURATION_WIDTH)
        parts: list[Part] = [
            (f"{letter.number:>{_NUMBER}} ", DIM),
            (f"{letter.route:<{_ROUTE}}", "" if letter.route == "call" else DIM),
            mark,
            (" ", ""),
            self._indent(row),
            (letter.sender, STRONG if letter.route in ("call", "boot") else ""),
            (f" {glyphs.outbound} ", DIM),
            (letter.to or "no one", STRONG if letter.route == "call" else ""),
        ]
        text = f"  {letter.code or letter.outcome}" if wrong else f"  {letter.payload}"
        room = width - len(tail) - 1
        if width >= _ROOMY or room - width_of(tuple(parts)) > len(text) or wrong:
            parts.append((text, STYLES[tone] if wrong else DIM))
        if wrong and letter.detail:
            parts.append((f": {letter.detail}", DIM))
        return cropped((*_fitted(parts, room, glyphs), (f" {tail}", DIM if not at_work else "")), width)


def _fitted(parts: Sequence[Part], width: int, glyphs: Glyphs) -> list[Part]:
    """Return the parts in exactly ``width`` cells, the last that fits cut with an ellipsis."""
    found: list[Part] = []
    for text, style in parts:
        room = width - width_of(tuple(found))
        if width_of(((text, style),)) > room:
            found.append((fit(text, room, glyphs), style))
            return found
        found.append((text, style))
    return [*found, (" " * (width - width_of(tuple(found))), "")]
