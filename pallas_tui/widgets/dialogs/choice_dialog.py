"""One of several, filtered while one types."""

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from ...actions import binding, bindings
from ..status_line import StatusLine

_SHOWN = 200


class ChoiceScreen(ModalScreen[int | None]):
    """Ends with the index of the choice, None when there was none. ``choices`` are safe to show."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings("choice"),
        # Those of vi's keys that are no letters.
        binding("vim.pagedown", action="vi_page(1)", priority=True),
        binding("vim.pageup", action="vi_page(-1)", priority=True),
    ]

    def __init__(self, title: str, choices: Sequence[str], now: int = -1) -> None:
        super().__init__()
        self._title = title
        self._choices = choices
        self._now = now
        self._found: list[int] = []

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet", id="choice"):
            yield Static(f" {self._title}", classes="title -focused", markup=False)
            yield Input(placeholder="type a part of the name; enter chooses", compact=True)
            yield OptionList(compact=True, markup=False)
            yield StatusLine()

    def on_mount(self) -> None:
        """Type at once."""
        self.screen.set_focus(self.query_one(Input))
        self._list("")
        if self._now in self._found:
            self.query_one(OptionList).highlighted = self._found.index(self._now)

    def _list(self, text: str) -> None:
        words = text.lower().split()
        found = [i for i, one in enumerate(self._choices) if all(word in one.lower() for word in words)]
        self._found = found[:_SHOWN]
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options(Option(Content(self._choices[index])) for index in self._found)
        if len(found) > _SHOWN:
            options.add_option(
                Option(Content(f"… {len(found) - _SHOWN} more: type a part of the name"), disabled=True)
            )
        options.highlighted = 0 if self._found else None

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self._list(event.value)

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        event.stop()
        self._choose(self.query_one(OptionList).highlighted)

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._choose(event.option_index)

    def _choose(self, index: int | None) -> None:
        if index is not None and index < len(self._found):
            self.dismiss(self._found[index])

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """In a line that has text the keys of vi delete some of it, as everywhere."""
        if action == "vi_page":
            settings = getattr(self.app, "settings", None)
            return getattr(settings, "vim", True) and not self.query_one(Input).value
        return True

    def action_page(self, by: int) -> None:
        """Half a screen through the list, no further than its ends."""
        options = self.query_one(OptionList)
        if not self._found:
            return
        step = by * max(1, options.size.height // 2)
        options.highlighted = min(max((options.highlighted or 0) + step, 0), len(self._found) - 1)

    def action_vi_page(self, by: int) -> None:
        """The same by vi's keys."""
        self.action_page(by)

    def action_move(self, by: int) -> None:
        """Move through the list while typing."""
        options = self.query_one(OptionList)
        if self._found:
            options.highlighted = ((options.highlighted or 0) + by) % len(self._found)
