"""Screens of one agent: everything about it, and its last versions or those of all agents."""

from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from pallas.model import Reloaded

from ..actions import binding
from ..widgets.agents.agent_detail_pane import DetailPane
from ..widgets.changes import ChangesPane
from ..widgets.status_line import QuestionLine, StatusLine
from ..widgets.title_bar import TitleBar
from .single_pane_screen import SinglePane

if TYPE_CHECKING:
    from ..widgets.agents import AgentsPane

_TITLES = (
    ("overview", "agent.overview", "About"),
    ("tools", "agent.tools", "Tools"),
    ("instruction", "agent.instruction", "Instruction"),
    ("registry", "agent.registry", "Registry"),
)


class ChangesScreen(SinglePane):
    """Opened by the agents pane, whose history it shows; with the cursor on ``event``."""

    def __init__(self, agents: "AgentsPane", agent: str = "", event: Reloaded | None = None) -> None:
        super().__init__(ChangesPane(agents, agent, event, agents.glyphs), agent, agents.glyphs)


class AgentScreen(Screen[None]):
    """Details of one agent. The agents pane opens it and shares its cache; ``escape`` goes back there.

    ``section`` is shown first; in ``tools`` the cursor goes to ``tool`` of ``server``, and with a
    tool its form opens.
    """

    AUTO_FOCUS = ""
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012 - Textual's class variable
    BINDINGS: ClassVar[list[BindingType]] = [binding("help")]

    def __init__(
        self,
        agents: "AgentsPane",
        name: str,
        section: str = "overview",
        server: str | None = None,
        tool: str = "",
    ) -> None:
        super().__init__()
        self._agents = agents
        self._agent = name
        self._first = section, server, tool

    def compose(self) -> ComposeResult:
        glyphs = self._agents.glyphs
        yield TitleBar(_TITLES, glyphs, id="agent-title")
        yield DetailPane(self._agents, self._agent, glyphs, *self._first)
        yield QuestionLine()
        yield StatusLine()

    def on_mount(self) -> None:
        """The keys go where the section is."""
        self.query_one(DetailPane).focus_pane()

    @on(DetailPane.DetailSection)
    def _section(self, event: DetailPane.DetailSection) -> None:
        event.stop()
        self.query_one(TitleBar).tell(shown=event.name, focused=True, caption=self._agent)

    def show(self, name: str) -> None:
        """Go to a section: its title was clicked, or jumped to."""
        self.query_one(DetailPane).action_section(name)

    @on(DetailPane.LeaveDetails)
    def _leave(self, event: DetailPane.LeaveDetails) -> None:
        event.stop()
        self.dismiss(None)

    @on(DetailPane.CallTool)
    def _call(self, event: DetailPane.CallTool) -> None:
        event.stop()
        from .tool_screen import ToolScreen

        if event.row.tool is not None:
            self.app.push_screen(
                ToolScreen(self._agents, self._agent, event.row.server.server, event.row.tool)
            )

    def action_help(self) -> None:
        """Help for this screen."""
        from .help_screen import HelpScreen

        pane = self.query_one(DetailPane)
        self.app.push_screen(HelpScreen(self.focused or pane, self.active_bindings.values()))
