"""Screens of lists: threads, tasks, questions to people, todos, replicas, and fleets elsewhere."""

from collections.abc import Callable
from typing import ClassVar

from textual import on
from textual.binding import BindingType

from pallas.model import ThreadRecord
from pallas.model.questions import Question

from ..actions import binding, bindings
from ..instances import Instances
from ..records.question_book import QuestionBook
from ..records.replica_book import ReplicaBook
from ..records.task_book import TaskBook
from ..records.thread_book import ThreadBook
from ..records.todo_board import TodoBoard
from ..runs.feed_run import FeedRun
from ..targets import Target
from ..text import Glyphs
from ..widgets.instances import InstancesPane
from ..widgets.questions import QuestionsPane
from ..widgets.questions.question_form_pane import QuestionFormPane
from ..widgets.replicas import ReplicasPane
from ..widgets.tasks import TasksPane
from ..widgets.threads import ThreadsPane
from ..widgets.todos import TodosPane
from .pane_screen import PaneScreen, SectionsScreen


class InstancesScreen(PaneScreen[str | None]):
    """Ends with the name of the agent to talk to, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("instances_screen"), binding("help")]
    SHOWN_BY = "show.instances"

    def __init__(self, instances: Instances, glyphs: Glyphs) -> None:
        caption = f"attached agents are polled every {instances.pace.interval:g} s"
        super().__init__(InstancesPane(instances, glyphs), glyphs, caption)

    @on(InstancesPane.TalkToInstanceAgent)
    def _open(self, event: InstancesPane.TalkToInstanceAgent) -> None:
        event.stop()
        self.dismiss(event.name)


class TodosScreen(PaneScreen[tuple[str, bool] | None]):
    """Ends with the run to show and whether its messages are meant, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("todos_screen"), binding("help")]
    SHOWN_BY = "show.todos"

    def __init__(self, board: TodoBoard, glyphs: Glyphs, clock: Callable[[], float]) -> None:
        super().__init__(TodosPane(board, glyphs, clock), glyphs)

    @on(TodosPane.OpenTodo)
    def _open(self, event: TodosPane.OpenTodo) -> None:
        event.stop()
        self.dismiss((event.run_id, event.messages))


class ReplicasScreen(PaneScreen[None]):
    """The replicas of the fleet."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("replicas_screen"), binding("help")]
    SHOWN_BY = "show.replicas"

    def __init__(self, book: ReplicaBook, glyphs: Glyphs, clock: Callable[[], float]) -> None:
        super().__init__(ReplicasPane(book, glyphs, clock), glyphs)


class TasksScreen(PaneScreen[Target | None]):
    """Ends with the thread or the run to show, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("tasks_screen"), binding("help")]
    SHOWN_BY = "show.tasks"

    def __init__(self, book: TaskBook, glyphs: Glyphs, clock: Callable[[], float]) -> None:
        super().__init__(TasksPane(book, glyphs, clock), glyphs)

    @on(TasksPane.OpenTask)
    def _open(self, event: TasksPane.OpenTask) -> None:
        event.stop()
        self.dismiss(event.target)


class QuestionsScreen(PaneScreen[Target | None]):
    """Ends with the thread or the run to show, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("questions_screen"), binding("help")]
    SHOWN_BY = "show.questions"

    def __init__(
        self,
        book: QuestionBook,
        glyphs: Glyphs,
        clock: Callable[[], float],
        run_of: Callable[[str], FeedRun | None],
    ) -> None:
        super().__init__(QuestionsPane(book, glyphs, clock, run_of), glyphs)
        self._book, self._clock = book, clock

    @on(QuestionsPane.OpenQuestion)
    def _open(self, event: QuestionsPane.OpenQuestion) -> None:
        event.stop()
        self.dismiss(event.target)

    @on(QuestionsPane.FillIn)
    def _fill_in(self, event: QuestionsPane.FillIn) -> None:
        event.stop()
        self.app.push_screen(QuestionFormScreen(event.question, self._book, self._glyphs, self._clock))


class QuestionFormScreen(SectionsScreen):
    """The form of one question; it ends once that is answered."""

    TITLES = (("form", "show.questions", "Form"),)

    def __init__(
        self, question: Question, book: QuestionBook, glyphs: Glyphs, clock: Callable[[], float]
    ) -> None:
        caption = f"for {question.agent}"
        super().__init__(QuestionFormPane(question, book, glyphs, clock), glyphs, caption)


class ThreadsScreen(PaneScreen[ThreadRecord | None]):
    """Ends with the thread to go on with, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("threads_screen"), binding("help")]
    SHOWN_BY = "show.threads"

    def __init__(
        self, book: ThreadBook, glyphs: Glyphs, clock: Callable[[], float], search: str = ""
    ) -> None:
        super().__init__(ThreadsPane(book, glyphs, clock), glyphs)
        self._search = search

    def when_shown(self) -> None:
        if self._search:
            self.query_one(ThreadsPane).search_for(self._search)

    @on(ThreadsPane.OpenThread)
    def _open(self, event: ThreadsPane.OpenThread) -> None:
        event.stop()
        self.dismiss(event.record)
