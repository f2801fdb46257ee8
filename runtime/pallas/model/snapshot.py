"""The fleet at one moment, as frozen values that any thread may read."""

from dataclasses import dataclass
from typing import Literal

from .context_bill import ContextBill
from .discovery import AgentKind, Availability
from .health import Downstream, Health, HealthStatus
from .reload import WatchSnapshot
from .states import AgentState, FleetState

Isolation = Literal["none", "process"]


@dataclass(frozen=True, slots=True)
class AgentSnapshot:
    """One agent at one moment. Times are Unix seconds, latencies seconds.

    It is ``booted`` when its port answers and reports its health, ``ready`` when it takes runs, and
    ``healthy`` when it is ready and nothing is wrong with it.
    """

    name: str
    title: str
    description: str
    state: AgentState
    since: float
    health: Health
    port: int  # 0 if it has none of its own
    url: str
    model: str = ""
    vision: bool = False
    depends_on: tuple[str, ...] = ()
    downstreams: tuple[Downstream, ...] = ()
    runs_active: int = 0
    runs_queued: int = 0  # runs that wait for their conversation's turn
    runs_waiting: int = 0  # runs among ``runs_active`` that wait for a free instance
    runs_total: int = 0
    last_latency: float | None = None
    latency_p50: float | None = None  # over the last answered runs, like ``latency_p95``
    latency_p95: float | None = None
    tokens_in: int = 0  # since the start, like ``tokens_out``
    tokens_out: int = 0
    cost: int | None = None  # of its runs since the start, in nano-US-dollars; None if no price is known
    unpriced: int = 0  # how many answers of models no price is known of
    restarts: int = 0  # how often it was started again since it was first ready, by itself or by hand
    reloads: int = 0  # how often a reload or a rollback put another version in place
    source: str = ""  # where it is configured (``agents.yaml:12``)
    started_in: float | None = None  # seconds from the fleet's start until ready, None before
    error: str = ""  # the whole error, many lines
    booted: bool = True
    version: int = 1  # counts the versions that were live
    previous: int = 0  # the version for a rollback, 0 if there is none
    crashes: int = 0  # failures in the window of its restart policy
    restart_at: float | None = None  # when it is started again
    started_again: int = 0  # how often the supervisor restarted it
    isolation: Isolation = "none"
    pid: int | None = None  # set for an agent in a process of its own
    kind: AgentKind = "llm"
    capabilities: tuple[str, ...] = ()  # as declared, and as it reports itself
    sessions: int = 0  # sessions open with it
    full: bool = False  # it takes no more sessions or runs now
    shadows: tuple[AgentKind, ...] = ()  # kinds of agents of the same name that it hides
    peers: tuple[str, ...] = ()  # agents that it may send messages to
    serves: str = ""  # the agent of its module or cards that answers, as they name it
    warnings: tuple[str, ...] = ()  # what its files name that it starts without, each with its place
    context: ContextBill | None = None  # what a request takes of its model's window

    @property
    def availability(self) -> Availability:
        """Whether it can take work now; every surface reports this one value (DR-31)."""
        if self.state is not AgentState.READY or self.health.status is HealthStatus.ERROR:
            return "unavailable"
        return "busy" if self.full else "ready"

    @property
    def ready(self) -> bool:
        """Whether it takes runs."""
        return self.state is AgentState.READY

    @property
    def healthy(self) -> bool:
        """Whether it takes runs and has no problem."""
        return self.ready and self.health.status is HealthStatus.OK


@dataclass(frozen=True, slots=True)
class ServerSnapshot:
    """A program of the project that the fleet runs (``servers:``). Other fields as in ``AgentSnapshot``."""

    name: str
    state: AgentState
    url: str  # where it is reached, whatever its transport
    pid: int | None = None
    error: str = ""
    transport: Literal["http", "stdio"] = "http"  # what the program itself speaks
    since: float = 0.0
    restarts: int = 0  # how often it was restarted automatically
    crashes: int = 0
    restart_at: float | None = None


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """The fleet at one moment."""

    name: str
    state: FleetState
    since: float
    registry_url: str
    agents: tuple[AgentSnapshot, ...] = ()
    servers: tuple[ServerSnapshot, ...] = ()
    error: str = ""  # set if ``state`` is ``failed``: one line per mistake
    # It failed because the project runs already: what to do, and the fleet's origin if one can attach to it
    is_elsewhere: bool = False
    origin_elsewhere: str = ""
    stale: str = ""  # why this may be outdated, one line; empty if it is current
    watch: WatchSnapshot | None = None  # None if the files are not watched
    replica: str = ""  # its id among the fleets on the same ledger; empty without a ledger
    replicas: int = 0  # how many of them lived when it looked last, itself included
    faults: str = ""  # that are injected into its calls, one line; empty if none are
    project: str = ""  # its project's folder, which each record of its log names; empty if it is not known

    def agent(self, name: str) -> AgentSnapshot | None:
        """The agent of that name, if the fleet has it."""
        return next((agent for agent in self.agents if agent.name == name), None)
