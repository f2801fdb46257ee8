"""What clients can find and ask: agents, their providers, sessions and tasks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

AgentKind = Literal["llm", "handler", "worker", "remote", "router"]
Availability = Literal["ready", "busy", "unavailable"]
SessionStatus = Literal["active", "busy", "idle", "failed"]
ProviderKind = Literal["llm", "embedding", "reranker"]
TaskStatus = Literal["working", "input_required", "completed", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class KindFacts:
    """What the rest of Pallas has to know of a kind of agent."""

    executor: str  # ``module:Class`` below ``pallas.executors``, imported when the first such agent starts
    in_process: bool = True  # the fleet answers for it itself, not a program or another fleet


AGENT_KINDS: Final[Mapping[AgentKind, KindFacts]] = {
    "llm": KindFacts("fastagent.fastagent_executor:FastAgentExecutor"),
    "handler": KindFacts("handler.handler_executor:HandlerExecutor"),
    "worker": KindFacts("worker.worker_executor:WorkerExecutor", in_process=False),
    "remote": KindFacts("remote.remote_executor:RemoteExecutor", in_process=False),
    "router": KindFacts("router.router_executor:RouterExecutor"),
}
"""Each kind of agent that there is."""
IN_PROCESS: Final[frozenset[AgentKind]] = frozenset(
    kind for kind, facts in AGENT_KINDS.items() if facts.in_process
)
"""Kinds of agents that the fleet answers for itself; a program or another fleet answers for the others."""


@dataclass(frozen=True, slots=True)
class ProviderFacts:
    """A provider of an agent as discovery shows it (DR-23): as declared, with the known facts of its
    models.
    """

    id: str
    models: tuple[str, ...]
    kind: ProviderKind = "llm"
    # ``streaming``, ``tools``, ``vision``, ``jsonMode``; empty if unknown
    capabilities: Mapping[str, bool] = field(default_factory=dict)
    display_name: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """An agent as one principal finds it. All text is sanitised."""

    id: str
    capabilities: tuple[str, ...] = ()
    status: Availability = "unavailable"
    kind: AgentKind = "llm"
    title: str = ""
    description: str = ""
    reason: str = ""  # why it is not ready, or what is wrong with a ready one
    providers: tuple[ProviderFacts, ...] | None = None  # None if it has no choice of them
    shadows: tuple[AgentKind, ...] = ()  # kinds of agents of the same id that it hides
    match: str = ""  # why it was found; empty without a search


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A session: a lease on a thread. Times are Unix seconds."""

    id: str  # 32 hex digits. It opens the session for its owner, so only its beginning is ever shown
    agent: str
    status: SessionStatus
    created_at: float
    last_activity_at: float
    expires_at: float  # 0 if it never expires
    owner: str = "anonymous"
    provider: str = ""
    thread: str = ""  # empty until its first prompt
    turns: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """Long work with a durable handle. Times are Unix seconds."""

    id: str
    agent: str
    owner: str
    status: TaskStatus
    created_at: float
    updated_at: float
    run_id: str = ""
    thread: str = ""
    kind: str = "send_message"  # how it was begun: ``send_message`` or ``tasks_delegate``
    preview: str = ""
    progress: str = ""  # its last line of progress
    request: Mapping[str, Any] | None = None  # the questions that wait for an answer
    text: str = ""  # the answer, empty until it is over
    result: Mapping[str, Any] | None = None
    fault: Mapping[str, Any] | None = None  # the body of its Fault
    ttl: float | None = None  # seconds it is kept after its end, None for ever
