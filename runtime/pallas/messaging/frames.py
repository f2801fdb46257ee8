"""Frames: a handler's work for one caller. A tree by pointers; names are never parsed (HC-20)."""

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import uuid4

from pallas.contract import TodoComplete, TodoUntil
from pallas.payloads import Payload

from .message_log import LoggedMessage
from .messaging_port import HandlerEndpoint
from .todos import Watcher, Watchers

_CANONICAL: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def new_id() -> str:
    """Return a new UUID."""
    return str(uuid4())


def is_canonical(text: str) -> bool:
    """Return whether it is a UUID in canonical form: lower case, with dashes."""
    return _CANONICAL.fullmatch(text) is not None


@dataclass(slots=True, eq=False)
class Passing:
    """A message that waits for its handler or is being handled. ``own``: the handler sent it to itself."""

    payload: Payload
    sender: str
    own: bool
    logged: LoggedMessage


class FrameWork(Protocol):
    """The task that handles a frame's message."""

    def cancel(self) -> None:
        """Cancel it; its result is no longer awaited."""
        ...


class FrameRouter(Protocol):
    """What registers the todos of frames."""

    def watch(self, frame: "HandlerFrame", wanted: TodoUntil) -> Watcher:
        """Register a todo of that frame. Raises PayloadFault."""
        ...

    def unwatch(self, frame: "HandlerFrame", wanted: TodoComplete) -> bool:
        """Close a todo; return whether the frame has it."""
        ...


class FrameRun(Protocol):
    """The run that a frame belongs to."""

    @property
    def router(self) -> FrameRouter:
        """Where its messages are routed."""
        ...

    def take(self, frame: "HandlerFrame") -> None:
        """Handle the frame's next message: it has its turn now."""
        ...


class HandlerFrame:
    """One conversation of an agent with its caller. ``id`` is the handler's ``thread_id``."""

    __slots__ = (
        "__weakref__",
        "agent",
        "caller",
        "children",
        "depth",
        "endpoints",
        "id",
        "is_ended",
        "opened_with",
        "outer",
        "parent",
        "queue",
        "refusals",
        "run",
        "span",
        "todos",
        "waits",
        "work",
    )

    def __init__(
        self,
        run: FrameRun,
        agent: str,
        caller: str,
        parent: "HandlerFrame | None",
        *,
        id: str,  # noqa: A002
        span: str,
        opened_with: str,
    ) -> None:
        self.run = run
        self.id = id
        self.agent = agent
        self.caller = caller
        """The name of the agent that opened it."""
        self.parent = parent
        """None for a frame opened from outside."""
        self.outer = "" if parent is None else parent.id
        """The parent's id, also after the frame is over; empty for none."""
        self.depth: int = 1 if parent is None else parent.depth + 1
        self.span = span
        self.opened_with = opened_with
        """The name of the payload that opened it."""
        self.children: dict[HandlerFrame, None] | None = None
        self.endpoints: tuple[HandlerEndpoint, ...] = ()
        """All that ever worked in it, the present one last; empty for an agent of another kind."""
        self.queue: deque[Passing] | None = None
        self.work: FrameWork | None = None
        self.waits = False
        self.is_ended = False
        self.refusals = 0
        self.todos: Watchers | None = None
        if parent is not None:
            if parent.children is None:
                parent.children = {}
            parent.children[self] = None

    def below(self) -> Iterator["HandlerFrame"]:
        """Yield this frame and all below it, children first."""
        found, waiting = [], [self]
        while waiting:
            frame = waiting.pop()
            found.append(frame)
            if frame.children:
                waiting.extend(frame.children)
        return reversed(found)

    def above(self) -> Iterator["HandlerFrame"]:
        """Yield this frame and all above it, itself first."""
        frame: HandlerFrame | None = self
        while frame is not None:
            yield frame
            frame = frame.parent

    def detach(self) -> None:
        """Remove a finished frame from the tree."""
        if self.parent is not None and self.parent.children is not None:
            self.parent.children.pop(self, None)
        self.parent = None
        self.children = None
        self.queue = None
        self.todos = None
        self.endpoints = ()
