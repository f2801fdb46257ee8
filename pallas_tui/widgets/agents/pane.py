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
from ...state import Branch, can_answer, story_of, tree
from ...text import Glyphs, Line, wrapped
from ..filter import FilterLine
from ..lines import LineView
from ..list_pane import ListPane
from ..tones import DIM
from .view import agent_details, agent_line


class AgentList(LineView):
    """One line an agent, as a tree of who needs whom; flat while it is filtered."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="agent-list")
        self._glyphs = glyphs
        self._now = 0.0
        self._all: tuple[Branch, ...] = ()
        self._words: tuple[str, ...] = ()
        self._shown: tuple[Branch, ...] = ()
        self._failed = False

    @property
    def selected(self) -> AgentSnapshot | None:
        """The agent under the cursor."""
        return self._shown[self.cursor].agent if self.cursor < len(self._shown) else None

    @property
    def shown(self) -> int:
        """How many agents the filter lets through."""
        return len(self._shown)

    def take(self, snapshot: FleetSnapshot, now: float) -> None:
        """Keep what a frame says."""
        self._now = now
        self._failed = snapshot.state is FleetState.FAILED
        self._all = tree(snapshot.agents)
        self._filter()

    def filter_by(self, words: tuple[str, ...]) -> None:
        """Show only agents in which every word occurs."""
        self._words = words
        self._filter()
        self.reload()

    def select(self, name: str) -> None:
        """Put the cursor on an agent."""
        if (index := self.find(name)) is not None:
            self.action_move_to(index)

    def _filter(self) -> None:
        if not self._words:
            self._shown = self._all
            return
        self._shown = tuple(
            Branch(branch.agent)
            for branch in self._all
            if all(word in _haystack(branch.agent) for word in self._words)
        )

    def line_count(self) -> int:
        return len(self._shown)

    def line_at(self, index: int, width: int) -> Line:
        return agent_line(self._shown[index], width, self._now, self._glyphs)

    def key_at(self, index: int) -> Hashable:
        return self._shown[index].agent.name

    def find(self, key: Hashable) -> int | None:
        return next((i for i, branch in enumerate(self._shown) if branch.agent.name == key), None)

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
step of its start.

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
        agent, width = self.agents.selected, static.content_region.width
        lines = agent_details(agent, width, self._now, self._glyphs) if agent and width else []
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
        if (agent := self.agents.selected) is None:
            return
        if can_answer(agent):
            self.post_message(self.Open(agent.name))
        else:
            self.action_story()

    def story(self) -> tuple[str, str] | None:
        agent = self.agents.selected
        return None if agent is None else (agent.name, story_of(agent))


def _haystack(agent: AgentSnapshot) -> str:
    return " ".join(
        (agent.name, agent.title, agent.model, agent.state.value, agent.health.status.value)
    ).lower()
