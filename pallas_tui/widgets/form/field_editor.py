"""The line, or the lines, in which a field is written."""

from collections.abc import Callable
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static, TextArea

from ...actions import bindings
from ...text import fit
from ..tones import DIM, STRONG


class _Text(TextArea):
    """A text area where enter submits and alt+enter breaks the line."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("field")

    def __init__(self, finish: Callable[[int], None], abandon: Callable[[], None]) -> None:
        super().__init__(id="field-text", compact=True, highlight_cursor_line=False, tab_behavior="focus")
        self._finish = finish
        self._abandon = abandon

    def action_finish(self, step: int) -> None:
        """Hand the text over."""
        self._finish(step)

    def action_break_line(self) -> None:
        """Break the line."""
        start, end = self.selection
        self._replace_via_keyboard("\n", start, end)

    def action_abandon(self) -> None:
        """Leave."""
        self._abandon()

    async def _on_key(self, event: events.Key) -> None:
        if self.screen.focused is not self:
            # Typed ahead, right behind the key that finished the writing: it is meant for the list.
            event.stop()
            event.prevent_default()
            self.app.simulate_key(event.key)
            return
        # Here and not by way of the bindings, which act before the letters typed just ahead were taken in.
        if event.key != "enter" and event.is_printable:
            return
        bound = self.screen.active_bindings.get(event.key)
        own = bound is not None and bound.node is self and (bound.binding.id or "").startswith("field.")
        if bound is not None and own:
            event.stop()
            event.prevent_default()
            await self.run_action(bound.binding.action)


class FieldEditor(Vertical):
    """Edits one field. Hidden until ``open``. ``finish`` reads ``text``, and closes the editor or refuses.

    ``finish`` gets the step to the field that comes next (0: none), ``abandon`` means that nothing is taken.
    Both are called at once and not by message: keys typed right behind belong to what comes then.
    """

    def __init__(self, finish: Callable[[int], None], abandon: Callable[[], None]) -> None:
        super().__init__(id="field-editor")
        self.display = False
        self._calls = finish, abandon
        self._label = ""
        self._hint = ""
        self._began = ""

    def compose(self) -> ComposeResult:
        yield Static(id="field-label", markup=False)
        yield _Text(*self._calls)

    @property
    def area(self) -> TextArea:
        """Where it is written."""
        return self.query_one("#field-text", TextArea)

    @property
    def text(self) -> str:
        """The current text."""
        return self.area.text

    @property
    def touched(self) -> bool:
        """Whether it is not as it was when it was opened."""
        return self.area.text != self._began

    def open(self, label: str, text: str, hint: str) -> None:
        """Show it and write into it; keys typed right after this reach it."""
        self._label, self._hint = label, hint
        self.display = True
        self.area.load_text(text)
        self._began = self.area.text
        self.area.move_cursor(self.area.document.end)
        self._say("")
        self.screen.set_focus(self.area)

    def refuse(self, reason: str) -> None:
        """Show why the text is not accepted."""
        self._say(reason)

    def close(self) -> None:
        """Hide it."""
        self.display = False

    def _say(self, reason: str) -> None:
        text, style = (reason, "$text-error") if reason else (self._hint, DIM)
        width = max(10, self.size.width - len(self._label) - 4) if self.size.width else 200
        self.query_one("#field-label", Static).update(
            Content.assemble((f" {self._label}  ", STRONG), (fit(text, width).rstrip(), style))
        )
