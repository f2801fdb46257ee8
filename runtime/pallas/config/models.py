"""What the user wrote, validated: immutable, complete, nothing left to look up."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pallas.model import NO_PARAMS, AgentKind, Isolation, Params
from pallas.model.grant_rules import RbacConfig
from pallas.model.questions import APPROVAL_SECONDS
from pallas.model.spend_limits import NO_LIMITS, LimitsConfig
from pallas.model.tool_lock import LockMode
from pallas.model.tool_rules import ToolRuleSet
from pallas.model.unfinished_calls import UnfinishedPolicy
from pallas.prices.price_book import PriceRule

from .auth import AuthConfig
from .change_effects import AT_ONCE, AT_START, BY_PARTS, NEW_VERSION, NO_EFFECT, ChangeEffect
from .kinds import (
    HandlerConfig,
    LlmRouting,
    ProviderConfig,
    PumpLimits,
    RemoteConfig,
    RouterConfig,
    SessionLimits,
    TasksConfig,
    TypedConfig,
    VerdictConfig,
    WorkerConfig,
)
from .where import Where as Where

InstanceScope = Literal["pooled", "conversation", "request"]
Drain = Literal["finish", "hand_over"]
RestartPolicy = Literal["on-failure", "always", "never"]
Condition = Literal["started", "ready", "healthy"]


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing wrong in the configuration, ready to print as ``file:line: key: problem; hint``."""

    where: Where
    key: str
    problem: str
    hint: str = ""
    level: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        head = f"{self.where}: {self.key}: " if self.key else f"{self.where}: "
        return head + self.problem + (f"; {self.hint}" if self.hint else "")

    @property
    def sentence(self) -> str:
        """The same with the key at its end, for logs: those mask what follows ``api_key:``."""
        tail = (f"; {self.hint}" if self.hint else "") + (f" ({self.key})" if self.key else "")
        return f"{self.where}: {self.problem}{tail}"


class ConfigError(Exception):
    """The project cannot be used; ``mistakes`` holds all of them, not only the first."""

    def __init__(self, mistakes: tuple[Mistake, ...]) -> None:
        super().__init__("\n".join(str(mistake) for mistake in mistakes))
        self.mistakes = mistakes


@dataclass(frozen=True, slots=True)
class Icon:
    """A picture of an agent in the registry; ``sizes`` as in the registry schema, for example ``any``."""

    src: str
    sizes: tuple[str, ...] = ("any",)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Declared, never inferred (PR-13). Window and output in tokens.

    ``output_declared`` says that the output was written down, also where it is the same as the default.
    """

    vision: bool = False
    context_window: int = 131_072
    max_output_tokens: int = 16_384
    output_declared: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class RestartConfig:
    """What becomes of an agent or a program that fails (``restart:``). Times in seconds.

    It is started again after ``backoff``, doubled with each failure up to ``backoff_max``; the ``crashes``-th
    failure ``within`` so many seconds is a crash loop, and then only a person or a changed file starts it.
    ``always`` also when it ended well by itself.
    """

    policy: RestartPolicy = "on-failure"
    backoff: float = 1.0
    backoff_max: float = 60.0
    crashes: int = 5
    within: float = 300.0


@dataclass(frozen=True, slots=True)
class Need:
    """An agent that has to be there first: its port answers, it takes runs, or nothing is wrong with it."""

    name: str
    condition: Condition = "ready"


@dataclass(frozen=True, slots=True)
class LlmConfig:
    """A model endpoint that was made over the API.

    ``type`` is fast-agent's provider (``openai``, ``anthropic``), ``url`` is empty for the provider's own.
    """

    name: str
    type: str
    model: str
    url: str = ""
    api_key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Definition:
    """What an agent is that no file defines: its instruction, its model, the downstreams it may call.

    ``llm`` is None for the project's own ``default_model``. ``servers`` are names among the project's
    downstreams; ``own_servers`` those that only its own project has. ``problem`` is why it cannot be made.
    ``prompts`` is the end of the instruction that its project gave: it stays where a call replaces the rest.
    """

    instruction: str
    llm: LlmConfig | None = None
    servers: tuple[str, ...] = ()
    own_servers: tuple["DownstreamConfig", ...] = ()
    problem: str = ""
    prompts: str = ""


_REMOTES = ChangeEffect("at once", lambda agent: agent.kind == "remote")
_WITH_CODE = ChangeEffect("at once", lambda agent: agent.kind in ("llm", "handler"))
_PROCESSES = ChangeEffect("at once", lambda agent: agent.isolation == "process")
_HANDLER_PROCESSES = ChangeEffect(
    "at once", lambda agent: agent.isolation == "process" and agent.typed is not None
)


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """One entry under ``agents:``. Of kind ``llm`` exactly one of ``module`` (dotted), ``card`` (a file) and
    ``definition`` (made over the API) is set, else the one that is called as its kind.

    ``agent`` chooses among the agents of its module or cards where its own name does not.
    ``capabilities`` are words for what it can do, ``examples`` questions that it is good at; ``providers``
    are those that callers may choose among, the default one first.
    ``model_capabilities`` are the fleet's with the agent's own keys laid over them, None
    when neither is configured. ``max_instances`` bounds the warm instances, and so the runs at a time;
    ``run_timeout`` and ``start_timeout`` are in seconds. ``port`` is 0 for an agent that has none of its own:
    it is reached through the project's ``port`` alone. ``auth`` is the project's with the agent's own laid
    over it, None where no caller is asked. ``params`` are the defaults of its runs, with
    those of its LLM below them. ``shadows`` are the kinds of others of its name that it shadows.
    ``peers`` are the agents that it may send messages to, as tools where it is a model; ``required`` the
    downstreams without which it does not answer. ``unfinished_calls`` are patterns of ``server__tool`` and
    ``agent:NAME`` with what becomes of a call whose answer was lost; the project's follow. ``tools`` are its
    rules for calls, added to the project's. ``env`` is added to the environment of an LLM agent in a process
    of its own. ``limits`` are what its runs may spend, within those of the project.
    """

    name: Annotated[str, NO_EFFECT]
    port: Annotated[int, AT_ONCE]
    title: Annotated[str, AT_ONCE]
    description: Annotated[str, AT_ONCE]
    module: Annotated[str | None, NEW_VERSION] = None
    card: Annotated[Path | None, NEW_VERSION] = None
    agent: Annotated[str, NEW_VERSION] = ""
    definition: Annotated[Definition | None, NEW_VERSION] = None
    params: Annotated[Params, AT_ONCE] = NO_PARAMS
    needs: Annotated[tuple[Need, ...], AT_ONCE] = ()
    icons: Annotated[tuple[Icon, ...], AT_ONCE] = ()
    instance_scope: Annotated[InstanceScope, NEW_VERSION] = "pooled"
    max_instances: Annotated[int, NEW_VERSION] = 8
    max_iterations: Annotated[int, NEW_VERSION] = 12
    loop_repeat_threshold: Annotated[int, NEW_VERSION] = 3
    run_timeout: Annotated[int, _REMOTES] = 1800
    start_timeout: Annotated[float, _WITH_CODE] = 60.0
    restart: Annotated[RestartConfig, AT_ONCE] = RestartConfig()
    unfinished_calls: Annotated[tuple[tuple[str, UnfinishedPolicy], ...], AT_ONCE] = ()
    tools: Annotated[ToolRuleSet | None, AT_ONCE] = None
    isolation: Annotated[Isolation, NEW_VERSION] = "none"
    env: Annotated[Mapping[str, str], NEW_VERSION] = field(default_factory=dict, repr=False)
    auth: Annotated[AuthConfig | None, AT_ONCE] = None
    model_capabilities: Annotated[Capabilities | None, NEW_VERSION] = None
    kind: Annotated[AgentKind, NEW_VERSION] = "llm"
    capabilities: Annotated[tuple[str, ...], NEW_VERSION] = ()
    examples: Annotated[tuple[str, ...], NEW_VERSION] = ()
    worker: Annotated[WorkerConfig | None, NEW_VERSION] = None
    remote: Annotated[RemoteConfig | None, NEW_VERSION] = None
    handler: Annotated[HandlerConfig | None, NEW_VERSION] = None
    router: Annotated[RouterConfig | None, NEW_VERSION] = None
    providers: Annotated[tuple[ProviderConfig, ...], NEW_VERSION] = ()
    default_provider: Annotated[str, NEW_VERSION] = ""
    shadows: Annotated[tuple[AgentKind, ...], AT_ONCE] = ()
    peers: Annotated[tuple[str, ...], AT_ONCE] = ()
    required: Annotated[tuple[str, ...], NEW_VERSION] = ()
    limits: Annotated[LimitsConfig, AT_ONCE] = NO_LIMITS
    where: Annotated[Where, NO_EFFECT] = Where("agents.yaml")

    @property
    def typed(self) -> TypedConfig | None:
        """What a typed handler is, None for every other agent."""
        return self.handler.typed if self.handler is not None else None

    @property
    def has_own_llm(self) -> bool:
        """Whether it asks none of the project's providers: an LLM of its own, or none at all."""
        if self.kind != "llm":
            return True
        llm = self.definition.llm if self.definition is not None else None
        return llm is not None and bool(llm.url or llm.api_key)

    @property
    def own_llm(self) -> LlmConfig | None:
        """The LLM of its own, if it has one."""
        return self.definition.llm if self.definition is not None and self.has_own_llm else None

    @property
    def has_history(self) -> bool:
        """Whether it knows what was said before in a conversation."""
        return self.instance_scope != "request"

    @property
    def depends_on(self) -> tuple[str, ...]:
        """Names of the agents that have to be there first."""
        return tuple(need.name for need in self.needs)

    @property
    def slug(self) -> str:
        """The name as the registry publishes it (PR-14)."""
        return self.name.replace("_", "-")


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """A program of the project under ``servers:``, started with the fleet, ready when ``url`` answers.

    ``transport`` is how the program speaks: one that speaks ``stdio`` is served at ``url`` by the fleet.
    ``cwd`` is absolute; ``env`` is added to the environment; ``start_timeout`` in seconds. Agents that call a
    ``required`` one do not answer without it.
    """

    name: Annotated[str, NO_EFFECT]
    command: Annotated[tuple[str, ...], NEW_VERSION]
    url: Annotated[str, NEW_VERSION]
    cwd: Annotated[Path, NEW_VERSION]
    env: Annotated[Mapping[str, str], NEW_VERSION] = field(default_factory=dict)
    start_timeout: Annotated[float, AT_ONCE] = 30.0
    transport: Annotated[Literal["http", "stdio"], NEW_VERSION] = "http"
    restart: Annotated[RestartConfig, AT_ONCE] = RestartConfig()
    required: Annotated[bool, BY_PARTS] = False
    where: Annotated[Where, NO_EFFECT] = Where("agents.yaml")


@dataclass(frozen=True, slots=True)
class ScriptedConfig:
    """``scripted:``: the offline model server this project asks for."""

    script: Path
    port: int
    where: Where = Where("agents.yaml")


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """The certificate with its chain, and its private key: PEM, absolute paths; one file may hold both."""

    certfile: Path
    keyfile: Path


@dataclass(frozen=True, slots=True)
class DownstreamConfig:
    """One entry under ``mcp.servers`` of the fast-agent configuration, as far as Pallas needs it.

    ``transport`` is ``http``, ``sse`` or ``stdio``. ``headers`` are expanded; ``unset`` names the
    environment variables its headers refer to that are not set (PR-9), ``key_variable`` the one that its
    credential is read from. ``written`` is what its file says of how it is reached, as JSON: without the
    values of headers and the environment, and before variables are filled in.
    """

    name: str
    transport: Literal["http", "sse", "stdio"]
    url: str = ""
    command: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    forward_inbound_auth: bool = False
    unset: tuple[str, ...] = ()
    key_variable: str = ""
    where: Where = Where("fastagent.config.yaml")
    written: str = field(default="", compare=False, repr=False)

    @property
    def not_configured(self) -> str:
        """Why it is not called, in a few words; empty for one that is."""
        if not self.unset:
            return ""
        return f"not configured: {', '.join(self.unset)} {'is' if len(self.unset) == 1 else 'are'} unset"


@dataclass(frozen=True, slots=True)
class LockRules:
    """What a difference from ``tools.lock`` does: ``mode``, else ``otherwise`` if there is a lock.

    ``exempt`` are downstreams that are not compared. The fleet says these two, no file.
    """

    mode: LockMode | None = None
    otherwise: LockMode = "off"
    exempt: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KeySource:
    """Where the ``api_key`` of a provider is written."""

    where: Where
    variable: str = ""
    """The variables that it refers to; empty if the key itself is in the file."""
    is_set: bool = True
    """Whether these have a value."""


@dataclass(frozen=True, slots=True)
class Project:
    """A whole project. Paths are absolute. ``bind`` is None unless the user set it.

    ``provider`` and ``model`` come from ``default_model``, split at its first dot (PR-12); both are
    empty when it is not set. ``capabilities`` is the fleet-wide ``model_capabilities`` or None.
    ``settings`` is the merged fast-agent configuration and secrets, expanded: never log or show it.
    ``port`` is the one port on which everything is reached, the registry too, None where there is none;
    ``public_url`` is how callers reach that from outside, without a slash at its end. ``tls`` is what its
    ports show, None for plain HTTP; it comes from the environment, not from a file. ``drain_timeout`` is
    how long runs in flight have when the fleet is asked to stop, ``drain`` what becomes of the others,
    ``loop_lag`` how long code may block the event loop until it is logged (0: never), the times in seconds.
    ``unfinished_calls`` are as an agent's, ``trusted_servers`` the downstreams whose word is taken for what
    their tools do, ``tools`` the rules for calls, ``approvals`` the seconds that a question to a person is
    open. ``workers`` processes serve the project.
    ``organism_file`` is the organism.yaml whose listeners are among the agents; ``agents_file`` is the same
    where there is no other.
    ``unusable_servers`` are entries under ``mcp.servers`` that no agent can use, each with the reason.
    ``unset`` names every variable these two files refer to that is not set and has no default (PR-10),
    ``keys`` says by provider where its key is written. ``model_where`` is the place of ``default_model``.
    ``plugins`` are the modules of the project that add to Pallas.
    ``prices`` are those of models that the project gives itself, the first one that fits counts.
    ``handed_over`` are the values of the variables that entries hand to a child process or into a header.
    ``database_url`` is where threads are kept, empty for a file in the user's state; it may hold a password.
    ``step_texts_mib`` is how many MiB the long texts of steps may take there.
    """

    root: Annotated[Path, NO_EFFECT]
    agents_file: Annotated[Path, NO_EFFECT]
    name: Annotated[str, AT_ONCE]
    agents: Annotated[Mapping[str, AgentConfig], BY_PARTS]
    version: Annotated[str, AT_ONCE] = "1.0.0"
    host: Annotated[str, AT_ONCE] = "localhost"
    namespace: Annotated[str, AT_ONCE] = "local.pallas"
    registry_port: Annotated[int, AT_START] = 24200
    port: Annotated[int | None, AT_START] = None
    public_url: Annotated[str, AT_ONCE] = ""
    tls: Annotated[TlsConfig | None, AT_START] = None
    drain_timeout: Annotated[float, AT_ONCE] = 30.0
    drain: Annotated[Drain, AT_ONCE] = "finish"
    loop_lag: Annotated[float, AT_START] = 1.0
    unfinished_calls: Annotated[tuple[tuple[str, UnfinishedPolicy], ...], AT_ONCE] = ()
    trusted_servers: Annotated[tuple[str, ...], AT_ONCE] = ()
    tools_lock: Annotated[LockRules, AT_START] = field(default_factory=LockRules)
    tools: Annotated[ToolRuleSet | None, AT_ONCE] = None
    approvals: Annotated[float, AT_ONCE] = APPROVAL_SECONDS
    workers: Annotated[int, AT_START] = 1
    auth: Annotated[AuthConfig | None, AT_ONCE] = None
    rbac: Annotated[RbacConfig | None, AT_ONCE] = None
    bind: Annotated[str | None, AT_START] = None
    allowed_hosts: Annotated[tuple[str, ...], AT_ONCE] = ()
    server_cards: Annotated[bool, AT_ONCE] = False
    database_url: Annotated[str, AT_START] = field(default="", repr=False)
    step_texts_mib: Annotated[int, AT_START] = 2_048
    sessions: Annotated[SessionLimits, AT_ONCE] = field(default_factory=SessionLimits)
    tasks: Annotated[TasksConfig, AT_ONCE] = field(default_factory=TasksConfig)
    verdict: Annotated[VerdictConfig, AT_ONCE] = field(default_factory=VerdictConfig)
    default_agent: Annotated[str, AT_ONCE] = ""
    organism_file: Annotated[Path | None, NO_EFFECT] = None
    messages: Annotated[PumpLimits, _HANDLER_PROCESSES] = field(default_factory=PumpLimits)
    llm: Annotated[LlmRouting, AT_ONCE] = field(default_factory=LlmRouting)
    limits: Annotated[LimitsConfig, AT_ONCE] = NO_LIMITS
    plugins: Annotated[tuple[str, ...], AT_START] = ()
    prices: Annotated[tuple[PriceRule, ...], AT_ONCE] = ()
    servers: Annotated[Mapping[str, ServerConfig], BY_PARTS] = field(default_factory=dict)
    scripted: Annotated[ScriptedConfig | None, AT_START] = None
    config_file: Annotated[Path | None, NO_EFFECT] = None
    provider: Annotated[str, NO_EFFECT] = ""
    model: Annotated[str, NO_EFFECT] = ""
    capabilities: Annotated[Capabilities | None, NO_EFFECT] = None
    downstreams: Annotated[Mapping[str, DownstreamConfig], BY_PARTS] = field(default_factory=dict)
    unusable_servers: Annotated[Mapping[str, str], NO_EFFECT] = field(default_factory=dict)
    log_level: Annotated[str | None, _PROCESSES] = None
    settings: Annotated[Mapping[str, Any], BY_PARTS] = field(default_factory=dict, repr=False)
    unset: Annotated[tuple[str, ...], NO_EFFECT] = ()
    keys: Annotated[Mapping[str, KeySource], NO_EFFECT] = field(default_factory=dict)
    model_where: Annotated[Where, NO_EFFECT] = Where("fastagent.config.yaml")
    handed_over: Annotated[tuple[str, ...], NO_EFFECT] = field(default=(), repr=False)
    warnings: Annotated[tuple[Mistake, ...], NO_EFFECT] = ()

    def limits_for(self, agent: str) -> tuple[LimitsConfig, LimitsConfig]:
        """The project's limits, and those of an agent, which may not be in its files."""
        own = self.agents.get(agent)
        return self.limits, own.limits if own is not None else NO_LIMITS

    @property
    def offline_port(self) -> int:
        """The port of the project's offline model, on this machine; 0 without one."""
        return self.scripted.port if self.scripted is not None else 0

    def start_layers(self) -> tuple[tuple[str, ...], ...]:
        """Agent names in layers: each layer needs only agents of the layers before it (PR-6)."""
        left = dict(self.agents)
        layers: list[tuple[str, ...]] = []
        while left:
            layer = tuple(
                name for name, agent in left.items() if not any(need in left for need in agent.depends_on)
            )
            if not layer:  # a cycle: refused when the project was loaded
                raise ValueError(f"circular depends_on among {', '.join(sorted(left))}")
            layers.append(layer)
            for name in layer:
                del left[name]
        return tuple(layers)
