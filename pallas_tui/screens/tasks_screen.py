"""Durable tasks, on a screen of their own."""

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from ..actions import binding, bindings
from ..records.task_book import TaskBook
from ..targets import Target
from ..text import Glyphs
from ..widgets.status_line import QuestionLine, StatusLine
from ..widgets.tasks import TasksPane
from ..widgets.title_bar import TitleBar
from .screen_layout import WIDE


class TasksScreen(Screen[Target | None]):
    """Ends with the thread or the run to show, or None."""

    AUTO_FOCUS = "#task-list"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012 - Textual's class variable
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("tasks_screen"), binding("help")]

    def __init__(self, book: TaskBook, glyphs: Glyphs) -> None:
        super().__init__(id="tasks-screen")
        self._book, self._glyphs = book, glyphs

    def compose(self) -> ComposeResult:
        yield TitleBar([("tasks", "show.tasks", TasksPane.TITLE)], self._glyphs, id="tasks-title")
        yield TasksPane(self._book, self._glyphs, getattr(self.app, "now", lambda: 0.0))
        yield QuestionLine()
        yield StatusLine()

    def on_mount(self) -> None:
        """Say how many there are."""
        pane, title = self.query_one(TasksPane), self.query_one(TitleBar)
        title.tell(focused=True, caption=pane.caption)
        self.watch(pane, "caption", lambda caption: title.tell(caption=caption), init=False)

    def action_leave(self) -> None:
        """Back to the fleet."""
        self.dismiss(None)

    def action_help(self) -> None:
        """Help for this screen."""
        from .help_screen import HelpScreen

        self.app.push_screen(HelpScreen(self.query_one(TasksPane).rows, self.active_bindings.values()))

    @on(TasksPane.OpenTask)
    def _open(self, event: TasksPane.OpenTask) -> None:
        event.stop()
        self.dismiss(event.target)

    @on(TasksPane.AskAboutRecord)
    def _ask(self, event: TasksPane.AskAboutRecord) -> None:
        event.stop()
        self.query_one(QuestionLine).ask(event.question, event.yes)
