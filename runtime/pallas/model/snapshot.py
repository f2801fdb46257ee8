"""The fleet at one moment, as values that any thread may read."""

from dataclasses import dataclass
from typing import Literal

from .discovery import AgentKind, Availability
from .health import Downstream, Health, HealthStatus
from .reload import WatchSnapshot
from .states import AgentState, FleetState

Isolation = Literal["none", "process"]


@dataclass(frozen=True, slots=True)
class AgentSnapshot:
    """One agent. Times are Unix seconds, latencies seconds; ``error`` is the whole story, many lines.

    ``started_in`` is how long it took from the fleet's start until ready, None before. ``runs_queued`` wait
    for their conversation's turn; ``runs_waiting``, a part of ``runs_active``, for a free instance.
    ``latency_p50`` and ``latency_p95`` are over the last runs that were answered, ``tokens_in`` and
    ``tokens_out`` over all since the start. ``restarts`` counts how often another executor took over since it
    was ready first: started again, restarted or reloaded. ``source`` says where it is configured
    (``agents.yaml:12``).

    Three things are told apart: ``booted``, its port answers and gives its health; ``ready``, it takes runs;
    ``healthy``, it is ready and nothing is wrong with it. ``port`` is 0 for one that has none of its own.
    ``version`` counts the versions of its code and configuration that were live, ``previous`` is the one that
    a rollback goes to, 0 where there is none. ``crashes`` counts failures in the window of its restart
    policy, ``restart_at`` is when it is started again, ``started_again`` how often that was done by itself.
    ``pid`` is the process of an agent that has its own. ``capabilities`` are what it can do, as declared and
    as it says itself; ``sessions`` are those open with it, ``full`` says that it takes no more now, and
    ``shadows`` are the kinds of others of its name that it stands before. ``peers`` are the agents that it
    may send messages to.
    """

    name: str
    title: str
    description: str
    state: AgentState
    since: float
    health: Health
    port: int
    url: str
    model: str = ""
    vision: bool = False
    depends_on: tuple[str, ...] = ()
    downstreams: tuple[Downstream, ...] = ()
    runs_active: int = 0
    runs_queued: int = 0
    runs_waiting: int = 0
    runs_total: int = 0
    last_latency: float | None = None
    latency_p50: float | None = None
    latency_p95: float | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    restarts: int = 0
    source: str = ""
    started_in: float | None = None
    error: str = ""
    booted: bool = True
    version: int = 1
    previous: int = 0
    crashes: int = 0
    restart_at: float | None = None
    started_again: int = 0
    isolation: Isolation = "none"
    pid: int | None = None
    kind: AgentKind = "llm"
    capabilities: tuple[str, ...] = ()
    sessions: int = 0
    full: bool = False
    shadows: tuple[AgentKind, ...] = ()
    peers: tuple[str, ...] = ()

    @property
    def availability(self) -> Availability:
        """Whether it can be given something to do now: the one answer of every surface (C21, DR-31)."""
        if self.state is not AgentState.READY or self.health.status is HealthStatus.ERROR:
            return "unavailable"
        return "busy" if self.full else "ready"

    @property
    def ready(self) -> bool:
        """Whether it takes runs."""
        return self.state is AgentState.READY

    @property
    def healthy(self) -> bool:
        """Whether it takes runs and nothing is wrong with it."""
        return self.ready and self.health.status is HealthStatus.OK


@dataclass(frozen=True, slots=True)
class ServerSnapshot:
    """A program of the project that runs beside the agents (``servers:``).

    ``transport`` is how the program itself speaks; ``url`` is where it is reached in either case.
    ``restarts`` counts how often it was started again by itself; the others as in ``AgentSnapshot``.
    """

    name: str
    state: AgentState
    url: str
    pid: int | None = None
    error: str = ""
    transport: Literal["http", "stdio"] = "http"
    since: float = 0.0
    restarts: int = 0
    crashes: int = 0
    restart_at: float | None = None


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """The fleet. ``error`` is set when ``state`` is ``failed``: one line per mistake, ready to show.

    ``watch`` is None where nobody looks
    after the files. ``stale`` says in one line why all this may no longer be true, empty for a fleet that is
    looked at now.
    """

    name: str
    state: FleetState
    since: float
    registry_url: str
    agents: tuple[AgentSnapshot, ...] = ()
    servers: tuple[ServerSnapshot, ...] = ()
    error: str = ""
    stale: str = ""
    watch: WatchSnapshot | None = None

    def agent(self, name: str) -> AgentSnapshot | None:
        """The agent of that name, if the fleet has it."""
        return next((agent for agent in self.agents if agent.name == name), None)
