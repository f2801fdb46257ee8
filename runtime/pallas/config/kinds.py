"""What an agent is that does not run on fast-agent, and how fleets are found and leased: values alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pallas.model import NO_PARAMS, Params, ProviderKind

Dialect = Literal["auto", "acp", "ndjson"]
RouteBy = Literal["capability", "examples", "model"]
Permissions = Literal["reject", "allow"]


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """A program that answers on its stdin and stdout. ``cwd`` is absolute; ``env`` is added, expanded.

    ``agent_id`` is what it is told in ``session/new``; ``request_timeout`` (seconds) bounds what is asked of
    it beside turns, which have their own. ``dialect`` is found out by a handshake where it is ``auto``.
    ``permissions`` is what it is answered when it asks leave for something, as ACP workers do.
    """

    command: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    dialect: Dialect = "auto"
    agent_id: str = ""
    request_timeout: float = 30.0
    capacity: int = 1_000
    permissions: Permissions = "reject"


@dataclass(frozen=True, slots=True)
class RemoteConfig:
    """Somebody else's MCP endpoint. ``headers`` are expanded; ``unset`` are variables they lack.

    ``tool``, ``argument`` and ``conversation`` name the tool, its text and its handle; empty to find out.
    """

    url: str
    tool: str = ""
    argument: str = ""
    conversation: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    forward_inbound_auth: bool = False
    capacity: int = 32
    unset: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HandlerConfig:
    """Python code that answers: ``path`` is ``module:attribute``, empty for an object that was registered.

    ``registered`` is that object (``pallas.handlers.Registered``); it is equal to itself alone.
    """

    path: str = ""
    capacity: int = 64
    registered: Any = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class RouterConfig:
    """An agent that only chooses who answers among ``agents``; by a ``model`` it asks the agent ``ask``.

    ``fallback`` answers where nobody fits, empty for a Fault then.
    """

    agents: tuple[str, ...]
    by: RouteBy = "examples"
    ask: str = ""
    fallback: str = ""


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """A provider that callers may choose. ``models`` are as fast-agent names them (``anthropic.NAME``), the
    first is used; ``params`` are its own defaults, below the agent's.

    ``capabilities`` are None unless declared. ``failover`` says that it may answer in place of another.
    """

    id: str
    models: tuple[str, ...]
    kind: ProviderKind = "llm"
    capabilities: Mapping[str, bool] | None = None
    display_name: str = ""
    description: str = ""
    params: Params = NO_PARAMS
    failover: bool = False


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """``sessions:``: how many there may be, how long they live (seconds), and how much is taken at once.

    ``max`` counts those of agents that answer in this process (SPEC 7.4); ``concurrent`` requests at a time;
    prompts and metadata in bytes.
    """

    max: int = 100
    idle: float = 600.0
    ttl: float = 3_600.0
    reap_every: float = 60.0
    concurrent: int = 50
    prompt_bytes: int = 1_048_576
    metadata_bytes: int = 65_536


@dataclass(frozen=True, slots=True)
class TasksConfig:
    """``tasks:``: ``tools`` offers ``tasks_status`` and ``tasks_result`` on the bridge, ``ttl`` is how long
    what is over is kept (seconds), ``max`` how many may be under way."""

    tools: bool = False
    ttl: float = 7 * 86_400.0
    max: int = 200
