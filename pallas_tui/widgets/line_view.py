"""A list of lines that are made only when they are seen."""

from abc import abstractmethod
from collections.abc import Hashable
from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import Visual
from textual.widget import Widget

from ..actions import bindings
from ..text import Line, wrapped
from .tones import DIM

_STRIPS = 1_000


class LineView(ScrollView, can_focus=True, inherit_bindings=False):
    """The base of the agent list and the feed: virtual, with a cursor, and still while it is read.

    A subclass says how many lines there are, what each looks like, and by which key it is known again
    when lines come and go above it. After each change of its data it calls ``reload``; when only times
    went on, ``repaint``. With ``follow`` on, cursor and view stay at the end.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings("list")
    COMPONENT_CLASSES: ClassVar[set[str]] = {"lines--cursor", "lines--cursor-idle", "lines--empty"}

    class CursorMoved(Message):
        """The cursor is on another line, or the view was scrolled."""

        def __init__(self, view: "LineView") -> None:
            super().__init__()
            self.view = view

        @property
        def control(self) -> "LineView":
            """The list."""
            return self.view

    class LineChosen(CursorMoved):
        """The line under the cursor was double-clicked."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's word
        super().__init__(id=id)
        self.cursor = 0
        self.follow = False
        self._settling = False
        self._cursor_key: Hashable = None
        self._top_key: Hashable = None
        self._painted: dict[int, Line] = {}
        self._strips: dict[tuple[Line, str, int], Strip] = {}

    # What a subclass says

    @abstractmethod
    def line_count(self) -> int:
        """How many lines there are."""

    @abstractmethod
    def line_at(self, index: int, width: int) -> Line:
        """What line ``index`` looks like in ``width`` cells."""

    @abstractmethod
    def key_at(self, index: int) -> Hashable:
        """By what line ``index`` is known again."""

    @abstractmethod
    def find(self, key: Hashable) -> int | None:
        """Where the line of that key is now, or the one to show instead."""

    def empty_text(self) -> str:
        """Return the text shown when there are no lines."""
        return ""

    def empty_lines(self, width: int) -> list[Line]:
        """Return that text as lines."""
        text = self.empty_text()
        return [((line, DIM),) for line in wrapped(text, width)] if text else []

    # Where things are; a subclass whose items take several lines says otherwise

    def extent(self) -> int:
        """How far one can scroll, the height of the view included."""
        return self.line_count()

    def last_top(self) -> int:
        """Return the top line when the end is in view."""
        return max(0, self.line_count() - self._height)

    def top_showing(self, index: int) -> int:
        """Return the top line that brings line ``index`` into view, with the least movement."""
        return max(min(self.scroll_offset.y, index), index - self._height + 1)

    def index_at(self, y: int) -> int:
        """Return the index of the line ``y`` cells below the top of the view."""
        return y + self.scroll_offset.y

    # Painting

    @property
    def line_width(self) -> int:
        """Cells that a line has."""
        return max(0, self.scrollable_content_region.width)

    def reload(self) -> None:
        """Lines came, went or changed: keep cursor and view on what they were on, and paint."""
        count = self.line_count()
        self._settling = True
        if self.virtual_size.height != (extent := self.extent()):
            self._grow(Size(0, extent))
            self.refresh()
        if self.follow:
            self.cursor = max(0, count - 1)
            self.scroll_to(y=self.last_top(), animate=False, force=True)
        else:
            found = self.find(self._cursor_key)
            self.cursor = min(self.cursor if found is None else found, max(0, count - 1))
            top = self.find(self._top_key)
            if top is not None and top != self.scroll_offset.y:
                self.scroll_to(y=top, animate=False, force=True)
        self._settling = False
        self._remember()
        self.repaint()

    def _grow(self, size: Size) -> None:
        if self.show_vertical_scrollbar and size.height > self.size.height:
            # Only the scrollbar looks different: no reason to lay out the whole screen ten times a second.
            self.set_reactive(Widget.virtual_size, size)
            self._scroll_update(size)
        else:
            self.virtual_size = size

    def repaint(self) -> None:
        """Paint the visible lines that have changed since the last paint."""
        top, count, width = self.scroll_offset.y, self.line_count(), self.line_width
        for index in range(top, min(count, top + self._height)):
            if self._painted.get(index) != self.line_at(index, width):
                self.refresh_line(index)

    def render_line(self, y: int) -> Strip:
        """One line of the view."""
        width = self.line_width
        index = y + self.scroll_offset.y
        count = self.line_count()
        if index < count:
            line = self._painted[index] = self.line_at(index, width)
            kind = "" if index != self.cursor else "lines--cursor" if self.has_focus else "lines--cursor-idle"
        else:
            hint = self.empty_lines(width) if count == 0 else []
            line, kind = (hint[y], "lines--empty") if y < len(hint) else ((), "")
        return self._strip(line, kind, width)

    def _strip(self, line: Line, kind: str, width: int) -> Strip:
        key = (line, kind, width)
        if (strip := self._strips.get(key)) is None:
            style = self.get_visual_style(kind) if kind else self.visual_style
            strips = Visual.to_strips(self, Content.assemble(*line), width, 1, style, pad=True)
            strip = strips[0] if strips else Strip.blank(width, style.rich_style)
            if len(self._strips) >= _STRIPS:
                self._strips.clear()
            self._strips[key] = strip
        return strip

    def notify_style_update(self) -> None:
        """Theme or size changed: nothing painted before is right any more."""
        self._strips.clear()
        self._painted.clear()
        super().notify_style_update()

    @property
    def _height(self) -> int:
        return self.scrollable_content_region.height

    def _remember(self) -> None:
        count = self.line_count()
        self._cursor_key = self.key_at(self.cursor) if self.cursor < count else None
        top = self.scroll_offset.y
        self._top_key = self.key_at(top) if top < count else None
        self._painted = {index: line for index, line in self._painted.items() if top <= index < count}

    # Moving

    def action_move(self, by: int) -> None:
        """Move the cursor by that many lines."""
        self.action_move_to(self.cursor + by)

    def action_page(self, pages: int) -> None:
        """Move the cursor by that many screens."""
        self.action_move(pages * max(1, self._height - 1))

    def action_last(self) -> None:
        """Move the cursor to the last line."""
        self.action_move_to(self.line_count() - 1)

    def action_move_to(self, index: int) -> None:
        """Move the cursor to a line and bring that into view."""
        before, self.cursor = self.cursor, max(0, min(index, self.line_count() - 1))
        self._settling = True
        if (top := self.top_showing(max(0, self.cursor))) != self.scroll_offset.y:
            self.scroll_to(y=top, animate=False, force=True)
        self._settling = False
        self.refresh_line(before)
        self.refresh_line(self.cursor)
        self.moved(scrolled=False)

    def show_again(self, top: bool) -> None:
        """Show other lines: from the first one with ``top``, else from where the reader is."""
        if top:
            self.cursor = 0
            self.scroll_to(y=0, animate=False, force=True)
            self._remember()
        self.reload()
        self.refresh()

    def at_end(self) -> bool:
        """Whether the last line is in view."""
        return self.scroll_offset.y >= self.last_top()

    def moved(self, scrolled: bool) -> None:
        """The cursor was moved, or the view was ``scrolled`` without it. Overriding ones call this last."""
        self._remember()
        self.post_message(self.CursorMoved(self))

    def set_follow(self, follow: bool) -> None:
        """Stay at the end from now on, or where it is."""
        self.follow = follow

    def follow_from(self, scrolled: bool) -> None:
        """Follow the end after a move to it; stop following after a move away."""
        last = self.line_count() - 1
        self.set_follow(self.at_end() if scrolled else self.cursor >= last)
        if self.follow and self.cursor < last:
            self.cursor = last

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """React to any scrolling."""
        super().watch_scroll_y(old_value, new_value)
        if not self._settling and round(old_value) != round(new_value):
            self.moved(scrolled=True)

    def on_click(self, event: events.Click) -> None:
        """Select the line; a double click opens it."""
        index = self.index_at(event.y)
        if index < self.line_count():
            self.action_move_to(index)
            if event.chain == 2:
                self.post_message(self.LineChosen(self))

    def on_focus(self) -> None:
        """The cursor shows where the keys go."""
        self.refresh_line(self.cursor)

    def on_blur(self) -> None:
        """The cursor steps back."""
        self.refresh_line(self.cursor)

    def on_resize(self) -> None:
        """Lines are made for a width."""
        self.reload()
