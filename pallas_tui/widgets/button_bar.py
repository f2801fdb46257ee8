"""One line of clickable pieces: the base of the bars."""

from dataclasses import dataclass

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.widget import Widget

from ..text import Line, width_of


@dataclass(frozen=True, slots=True)
class Button:
    """Some parts of a bar that do something when clicked; ``key`` is what a click presses, if anything.

    ``action`` is what it does instead, an action of the application: keys may be letters of a text.
    """

    parts: Line
    key: str = ""
    action: str = ""


class Bar(Widget):
    """A line made of buttons on the left and a text on the right; repaints only when that differs."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self._left: tuple[Button, ...] = ()
        self._right: Line = ()

    def put(self, left: tuple[Button, ...], right: Line = ()) -> None:
        """Show that from now on. Buttons that do not fit left of the right part are left out."""
        if (left, right) != (self._left, self._right):
            self._left, self._right = left, right
            self.refresh()

    def render(self) -> Content:
        """The pieces that fit."""
        width = self.content_size.width
        free = width - width_of(self._right)
        parts: list[tuple[str, str]] = []
        for button in self._left:
            if (free := free - width_of(button.parts)) < 0:
                free += width_of(button.parts)
                break
            parts += button.parts
        return Content.assemble(*parts, " " * free, *self._right)

    def on_click(self, event: events.Click) -> None:
        """Press the key of the button that was hit."""
        x = event.x - self.gutter.left
        for button in self._left:
            x -= sum(cell_len(text) for text, _ in button.parts)
            if x < 0:
                if button.action:
                    event.stop()
                    self.call_later(self.app.run_action, f"app.{button.action}")
                elif button.key:
                    event.stop()
                    self.app.simulate_key(button.key)
                return
