"""The list of agents, as a tree that can be folded."""

from collections.abc import Callable, Hashable

from pallas.model import AgentSnapshot, FleetSnapshot, FleetState, ServerSnapshot

from ...agents.fleet_tree import Branch, DownstreamLink, links_of, outline, parent_of, word_of_link
from ...text import Glyphs, Line, Part
from ..row_list import RowList
from .agent_view import tree_line


class AgentTree(RowList[Branch]):
    """One line for each agent, what it calls, and the project's servers; flat while it is filtered."""

    def __init__(
        self,
        glyphs: Glyphs,
        asked: Callable[[str], str],
        folded: frozenset[str] = frozenset(),
        keep: Callable[[frozenset[str]], None] = lambda folded: None,
        differs: Callable[[AgentSnapshot], Part] = lambda agent: ("", ""),
    ) -> None:
        """``asked`` returns the verb in progress for an agent; ``keep`` gets the folded agents on change.

        ``differs`` returns the mark of an agent that runs another version than its file, empty for others.
        """
        super().__init__(glyphs, id="agent-list")
        self._asked = asked
        self._agents: tuple[AgentSnapshot, ...] = ()
        self._servers: tuple[ServerSnapshot, ...] = ()
        self._folded = folded
        self._keep = keep
        self._differs = differs
        self._words: tuple[str, ...] = ()
        self._failed = False
        self._pointed = False

    def row_key(self, row: Branch) -> Hashable:
        return row.key

    @property
    def agents(self) -> tuple[AgentSnapshot, ...]:
        """Every agent of the fleet."""
        return self._agents

    def agent(self, name: str) -> AgentSnapshot | None:
        """The agent of that name."""
        return next((agent for agent in self._agents if agent.name == name), None)

    def take(self, snapshot: FleetSnapshot, now: float) -> None:
        """Keep what a frame says."""
        self._now = now
        self._failed = snapshot.state is FleetState.FAILED
        if (snapshot.agents, snapshot.servers) != (self._agents, self._servers):
            self._agents, self._servers = snapshot.agents, snapshot.servers
            self._arrange()

    def filter_by(self, words: tuple[str, ...]) -> None:
        """Show only lines in which every word occurs, without the tree."""
        self._words = words
        self._arrange()
        self.reload()

    def fold(self, fold: bool) -> None:
        """Fold or unfold the selected agent; what has nothing to fold goes up to the one above it."""
        branch = self.selected
        if branch is None or self._words:
            return
        name = branch.agent
        if isinstance(branch.item, AgentSnapshot) and branch.inside and branch.folded is not fold:
            self._fold_only(self._folded | {name} if fold else self._folded - {name})
            self.repaint()
        elif fold and (parent := parent_of(self.rows, self.cursor)) is not None:
            self.action_move_to(parent)

    def show_agent(self, name: str) -> bool:
        """Put the cursor on an agent, unfolding what hides it; False when there is none."""
        if self.agent(name) is None:
            return False
        if self._find_agent(name) is None:
            whole = outline(self._agents, self._servers)
            at = next((i for i, each in enumerate(whole) if each.key == (AgentSnapshot.__name__, name)), None)
            hiding: set[str] = set()
            while at is not None and (at := parent_of(whole, at)) is not None:
                hiding.add(whole[at].agent)
            self._fold_only(self._folded - hiding)
        if (index := self._find_agent(name)) is not None:
            self.action_move_to(index)
        return index is not None

    def _fold_only(self, names: frozenset[str]) -> None:
        self._folded = names
        self._keep(names)
        self._arrange()
        self.reload()

    def _find_agent(self, name: str) -> int | None:
        return self.find((AgentSnapshot.__name__, name))

    def _arrange(self) -> None:
        if not self._words:
            self.set_rows(outline(self._agents, self._servers, self._folded))
            return
        whole = outline(self._agents, self._servers)
        words = self._words
        self.set_rows(
            [Branch(each.item) for each in whole if all(word in _haystack(each.item) for word in words)]
        )

    def reload(self) -> None:
        if not self._pointed and self._cursor_key not in {branch.key for branch in self.rows[:1]}:
            # A server may be there before any agent: no one chose it, so the list begins with the first line.
            self.cursor, self._cursor_key, self._top_key = 0, None, None
        super().reload()

    def moved(self, scrolled: bool) -> None:
        self._pointed = True
        super().moved(scrolled)

    def line_at(self, index: int, width: int) -> Line:
        branch = self.rows[index]
        if not isinstance(branch.item, AgentSnapshot):
            return tree_line(branch, width, self._now, self._glyphs)
        asked, differs = self._asked(branch.agent), self._differs(branch.item)
        return tree_line(branch, width, self._now, self._glyphs, asked, differs)

    def empty_text(self) -> str:
        if self._words:
            return "No agent matches.\nEscape clears the filter."
        if self._failed:
            return "No agents: the fleet could not start."
        return "No agents yet.\nThey appear here as soon as agents.yaml is read."

    def links(self, name: str) -> list[DownstreamLink]:
        """What an agent calls."""
        agent = self.agent(name)
        return links_of(agent, self._agents) if agent is not None else []


def _haystack(item: AgentSnapshot | ServerSnapshot | DownstreamLink) -> str:
    if isinstance(item, DownstreamLink):
        words = [item.name, item.downstream.transport, word_of_link(item), item.downstream.target]
    else:
        words = [item.name, item.state.value]
    if isinstance(item, AgentSnapshot):
        words += [item.title, item.model, item.health.status.value, item.kind, *item.capabilities]
    return " ".join(words).lower()
