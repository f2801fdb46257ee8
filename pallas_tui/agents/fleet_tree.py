"""Who needs whom, and who calls what: the fleet as the lines of a tree."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from pallas.model import AgentSnapshot, Downstream, ProbeResult, ServerSnapshot

from ..state import Item, Tone, tone_of

_Place = tuple[str, int, str]
_SHARED: Final = "/agents/"
_LOOPBACK: Final = frozenset(("127.0.0.1", "localhost", "::1", "0.0.0.0"))

_TONES: Final = {
    ProbeResult.OK: Tone.OK,
    ProbeResult.UNKNOWN: Tone.STARTING,
    ProbeResult.UNREACHABLE: Tone.ERROR,
    ProbeResult.AUTH_REQUIRED: Tone.DEGRADED,
    ProbeResult.NOT_CONFIGURED: Tone.DEGRADED,
}
_WORDS: Final = {
    ProbeResult.OK: "ok",
    ProbeResult.UNKNOWN: "?",
    ProbeResult.UNREACHABLE: "down",
    ProbeResult.AUTH_REQUIRED: "key",
    ProbeResult.NOT_CONFIGURED: "unset",
}


@dataclass(frozen=True, slots=True)
class DownstreamLink:
    """What an agent calls: ``delegate`` is the agent of this fleet that answers there, if one does."""

    owner: str
    downstream: Downstream
    delegate: AgentSnapshot | None = None

    @property
    def name(self) -> str:
        """The name that the owner calls it by."""
        return self.downstream.name


@dataclass(frozen=True, slots=True)
class Branch:
    """A line of the tree; ``last`` says for each level if it is the last one there.

    ``inside`` counts the lines below it, which are not in the tree while it is ``folded``.
    """

    item: Item | DownstreamLink
    last: tuple[bool, ...] = ()
    inside: int = 0
    folded: bool = False

    @property
    def depth(self) -> int:
        """0 for an agent that no one depends on."""
        return len(self.last)

    @property
    def key(self) -> Hashable:
        """By what it is known again."""
        if isinstance(self.item, DownstreamLink):
            return "link", self.item.owner, self.item.name
        return type(self.item).__name__, self.item.name

    @property
    def agent(self) -> str:
        """The agent that is meant: this one, or the owner of the link; empty for a server."""
        if isinstance(self.item, DownstreamLink):
            return self.item.owner
        return self.item.name if isinstance(self.item, AgentSnapshot) else ""


def outline(
    agents: Iterable[AgentSnapshot],
    servers: Iterable[ServerSnapshot] = (),
    folded: frozenset[str] = frozenset(),
) -> tuple[Branch, ...]:
    """Every agent once, below the first one that depends on it, else in the order given; then the servers.

    Below each agent stand first what it calls, then the agents it depends on and those it sends messages to.
    A downstream that is one of those agents is not told twice. ``folded`` are the names of agents whose
    inside is left out.
    """
    known = {agent.name: agent for agent in agents}
    needed = {need for agent in known.values() for need in _needs(agent) if need != agent.name}
    places = _places(known.values())
    placed: set[str] = set()

    def place(agent: AgentSnapshot, last: tuple[bool, ...]) -> list[Branch]:
        placed.add(agent.name)
        needs = [known[name] for name in _needs(agent) if name in known and name not in placed]
        placed.update(need.name for need in needs)
        links = [link for link in _links(agent, places) if link.delegate not in needs]
        count, inside = len(links) + len(needs), []
        for index, link in enumerate(links):
            inside.append(Branch(link, (*last, index == count - 1)))
        for index, need in enumerate(needs, len(links)):
            inside += place(need, (*last, index == count - 1))
        shut = agent.name in folded and bool(inside)
        return [Branch(agent, last, len(inside), shut), *(() if shut else inside)]

    branches: list[Branch] = []
    for agent in known.values():
        if agent.name not in needed and agent.name not in placed:
            branches += place(agent, ())
    for agent in known.values():  # a cycle has no top; the configuration refuses one, but no one may vanish
        if agent.name not in placed:
            branches += place(agent, ())
    return (*branches, *(Branch(server) for server in servers))


def _needs(agent: AgentSnapshot) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*agent.depends_on, *agent.peers)))


def links_of(agent: AgentSnapshot, agents: Iterable[AgentSnapshot]) -> list[DownstreamLink]:
    """What an agent calls, with the agents of the fleet among it."""
    return _links(agent, _places(agents))


def _places(agents: Iterable[AgentSnapshot]) -> dict[_Place, AgentSnapshot]:
    return {place: agent for agent in agents if (place := _place(agent.url)) is not None}


def _links(agent: AgentSnapshot, places: dict[_Place, AgentSnapshot]) -> list[DownstreamLink]:
    links = []
    for one in agent.downstreams:
        place = _place(one.target)
        delegate = places.get(place) if place is not None else None
        itself = delegate is not None and delegate.name == agent.name
        links.append(DownstreamLink(agent.name, one, None if itself else delegate))
    return links


def parent_of(branches: Sequence[Branch], index: int) -> int | None:
    """Return the index of the parent line, None at the top."""
    depth = branches[index].depth
    return next((i for i in range(index - 1, -1, -1) if branches[i].depth < depth), None) if depth else None


def tone_of_link(link: DownstreamLink) -> Tone:
    """How a downstream is: as the last probe found it, or worse where real calls or its own health say so."""
    reach = _reach(link.downstream)
    if reach is ProbeResult.OK and link.downstream.problem:
        return Tone.DEGRADED
    if reach is ProbeResult.OK and link.delegate is not None:
        return tone_of(link.delegate)
    return _TONES[reach]


def word_of_link(link: DownstreamLink) -> str:
    """The same in one short word: ``key`` where one is asked for."""
    call = link.downstream.last_call
    if link.downstream.reach is ProbeResult.OK and call is not None and call.reach is ProbeResult.UNREACHABLE:
        return "fails"
    if _reach(link.downstream) is ProbeResult.OK and link.downstream.problem:
        return "no use"
    return _WORDS[_reach(link.downstream)]


def _reach(one: Downstream) -> ProbeResult:
    call = one.last_call
    worse = call is not None and not call.ok and call.reach not in (ProbeResult.OK, ProbeResult.UNKNOWN)
    return call.reach if one.reach is ProbeResult.OK and worse and call is not None else one.reach


@lru_cache(maxsize=4_096)
def _place(url: str) -> _Place | None:
    """Return host, port and path of a URL, None if it is not a URL. All names of this machine are equal.

    Where several agents share a port, their paths tell them apart.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not host or port is None:
        return None
    own = parts.path.rstrip("/") if _SHARED in parts.path else ""
    return ("loopback" if host in _LOOPBACK else host), port, own
