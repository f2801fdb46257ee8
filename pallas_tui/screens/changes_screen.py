"""The last versions of an agent, or of all, on a screen of their own."""

from typing import TYPE_CHECKING

from pallas.model import Reloaded

from ..widgets.changes import ChangesPane
from .single_pane_screen import SinglePane

if TYPE_CHECKING:
    from ..widgets.agents import AgentsPane


class ChangesScreen(SinglePane):
    """Opened by the agents pane, whose history it shows; with the cursor on ``event``."""

    def __init__(self, agents: "AgentsPane", agent: str = "", event: Reloaded | None = None) -> None:
        super().__init__(ChangesPane(agents, agent, event, agents.glyphs), agent, agents.glyphs)
