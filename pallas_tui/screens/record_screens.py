"""Screens of what the fleet keeps: durable threads, durable tasks, and the board of todos."""

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from pallas.model import ThreadRecord

from ..actions import binding, bindings
from ..records.task_book import TaskBook
from ..records.thread_book import ThreadBook
from ..records.todo_board import TodoBoard
from ..targets import Target
from ..text import Glyphs
from ..widgets.status_line import QuestionLine, StatusLine
from ..widgets.tasks import TasksPane
from ..widgets.threads import ThreadsPane
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


class ThreadsScreen(Screen[ThreadRecord | None]):
    """Ends with the thread to go on with, or None."""

    AUTO_FOCUS = "#thread-list"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012 - Textual's class variable
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("threads_screen"), binding("help")]

    def __init__(self, book: ThreadBook, glyphs: Glyphs) -> None:
        super().__init__(id="threads-screen")
        self._book, self._glyphs = book, glyphs

    def compose(self) -> ComposeResult:
        yield TitleBar([("threads", "show.threads", ThreadsPane.TITLE)], self._glyphs, id="threads-title")
        yield ThreadsPane(self._book, self._glyphs, getattr(self.app, "now", lambda: 0.0))
        yield QuestionLine()
        yield StatusLine()

    def on_mount(self) -> None:
        """Say how many there are."""
        pane, title = self.query_one(ThreadsPane), self.query_one(TitleBar)
        title.tell(focused=True, caption=pane.caption)
        self.watch(pane, "caption", lambda caption: title.tell(caption=caption), init=False)

    def action_leave(self) -> None:
        """Back to the fleet."""
        self.dismiss(None)

    def action_help(self) -> None:
        """Help for this screen."""
        from .help_screen import HelpScreen

        self.app.push_screen(HelpScreen(self.query_one(ThreadsPane).rows, self.active_bindings.values()))

    @on(ThreadsPane.OpenThread)
    def _open(self, event: ThreadsPane.OpenThread) -> None:
        event.stop()
        self.dismiss(event.record)

    @on(ThreadsPane.AskAboutRecord)
    def _ask(self, event: ThreadsPane.AskAboutRecord) -> None:
        event.stop()
        self.query_one(QuestionLine).ask(event.question, event.yes)

    @on(ThreadsPane.Deleted)
    def _deleted(self, event: ThreadsPane.Deleted) -> None:
        event.stop()
        if (gone := getattr(self.app, "thread_gone", None)) is not None:
            gone(event.thread)
