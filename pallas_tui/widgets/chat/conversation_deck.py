"""The conversations under the tabs: one, or several columns with a shared prompt."""

from collections.abc import Callable, Sequence
from typing import Final

from textual import events
from textual.containers import Container
from textual.message import Message
from textual.widget import Widget

from ...chat.prompt_history import PromptHistory
from .prompt_area import PromptArea

COLUMN: Final = 38
"""Cells that a conversation needs as a column."""


class Deck(Container):
    """Shows some of its children as columns, and hides the others."""

    class Resized(Message):
        """The number of columns that fit changed."""

    def __init__(self, *children: Widget) -> None:
        super().__init__(*children, id="chat-deck")

    @property
    def columns(self) -> int:
        """How many conversations fit."""
        return max(1, self.size.width // COLUMN)

    def show(self, shown: Sequence[Widget]) -> None:
        """Show these, from left to right."""
        for child in self.children:
            child.display = child in shown
            child.set_class(child in shown[1:], "-after")

    def on_resize(self, event: events.Resize) -> None:
        """Post ``Resized`` when another number of columns fits."""
        self.post_message(self.Resized())


class SharedPrompt(PromptArea):
    """The prompt for all conversations that are side by side."""

    def __init__(
        self,
        history: PromptHistory,
        send: Callable[[str], bool],
        complete: Callable[[str, int], str | None],
    ) -> None:
        super().__init__(history, send, complete)
        self.display = False

    def address(self, names: Sequence[str]) -> None:
        """Show it, addressed to these agents; with none hide it."""
        self.display = bool(names)
        self.placeholder = f"Write to {', '.join(names)}: enter sends to all"


def window(members: Sequence[Widget], current: Widget, columns: int) -> Sequence[Widget]:
    """Return as many of ``members`` as there are columns, the current one among them."""
    first = max(0, min(members.index(current), len(members) - columns))
    return members[first : first + columns]
