"""The tools of an agent and of what it calls, with what changed in each list, and resources, as lines."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from pallas.model import AgentDetail, ResourceDetail, ServerDetail, ToolDetail
from pallas.safe_text import one_line

from ...text import Glyphs, Line, Part, clock, count, cropped, fit, width_of
from ..row_list import RowList
from ..tones import DIM, STRONG
from .lock_lines import FOUND, HELD, change_of, lock_words
from .resource_readings import NOT_READ, SeenResource

MARKS = {
    "added": ("+", "$text-success"),
    "changed": ("~", "$text-warning"),
    "removed": ("-", "$text-error"),
    "differs from lock": HELD,
    "suspicious": FOUND,
}


@dataclass(frozen=True, slots=True)
class ToolRow:
    """A server (no ``name``), a tool, a resource, or a tool that is gone; ``mark`` is a key of ``MARKS``."""

    server: ServerDetail
    name: str = ""
    tool: ToolDetail | None = None
    mark: str = ""
    resource: ResourceDetail | None = None

    @property
    def key(self) -> Hashable:
        """By what it is known again."""
        if self.resource is not None:
            return self.server.server, "", self.resource.uri
        return self.server.server, self.name

    @property
    def words(self) -> str:
        """What a filter looks in."""
        tool, resource = self.tool, self.resource
        words = [self.server.server, self.name]
        words += [tool.title, tool.description] if tool is not None else []
        words += [resource.uri, resource.title, resource.description] if resource is not None else []
        return " ".join(words).lower()


def tool_rows(detail: AgentDetail) -> tuple[ToolRow, ...]:
    """Every server, each followed by its tools, those that are gone, and its resources."""
    found: list[ToolRow] = []
    for server in detail.servers:
        found.append(ToolRow(server))
        found += [ToolRow(server, tool.name, tool, _mark(server, tool.name)) for tool in server.tools]
        found += [ToolRow(server, name, None, "removed") for name in server.changes.removed]
        found += [ToolRow(server, each.name or each.uri, resource=each) for each in server.resources]
    return tuple(found)


def _mark(server: ServerDetail, tool: str) -> str:
    """What differs from the lock comes before what was seen last."""
    if change_of(server.lock, tool) is not None:
        return "differs from lock"
    if server.lock is not None and any(each.name == tool for each in server.lock.findings):
        return "suspicious"
    if tool in server.changes.added:
        return "added"
    return "changed" if tool in server.changes.changed else ""


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
