"""What one pane can ask another to show, and what the palette finds."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from textual.app import App
from textual.message import Message

from pallas.model import Reloaded, Step, ThreadRecord, VerdictReached

from .runs.feed_run import FeedRun

MAX_ENTITIES: Final = 20_000
"""Entities that the palette looks through at most."""


@dataclass(frozen=True, slots=True)
class AgentTarget:
    """An agent, by its name."""

    name: str


@dataclass(frozen=True, slots=True)
class RunTarget:
    """A run, by its id: shown in the feed, or with ``pane`` in the credentials or the log."""

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


@dataclass(frozen=True, slots=True)
class Spot:
    """A place that the jump mode goes to, ``x`` cells into the widget that offers it."""

    x: int
    go: Callable[[], object]
    """Called to go there."""


@runtime_checkable
class ScreenOpener(Protocol):
    """An application that opens the screens that widgets ask for. No widget imports a screen."""

    def open_run(self, run: FeedRun) -> None:
        """All of a run of the feed."""
        ...

    def run_of(self, run_id: str) -> FeedRun | None:
        """A run that the feed has."""
        ...

    def open_step(self, step: Step) -> None:
        """What a step of a run sent, and what came back."""
        ...

    def find_run(self, run_id: str, missing: str) -> None:
        """Look for a run that the feed does not have, and show it there; else say ``missing``."""
        ...

    def open_diff(self, before: FeedRun, after: FeedRun) -> None:
        """What differs between two runs of the feed."""
        ...

    def open_details(
        self, name: str, section: str = "overview", server: str | None = None, tool: str = ""
    ) -> None:
        """Everything about an agent, from ``section`` on; in ``tools`` at ``tool`` of ``server``."""
        ...

    def open_changes(self, agent: str = "", event: Reloaded | None = None) -> None:
        """The versions of an agent, or of all; with the cursor on ``event``."""
        ...

    def open_send(self, agent: str) -> None:
        """A form for a message to an agent."""
        ...

    def record_run(self, run: FeedRun) -> None:
        """Write a run that is over into a folder of recordings, and say where."""
        ...

    def show_run(self, run_id: str) -> None:
        """Go to a run in the feed, from any screen."""
        ...

    def open_verdicts(self, event: VerdictReached | None = None) -> None:
        """The verdicts on saves; with the cursor on ``event``."""
        ...

    def keep_run(self, run_id: str, replaced: str = "") -> None:
        """Make a test of a run that is over: by a name that is asked for, or in place of ``replaced``."""
        ...

    def replay_run(self, run: FeedRun) -> None:
        """Ask the question of a run that is over again, from its recording, and compare both."""
        ...

    def replay_recording(self, name: str, path: Path) -> None:
        """The same of a recording in the project."""
        ...

    def fork_run(self, run: FeedRun, number: int) -> None:
        """Have a run go on from a step of one that is over, other than it was."""
        ...

    def open_messages(self, run_id: str = "", agent: str = "") -> None:
        """The messages of a run, or of the last run in which ``agent`` took part."""
        ...


def opener_of(app: App[Any]) -> ScreenOpener | None:
    """The application as one that opens screens; None for one that shows a widget alone."""
    return app if isinstance(app, ScreenOpener) else None
