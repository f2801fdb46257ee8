"""The board of todos, on a screen of its own."""

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from ..actions import binding, bindings
from ..records.todo_board import TodoBoard
from ..text import Glyphs
from ..widgets.status_line import QuestionLine, StatusLine
from ..widgets.title_bar import TitleBar
from ..widgets.todos import TodosPane
from .screen_layout import WIDE


class TodosScreen(Screen[tuple[str, bool] | None]):
    """Ends with the run to show and whether its messages are meant, or None."""

    AUTO_FOCUS = "#todo-list"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012 - Textual's class variable
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("todos_screen"), binding("help")]

    def __init__(self, board: TodoBoard, glyphs: Glyphs) -> None:
        super().__init__(id="todos-screen")
        self._board, self._glyphs = board, glyphs

    def compose(self) -> ComposeResult:
        yield TitleBar([("todos", "show.todos", TodosPane.TITLE)], self._glyphs, id="todos-title")
        yield TodosPane(self._board, self._glyphs, getattr(self.app, "now", lambda: 0.0))
        yield QuestionLine()
        yield StatusLine()

    def on_mount(self) -> None:
        """Say how many there are."""
        pane, title = self.query_one(TodosPane), self.query_one(TitleBar)
        title.tell(focused=True, caption=pane.caption)
        self.watch(pane, "caption", lambda caption: title.tell(caption=caption), init=False)

    def action_leave(self) -> None:
        """Back to the fleet."""
        self.dismiss(None)

    def action_help(self) -> None:
        """Help for this screen."""
        from .help_screen import HelpScreen

        self.app.push_screen(HelpScreen(self.query_one(TodosPane).rows, self.active_bindings.values()))

    @on(TodosPane.OpenTodo)
    def _open(self, event: TodosPane.OpenTodo) -> None:
        event.stop()
        self.dismiss((event.run_id, event.messages))
