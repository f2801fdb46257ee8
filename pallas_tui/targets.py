"""What one pane can ask another to show, and what the palette finds."""

from dataclasses import dataclass
from typing import Final

from textual.message import Message

from pallas.model import ThreadRecord


@dataclass(frozen=True, slots=True)
class AgentTarget:
    """An agent, by its name."""

    name: str


@dataclass(frozen=True, slots=True)
class RunTarget:
    """A run, by its id: shown in the feed, or with ``pane`` in the traces or the log."""

    run_id: str
    pane: str = "feed"


@dataclass(frozen=True, slots=True)
class ToolTarget:
    """A tool: one of the agent's own where ``server`` is empty, else of that downstream."""

    agent: str
    server: str
    tool: str


@dataclass(frozen=True, slots=True)
class ConversationTarget:
    """An open conversation of the chat, by the id of its tab."""

    tab: str


@dataclass(frozen=True, slots=True)
class ThreadTarget:
    """A durable thread, which the chat opens in a tab."""

    record: ThreadRecord


@dataclass(frozen=True, slots=True)
class FilterTarget:
    """A saved filter of the log, by its name."""

    name: str


Target = AgentTarget | ToolTarget | RunTarget | ConversationTarget | ThreadTarget | FilterTarget

_PANES: Final = {
    AgentTarget: "agents",
    ToolTarget: "agents",
    ConversationTarget: "chat",
    ThreadTarget: "chat",
    FilterTarget: "logs",
}


def pane_of(target: Target) -> str:
    """The id of the pane that shows a target."""
    return target.pane if isinstance(target, RunTarget) else _PANES[type(target)]


class Reveal(Message):
    """Any widget posts it; the main screen goes to the pane of ``target`` and has it shown there."""

    def __init__(self, target: Target) -> None:
        super().__init__()
        self.target = target


@dataclass(frozen=True, slots=True)
class Entity:
    """Something that the palette finds by ``title``; ``help`` says in a few words what it is."""

    title: str
    help: str
    target: Target
