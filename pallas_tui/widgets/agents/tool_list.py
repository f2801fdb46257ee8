"""The tools of an agent and of what it calls, with what changed in each list, and resources, as lines."""

from collections.abc import Callable, Hashable

from pallas.model import ServerDetail
from pallas.safe_text import one_line

from ...text import Glyphs, Line, Part, clock, count, cropped, fit, width_of
from ..row_list import RowList
from ..tones import DIM, STRONG
from .lock_lines import lock_words
from .resource_readings import NOT_READ, SeenResource
from .tool_rows import MARKS, ToolRow


def tool_line(row: ToolRow, agent: str, width: int, glyphs: Glyphs, seen: SeenResource = NOT_READ) -> Line:
    """One line in ``width`` cells; ``seen`` is what was read of a resource."""
    if not row.name:
        name = row.server.server or f"{agent} itself"
        about, style = changes_text(row.server), DIM
        if words := lock_words(row.server.lock):
            about, style = f"{about}; {words}", "$text-warning"
        if row.server.left_out:
            about, style = f"{about}; {len(row.server.left_out)} left out", "$text-warning"
        if row.server.problem:
            about, style = one_line(row.server.problem, 120), "$text-error"
        return cropped((*_both(name, about, width, glyphs, STRONG, style),), width)
    if row.resource is not None:
        sign, style = (glyphs.ok, "$text-success") if seen.is_followed else ("@", DIM)
        what = seen.about or row.resource.uri
        return cropped(((f"{sign} ", style), *_both(row.name, what, width - 2, glyphs, "", DIM)), width)
    sign, style = MARKS.get(row.mark, (" ", DIM))
    what = "is gone" if row.tool is None else row.tool.title or one_line(row.tool.description, 120)
    name_style = DIM if row.tool is None else ""
    return cropped(((f"{sign} ", style), *_both(row.name, what, width - 2, glyphs, name_style, DIM)), width)


def _both(name: str, about: str, width: int, glyphs: Glyphs, one: str, other: str) -> tuple[Part, ...]:
    room = min(width, max(width * 2 // 5, min(width_of(((name, ""),)), width - 12)))
    return (fit(name, room, glyphs), one), (" " + fit(about, max(0, width - room - 1), glyphs), other)


def changes_text(server: ServerDetail) -> str:
    """How many tools there are, and what became of them since they were seen before."""
    changes, parts = server.changes, []
    for word, names in (("new", changes.added), ("gone", changes.removed), ("changed", changes.changed)):
        if names:
            parts.append(f"{len(names)} {word}")
    tools = count(len(server.tools), "tool")
    if server.resources:
        tools = f"{tools}, {count(len(server.resources), 'resource')}"
    if not parts:
        return tools
    seen = f" since {clock(changes.since)}" if changes.since else ""
    return f"{tools}; {', '.join(parts)}{seen}"


class ToolList(RowList[ToolRow]):
    """The tools of one agent, flat lists below the names of their servers."""

    def __init__(self, agent: str, glyphs: Glyphs) -> None:
        super().__init__(glyphs, id="tool-list", hint="Nothing is known yet.")
        self._agent = agent
        self._all: tuple[ToolRow, ...] = ()
        self._words: tuple[str, ...] = ()
        self.seen_of: Callable[[ToolRow], SeenResource] = lambda row: NOT_READ
        """What was read of the resource of a row."""

    def row_key(self, row: ToolRow) -> Hashable:
        return row.key

    def take(self, rows: tuple[ToolRow, ...]) -> None:
        """Show these from now on."""
        self._all = rows
        self.filter_by(self._words)

    def filter_by(self, words: tuple[str, ...]) -> None:
        """Show only tools in which every word occurs."""
        self._words = words
        self.show_rows(
            tuple(
                row
                for row in self._all
                if not words or (row.name and all(word in row.words for word in words))
            )
        )
        self.refresh()

    def select(self, server: str | None, tool: str) -> bool:
        """Put the cursor on a tool, or without one on the server; False when it is not there."""
        wanted = server or ""
        found = self.find((wanted, tool)) if server is not None or tool else None
        if found is None:
            found = self.find((wanted, "")) if server is not None else None
            if found is not None:
                self.action_move_to(found)
            return False
        self.action_move_to(found)
        return True

    def line_at(self, index: int, width: int) -> Line:
        row = self.rows[index]
        seen = self.seen_of(row) if row.resource is not None else NOT_READ
        return tool_line(row, self._agent, width, self._glyphs, seen)

    def empty_text(self) -> str:
        return "No tool matches.\nEscape clears the filter." if self._words else self.hint
