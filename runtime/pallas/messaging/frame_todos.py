"""The todos of one frame for code of its handler that keeps them without messages."""

from collections.abc import Sequence
from itertools import count
from typing import Final
from weakref import WeakValueDictionary

from pallas.contract import TodoComplete, TodoUntil
from pallas.model import Fault, FaultType

from .frames import HandlerFrame
from .todos import Watcher

# A handler may look at what it was given: that leads to no frame, run or fleet.
_frames: Final[WeakValueDictionary[int, HandlerFrame]] = WeakValueDictionary()
_numbers: Final = count(1)


class FrameTodos:
    """As ``pallas.invocation.TodoList``. For the fleet's event loop."""

    __slots__ = ("_number",)

    def __init__(self, frame: HandlerFrame) -> None:
        self._number = next(_numbers)
        _frames[self._number] = frame

    def register(self, wait_for: str, from_listener: str, description: str) -> str:
        """The id of a new one. Raises Fault: it waits for nothing, there are too many, the frame is over."""
        if (frame := self._live()) is None:
            raise Fault(FaultType.PROTOCOL, "this conversation is over: nothing comes in it any more")
        return frame.run.router.watch(frame, TodoUntil(wait_for, from_listener, description)).id

    def raised(self) -> Sequence[Watcher]:
        """Those for which what they wait for has come."""
        return [todo for todo in self._open() if todo.raised]

    def pending(self) -> Sequence[Watcher]:
        """Those for which it has not."""
        return [todo for todo in self._open() if not todo.raised]

    def complete(self, id: str) -> bool:  # noqa: A002 - as in the messages
        """Close one; whether there was one."""
        frame = self._live()
        return frame is not None and frame.run.router.unwatch(frame, TodoComplete(id))

    def _open(self) -> Sequence[Watcher]:
        frame = self._live()
        return [] if frame is None or frame.todos is None else list(frame.todos.open.values())

    def _live(self) -> HandlerFrame | None:
        frame = _frames.get(self._number)
        return None if frame is None or frame.over else frame
