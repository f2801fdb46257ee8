"""The part of the workbench that knows what the fleet keeps: conversations, and tasks."""

from collections.abc import Callable
from typing import Any

from pallas.model import ThreadRecord

from ..targets import Target, ThreadTarget
from ..tasks import TaskBook
from ..text import Glyphs
from ..threads import ThreadBook
from .oversee import Overseer


class Remembering(Overseer):
    """``threads`` and ``tasks`` are those of the fleet that runs, as far as somebody looked at them."""

    glyphs: Glyphs
    _clock: Callable[[], float]

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.threads = ThreadBook(lambda: self.fleet)
        self.tasks = TaskBook(lambda: self.fleet)

    def now(self) -> float:
        """The workbench's time, in Unix seconds."""
        return self._clock()

    def action_threads(self) -> None:
        """Durable threads of all agents; whichever is chosen is opened in the chat."""
        from ..screens.threads import ThreadsScreen

        def chosen(record: ThreadRecord | None) -> None:
            if record is not None:
                self.main.reveal(ThreadTarget(record))

        self.push_screen(ThreadsScreen(self.threads, self.glyphs), chosen)

    def action_tasks(self) -> None:
        """Durable tasks of all agents; what is chosen of one is shown where it is."""
        from ..screens.tasks import TasksScreen

        def chosen(target: Target | None) -> None:
            if target is not None:
                self.main.reveal(target)

        self.push_screen(TasksScreen(self.tasks, self.glyphs), chosen)

    def thread_gone(self, thread: str) -> None:
        """A durable thread was deleted: no tab goes on with it."""
        for pane in self.main.query("ChatPane"):
            if (gone := getattr(pane, "thread_gone", None)) is not None:
                gone(thread)
