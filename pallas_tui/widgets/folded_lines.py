"""Lines of several colours that go on in the next row where they are too long."""

from collections.abc import Callable, Hashable, Sequence

from ..text import READABLE, Line, wrapped_line
from .line_view import LineView

Hang = Callable[[Line], int]


class FoldedLines(LineView):
    """Lines to read and scroll. ``put`` replaces them; the place that is read stays by its line.

    Lines are broken between words. With ``hang`` what goes on stands that many cells in.
    """

    def __init__(self, lines: Sequence[Line] = (), *, id: str, hang: Hang | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._lines: Sequence[Line] = lines
        self._hang = hang
        self._folded: list[tuple[int, Line]] = []
        self._width = 0

    def put(self, lines: Sequence[Line], *, top: bool = True) -> None:
        """Show these; from the beginning, or with ``top`` off from where the reader is."""
        if lines == self._lines and self._width:
            return
        self._lines = lines
        self._fold()
        self.show_again(top)

    def on_resize(self) -> None:
        width = max(20, min(self.line_width, READABLE))
        if width != self._width:
            self._width = width
            self._fold()
        super().on_resize()

    def _fold(self) -> None:
        if self._width:
            self._folded = [
                (number, part)
                for number, line in enumerate(self._lines)
                for part in wrapped_line(line, self._width, self._hang(line) if self._hang is not None else 0)
            ]

    def line_count(self) -> int:
        return len(self._folded)

    def line_at(self, index: int, width: int) -> Line:
        return self._folded[index][1]

    def key_at(self, index: int) -> Hashable:
        return self._folded[index][0]

    @property
    def line_number(self) -> int:
        """The number of the line that the cursor is in."""
        return self._folded[self.cursor][0] if self.cursor < len(self._folded) else 0

    def find(self, key: Hashable) -> int | None:
        return next((index for index, (number, _) in enumerate(self._folded) if number == key), None)
