"""Calling one tool by hand, on a screen of its own."""

from typing import TYPE_CHECKING

from pallas.model import ToolDetail

from ..widgets.form import ToolPane
from ..widgets.form.tool_call import Subject
from .pane_screen import SectionsScreen

if TYPE_CHECKING:
    from ..widgets.agents import AgentsPane


class ToolScreen(SectionsScreen):
    """A form for one tool; leaving it ends a call that is under way."""

    TITLES = (
        ("form", "tool.form", "Form"),
        ("json", "tool.raw", "JSON"),
        ("result", "tool.result", "Result"),
        ("about", "tool.about", "About"),
    )

    def __init__(self, agents: "AgentsPane", agent: str, server: str, tool: ToolDetail) -> None:
        self._subject = Subject(agent, server, tool.name)
        super().__init__(ToolPane(self._subject, tool, agents.knowledge.memory, agents.glyphs), agents.glyphs)

    def caption(self) -> str:
        return self._subject.title(self.size.width)
