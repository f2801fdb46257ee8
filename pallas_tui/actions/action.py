"""What an action is: its words, what runs, and on which keys."""

from dataclasses import dataclass
from typing import Literal

from textual.binding import Binding

Scope = Literal[
    "app",
    "agents",
    "agent",
    "tool",
    "field",
    "chat",
    "feed",
    "logs",
    "traces",
    "instances",
    "failure",
    "broken",
    "run",
    "exchange",
    "changes",
    "threads",
    "tasks",
    "messages",
    "envelope",
    "send",
    "replay",
    "todos",
]


@dataclass(frozen=True, slots=True)
class Action:
    """Something that can be done. ``run`` is what Textual calls, in the namespace of ``scope``.

    ``keys`` are the default ones, several separated by commas, in Textual's names; empty for what only the
    palette offers. ``hint`` is the word on the bottom line; without one the action is not offered there.
    Actions of one ``group`` share that word.
    """

    id: str
    scope: Scope
    title: str
    help: str
    run: str
    keys: str
    hint: str = ""
    priority: bool = False
    group: str = ""

    def binding(self) -> Binding:
        """The action on its keys; the id lets a user's keymap replace them."""
        return Binding(
            self.keys,
            self.run,
            self.hint or self.title,
            show=bool(self.hint or self.group),
            priority=self.priority,
            tooltip=self.help,
            id=self.id,
            group=Binding.Group(self.group, compact=True) if self.group else None,
        )
