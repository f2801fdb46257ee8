"""What an agent is that does not run on fast-agent, and how fleets are found and leased: values alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pallas.model import NO_PARAMS, Params, ProviderKind

from .where import Where

Dialect = Literal["auto", "acp", "ndjson"]
RouteBy = Literal["capability", "examples", "model"]
Permissions = Literal["reject", "allow"]
LlmStrategy = Literal["failover", "round-robin", "least-loaded"]


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

    ``registered`` is that object (``pallas.handlers.Registered``); it is equal to itself alone. ``typed``
    where ``path`` names a function with a payload (SPEC 5).
    """

    path: str = ""
    capacity: int = 64
    registered: Any = field(default=None, repr=False)
    typed: "TypedConfig | None" = None


@dataclass(frozen=True, slots=True)
class TypedConfig:
    """A typed handler (SPEC 5): ``payload`` is ``module:Class``, ``agent`` whether it knows its own name.

    ``timeout`` bounds one message (seconds). ``broadcast`` lets others share its name as a target: ``group``
    is that name then, the agent's own unless it says otherwise; empty without. ``prompt`` is put before what
    it asks a model, and never shown to it. ``memory`` (bytes, 0 for any) bounds the process of one with
    ``isolation: process``, and ``env`` is all that this has of the environment beside what programs need to
    run; it is expanded. ``forward_inbound_auth``: agents that it asks get the caller's bearer.
    ``capacity`` is how many messages it handles at a time, 0 for as many as any handler. Its ``peers`` are
    those of the agent. ``files`` of the project are what one with ``isolation: process`` may open beside its
    code. ``listener``: declared in an organism.yaml, so its code may import what xml-pipeline offers.
    ``forwards_freely``: it may send to every listener of that file.
    """

    payload: str
    agent: bool = False
    timeout: float = 30.0
    broadcast: bool = False
    group: str = ""
    memory: int = 0
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    forward_inbound_auth: bool = False
    prompt: str = field(default="", repr=False)
    capacity: int = 0
    files: tuple[str, ...] = ()
    listener: bool = False
    forwards_freely: bool = False

    def at_once(self, limits: "PumpLimits") -> int:
        """How many messages it handles at a time: its own ``capacity``, else what counts for all."""
        return self.capacity or limits.per_agent


@dataclass(frozen=True, slots=True)
class PumpLimits:
    """``messages:``: what typed handlers may do at once (HC-31), and how much one run may be.

    ``pipelines`` runs, ``handlers`` messages being handled in the fleet, ``per_agent`` by one; ``queue`` of
    those that wait, ``per_run`` messages of one run; ``bytes`` of one message.
    """

    pipelines: int = 50
    handlers: int = 20
    per_agent: int = 5
    queue: int = 10_000
    per_run: int = 10_000
    bytes: int = 1_048_576


@dataclass(frozen=True, slots=True)
class BackendConfig:
    """One entry of ``llm.backends``: ``provider`` as fast-agent names it, ``supported_models`` by prefix.

    ``api_key`` is expanded; empty for the project's own. ``base_url`` is empty for the provider's own.
    ``timeout`` in seconds, ``rate_limit_tpm`` tokens a minute (0: any), the lower ``priority`` comes first.
    """

    id: str
    provider: str
    supported_models: tuple[str, ...] = ()
    priority: int = 1
    rate_limit_tpm: int = 100_000
    max_concurrent: int = 20
    timeout: float = 120.0
    base_url: str = ""
    api_key: str = field(default="", repr=False)
    where: Where = Where("agents.yaml")


@dataclass(frozen=True, slots=True)
class LlmRouting:
    """``llm:``: which backends answer what handlers ask of a model (SPEC 5.1). Delays in seconds.

    ``max_tokens_per_thread`` is the budget of one thread, 0 for any. Without ``backends`` the project's
    ``default_model`` is the one there is.
    """

    strategy: LlmStrategy = "failover"
    retries: int = 3
    retry_base_delay: float = 1.0
    retry_max_delay: float = 60.0
    backends: tuple[BackendConfig, ...] = ()
    max_tokens_per_thread: int = 100_000


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
