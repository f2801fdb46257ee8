"""The placeholder of a pane that failed."""

from typing import ClassVar

from textual.binding import BindingType
from textual.content import Content
from textual.message import Message

from ..actions import bindings
from ..clipboard import copy
from ..state import Tone
from ..text import Glyphs
from .pane import Pane
from .tones import DIM, KEY, STYLES


class BrokenPane(Pane, can_focus=True):
    """Says what happened; everything else on the screen works on."""

    HELP = """\
This pane failed with an error. The fleet and all other panes keep running; **r** opens the pane again, with
what the fleet still remembers. The log has the details, without the content of the pane.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("broken")

    class Rebuild(Message):
        """The user wants the pane made again."""

        def __init__(self, pane: str) -> None:
            super().__init__()
            self.pane = pane

    def __init__(self, title: str, reason: str, story: str, glyphs: Glyphs, *, id: str) -> None:  # noqa: A002
        """``reason`` is one clean line without secrets, ``story`` the text to copy for a report."""
        super().__init__(id=id, classes="broken")
        self._title = title
        self._reason = reason
        self._story = story
        self._glyphs = glyphs

    def render(self) -> Content:
        """The reason, and the keys."""
        return Content.assemble(
            (f"{self._glyphs.error} This pane broke: ", STYLES[Tone.ERROR]),
            self._reason,
            ("\n\n", ""),
            ("r", KEY),
            (" makes it again, ", DIM),
            ("y", KEY),
            (" copies a report, ", DIM),
            ("4", KEY),
            (" shows the log. The rest of the workbench goes on.", DIM),
        )

    def focus_pane(self) -> None:
        self.focus()

    def action_rebuild(self) -> None:
        """Make the pane again."""
        self.post_message(self.Rebuild(str(self.id)))

    async def action_copy(self) -> None:
        """Copy what helps to fix it."""
        self.notify(await copy(self.app, self._story))
