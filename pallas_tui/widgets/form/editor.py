"""The line, or the lines, in which a field is written."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Static, TextArea

from ...text import fit
from ..tones import DIM, STRONG


class Finished(Message):
    """The text should be taken; ``step`` says which field comes next (0: stay)."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step


class Abandoned(Message):
    """The text should be thrown away."""


class _Text(TextArea):
    """Enter takes what was written, alt+enter breaks the line."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "finish(0)", "take", priority=True, tooltip="Take what was written"),
        Binding("tab", "finish(1)", "and next", priority=True, tooltip="Take it and go to the next field"),
        Binding("shift+tab", "finish(-1)", "Take it and go back", show=False, priority=True),
        Binding("alt+enter,shift+enter,ctrl+j", "break_line", "new line", priority=True),
        Binding("escape", "abandon", "leave as it was", priority=True, tooltip="Leave the field as it was"),
    ]

    def action_finish(self, step: int) -> None:
        """Hand the text over."""
        self.post_message(Finished(step))

    def action_break_line(self) -> None:
        """Break the line."""
        start, end = self.selection
        self._replace_via_keyboard("\n", start, end)

    def action_abandon(self) -> None:
        """Leave."""
        self.post_message(Abandoned())


class FieldEditor(Vertical):
    """Hidden until ``open``. Whoever uses it takes ``text`` when it is finished, and closes it or refuses."""

    def __init__(self) -> None:
        super().__init__(id="field-editor")
        self.display = False
        self._label = ""
        self._hint = ""
        self._began = ""

    def compose(self) -> ComposeResult:
        yield Static(id="field-label", markup=False)
        yield _Text(id="field-text", compact=True, highlight_cursor_line=False)

    @property
    def area(self) -> TextArea:
        """Where it is written."""
        return self.query_one("#field-text", TextArea)

    @property
    def text(self) -> str:
        """What is written now."""
        return self.area.text

    @property
    def touched(self) -> bool:
        """Whether it is not as it was when it was opened."""
        return self.area.text != self._began

    def open(self, label: str, text: str, hint: str) -> None:
        """Show it and write into it; keys typed right after this reach it."""
        self._label, self._hint, self._began = label, hint, text
        self.display = True
        self.area.load_text(text)
        self._began = self.area.text
        self.area.move_cursor(self.area.document.end)
        self._say("")
        self.screen.set_focus(self.area)

    def refuse(self, reason: str) -> None:
        """Say why what is written cannot be taken."""
        self._say(reason)

    def close(self) -> None:
        """Hide it."""
        self.display = False

    def _say(self, reason: str) -> None:
        said = (reason, "$text-error") if reason else (self._hint, DIM)
        width = max(10, self.size.width - len(self._label) - 4) if self.size.width else 200
        self.query_one("#field-label", Static).update(
            Content.assemble((f" {self._label}  ", STRONG), (fit(said[0], width).rstrip(), said[1]))
        )
