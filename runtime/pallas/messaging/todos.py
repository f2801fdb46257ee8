"""Watchers: a handler is reminded of an awaited message until it says that this is done (HC-35).

They are messages to ``system.todo`` and belong to the frame that sent them. Text that looks like one, in any
payload, is just text.
"""

from dataclasses import dataclass
from secrets import token_hex
from typing import Final

from pallas.config.kinds import TODO
from pallas.contract import TodoClosed, TodoComplete, TodoRegistered, TodoUntil
from pallas.model import TodoStatus
from pallas.payloads import Payload, PayloadFault, PayloadType
from pallas.safe_text import one_line

MAX_TODOS: Final = 50
"""Open watchers of one frame."""
_MAX_TEXT: Final = 200


@dataclass(slots=True)
class Watcher:
    """One watcher. Its texts are one line each, sanitised."""

    id: str
    wait_for: str
    from_agent: str
    description: str
    raised: bool = False

    @property
    def status(self) -> TodoStatus:
        """The status of an open watcher."""
        return "raised" if self.raised else "open"

    def is_for(self, name: str, sender: str) -> bool:
        """Return whether it waits for a payload of that class from that sender."""
        return self.wait_for.casefold() == name.casefold() and self.from_agent in ("", sender)


class Watchers:
    """The watchers of one frame, in order of registration."""

    __slots__ = ("open",)

    def __init__(self) -> None:
        self.open: dict[str, Watcher] = {}

    def register(self, request: TodoUntil) -> Watcher:
        """Add a watcher. Raises PayloadFault when it waits for nothing, or there are too many."""
        wait_for = one_line(request.wait_for, _MAX_TEXT)
        if not wait_for:
            raise PayloadFault("wait_for is empty; it is the name of a payload's class", field="wait_for")
        if len(self.open) >= MAX_TODOS:
            raise PayloadFault(f"{MAX_TODOS} todos are open here; complete one first (TodoComplete)")
        todo = Watcher(
            token_hex(8),
            wait_for,
            one_line(request.from_listener, _MAX_TEXT),
            one_line(request.description, _MAX_TEXT),
        )
        self.open[todo.id] = todo
        return todo

    def complete(self, request: TodoComplete) -> Watcher:
        """Close it. Raises PayloadFault when this frame has no such watcher."""
        todo = self.open.pop(request.id, None)
        if todo is None:
            raise PayloadFault("No todo with this id is open here", field="id")
        return todo

    def came(self, payload: str, sender: str) -> list[Watcher]:
        """Record a delivered payload; return the watchers that it raised."""
        found = [each for each in self.open.values() if not each.raised and each.is_for(payload, sender)]
        for each in found:
            each.raised = True
        return found

    def raised(self) -> str:
        """Return the raised ones, for ``todo_nudge``; empty without any."""
        lines = [_line(each) for each in self.open.values() if each.raised]
        return "\n".join(["These todos appear complete:", *lines]) if lines else ""

    def nudge(self) -> str:
        """Return the text added to ``usage_instructions``; empty when none is open."""
        if not self.open:
            return ""
        lines = ["Your open todos:", *(_line(each) for each in self.open.values())]
        lines.append(f"When one is done, send TodoComplete with its id to {TODO}.")
        return "\n".join(lines)


def _line(todo: Watcher) -> str:
    of = f" from {todo.from_agent}" if todo.from_agent else ""
    what = f" ({todo.description})" if todo.description else ""
    state = "has arrived: act on it, then complete this todo" if todo.raised else "has not arrived yet"
    return f"- {todo.id}: {todo.wait_for}{of}{what} {state}."


def request_of(payload: Payload) -> TodoUntil | TodoComplete:
    """Read a handler's message to ``system.todo``. Raises PayloadFault."""
    for kind in (TodoUntil, TodoComplete):
        # Old tags are lower case, with the target before them.
        if payload.name.lower().rpartition(".")[2] == kind.__name__.lower():
            own = PayloadType.of(kind)
            asked = own.bind(own.adopt(payload.element), kind)
            assert isinstance(asked, TodoUntil | TodoComplete)
            return asked
    raise PayloadFault(f"{TODO} takes TodoUntil or TodoComplete")


def registered(todo: Watcher) -> Payload:
    """Return the answer to ``TodoUntil``."""
    return PayloadType.of(TodoRegistered).pack(TodoRegistered(todo.id, todo.wait_for, todo.description))


def closed(todo: Watcher) -> Payload:
    """Return the answer to ``TodoComplete``."""
    return PayloadType.of(TodoClosed).pack(TodoClosed(todo.id, todo.raised))
