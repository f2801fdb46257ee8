"""What the panes that are a filtered list have in common."""

from abc import abstractmethod

from textual import on
from textual.message import Message

from ..clipboard import copy
from .filter_line import FilterLine
from .line_view import LineView
from .pane import Pane


class ShowText(Message):
    """The user wants to read everything about something."""

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self.title = title
        self.text = text


class ListPane(Pane):
    """A pane with one ``LineView`` and one ``FilterLine``, which its subclass composes."""

    @property
    def view(self) -> LineView:
        """The list."""
        return self.query_one(LineView)  # type: ignore[type-abstract]  # found, not made

    @property
    def filter(self) -> FilterLine:
        """The line it is filtered in."""
        return self.query_one(FilterLine)

    @abstractmethod
    def full_text(self) -> tuple[str, str] | None:
        """Title and text of everything that is known of the selected item."""

    @abstractmethod
    def choose(self) -> None:
        """What enter does."""

    @abstractmethod
    def filter_by(self, words: tuple[str, ...]) -> None:
        """Show only items in which every word occurs."""

    def selection_changed(self) -> None:
        """Another item is selected, or another part of the list is in view."""

    def focus_pane(self) -> None:
        self.view.focus()

    def action_choose(self) -> None:
        """Enter."""
        self.choose()

    def action_full_text(self) -> None:
        """Read everything about the selected item."""
        if (text := self.full_text()) is not None:
            self.post_message(ShowText(*text))

    async def action_copy(self) -> None:
        """Copy everything about the selected item."""
        if (text := self.full_text()) is not None:
            self.notify(await copy(self.app, text[1]))

    def action_filter(self) -> None:
        """Filter the list."""
        self.filter.open()

    def action_unfilter(self) -> None:
        """Take the filter away."""
        self.filter.clear_filter()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Escape belongs to a filter that no jump made, and the list's keys to the list."""
        if not self.is_mounted:
            return True
        if action == "unfilter":
            return bool(self.filter.words) and not self.returns
        return not (action == "filter" and self.filter.has_focus)

    @on(LineView.CursorMoved)
    def _moved(self, event: LineView.CursorMoved) -> None:
        event.stop()
        self.selection_changed()
        self.refresh_bindings()

    @on(LineView.LineChosen)
    def _chosen(self, event: LineView.LineChosen) -> None:
        event.stop()
        self.choose()

    @on(FilterLine.Filtered)
    def _filtered(self, event: FilterLine.Filtered) -> None:
        event.stop()
        self.filter_by(event.words)
        self.selection_changed()

    @on(FilterLine.FilterLeft)
    def _left(self, event: FilterLine.FilterLeft) -> None:
        event.stop()
        self.view.focus()
