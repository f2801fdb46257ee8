"""What can be found and asked: agents as discovery shows them, sessions, providers, tasks (SPEC 7)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

AgentKind = Literal["llm", "handler", "worker", "remote", "router"]
Availability = Literal["ready", "busy", "unavailable"]
SessionStatus = Literal["active", "busy", "idle", "failed"]
ProviderKind = Literal["llm", "embedding", "reranker"]
TaskStatus = Literal["working", "input_required", "completed", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class ProviderFacts:
    """A provider of an agent as discovery shows it (DR-23): what was declared, and what is known of models.

    ``capabilities`` are ``streaming``, ``tools``, ``vision``, ``jsonMode``; empty where none is known.
    """

    id: str
    models: tuple[str, ...]
    kind: ProviderKind = "llm"
    capabilities: Mapping[str, bool] = field(default_factory=dict)
    display_name: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """An agent as one principal may find it. All text is sanitised.

    ``reason`` says why it is not ready, or what is wrong with one that is. ``providers`` is None where it has
    no choice of them. ``shadows`` are the kinds of agents of the same id that it stands before (C14).
    ``match`` says why it was found, empty where nothing was asked for.
    """

    id: str
    capabilities: tuple[str, ...] = ()
    status: Availability = "unavailable"
    kind: AgentKind = "llm"
    title: str = ""
    description: str = ""
    reason: str = ""
    providers: tuple[ProviderFacts, ...] | None = None
    shadows: tuple[AgentKind, ...] = ()
    match: str = ""


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A session: a lease on a thread. Times are Unix seconds, ``expires_at`` 0 for one that never does.

    ``thread`` is empty until something was said.

    ``id`` is 32 hex digits and opens the session for its owner: no more of it is shown than tells two apart.
    """

    id: str
    agent: str
    status: SessionStatus
    created_at: float
    last_activity_at: float
    expires_at: float
    owner: str = "anonymous"
    provider: str = ""
    thread: str = ""
    turns: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """Long work with a durable handle. Times are Unix seconds, ``ttl`` seconds after its end, None for ever.

    ``text`` is the answer, ``fault`` the body of what went wrong (SPEC 7.3), both empty until it is over;
    ``progress`` is its last line of progress, ``request`` what an agent waits to be told. ``kind`` says how
    it was asked for: ``send_message`` or ``tasks_delegate``.
    """

    id: str
    agent: str
    owner: str
    status: TaskStatus
    created_at: float
    updated_at: float
    run_id: str = ""
    thread: str = ""
    kind: str = "send_message"
    preview: str = ""
    progress: str = ""
    request: Mapping[str, Any] | None = None
    text: str = ""
    result: Mapping[str, Any] | None = None
    fault: Mapping[str, Any] | None = None
    ttl: float | None = None
