"""The base of all panes."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import ClassVar

from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from ..frame import FleetFrame
from ..targets import Entity, Target


class PaneLeft(Message):
    """The user goes back to where the pane was opened."""


class PaneUsed(Message):
    """The user sent something from the pane: escape no longer returns to where a jump came from."""


class SectionShown(Message):
    """Another section of the pane is in view."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


class Pane(Widget):
    """A part of the screen that is fed by the UI clock and is shown or hidden as a whole.

    A subclass composes its widgets, draws no border of its own (the screen does, with ``TITLE``), and
    declares its keys as ``BINDINGS``: those with ``show=True`` are offered on the bottom line while the
    focus is inside, all of them in the help. A pane starts hidden; the screen calls ``show_pane``.
    """

    TITLE: ClassVar[str] = ""
    """One word, as shown in the border."""
    HELP: ClassVar[str | None] = None
    """What F1 shows when the focus is in this pane: Markdown, without the list of keys."""

    is_showing: bool = False
    """Whether a person can see the pane now."""
    returns: bool = False
    """Whether something in another pane led here: then escape goes back there."""
    caption: reactive[str] = reactive("", repaint=False)
    """A few words on the right of the title, for example ``12 new below``; set it whenever it changes."""

    def absorb(self, frame: FleetFrame) -> None:
        """Take in one frame. While ``is_showing`` is false keep the data and paint nothing.

        Called on the UI loop, for each tick that brought something and at least once a second, so that
        elapsed times move; it must return within a few milliseconds.
        """

    def show_pane(self) -> None:
        """The pane came into view: paint what it kept. Overriding methods call this one first."""
        self.is_showing = True

    def hide_pane(self) -> None:
        """The pane went out of view: stop painting. Overriding methods call this one first."""
        self.is_showing = False

    def reveal(self, target: Target) -> bool:
        """Put the cursor on ``target`` and show it; False when it is not here (any more).

        The screen has brought the pane into view before. A filter that hides the target is taken away.
        """
        return False

    def entities(self) -> Iterable[Entity]:
        """What of this pane the palette finds by name; at most some hundreds, the newest or nearest first."""
        return ()

    def focus_pane(self) -> None:
        """Put the focus where a person would start: by default the first widget inside that takes it."""
        target = next((widget for widget in self.query("*") if widget.focusable), None)
        (target or self).focus()


class SectionsPane(Pane):
    """A pane with several sections, one of which is in view: it posts ``SectionShown`` for each."""

    SECTIONS: ClassVar[tuple[str, ...]]

    def __init__(self, *, id: str, section: str) -> None:  # noqa: A002 - Textual's word
        super().__init__(id=id)
        self._section = section

    @abstractmethod
    def action_section(self, name: str) -> None:
        """Go to a section."""

    def action_step(self, by: int) -> None:
        """Go to the next section, or the one before."""
        self.action_section(self.SECTIONS[(self.SECTIONS.index(self._section) + by) % len(self.SECTIONS)])
