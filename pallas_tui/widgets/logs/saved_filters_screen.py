"""The list of saved filters: choose one, save the current one, delete one."""

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from ...actions import bindings
from ...text import fit
from ..status_line import StatusLine
from ..tones import DIM
from .saved_filters import NAME_LENGTH, SavedFilters

_NAME_WIDTH = 24


class FiltersScreen(ModalScreen[str | None]):
    """Returns the text of the chosen filter; None when none was chosen."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("log_filters")

    def __init__(self, saved: SavedFilters, current: str) -> None:
        """``current`` is the text of the current filter, empty when there is none."""
        super().__init__()
        self._saved, self._current = saved, current
        self._to_delete = ""

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet", id="log-filters"):
            yield Static(" Saved filters", classes="title -focused", markup=False)
            yield OptionList(id="log-filters-list", markup=False)
            yield Static(id="log-filters-status", markup=False)
            line = Input(placeholder="name", compact=True, id="log-filters-name", max_length=NAME_LENGTH)
            line.display = False
            yield line
            yield StatusLine()

    def on_mount(self) -> None:
        """Show the list; if it is empty, say what can be done."""
        self._fill()
        self.query_one(OptionList).focus()

    def _fill(self, at: str = "") -> None:
        filters = self._saved.all()
        options = self.query_one(OptionList)
        options.clear_options()
        for name, text in filters.items():
            options.add_option(Option(Content.assemble(fit(name, _NAME_WIDTH), "  ", (text, DIM)), id=name))
        if filters:
            options.highlighted = list(filters).index(at) if at in filters else 0
        options.display = bool(filters)
        if not filters:
            self._say("None yet. Write a filter with / and press a here to keep it under a name.")
            self.set_focus(None)
        if self._saved.mistake:
            self._say(self._saved.mistake)

    def _say(self, text: str) -> None:
        self.query_one("#log-filters-status", Static).update(text)

    @property
    def _selected(self) -> str:
        options = self.query_one(OptionList)
        at = options.highlighted
        return str(options.get_option_at_index(at).id) if at is not None and options.option_count else ""

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(self._saved.all().get(str(event.option_id)))

    @on(OptionList.OptionHighlighted)
    def _moved(self) -> None:
        if self._to_delete and self._to_delete != self._selected:
            self._to_delete = ""
            self._say("")

    def action_name(self) -> None:
        """Ask for the name of the current filter."""
        if not self._current:
            self._say("No filter is on: write one with / first.")
            return
        self._say(f"Name for: {self._current}")
        line = self.query_one("#log-filters-name", Input)
        line.display = True
        self.set_focus(line)

    @on(Input.Submitted)
    def _named(self, event: Input.Submitted) -> None:
        event.stop()
        if problem := self._saved.save(event.value, self._current):
            self._say(problem)
            return
        self._close_line()
        self._say("Saved.")
        self._fill(event.value)
        self.set_focus(self.query_one(OptionList))

    def action_delete(self) -> None:
        """Delete the selected filter, when asked twice."""
        if not (name := self._selected):
            return
        if self._to_delete != name:
            self._to_delete = name
            self._say(f"Press d again to delete {name}.")
            return
        self._to_delete = ""
        self._say(self._saved.delete(name) or f"{name} is deleted.")
        self._fill()

    def action_back(self) -> None:
        """Leave the line of the name, or the list."""
        line = self.query_one("#log-filters-name", Input)
        if line.display:
            self._close_line()
            self._say("")
            self.set_focus(self.query_one(OptionList))
        else:
            self.dismiss(None)

    def _close_line(self) -> None:
        line = self.query_one("#log-filters-name", Input)
        line.value = ""
        line.display = False
