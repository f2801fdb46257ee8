"""The fleet at one moment, as values that any thread may read."""

from dataclasses import dataclass
from enum import StrEnum

from .health import Downstream, Health


class AgentState(StrEnum):
    """Where an agent is in its life.

    ``waiting`` for what it depends on; ``importing`` its module; ``connecting`` its instances;
    ``ready`` to answer; ``error``: its port answers ``get_health`` and says why, nothing else works.
    """

    WAITING = "waiting"
    IMPORTING = "importing"
    CONNECTING = "connecting"
    READY = "ready"
    ERROR = "error"
    STOPPING = "stopping"
    STOPPED = "stopped"


class FleetState(StrEnum):
    """Where the whole fleet is: ``failed`` means that it could not start at all."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class AgentSnapshot:
    """One agent. Times are Unix seconds, latencies seconds; ``error`` is the whole story, many lines.

    ``started_in`` is how long it took from the fleet's start until ready, None before. ``runs_queued`` wait
    for their conversation's turn; ``runs_waiting``, a part of ``runs_active``, for a free instance.
    ``latency_p50`` and ``latency_p95`` are over the last runs that were answered, ``tokens_in`` and
    ``tokens_out`` over all since the start. ``restarts`` counts how often another executor took over since it
    was ready first: started again, restarted or reloaded. ``source`` says where it is configured
    (``agents.yaml:12``).
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


@dataclass(frozen=True, slots=True)
class ServerSnapshot:
    """A program of the project that runs beside the agents (``servers:``)."""

    name: str
    state: AgentState
    url: str
    pid: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """The fleet. ``error`` is set when ``state`` is ``failed``: one line per mistake, ready to show.

    ``stale`` says in one line why all this may no longer be true, empty for a fleet that is looked at now.
    """

    name: str
    state: FleetState
    since: float
    registry_url: str
    agents: tuple[AgentSnapshot, ...] = ()
    servers: tuple[ServerSnapshot, ...] = ()
    error: str = ""
    stale: str = ""

    def agent(self, name: str) -> AgentSnapshot | None:
        """The agent of that name, if the fleet has it."""
        return next((agent for agent in self.agents if agent.name == name), None)
