"""The agents pane: a tree, and the selected line's details to its right or below it."""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.message import Message

from pallas.model import AgentSnapshot, Reloaded, Verb

from ...actions import bindings
from ...agents.agent_knowledge import Knowledge
from ...agents.fleet_tree import DownstreamLink
from ...agents.pending_verbs import DOING, UnderWay
from ...agents.source_line import open_source
from ...frame import FleetFrame
from ...state import Tone, can_answer, tone_of
from ...supervision import History
from ...targets import AgentTarget, Entity, ScreenOpener, Target, ToolTarget, opener_of
from ...text import Glyphs, Line, Part
from ..detailed_list_pane import DetailedListPane
from ..fact_lines import DetailLines
from ..filter_line import FilterLine
from ..tones import STYLES
from .agent_control import control, fleet_of
from .agent_paragraphs import full_state_text
from .agent_summary import Now, details
from .agent_tree import AgentTree

_PALETTE_TOOLS = 300
_OF_AGENT = frozenset({"control", "details", "tools", "edit", "fold", "changes", "messages", "send"})


class AgentsPane(DetailedListPane):
    """Who is there, how they are, and why (PI-17: error red, degraded yellow with its message, ok green)."""

    TITLE = "Agents"
    HELP = """\
The fleet as a tree: an agent is listed below the one that depends on it, and the servers it calls below it,
with their transport and whether they answer (`key`: a credential is needed). The shape shows its state
(ok, degraded, error, starting, stopped); on the right are its port and its running and queued runs, or the
step of its start; after its name is its kind, if that has no model. Below the agents are the servers that
the project starts with them.

Below (or beside) the list are the details of the selected line: its problem and since when, latency, tokens,
restarts, its model and where it is configured.

**Enter** opens a chat with an agent that can answer, and the details of one that cannot; on a server that an
agent calls it shows the tools. **c** shows the agent's last versions and what changed in each; a mark after
its name shows that the last edit failed, or that tests hold it back, and the previous version still answers;
**r** lets one through that is held back. **B** rolls back to the
previous version. **d** opens the agent's details, **t** its tools, which you can call there by hand. **e**
opens the file it is configured in.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("agents")

    class TalkToAgent(Message):
        """The user wants to talk to an agent."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(
        self,
        glyphs: Glyphs,
        *,
        id: str = "agents",  # noqa: A002 - Textual's word
        folded: frozenset[str] = frozenset(),
        keep: Callable[[frozenset[str]], None] = lambda folded: None,
        history: History | None = None,
    ) -> None:
        """``folded`` are the agents folded at first; ``keep`` is called when others are.

        ``history`` holds past reloads; the caller feeds it.
        """
        super().__init__(glyphs, id=id)
        self._folded, self._keep = folded, keep
        self._now = 0.0
        self._reloading: tuple[str, ...] = ()
        self._testing: tuple[str, ...] = ()
        self._outdated: tuple[str, ...] = ()
        self.history = history or History()
        self.under_way = UnderWay()
        self.knowledge = Knowledge()

    def compose(self) -> ComposeResult:
        with Container(id="agent-columns"):
            yield AgentTree(self._glyphs, self.doing, self._folded, self._keep, self.differs)
            yield DetailLines(id="agent-details")
        yield FilterLine("name, title, model, state", id="agent-filter")

    @property
    def agents(self) -> AgentTree:
        """The tree."""
        return self.query_one(AgentTree)

    @property
    def glyphs(self) -> Glyphs:
        """The characters to draw with."""
        return self._glyphs

    @property
    def now(self) -> float:
        """When the last frame came (Unix seconds)."""
        return self._now

    def doing(self, name: str) -> str:
        """Return the verb in progress for an agent, from any user; empty for none."""
        by_itself = "testing" if name in self._testing else ""
        by_itself = DOING["reload"] if name in self._reloading else by_itself
        return self.under_way.doing(name) or by_itself

    def differs(self, agent: AgentSnapshot) -> Part:
        """The mark of an agent that runs another version than its file; empty for others."""
        versions, style = self.history.versions, STYLES[Tone.DEGRADED]
        if (attempt := versions.broken(agent.name)) is not None:
            if attempt.event.outcome == "held":
                return f"{self._glyphs.degraded}v{attempt.version}", style
            return f"{self._glyphs.error}v{attempt.version}", STYLES[Tone.ERROR]
        if agent.name in self._outdated:
            return f"{self._glyphs.outdated}v{agent.version}", style
        if versions.rolled_back(agent.name, agent.version):
            return f"{self._glyphs.rolled_back}v{agent.version}", style
        return "", ""

    def absorb(self, frame: FleetFrame) -> None:
        self._now = frame.now
        watch = frame.snapshot.watch
        self._reloading = watch.reloading if watch is not None else ()
        self._testing = watch.testing if watch is not None else ()
        self._outdated = watch.outdated if watch is not None and watch.mode == "paused" else ()
        for event in frame.events:
            if isinstance(event, Reloaded) and event.outcome == "live":
                self.knowledge.doubt(event.agent)
        nothing = self.agents.selected is None
        self.agents.take(frame.snapshot, frame.now)
        for name in self.under_way.take(frame.events, frame.now):
            self.app.notify(
                f"{name}: the fleet did not confirm the request.", severity="warning", markup=False
            )
        for failure in self.under_way.take_failures():
            self.app.notify(failure, severity="error", timeout=20, markup=False)
        if self.is_showing:
            self._paint()
            if nothing and self.agents.selected is not None:
                self.refresh_bindings()  # now there is an agent that the keys are for

    def show_pane(self) -> None:
        super().show_pane()
        self.call_after_refresh(self._paint)

    def _paint(self) -> None:
        self.agents.reload()
        self._show_details()

    def _detail_lines(self, width: int, height: int) -> Iterable[Line]:
        if (branch := self.agents.selected) is None:
            return ()
        one = branch.agent if isinstance(branch.item, AgentSnapshot) else ""
        now = Now(
            self._now,
            self.doing(one),
            self.under_way.failure(one),
            self.history.versions.broken(one) if one else None,
            self.history.blocks.of(one) if one else None,
            bool(one) and self.history.versions.rolled_back(one, branch.item.version)
            if isinstance(branch.item, AgentSnapshot)
            else False,
            one in self._outdated,
        )
        return details(branch.item, width, height, now, self._glyphs)

    def filter_by(self, words: tuple[str, ...]) -> None:
        self.agents.filter_by(words)

    def choose(self) -> None:
        """Talk to the selected agent, see the tools of what it calls, or read why that cannot be."""
        item = self.agents.selected.item if self.agents.selected is not None else None
        if isinstance(item, DownstreamLink):
            self._opened(lambda opener: opener.open_details(item.owner, "tools", item.name))
        elif isinstance(item, AgentSnapshot) and can_answer(item):
            self.post_message(self.TalkToAgent(item.name))
        else:
            self.action_full_text()

    def full_text(self) -> tuple[str, str] | None:
        branch = self.agents.selected
        if branch is None:
            return None
        if isinstance(branch.item, DownstreamLink):
            one = branch.item.downstream
            lines = [f"{one.name}, called by {branch.item.owner}", f"{one.transport} {one.target}"]
            lines.append(f"probe: {one.reach.value}" + (f": {one.detail}" if one.detail else ""))
            if one.last_call is not None:
                lines.append(f"last call: {'ok' if one.last_call.ok else one.last_call.detail}")
            return one.name, "\n".join(lines)
        failure = self.under_way.failure(branch.item.name)
        full_text = full_state_text(branch.item)
        return (
            branch.item.name,
            f"{failure}\nThe log (4) has all of it.\n\n{full_text}" if failure else full_text,
        )

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what can be done with the selected line is offered."""
        if action in _OF_AGENT and self.is_mounted:
            branch = self.agents.selected
            return not self.filter.has_focus and branch is not None and bool(branch.agent)
        return super().check_action(action, parameters)

    def action_fold(self, fold: bool) -> None:
        """Fold or unfold the selected agent."""
        self.agents.fold(fold)

    def action_control(self, verb: Verb) -> None:
        """Start, stop, restart or reload the selected agent."""
        branch = self.agents.selected
        agent = self.agents.agent(branch.agent) if branch is not None else None
        if agent is not None:
            control(self, agent, verb, self.under_way, self._now)
            self.agents.repaint()
            self._show_details()

    def action_changes(self) -> None:
        """Open the versions of the selected agent, with the changes of each."""
        if (branch := self.agents.selected) is not None and branch.agent:
            self._opened(lambda opener: opener.open_changes(branch.agent))

    def action_messages(self) -> None:
        """The messages of the last run in which the selected agent sent or got one."""
        if (branch := self.agents.selected) is not None and branch.agent:
            self._opened(lambda opener: opener.open_messages(agent=branch.agent))

    def action_send(self) -> None:
        """Write a message to the selected agent by a form."""
        if (branch := self.agents.selected) is not None and branch.agent:
            self._opened(lambda opener: opener.open_send(branch.agent))

    def action_details(self) -> None:
        """Everything about the selected agent."""
        if (branch := self.agents.selected) is not None and branch.agent:
            self._opened(lambda opener: opener.open_details(branch.agent))

    def action_tools(self) -> None:
        """The tools of the selected agent, or of the downstream."""
        if (branch := self.agents.selected) is not None and branch.agent:
            server = branch.item.name if isinstance(branch.item, DownstreamLink) else None
            self._opened(lambda opener: opener.open_details(branch.agent, "tools", server))

    def action_edit(self) -> None:
        """Open the file in which the selected agent is configured."""
        branch = self.agents.selected
        agent = self.agents.agent(branch.agent) if branch is not None else None
        if agent is not None and (problem := open_source(self.app, agent.source)):
            self.notify(problem, severity="warning", markup=False)

    def _opened(self, do: Callable[[ScreenOpener], None]) -> None:
        if (opener := opener_of(self.app)) is not None:
            do(opener)

    # The palette and other panes

    def reveal(self, target: Target) -> bool:
        if isinstance(target, AgentTarget):
            self.filter.clear_filter()
            self.agents.filter_by(())
            return self.agents.show_agent(target.name)
        if isinstance(target, ToolTarget) and self.agents.agent(target.agent) is not None:
            self._opened(
                lambda opener: opener.open_details(target.agent, "tools", target.server, target.tool)
            )
            return True
        return False

    def entities(self) -> Iterable[Entity]:
        for agent in self.agents.agents:
            where = f"port {agent.port}" if agent.port else agent.url
            words = f"agent, {tone_of(agent).value}, {where}"
            yield Entity(agent.name, words, AgentTarget(agent.name))
        if (fleet := fleet_of(self)) is not None:
            # For the next time: what no one has looked at yet is asked for in the background.
            self.knowledge.ask_for_all(self, fleet, [agent.name for agent in self.agents.agents])
        there = {agent.name for agent in self.agents.agents}
        known = (found for found in self.knowledge.tools() if found[0] in there)
        for agent_name, server, tool in islice(known, _PALETTE_TOOLS):
            title = f"{agent_name}: {server}/{tool}" if server else f"{agent_name}: {tool}"
            yield Entity(title, "a tool, to be called by hand", ToolTarget(agent_name, server, tool))
