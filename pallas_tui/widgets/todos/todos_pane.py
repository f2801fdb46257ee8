"""The board of todos: who waits for what of whom, what came, and where that is."""

from collections.abc import Callable, Iterable
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.message import Message

from ...actions import bindings
from ...records.todo_board import TodoBoard
from ...text import Glyphs, Line, count, joined
from ...ui_clock import PERIOD
from ..detailed_list_pane import DetailedListPane
from ..fact_lines import DetailLines
from ..filter_line import NOTHING_MATCHES, FilterLine
from .todo_list import EMPTY, TodoLines, details, details_text

HINT: Final = "agent, message, state, description, run"


class TodosPane(DetailedListPane):
    """Follows the board for as long as it can be seen."""

    TITLE = "Todos"
    HELP = """\
What handlers wait for. A handler that is an agent sends `TodoUntil` to `system.todo` and is reminded when a
message of that class arrives. **raised** todos are listed first: their message arrived and was not taken up
yet. Then come those still waiting, the oldest first. Closed todos, also those closed by the end of their run,
are shown for five minutes.

**Enter** goes to the run in the feed, **m** to its messages. **o** hides closed todos. **i** shows all
details of the selected one, **y** copies them. A filter (**/**) searches agents, messages, states and
descriptions.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("todos")

    class OpenTodo(Message):
        """The user wants to see the run of a todo: in the feed, or its messages."""

        def __init__(self, run_id: str, messages: bool) -> None:
            super().__init__()
            self.run_id, self.messages = run_id, messages

    def __init__(self, board: TodoBoard, glyphs: Glyphs, clock: Callable[[], float]) -> None:
        super().__init__(glyphs, id="todos")
        self._board, self._clock = board, clock
        self._with_closed = True
        self._version = -1

    def compose(self) -> ComposeResult:
        with Container(id="todo-columns"):
            yield TodoLines(self._glyphs)
            yield DetailLines(id="todo-details")
        yield FilterLine(HINT, id="todo-filter")

    @property
    def rows(self) -> TodoLines:
        """The list."""
        return self.query_one(TodoLines)

    def on_mount(self) -> None:
        """Show the known todos, and follow new ones."""
        self.set_interval(PERIOD, self._look)
        self.call_after_refresh(self._paint)

    def _look(self) -> None:
        if not self._is_composed or self.app.screen is not self.screen:
            return
        if self._version != self._board.version:
            self._paint()
        else:
            self.rows.set_time(self._clock())
            self._show_details()

    def _paint(self) -> None:
        if not self._is_composed:
            return
        self._version = self._board.version
        known = self._board.listed(self._with_closed)
        shown = [each for each in known if all(word in each.words for word in self._words)]
        self.rows.hint = NOTHING_MATCHES if known else EMPTY
        self.rows.show_rows(shown, self._clock())
        words = [f"{self._board.raised} raised" if self._board.raised else "", f"{self._board.open} open"]
        words.append(f"{len(shown)} of {count(len(known), 'todo')}" if self._words else "")
        words.append("" if self._with_closed else "closed ones hidden")
        self.caption = joined(words, self._glyphs)
        self._show_details()
        self.refresh_bindings()

    def _detail_lines(self, width: int, height: int) -> Iterable[Line]:
        todo = self.rows.selected
        return details(todo, width, height, self._clock()) if todo else ()

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what can be done with the selected one is offered."""
        if not self._is_composed:
            return True
        todo = self.rows.selected
        if action in ("choose", "messages"):
            return todo is not None and bool(todo.run_id)
        if action in ("full_text", "copy"):
            return todo is not None
        return super().check_action(action, parameters)

    def choose(self) -> None:
        """Go to its run in the feed."""
        if (todo := self.rows.selected) is not None and todo.run_id:
            self.post_message(self.OpenTodo(todo.run_id, messages=False))

    def action_messages(self) -> None:
        """Go to the messages of its run."""
        if (todo := self.rows.selected) is not None and todo.run_id:
            self.post_message(self.OpenTodo(todo.run_id, messages=True))

    def action_closed(self) -> None:
        """Hide closed ones, or show them again."""
        self._with_closed = not self._with_closed
        self._paint()

    def full_text(self) -> tuple[str, str] | None:
        todo = self.rows.selected
        return None if todo is None else (f"todo of {todo.actor}", details_text(todo, self._clock()))
