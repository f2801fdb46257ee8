"""A list whose rows are known: one line each."""

from abc import abstractmethod
from collections.abc import Hashable, Sequence

from ..text import Glyphs
from .line_view import LineView


class RowList[R](LineView):
    """One line for each of ``rows``. A subclass says what a line looks like, and the key of a row.

    ``hint`` is shown when there are no rows.
    """

    def __init__(self, glyphs: Glyphs, *, id: str, hint: str = "") -> None:  # noqa: A002 - Textual's word
        super().__init__(id=id)
        self.rows: Sequence[R] = ()
        self.hint = hint
        self._glyphs = glyphs
        self._now = 0.0
        self._places: dict[Hashable, int] = {}

    @abstractmethod
    def row_key(self, row: R) -> Hashable:
        """Return the key by which a row is found again when others come and go above it."""

    @property
    def selected(self) -> R | None:
        """The row under the cursor."""
        return self.rows[self.cursor] if self.cursor < len(self.rows) else None

    def set_rows(self, rows: Sequence[R]) -> None:
        """Replace the rows, without painting them."""
        self.rows = rows
        self._places = {}
        for index, row in enumerate(rows):
            self._places.setdefault(self.row_key(row), index)

    def show_rows(self, rows: Sequence[R], now: float = 0.0) -> None:
        """Replace the rows and paint them, as of ``now`` where they show elapsed times."""
        self._now = now or self._now
        self.set_rows(rows)
        self.reload()
        if not rows:
            self.refresh()  # the hint depends on more than the number of rows

    def set_time(self, now: float) -> None:
        """Paint the lines that show an elapsed time."""
        self._now = now
        self.repaint()

    def line_count(self) -> int:
        return len(self.rows)

    def key_at(self, index: int) -> Hashable:
        return self.row_key(self.rows[index])

    def find(self, key: Hashable) -> int | None:
        return self._places.get(key)

    def empty_text(self) -> str:
        return self.hint
