"""The board: one line a todo, raised ones first."""

from collections.abc import Hashable, Iterator
from typing import Final

from pallas.model import TodoStatus

from ...records.todo_board import BoardTodo
from ...state import Tone
from ...text import Glyphs, Line, cropped, duration, fit, moment, right, wrapped
from ..fact_lines import ended, fact
from ..row_list import RowList
from ..tasks.task_list import age
from ..tones import DIM, STRONG, STYLES, shape

WORDS: Final[dict[TodoStatus, tuple[str, Tone]]] = {
    "raised": ("raised", Tone.DEGRADED),
    "open": ("waits", Tone.STARTING),
    "closed": ("closed", Tone.STOPPED),
}
EMPTY: Final = (
    "No todos yet.\n"
    "\n"
    "A handler that is an agent sends TodoUntil to system.todo to be reminded when a message that it waits "
    "for arrives. Its todos are listed here, first those that arrived and were not yet taken up.\n"
    "\n"
    "Escape goes back."
)
_STATUS: Final = 7
_ACTOR: Final = 14
_AGE: Final = 6


class TodoLines(RowList[BoardTodo]):
    """How it is, who waits, for how long, for what of whom, and why."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(glyphs, id="todo-list", hint=EMPTY)

    def row_key(self, row: BoardTodo) -> Hashable:
        return row.run_id, row.id

    def line_at(self, index: int, width: int) -> Line:
        todo, glyphs = self.rows[index], self._glyphs
        word, tone = WORDS[todo.status]
        over = todo.status == "closed"
        since = age(self._now - (todo.changed if over else todo.since))
        text = f"{awaited(todo)}{f': {todo.description}' if todo.description else ''}"
        room = max(4, width - 2 - _STATUS - 1 - _ACTOR - _AGE - 2)
        return cropped(
            (
                shape(tone, glyphs),
                (f" {word:<{_STATUS}} ", DIM if over else STYLES[tone]),
                (fit(todo.actor, _ACTOR, glyphs), DIM if over else STRONG),
                (f"{right(since, _AGE)}  ", DIM),
                (fit(text, room, glyphs), DIM if over else ""),
            ),
            width,
        )


def awaited(todo: BoardTodo) -> str:
    """``Shouted of shouter``."""
    return todo.wait_for + (f" of {todo.from_agent}" if todo.from_agent else "")


def facts_of(todo: BoardTodo, now: float) -> Iterator[tuple[str, str]]:
    """Yield the facts about a todo, by name."""
    word = WORDS[todo.status][0]
    if todo.status == "closed":
        came = "what it waited for had arrived" if todo.was_raised else "nothing had arrived"
        yield "state", f"closed by the end of its run, {came}" if todo.gone else f"closed, {came}"
        yield "took", duration(max(0.0, todo.changed - todo.since))
    else:
        began = todo.changed if todo.status == "raised" else todo.since
        yield "state", f"{word}, for {duration(max(0.0, now - began), running=True)}"
    yield "who", todo.actor
    yield "for", awaited(todo)
    yield "since", moment(todo.since, now)
    if todo.status == "raised":
        yield "came", moment(todo.changed, now)
    yield "frame", todo.frame
    yield "run", todo.run_id
    yield "id", todo.id


def details(todo: BoardTodo, width: int, height: int, now: float) -> list[Line]:
    """Return all facts about a todo, for the details next to the list."""
    lines: list[Line] = [((line, STRONG),) for line in wrapped(todo.description or awaited(todo), width)[:6]]
    lines.append(())
    for label, text in facts_of(todo, now):
        if text:
            lines += fact(label, text, width)
    return ended(lines, height)


def details_text(todo: BoardTodo, now: float) -> str:
    """The same as text."""
    known = [f"{label:<8}{text}" for label, text in facts_of(todo, now) if text]
    return "\n\n".join((todo.description or awaited(todo), "\n".join(known)))
