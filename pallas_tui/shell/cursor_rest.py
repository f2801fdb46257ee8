"""The cursor of a line of text, which blinks only while someone works."""

from typing import TYPE_CHECKING, Any, Final

from textual.app import App
from textual.events import Event, InputEvent

from ..widgets.text_widget import takes_text

if TYPE_CHECKING:  # it is imported after the first paint
    from textual.widgets import Input, TextArea

AFTER: Final = 10.0
"""Seconds without a key or the mouse after which the cursor stays: each blink draws its whole line again."""


class CursorRest:
    """Stops the blinking of the focused cursor of ``app``, which stays visible; the next key goes on with it.

    A cursor that does not blink by itself is left as it is.
    """

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self._is_used = True
        self._resting: Input | TextArea | None = None

    def start(self) -> None:
        """Begin, in the loop of the app."""
        self._app.set_interval(AFTER, self._look)

    def hear(self, event: Event) -> None:
        """Take note of an event: keys, pastes and the mouse have the cursor blink again."""
        if not isinstance(event, InputEvent):
            return
        self._is_used = True
        resting, self._resting = self._resting, None
        if resting is None:
            return
        if resting.has_focus:
            resting.cursor_blink = True
        else:  # it would blink unseen
            resting.set_reactive(type(resting).cursor_blink, True)

    def _look(self) -> None:
        used, self._is_used = self._is_used, False
        focused = self._app.focused
        if not used and takes_text(focused) and focused.cursor_blink:
            self._resting = focused
            focused.cursor_blink = False
