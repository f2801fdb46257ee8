"""A list whose items may take several lines, for any number of items."""

from abc import abstractmethod

from textual.strip import Strip

from ...text import Line
from ..line_view import LineView


class WrappingView(LineView):
    """Scrolls item by item; with ``wrap`` on an item takes as many lines as it needs.

    Only visible items are laid out: the total height is never computed.
    """

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's word
        super().__init__(id=id)
        self.wrap = False
        self._laid: list[tuple[int, int, Line]] = []

    @abstractmethod
    def lines_of(self, index: int, width: int) -> list[Line]:
        """Return the lines of an item; at least one."""

    def set_wrap(self, wrap: bool) -> None:
        """Set whether items are wrapped; the cursor stays in view."""
        self.wrap = wrap
        self._painted.clear()
        self.reload()
        if self.line_count():
            self._settling = True
            self.scroll_to(y=self.top_showing(self.cursor), animate=False, force=True)
            self._settling = False
        self.refresh()

    def extent(self) -> int:
        if not self.wrap:
            return super().extent()
        return self.last_top() + self._height if self.line_count() else 0

    def last_top(self) -> int:
        return self._top_above(self.line_count() - 1) if self.wrap else super().last_top()

    def top_showing(self, index: int) -> int:
        if not self.wrap:
            return super().top_showing(index)
        return max(min(self.scroll_offset.y, index), self._top_above(index))

    def index_at(self, y: int) -> int:
        if not self.wrap:
            return super().index_at(y)
        laid = self._lay()
        return laid[y][0] if y < len(laid) else self.line_count()

    def render_line(self, y: int) -> Strip:
        if not self.wrap or not self.line_count():
            return super().render_line(y)
        if y == 0 or len(self._laid) <= y:
            self._laid = self._lay()
        if y >= len(self._laid):
            return self._strip((), "", self.line_width)
        index, _, line = self._laid[y]
        kind = "" if index != self.cursor else "lines--cursor" if self.has_focus else "lines--cursor-idle"
        return self._strip(line, kind, self.line_width)

    def repaint(self) -> None:
        if not self.wrap:
            super().repaint()
        elif (laid := self._lay()) != self._laid:
            self._laid = laid
            self.refresh()

    def refresh_line(self, y: int) -> None:
        """Refresh everything: a wrapped item has more than that one line."""
        if self.wrap:
            self.refresh()
        else:
            super().refresh_line(y)

    def _top_above(self, index: int) -> int:
        """Return the item at the top when ``index`` is the last one in view."""
        room, width = self._height, self.line_width
        top = index
        while top >= 0 and (room := room - len(self.lines_of(top, width))) >= 0:
            top -= 1
        return max(0, min(top + 1, index))

    def _lay(self) -> list[tuple[int, int, Line]]:
        laid: list[tuple[int, int, Line]] = []
        width, height = self.line_width, self._height
        for index in range(self.scroll_offset.y, self.line_count()):
            if len(laid) >= height:
                break
            laid += [(index, part, line) for part, line in enumerate(self.lines_of(index, width))]
        return laid[:height]
