"""A tool tree as the rows on screen: their text, and which of them are folded."""

from dataclasses import dataclass
from typing import Final

from ..text import count, duration
from .call_tree import Node, State, Tree

_WORST: Final[tuple[State, ...]] = ("running", "error", "cancelled", "unknown")
LIVE_ROWS: Final = 10
"""Rows that a run shows while it goes on; older rows are hidden until it is over."""


@dataclass(frozen=True, slots=True)
class CallRow:
    """One row: ``depth`` 0 is a call of the agent itself. ``open`` is None where there is nothing to fold.

    ``node`` is None for a row that represents the whole tree, or the rows that are left out.
    """

    label: str
    figures: str
    state: State
    depth: int = 0
    open: bool | None = None
    node: Node | None = None


def shown_children(node: Node) -> list[Node]:
    """Return the rows below a row. An agent that is all of its call has no row of its own."""
    if node.kind == "call" and len(node.children) == 1 and node.children[0].kind == "agent":
        return node.children[0].children
    return node.children


class CallOutline:
    """The rows of ``tree``. Folded to one row when ``folded``; single calls fold on their own.

    ``first`` and ``end`` limit it to some of the agent's own calls; None is the end of all.
    """

    def __init__(self, tree: Tree, *, folded: bool, first: int = 0, end: int | None = None) -> None:
        self.tree = tree
        self.folded = folded
        self.first, self.end = first, end
        self._closed: set[int] = set()

    def rows(self, now: float, *, dot: str = "·", live: bool = False) -> list[CallRow]:
        """Return the rows on screen at ``now`` (seconds on the stopwatch), only the newest while ``live``."""
        tops = self.tree.root.children[self.first : self.end]
        if not tops:
            return []
        if self.folded:
            newest = next((node for node in reversed(tops) if node.error), None)
            return [self._summary(tops, now, dot), *([_error_row(newest, 0)] if newest is not None else [])]
        rows: list[CallRow] = []
        for node in tops:
            self._add(rows, node, 0, now, dot)
        if self._left_out:
            rows.append(CallRow(f"{count(self.tree.left_out, 'more call')} not kept", "", "unknown"))
        if live and len(rows) > LIVE_ROWS:
            hidden = len(rows) - LIVE_ROWS + 1
            rows = [CallRow(f"{count(hidden, 'earlier call')}", "", "ok"), *rows[hidden:]]
        return rows

    def set_open(self, node: Node | None, is_open: bool) -> bool:
        """Fold or unfold a row, or with None the tree. Return False when that changes nothing."""
        if node is None or self.folded:
            changed = self.folded == is_open
            self.folded = not is_open
            return changed
        key = id(node)
        if not shown_children(node) or (key not in self._closed) == is_open:
            return False
        if is_open:
            self._closed.discard(key)
        else:
            self._closed.add(key)
        return True

    def _add(self, rows: list[CallRow], node: Node, depth: int, now: float, dot: str) -> None:
        children = shown_children(node)
        is_open = None if not children else id(node) not in self._closed
        rows.append(CallRow(node.title, figures_of(node, now, dot), node.state, depth, is_open, node))
        if node.error:
            rows.append(_error_row(node, depth))
        if is_open:
            for child in children:
                self._add(rows, child, depth + 1, now, dot)

    @property
    def _left_out(self) -> int:
        return self.tree.left_out if self.end is None else 0

    def _summary(self, tops: list[Node], now: float, dot: str) -> CallRow:
        if len(tops) == 1 and not self._left_out:
            node = tops[0]
            return CallRow(node.title, figures_of(node, now, dot), node.state, 0, False, None)
        times = [node.seconds(now) for node in tops]
        # Calls that ran in parallel took from the first start to the last end.
        starts = [node.started for node in tops if node.started is not None]
        ends = [now if node.ended is None else node.ended for node in tops]
        parts = [duration(max(ends) - min(starts))] if starts and None not in times else []
        below = [node for top in tops for node in (top, *top.walk())]
        calls = [node for node in below if node.kind == "call"]
        if tops[0].record is not None:  # those of runs below it are counted there
            run_id = tops[0].record.run_id
            calls = [node for node in calls if node.record is not None and node.record.run_id == run_id]
        parts.append(count(len(calls) + self._left_out, "tool"))
        if failed := sum(node.state == "error" for node in below):
            parts.append(f"{failed} failed")
        names = list(dict.fromkeys(node.label for node in tops))
        label = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        states = {node.state for node in tops}
        state: State = next((each for each in _WORST if each in states), "ok")
        return CallRow(label, f" {dot} ".join(parts), state, 0, False, None)


def _error_row(node: Node, depth: int) -> CallRow:
    return CallRow(node.error, "", "error", depth + 1, None, node)


def figures_of(node: Node, now: float, dot: str = "·") -> str:
    """Return ``1.9 s · 3 tools``, and whether it failed or never reported its end."""
    parts = []
    if node.state == "error":
        parts.append("failed")
    elif node.state == "unknown":
        parts.append("no end reported")
    elif node.state == "cancelled":
        parts.append("cancelled")
    seconds = node.seconds(now)
    if seconds is not None:
        parts.append(duration(seconds, running=node.state == "running"))
    if calls := node.calls:
        parts.append(count(calls, "tool"))
    return f" {dot} ".join(parts)


def tree_details(tree: Tree, now: float, first: int = 0, end: int | None = None) -> str:
    """Return the tree, or some of the agent's own calls in it, as indented lines."""
    lines: list[str] = []

    def add(node: Node, depth: int) -> None:
        agent = "agent " if node.kind == "agent" else ""
        figures = figures_of(node, now)
        error = f": {node.error}" if node.error else ""
        lines.append(f"{'  ' * depth}- {agent}{node.title}" + (f" ({figures})" if figures else "") + error)
        for child in node.children:
            add(child, depth + 1)

    for node in tree.root.children[first:end]:
        add(node, 0)
    if tree.left_out and end is None:
        lines.append(f"- {count(tree.left_out, 'more call')} not kept")
    return "\n".join(lines)
