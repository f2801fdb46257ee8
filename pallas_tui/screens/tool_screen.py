"""Calling one tool by hand, on a screen of its own."""

from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from pallas.model import ToolDetail

from ..actions import binding
from ..widgets.form import ToolPane
from ..widgets.form.tool_call import Subject
from ..widgets.status_line import QuestionLine, StatusLine
from ..widgets.title_bar import TitleBar

if TYPE_CHECKING:
    from ..widgets.agents import AgentsPane

_TITLES = (
    ("form", "tool.form", "Form"),
    ("json", "tool.raw", "JSON"),
    ("result", "tool.result", "Result"),
    ("about", "tool.about", "About"),
)


class ToolScreen(Screen[None]):
    """A form for one tool; leaving it ends a call that is under way."""

    AUTO_FOCUS = ""
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012 - Textual's class variable
    BINDINGS: ClassVar[list[BindingType]] = [binding("help")]

    def __init__(self, agents: "AgentsPane", agent: str, server: str, tool: ToolDetail) -> None:
        super().__init__()
        self._agents = agents
        self._subject = Subject(agent, server, tool.name)
        self._tool = tool

    def compose(self) -> ComposeResult:
        glyphs = self._agents.glyphs
        yield TitleBar(_TITLES, glyphs, id="tool-title")
        yield ToolPane(self._subject, self._tool, self._agents.knowledge.memory, glyphs)
        yield QuestionLine()
        yield StatusLine()

    @on(ToolPane.ToolSection)
    def _section(self, event: ToolPane.ToolSection) -> None:
        event.stop()
        self.query_one(TitleBar).tell(
            shown=event.name, focused=True, caption=self._subject.title(self.size.width)
        )

    def on_resize(self) -> None:
        """How much of the title has room."""
        self.query_one(TitleBar).tell(caption=self._subject.title(self.size.width))

    def show(self, name: str) -> None:
        """Go to a section: its title was clicked, or jumped to."""
        self.query_one(ToolPane).action_section(name)

    @on(ToolPane.LeaveTool)
    def _leave(self, event: ToolPane.LeaveTool) -> None:
        event.stop()
        self.dismiss(None)

    def action_help(self) -> None:
        """Help for this screen."""
        from .help_screen import HelpScreen

        pane = self.query_one(ToolPane)
        self.app.push_screen(HelpScreen(self.focused or pane, self.active_bindings.values()))
