"""A list of records, one line each."""

from collections.abc import Hashable

from ...records.record_pages import PagedRecord
from ..row_list import RowList


class RecordList[R: PagedRecord](RowList[R]):
    """One line a record, which a subclass says the looks of."""

    def row_key(self, row: R) -> Hashable:
        return row.id

    @property
    def near_end(self) -> bool:
        """Whether the last of them is in view, or soon."""
        return self.scroll_offset.y + 2 * max(1, self._height) >= len(self.rows)
