"""What an agent is that does not run on fast-agent, and how fleets are found and leased: values alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from pallas.model import NO_PARAMS, Params, ProviderKind

from .field_types import CHOICE, FileValue
from .where import Where

TODO: Final = "system.todo"
"""The keeper of handlers' watchers, which reports to them what they wait for (HC-35); it is always there."""

Dialect = Literal["auto", "acp", "ndjson"]
RouteBy = Literal["capability", "examples", "model"]
Permissions = Literal["ask", "reject", "allow"]
VerdictGate = Literal["off", "warn", "hold"]
LiveStage = Literal["never", "ask", "always"]
LlmStrategy = Literal["failover", "round-robin", "least-loaded"]
MAX_SECONDS: Final = 30 * 86_400.0
MAX_VERDICT_S: Final = 3_600
"""Seconds that each stage of a verdict may take at most."""
MAX_LIVE_COST: Final = 1_000
"""US dollars that a verdict may cost at most."""


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """A program that answers on its stdin and stdout. ``cwd`` is absolute; ``env`` is added, expanded.

    ``agent_id`` is its id in ``session/new``; ``request_timeout`` (seconds) bounds what is asked of
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
    permissions: Permissions = "ask"


@dataclass(frozen=True, slots=True)
class RemoteConfig:
    """An MCP endpoint outside the fleet. ``headers`` are expanded; ``unset`` are variables they lack.
    ``key_variable`` is the one that the credential in them is read from.

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
    key_variable: str = ""


@dataclass(frozen=True, slots=True)
class HandlerConfig:
    """Python code that answers: ``path`` is ``module:attribute``, empty for an object that was registered.

    ``registered`` is that object (``pallas.handlers.Registered``); it is equal to itself alone. ``typed``
    where ``path`` names a function with a payload. ``pure``: it has no effect beside its answer and what it
    asks, so a verdict runs it.
    """

    path: str = ""
    capacity: int = 64
    registered: Any = field(default=None, repr=False)
    typed: "TypedConfig | None" = None
    pure: bool = False


@dataclass(frozen=True, slots=True)
class TypedConfig:
    """A typed handler: ``payload`` is ``module:Class``, ``agent`` whether it knows its own name.

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


class PumpLimits(FileValue):
    """How much typed handlers may do at once, and how large one run may be."""

    pipelines: Annotated[int, Field(ge=1, le=10_000)] = 50
    """Runs of typed handlers at a time."""
    handlers: Annotated[int, Field(ge=1, le=10_000)] = 20
    """Messages being handled at a time, in the whole fleet."""
    per_agent: Annotated[int, Field(ge=1, le=10_000)] = 5
    """Messages being handled by one handler at a time; its own ``capacity`` takes precedence."""
    queue: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """The most messages that wait."""
    per_run: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Messages of one run."""
    bytes: Annotated[int, Field(ge=1_024, le=16 * 1_048_576)] = 1_048_576
    """Bytes of one message."""


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
    """``llm:``: which backends answer what handlers ask of a model. Delays in seconds.

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

    ``fallback`` answers where no other fits, empty for a Fault then.
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


class SessionLimits(FileValue):
    """How many sessions there may be, how long they live, and how much one may send."""

    max: Annotated[int, Field(ge=1, le=100_000)] = 100
    """Sessions at a time with agents that answer in this process."""
    idle: Annotated[float, Field(ge=1, le=MAX_SECONDS)] = 600.0
    """Seconds without a prompt after which a session is closed."""
    ttl: Annotated[float, Field(ge=1, le=MAX_SECONDS)] = 3_600.0
    """Seconds after which a session is closed in any case, but never during a prompt."""
    reap_every: Annotated[float, Field(ge=0.1, le=MAX_SECONDS)] = 60.0
    """Seconds between two searches for sessions to close."""
    concurrent: Annotated[int, Field(ge=1, le=100_000)] = 50
    """Requests to the bridge at a time."""
    prompt_bytes: Annotated[int, Field(ge=1, le=16 * 1_048_576)] = 1_048_576
    """Bytes of a prompt."""
    metadata_bytes: Annotated[int, Field(ge=2, le=16 * 1_048_576)] = 65_536
    """Bytes of a session's metadata."""


class TasksConfig(FileValue):
    """Long work with a durable handle."""

    tools: bool = False
    """Offer ``tasks_status`` and ``tasks_result`` on the bridge, for clients without the tasks extension."""
    ttl: Annotated[float, Field(ge=1, le=10 * 365 * 86_400.0)] = 7 * 86_400.0
    """Seconds that a task is kept after its end."""
    max: Annotated[int, Field(ge=1, le=100_000)] = 200
    """Tasks under way at a time."""


def _off(value: Any) -> Any:
    """``off`` without quotes, which YAML takes for false."""
    return "off" if value is False else value


class VerdictConfig(FileValue):
    """Which recorded runs would go differently after a save, while the fleet watches its files."""

    gate: Annotated[VerdictGate, BeforeValidator(_off), CHOICE] = "warn"
    """``warn`` reports runs that differ after the new version is live; ``hold`` before that."""
    recent: Annotated[int, Field(ge=0, le=200)] = 0
    """The last runs of each agent that are judged too, beside the kept tests."""
    timeout: Annotated[float, Field(ge=1, le=MAX_VERDICT_S)] = 60.0
    """Seconds for all runs; those that are not judged until then are ``not decided``. For both stages."""
    live: Annotated[LiveStage, CHOICE] = "never"
    """Whether requests that differ are sent to models: ``ask`` waits until a person starts that."""
    max_cost: Annotated[float, Field(ge=0, le=MAX_LIVE_COST, examples=[0.5])] = 1.0
    """US dollars that asking models may cost at one save. A model without a known price is not asked."""
    concurrency: Annotated[int, Field(ge=1, le=16)] = 8
    """Runs for which models are asked at once."""
