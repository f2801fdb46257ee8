"""What the panes with details next to their list have in common."""

from abc import abstractmethod
from collections.abc import Iterable, Sized
from typing import ClassVar

from textual.widget import Widget

from ..state import Tone
from ..text import Glyphs, Line
from .fact_lines import ActionStatus, DetailLines
from .filter_line import NOTHING_MATCHES
from .line_view import LineView
from .list_pane import ListPane


class DetailedListPane(ListPane):
    """A list with a ``DetailLines`` next to it, which shows the details of the selected row."""

    PARTS: ClassVar[tuple[type[Widget], ...]] = (LineView, DetailLines)
    """The widgets that painting needs."""

    def __init__(self, glyphs: Glyphs, *, id: str) -> None:  # noqa: A002 - Textual's word
        super().__init__(id=id)
        self._glyphs = glyphs
        self._words: tuple[str, ...] = ()

    @property
    def _is_composed(self) -> bool:
        """Return whether the children still exist: they are removed before the pane is."""
        return self.is_mounted and self.is_attached and all(self.query(part) for part in self.PARTS)

    @abstractmethod
    def _paint(self) -> None:
        """Show the rows that match the filter, and the details of the selected one."""

    @abstractmethod
    def _detail_lines(self, width: int, height: int) -> Iterable[Line]:
        """Return the details of the selected row; nothing where no row is selected."""

    def _show_details(self) -> None:
        """Show the details of the selected row."""
        if self._is_composed:
            view = self.query_one(DetailLines)
            size = view.content_region.size
            view.show_lines(self._detail_lines(size.width, size.height) if size else ())

    def on_resize(self) -> None:
        """Details are wrapped to a width."""
        self.call_after_refresh(self._show_details)

    def selection_changed(self) -> None:
        self._show_details()

    def filter_by(self, words: tuple[str, ...]) -> None:
        self._words = words
        self._paint()

    def _why_empty(self, problem: str, known: Sized) -> str:
        """Return why nothing is listed: what could not be read, or the filter; empty for neither."""
        if problem:
            return f"{problem}\n\nr reads again."
        return NOTHING_MATCHES if self._words and known else ""

    def _say(self, text: str, tone: Tone = Tone.STARTING) -> None:
        """Show a line below the list, in a pane with an ``ActionStatus``: the action, or why it failed."""
        self.query_one(ActionStatus).report(text, tone)
