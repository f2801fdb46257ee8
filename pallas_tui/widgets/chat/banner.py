"""What stands above a transcript: how the agent is, and in a column beside others who it is."""

from textual.content import Content
from textual.widgets import Static

from ...chat.agent_standing import Standing
from ...text import Glyphs
from ..tones import shape


class Banner(Static):
    """Takes no room while there is nothing to say (PI-17)."""

    def __init__(self) -> None:
        super().__init__(markup=False, classes="chat-banner")

    def show(self, standing: Standing, glyphs: Glyphs) -> None:
        """Say it in the colour of its tone."""
        self.update(Content.assemble(shape(standing.tone, glyphs), " ", standing.text))
        self.display = bool(standing.text)
        self.set_classes(f"chat-banner -{standing.tone.value}")


class ColumnTitle(Static):
    """The agent's name, seen only where several conversations stand beside one another."""

    def __init__(self) -> None:
        super().__init__(markup=False, classes="chat-column-title")

    def show(self, name: str, standing: Standing, glyphs: Glyphs) -> None:
        """Its name with its shape."""
        self.update(Content.assemble(shape(standing.tone, glyphs), f" {name}"))
