"""A list of records, one line each."""

from collections.abc import Hashable, Sequence

from ...records.record_pages import ListedRecord, PagedRecord
from ...text import Glyphs, Line, wrapped
from ..line_view import LineView
from ..tones import DIM


class RecordList[R: PagedRecord](LineView):
    """One line a record, which a subclass says the looks of; a hint where there are none."""

    def __init__(self, glyphs: Glyphs, *, id: str) -> None:  # noqa: A002 - Textual's word
        super().__init__(id=id)
        self._glyphs = glyphs
        self._shown: Sequence[ListedRecord[R]] = ()
        self._places: dict[str, int] = {}
        self._now = 0.0
        self._hint = ""

    @property
    def selected(self) -> R | None:
        """The record under the cursor."""
        return self._shown[self.cursor].record if self.cursor < len(self._shown) else None

    @property
    def shown(self) -> int:
        """How many are listed."""
        return len(self._shown)

    @property
    def near_end(self) -> bool:
        """Whether the last of them is in view, or soon."""
        return self.scroll_offset.y + 2 * max(1, self._height) >= len(self._shown)

    def take(self, shown: Sequence[ListedRecord[R]], now: float, hint: str) -> None:
        """List these; ``hint`` stands there when they are none."""
        self._shown, self._now, self._hint = shown, now, hint
        self._places = {each.record.id: index for index, each in enumerate(shown)}
        self.reload()
        if not shown:
            self.refresh()

    def line_count(self) -> int:
        return len(self._shown)

    def key_at(self, index: int) -> Hashable:
        return self._shown[index].record.id

    def find(self, key: Hashable) -> int | None:
        return self._places.get(str(key))

    def empty(self, width: int) -> list[Line]:
        return [((line, DIM),) for part in self._hint.split("\n") for line in wrapped(part, width) or [""]]
