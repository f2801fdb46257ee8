"""The todos of all handlers, made of events."""

from dataclasses import dataclass, replace
from typing import Final

from pallas.model import RunFinished, TodoChanged, TodoStatus
from pallas.safe_text import one_line

from ..frame import FleetFrame

MAX_TODOS: Final = 2_000
CLOSED_FOR: Final = 300.0
"""Seconds for which one that is closed stays on the board."""
_ORDER: Final[dict[TodoStatus, int]] = {"raised": 0, "open": 1, "closed": 2}
_LINE: Final = 200


@dataclass(frozen=True, slots=True)
class BoardTodo:
    """``actor`` waits in ``frame`` of a run for ``wait_for``, a class of message, of ``from_agent``.

    ``since`` is when it began, ``changed`` when it came to be ``status``: ``raised`` once that came. ``gone``
    says that it was closed by the end of its run.
    """

    id: str
    run_id: str
    actor: str
    frame: str
    status: TodoStatus
    since: float
    changed: float
    wait_for: str = ""
    from_agent: str = ""
    description: str = ""
    was_raised: bool = False
    gone: bool = False

    @property
    def words(self) -> str:
        """What a filter looks in."""
        named = (self.status, self.actor, self.wait_for, self.from_agent, self.description)
        return " ".join((*named, self.run_id, self.frame, self.id)).lower()


class TodoBoard:
    """The last ``MAX_TODOS`` of them; closed ones go after a while. ``version`` changes with any of them."""

    def __init__(self) -> None:
        self._todos: dict[tuple[str, str], BoardTodo] = {}
        self._by_run: dict[str, int] = {}
        self.version = 0

    def listed(self, closed: bool = True) -> list[BoardTodo]:
        """Raised ones first, then open ones, the oldest first; then closed ones, the newest first."""
        found = [each for each in self._todos.values() if closed or each.status != "closed"]
        found.sort(key=lambda each: -each.changed if each.status == "closed" else each.since)
        found.sort(key=lambda each: _ORDER[each.status])
        return found

    @property
    def raised(self) -> int:
        """How many handlers were reminded and have not said yet that it is done."""
        return sum(each.status == "raised" for each in self._todos.values())

    @property
    def open(self) -> int:
        """How many wait."""
        return sum(each.status == "open" for each in self._todos.values())

    def absorb(self, frame: FleetFrame) -> bool:
        """Take in what a frame tells; returns whether anything changed."""
        before = self.version
        for event in frame.events:
            if isinstance(event, TodoChanged):
                self._take(event)
            elif isinstance(event, RunFinished) and self._by_run.get(event.run_id):
                self._end(event)
        if self._todos:
            self._forget(frame.now)
        return self.version != before

    def _take(self, event: TodoChanged) -> None:
        key = (event.run_id, event.todo)
        known = self._todos.get(key)
        todo = BoardTodo(
            one_line(event.todo, _LINE),
            one_line(event.run_id, _LINE),
            one_line(event.actor, _LINE),
            one_line(event.frame, _LINE),
            event.status,
            event.at if known is None else known.since,
            event.at,
            one_line(event.wait_for, _LINE) or (known.wait_for if known is not None else ""),
            one_line(event.from_agent, _LINE) or (known.from_agent if known is not None else ""),
            one_line(event.description, 1_000) or (known.description if known is not None else ""),
            event.was_raised or (known is not None and known.was_raised) or event.status == "raised",
        )
        if known is None:
            self._by_run[event.run_id] = self._by_run.get(event.run_id, 0) + 1
        self._todos[key] = todo
        self.version += 1

    def _end(self, event: RunFinished) -> None:
        for key, todo in self._todos.items():
            if key[0] == event.run_id and todo.status != "closed":
                self._todos[key] = replace(todo, status="closed", changed=event.at, gone=True)
                self.version += 1

    def _forget(self, now: float) -> None:
        gone = [
            key
            for key, each in self._todos.items()
            if each.status == "closed" and now - each.changed > CLOSED_FOR
        ]
        if (over := len(self._todos) - len(gone) - MAX_TODOS) > 0:
            gone += [key for key in self._todos if key not in gone][:over]
        for key in gone:
            del self._todos[key]
            self._by_run[key[0]] -= 1
            if not self._by_run[key[0]]:
                del self._by_run[key[0]]
            self.version += 1
