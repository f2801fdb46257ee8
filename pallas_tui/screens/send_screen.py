"""Writing a message to one handler, on a screen of its own."""

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from pallas.model import PayloadDetail

from ..actions import binding
from ..forms import Memory
from ..text import Glyphs, width_of
from ..widgets.form import ToolPane
from ..widgets.messages.send_pane import SendPane
from ..widgets.status_line import QuestionLine, StatusLine
from ..widgets.title_bar import TitleBar

_TITLES = (
    ("form", "tool.form", "Form"),
    ("json", "tool.raw", "JSON"),
    ("xml", "send.xml", "XML"),
    ("result", "send.result", "Answer"),
    ("about", "send.about", "About"),
)
_SECTIONS = 50
"""Cells that their titles take, with a gap before what stands right of them."""


class SendScreen(Screen[None]):
    """A form for one handler's payload; leaving it ends a call that is under way."""

    AUTO_FOCUS = ""
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012 - Textual's class variable
    BINDINGS: ClassVar[list[BindingType]] = [binding("help")]

    def __init__(self, agent: str, payload: PayloadDetail, memory: Memory, glyphs: Glyphs) -> None:
        super().__init__()
        self._agent, self._payload, self._memory, self._glyphs = agent, payload, memory, glyphs

    def compose(self) -> ComposeResult:
        yield TitleBar(_TITLES, self._glyphs, id="send-title")
        yield SendPane(self._agent, self._payload, self._memory, self._glyphs)
        yield QuestionLine()
        yield StatusLine()

    @on(ToolPane.ToolSection)
    def _section(self, event: ToolPane.ToolSection) -> None:
        event.stop()
        self.query_one(TitleBar).tell(shown=event.name, focused=True, caption=self._caption())

    def on_resize(self) -> None:
        """How much of the title has room."""
        self.query_one(TitleBar).tell(caption=self._caption())

    def _caption(self) -> str:
        """What is written to whom, as far as that leaves every section its title."""
        whole = f"{self._payload.name} to {self._agent}"
        room = self.size.width - _SECTIONS
        return next((each for each in (whole, self._agent) if width_of(((each, ""),)) <= room), "")

    def show(self, name: str) -> None:
        """Go to a section: its title was clicked, or jumped to."""
        self.query_one(SendPane).action_section(name)

    @on(ToolPane.LeaveTool)
    def _leave(self, event: ToolPane.LeaveTool) -> None:
        event.stop()
        self.dismiss(None)

    def action_help(self) -> None:
        """Help for this screen."""
        from .help_screen import HelpScreen

        pane = self.query_one(SendPane)
        self.app.push_screen(HelpScreen(self.focused or pane, self.active_bindings.values()))
