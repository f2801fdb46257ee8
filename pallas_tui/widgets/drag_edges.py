"""Edges that the mouse can take hold of to resize what they bound."""

from typing import Literal

from textual import events
from textual.containers import Vertical
from textual.message import Message
from textual.widget import Widget


class Dragged(Message):
    """An edge was moved by that many cells since the last time; ``done`` when it was let go."""

    def __init__(self, edge: Widget, by: int, done: bool = False) -> None:
        super().__init__()
        self.edge = edge
        self.by = by
        self.done = done


class Edge:
    """What an edge remembers while it is held. Positions are cells of the terminal, along one direction."""

    def __init__(self, edge: Widget) -> None:
        self._edge = edge
        self._at: int | None = None
        self.moved = False

    def take(self, at: int) -> None:
        """The button went down on the edge."""
        self._at, self.moved = at, False
        self._edge.capture_mouse()

    def move(self, at: int) -> None:
        """The mouse went on, perhaps with the button down."""
        if self._at is not None and at != self._at:
            self._edge.post_message(Dragged(self._edge, at - self._at))
            self._at, self.moved = at, True

    def drop(self) -> None:
        """The button went up."""
        if self._at is not None:
            self._at = None
            self._edge.release_mouse()
            self._edge.post_message(Dragged(self._edge, 0, done=True))


class Column(Vertical):
    """A column whose left or right border, as far as it has one, can be dragged."""

    def __init__(self, side: Literal["left", "right"], *, id: str) -> None:  # noqa: A002 - Textual's word
        super().__init__(id=id)
        self._side = side
        self._held = Edge(self)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """On the border: take hold of it."""
        is_left = self._side == "left"
        border = self.styles.border_left if is_left else self.styles.border_right
        if border[0] and event.screen_x == (self.region.x if is_left else self.region.right - 1):
            event.stop()
            self._held.take(event.screen_x)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Move the border along."""
        self._held.move(event.screen_x)

    def on_mouse_up(self) -> None:
        """Let it go."""
        self._held.drop()
