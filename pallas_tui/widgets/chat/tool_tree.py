"""The tool calls of an answer as a tree that folds: one widget for any number of calls."""

from collections.abc import Callable
from typing import ClassVar, Final

from rich.cells import cell_len
from textual import events
from textual.binding import BindingType
from textual.content import Content
from textual.dom import DOMNode
from textual.geometry import Region, Size
from textual.message import Message
from textual.widget import Widget

from ...actions import bindings
from ...chat.answer_parts import AnswerPart
from ...chat.call_outline import CallOutline, CallRow
from ...chat.call_tree import Node, Tree
from ...state import Tone
from ...text import Glyphs, Part, fit
from ..tones import DIM, STYLES

_TONES: Final = {"ok": Tone.OK, "error": Tone.ERROR, "cancelled": Tone.STOPPED, "unknown": Tone.STOPPED}
_LEAST: Final = 12


class ToolTree(Widget, can_focus=True):
    """Rows of the calls in one place of an answer, with their durations.

    While ``live`` the newest are shown, later one row that unfolds.

    ``now`` returns the stopwatch of the conversation. Takes the focus only when the user goes there.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings("calls")

    class CallAsked(Message):
        """Something is wanted of a call, or of all: ``copy`` its result, ``open`` it, or its ``details``."""

        def __init__(self, tree: Tree, node: Node | None, what: str) -> None:
            super().__init__()
            self.tree, self.node, self.what = tree, node, what

    def __init__(
        self, tree: Tree, now: Callable[[], float], part: AnswerPart, *, live: bool, glyphs: Glyphs
    ) -> None:
        super().__init__(classes="chat-calls")
        self._outline = CallOutline(tree, folded=not live, first=part.first, end=part.end)
        self._now, self._live, self._glyphs = now, live, glyphs
        self._rows: list[CallRow] = self._outline.rows(now(), dot=glyphs.dot, live=live)
        self._cursor = 0
        # Else tab would go through the calls of every answer.
        self.can_focus = False

    @property
    def rows(self) -> tuple[CallRow, ...]:
        """The rows on screen."""
        return tuple(self._rows)

    def tick(self) -> None:
        """Update from the tree and the time."""
        self._take(self._outline.rows(self._now(), dot=self._glyphs.dot, live=self._live))

    def limit(self, part: AnswerPart) -> None:
        """Show the calls of ``part``, where it began with the same call before."""
        self._outline.first, self._outline.end = part.first, part.end
        self.tick()

    def settle(self) -> None:
        """Fold to one row: the run is over."""
        self._live = False
        if not self.has_focus:
            self._outline.folded = True
        self.tick()

    def get_content_width(self, container: Size, viewport: Size) -> int:
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._rows)

    def render(self) -> Content:
        lines = [
            self._line(row, self.has_focus and index == self._cursor) for index, row in enumerate(self._rows)
        ]
        return Content("\n").join(lines)

    def _line(self, row: CallRow, pointed: bool) -> Content:
        glyphs = self._glyphs
        fold = " " if row.open is None else glyphs.open if row.open else glyphs.closed
        shape = (glyphs.running, "$text-accent") if row.state == "running" else self._shape(row)
        figures = f"  {row.figures}" if row.figures else ""
        indent = "  " * min(row.depth, 12)
        room = max(_LEAST, self.size.width - len(indent) - 4 - cell_len(figures))
        label = row.label if cell_len(row.label) <= room else fit(row.label, room, glyphs)
        style = "reverse" if pointed else ""
        parts: list[Part] = [(f"{indent}{fold} ", DIM), shape, (" ", ""), (label, style), (figures, DIM)]
        return Content.assemble(*parts)

    def _shape(self, row: CallRow) -> Part:
        tone = _TONES[row.state]
        return str(getattr(self._glyphs, tone.value)), STYLES[tone]

    def _take(self, rows: list[CallRow]) -> None:
        if rows == self._rows:
            return
        grown = len(rows) != len(self._rows)
        self._rows = rows
        self._cursor = min(self._cursor, max(0, len(rows) - 1))
        self.refresh(layout=grown)

    # Keys

    @property
    def _node(self) -> Node | None:
        row = self._rows[self._cursor] if self._rows else None
        if row is not None and row.node is None and len(self._outline.tree.root.children) == 1:
            return self._outline.tree.root.children[0]
        return row.node if row is not None else None

    def unfold(self) -> None:
        """Show all calls."""
        self._outline.set_open(None, True)
        self.tick()

    def open_up(self, *, at_end: bool = False) -> None:
        """Unfold and take the focus, with the first call selected or the last."""
        self.unfold()
        self._cursor = len(self._rows) - 1 if at_end else self._cursor
        self.can_focus = True
        self.screen.set_focus(self)

    def on_blur(self) -> None:
        """Take no focus any more when the user goes elsewhere; a change of windows does not count."""
        if self.app.app_focus and self.screen.focused is not self:
            self.can_focus = False

    def action_move(self, by: int) -> None:
        """Select another call; beyond the ends one of the other calls of the answer."""
        at = self._cursor + by
        if 0 <= at < len(self._rows):
            self._cursor = at
            self.refresh()
            self._show_cursor()
        elif isinstance(self.parent, Widget):
            trees = [each for each in self.parent.children if isinstance(each, ToolTree)]
            other = trees.index(self) + by
            if 0 <= other < len(trees):
                trees[other].open_up(at_end=by < 0)

    def _show_cursor(self) -> None:
        """Scroll the row into view in the scrolling parent."""
        region = Region(0, self._cursor, max(1, self.size.width), 1)
        node: DOMNode | None = self
        while isinstance(node, Widget):
            region = region.translate(node.virtual_region.offset)
            node = node.parent
            if isinstance(node, Widget) and node.is_scrollable:
                node.scroll_to_region(region, animate=False)
                return

    def action_fold(self, is_open: bool) -> None:
        """Unfold or fold the selected call; if it cannot be folded, fold the whole tree."""
        row = self._rows[self._cursor] if self._rows else None
        if row is None:
            return
        if not self._outline.set_open(row.node, is_open) and not is_open:
            self._outline.set_open(None, False)
        self.tick()

    def action_turn(self) -> None:
        """Toggle the fold."""
        row = self._rows[self._cursor] if self._rows else None
        if row is not None and row.open is not None:
            self.action_fold(not row.open)

    def action_copy(self) -> None:
        """Copy the result of the call."""
        self.post_message(self.CallAsked(self._outline.tree, self._node, "copy"))

    def action_choose(self) -> None:
        """Show what was sent and what came back, if that is recorded; else toggle the fold."""
        node = self._node
        if node is not None and node.record is not None and not self._outline.folded:
            self.post_message(self.CallAsked(self._outline.tree, node, "open"))
        else:
            self.action_turn()

    def action_full_text(self) -> None:
        """Show the arguments and the result."""
        self.post_message(self.CallAsked(self._outline.tree, self._node, "details"))

    def on_click(self, event: events.Click) -> None:
        """Fold or unfold on a click."""
        event.stop()
        if 0 <= event.y < len(self._rows):
            self._cursor = event.y
            self.action_turn()
            self.refresh()
