"""One line that is asked for; a token so that nothing of it can be seen."""

from collections.abc import Callable, Iterable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.suggester import SuggestFromList
from textual.widgets import Input, Static

from pallas.model import Fault

from ...actions import bindings
from ...chat import chat_principal as principals


class LineScreen(ModalScreen[str | None]):
    """Asks for one line; ends with it, or with None. ``check`` returns the mistake in a line, or ``""``.

    A ``secret`` line shows no typed character, offers nothing and is cleared when it is left.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings("line_screen")

    def __init__(
        self,
        title: str,
        hint: str,
        value: str = "",
        *,
        secret: bool = False,
        words: Iterable[str] = (),
        check: Callable[[str], str] = lambda text: "",
    ) -> None:
        super().__init__()
        self._title, self._hint, self._check = title, hint, check
        offered = tuple(words)
        self._line = Input(
            value,
            password=secret,
            compact=True,
            suggester=SuggestFromList(offered, case_sensitive=False) if offered else None,
        )

    def compose(self) -> ComposeResult:
        with Vertical(classes="chat-dialog") as box:
            box.border_title = Content(self._title)
            yield self._line
            yield Static(self._hint, markup=False, classes="chat-dialog-hint")

    def on_mount(self) -> None:
        """Write at once."""
        self._line.focus()

    def action_leave(self) -> None:
        """Nothing is wanted after all."""
        self._end(None)

    @on(Input.Submitted)
    def _on_entered(self, event: Input.Submitted) -> None:
        event.stop()
        if problem := self._check(event.value):
            hint = self.query_one(".chat-dialog-hint", Static)
            hint.update(Content(problem))
            hint.add_class("-problem")
        else:
            self._end(event.value)

    def _end(self, text: str | None) -> None:
        if self._line.password:
            self._line.clear()
        self.dismiss(text)


def masked_token(title: str) -> LineScreen:
    """Asks for a bearer token; ends with it as it was typed, once it can be one, or with None."""
    hint = "Nothing typed is shown, and it is kept in memory only. Enter takes it, escape leaves."
    return LineScreen(title, hint, secret=True, check=_token_problem)


def _token_problem(text: str) -> str:
    try:
        principals.typed(text).release()
    except Fault as fault:
        return fault.message
    return ""
