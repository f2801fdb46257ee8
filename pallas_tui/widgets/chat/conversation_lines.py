"""Lines of a conversation: the state of its agent above it, the progress of its run below it."""

from typing import Final

from rich.cells import cell_len
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from ...chat.chat_readiness import ChatReadiness
from ...text import DURATION_WIDTH, UNICODE, Glyphs, Part, duration, fit, right
from ..tones import shape

FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
ASCII_FRAMES: Final = "|/-\\"
_BEAT: Final = 0.2
"""Seconds between two pictures of the spinner."""


class Banner(Static):
    """The state of the agent; hidden while there is nothing to say (PI-17)."""

    def __init__(self) -> None:
        super().__init__(markup=False, classes="chat-banner")

    def show(self, readiness: ChatReadiness, glyphs: Glyphs) -> None:
        """Show it in the colour of its tone."""
        self.update(Content.assemble(shape(readiness.tone, glyphs), " ", readiness.text))
        self.display = bool(readiness.text)
        self.set_classes(f"chat-banner -{readiness.tone.value}")


class ColumnTitle(Static):
    """The agent's name, shown only when several conversations are side by side."""

    def __init__(self) -> None:
        super().__init__(markup=False, classes="chat-column-title")

    def show(self, name: str, readiness: ChatReadiness, glyphs: Glyphs) -> None:
        """Show its name with its shape."""
        self.update(Content.assemble(shape(readiness.tone, glyphs), f" {name}"))


class RunLine(Widget):
    """The progress of a run, its time, and how much new text is out of view.

    One line of constant height, so that nothing moves when a run begins or ends (PI-25).

    While ``running`` it has a spinner and the newest progress message, which replaces the one before; the end
    of a sub-task does not stop it, only the result does.
    """

    def __init__(self, glyphs: Glyphs = UNICODE) -> None:
        super().__init__(classes="chat-status")
        self._frames = FRAMES if glyphs is UNICODE else ASCII_FRAMES
        self._frame = 0
        self.running = False
        self.text = ""
        self.below = ""
        self._elapsed = ""

    def show(self, *, running: bool, text: str, elapsed: float | None, below: str) -> None:
        """Draw this, if it changed. ``elapsed`` in seconds, ``below`` says how much is out of view.

        The spinner turns with ``elapsed``: the frames of a timer of its own would come between the others.
        """
        clock = "" if elapsed is None else right(duration(elapsed, running=True), DURATION_WIDTH)
        turns = elapsed is not None and self.app.animation_level != "none"
        frame = int((elapsed or 0.0) / _BEAT) % len(self._frames) if turns else 0
        new = (running, text, clock, below, frame)
        if new == (self.running, self.text, self._elapsed, self.below, self._frame):
            return
        self.running, self.text, self._elapsed, self.below, self._frame = new
        self.refresh()

    def render(self) -> Content:
        tail: list[Part] = []
        if self.below:
            tail.append((f"  {self.below}", "bold $text-accent"))
        if self.running:
            tail.append((f"  {self._elapsed}", "dim"))
        room = self.size.width - sum(cell_len(text) for text, _ in tail)
        if self.running:
            head: list[Part] = [
                (f"{self._frames[self._frame]} ", "$text-accent"),
                (fit(self.text, max(0, room - 2)), ""),
            ]
        else:
            head = [(fit(self.text, max(0, room)), "dim")]
        return Content.assemble(*head, *tail)
