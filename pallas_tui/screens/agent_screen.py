"""Screens of one agent: everything about it, and its last versions or those of all agents."""

from typing import TYPE_CHECKING

from textual import on

from pallas.model import Reloaded

from ..widgets.agents.agent_detail_pane import DetailPane
from ..widgets.changes import ChangesPane
from .pane_screen import SectionsScreen, SinglePane

if TYPE_CHECKING:
    from ..widgets.agents import AgentsPane


class ChangesScreen(SinglePane):
    """Opened by the agents pane, whose history it shows; with the cursor on ``event``."""

    def __init__(self, agents: "AgentsPane", agent: str = "", event: Reloaded | None = None) -> None:
        super().__init__(ChangesPane(agents, agent, event, agents.glyphs), agents.glyphs, agent)


class AgentScreen(SectionsScreen):
    """Details of one agent. The agents pane opens it and shares its cache; ``escape`` goes back there.

    ``section`` is shown first; in ``tools`` the cursor goes to ``tool`` of ``server``, and with a
    tool its form opens.
    """

    TITLES = (
        ("overview", "agent.overview", "About"),
        ("tools", "agent.tools", "Tools"),
        ("instruction", "agent.instruction", "Instruction"),
        ("registry", "agent.registry", "Registry"),
    )

    def __init__(
        self,
        agents: "AgentsPane",
        name: str,
        section: str = "overview",
        server: str | None = None,
        tool: str = "",
    ) -> None:
        super().__init__(DetailPane(agents, name, agents.glyphs, section, server, tool), agents.glyphs, name)
        self._agents = agents
        self._agent = name

    def when_shown(self) -> None:
        """The keys go where the section is."""
        self._pane.focus_pane()

    @on(DetailPane.CallTool)
    def _call(self, event: DetailPane.CallTool) -> None:
        event.stop()
        from .tool_screen import ToolScreen

        if event.row.tool is not None:
            self.app.push_screen(
                ToolScreen(self._agents, self._agent, event.row.server.server, event.row.tool)
            )
