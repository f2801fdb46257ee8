"""The agents pane: a list, and the selected agent's details beside or below it."""

from collections.abc import Hashable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from pallas.model import AgentSnapshot, FleetSnapshot, FleetState

from ...actions import bindings
from ...frame import Frame
from ...state import Branch, Item, can_answer, story_of, tree
from ...text import Glyphs, Line, wrapped
from ..filter import FilterLine
from ..lines import LineView
from ..list_pane import ListPane
from ..tones import DIM
from .view import agent_line, details


class AgentList(LineView):
    """One line an agent, as a tree of who needs whom, then the project's servers; flat while filtered."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="agent-list")
        self._glyphs = glyphs
        self._now = 0.0
        self._all: tuple[Branch, ...] = ()
        self._words: tuple[str, ...] = ()
        self._shown: tuple[Branch, ...] = ()
        self._failed = False

    @property
    def selected(self) -> Item | None:
        """The agent or server under the cursor."""
        return self._shown[self.cursor].item if self.cursor < len(self._shown) else None

    @property
    def shown(self) -> int:
        """How many lines the filter lets through."""
        return len(self._shown)

    def take(self, snapshot: FleetSnapshot, now: float) -> None:
        """Keep what a frame says."""
        self._now = now
        self._failed = snapshot.state is FleetState.FAILED
        self._all = (*tree(snapshot.agents), *(Branch(server) for server in snapshot.servers))
        self._filter()

    def filter_by(self, words: tuple[str, ...]) -> None:
        """Show only agents in which every word occurs."""
        self._words = words
        self._filter()
        self.reload()

    def _filter(self) -> None:
        if not self._words:
            self._shown = self._all
            return
        self._shown = tuple(
            Branch(branch.item)
            for branch in self._all
            if all(word in _haystack(branch.item) for word in self._words)
        )

    def line_count(self) -> int:
        return len(self._shown)

    def line_at(self, index: int, width: int) -> Line:
        return agent_line(self._shown[index], width, self._now, self._glyphs)

    def key_at(self, index: int) -> Hashable:
        return _key(self._shown[index].item)

    def find(self, key: Hashable) -> int | None:
        return next((i for i, branch in enumerate(self._shown) if _key(branch.item) == key), None)

    def empty(self, width: int) -> list[Line]:
        if self._words:
            hint = "No agent matches.\nEscape takes the filter away."
        elif self._failed:
            hint = "No agents: the fleet could not start."
        else:
            hint = "No agents yet.\nThey appear here as soon as agents.yaml is read."
        return [((line, DIM),) for line in wrapped(hint, width)]


class AgentsPane(ListPane):
    """Who is there, how they are, and why (PI-17: error red, degraded yellow with its message, ok green)."""

    TITLE = "Agents"
    HELP = """\
The fleet as a tree: an agent stands below the one that depends on it. The shape says how it is
(ok, degraded, error, starting, stopped); on the right are its port and its runs in flight, or the
step of its start. Below the agents stand the servers that the project starts with them.

Below (or beside) the list is what is known of the selected agent: why it is not well, since when,
its model, its last latency, and the servers it calls.

**Enter** talks to an agent that can answer, and tells the whole story of one that cannot.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("agents")

    class Open(Message):
        """Somebody wants to talk to an agent."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(self, glyphs: Glyphs, *, id: str = "agents") -> None:  # noqa: A002 - Textual's word
        super().__init__(id=id)
        self._glyphs = glyphs
        self._now = 0.0
        self._details: list[Line] = []

    def compose(self) -> ComposeResult:
        with Container(id="agent-columns"):
            yield AgentList(self._glyphs)
            yield Static(id="agent-details", markup=False)
        yield FilterLine("name, title, model, state", id="agent-filter")

    @property
    def agents(self) -> AgentList:
        """The list of agents."""
        return self.query_one(AgentList)

    def absorb(self, frame: Frame) -> None:
        self._now = frame.now
        self.agents.take(frame.snapshot, frame.now)
        if self.is_showing:
            self.agents.reload()
            self._tell()

    def show_pane(self) -> None:
        super().show_pane()
        self.call_after_refresh(self._refresh_all)

    def _refresh_all(self) -> None:
        self.agents.reload()
        self._tell(force=True)

    def _tell(self, force: bool = False) -> None:
        """Say what is known of the selected agent, if that is anything new."""
        static = self.query_one("#agent-details", Static)
        item, size = self.agents.selected, static.content_region.size
        lines = details(item, size.width, size.height, self._now, self._glyphs) if item and size else []
        if force or lines != self._details:
            self._details = lines
            static.update(Content("\n").join(Content.assemble(*line) for line in lines), layout=False)

    def selection_changed(self) -> None:
        self._tell()

    def filter_by(self, words: tuple[str, ...]) -> None:
        self.agents.filter_by(words)

    def on_resize(self) -> None:
        """Details are wrapped to a width."""
        self.call_after_refresh(self._tell, True)

    def choose(self) -> None:
        """Talk to the selected agent, or read why that cannot be."""
        item = self.agents.selected
        if isinstance(item, AgentSnapshot) and can_answer(item):
            self.post_message(self.Open(item.name))
        else:
            self.action_story()

    def story(self) -> tuple[str, str] | None:
        item = self.agents.selected
        return None if item is None else (item.name, story_of(item))


def _key(item: Item) -> tuple[str, str]:
    return type(item).__name__, item.name


def _haystack(item: Item) -> str:
    words = [item.name, item.state.value]
    if isinstance(item, AgentSnapshot):
        words += [item.title, item.model, item.health.status.value]
    return " ".join(words).lower()
