"""What ``agents.yaml`` may say."""

import re
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field

from pallas.model.tool_lock import LockMode

from .agent_entries import AnyAgent
from .auth_section import ProjectAuth
from .database import database_url_problem
from .field_types import CHOICE, NAME_PATTERN, Line, Loose, Maybe, Port, Secret, TextRule
from .file_model import FileModel
from .kinds import PumpLimits, SessionLimits, TasksConfig, VerdictConfig
from .limits_section import ProjectLimitsEntry
from .llm_section import LlmSection
from .models import Drain
from .network import bind_problem, host_problem, public_url_problem
from .prices import Prices
from .programs import ProgramEntry, ScriptedSection
from .rbac import RbacSection
from .section import Section
from .supervision import UnfinishedCalls
from .tool_section import ApprovalsSection, ToolsSection

AGENT_NAMES: Final[dict[str, Any]] = {
    "pattern": NAME_PATTERN,
    "not": {"pattern": r"^(agent-|system(\.|$))"},
}
DEFAULT_REGISTRY_PORT: Final = 24_200
DEFAULT_DRAIN_TIMEOUT: Final = 30.0
EXTENSION: Final = "x-"
"""A key of the file that begins so is the user's own, for what is used again with ``<<: *name``."""
_NAMESPACE: Final = re.compile(r"[a-zA-Z0-9.-]+")
_RANGE: Final = re.compile(r"^[\^~<>=!]|[*|,\s]|(^|\.)[xX](\.|$)|^latest$")


def _namespace_problem(text: str) -> str | None:
    if _NAMESPACE.fullmatch(text):
        return None
    return "is not a namespace; allowed: letters, digits, dots and dashes, such as com.example.project"


def _version_problem(text: str) -> str | None:
    if _RANGE.search(text):
        return "is not one version; allowed: an exact version such as 1.0.0, no range"
    return None


class AgentsFile(FileModel):
    """A Pallas project: the agents of the fleet, and where each of them listens."""

    # Agents need ports of their own unless there is one for everything.
    model_config = ConfigDict(
        json_schema_extra={
            "patternProperties": {f"^{EXTENSION}": True},
            "anyOf": [
                {"required": ["port"]},
                {"properties": {"agents": {"additionalProperties": {"required": ["port"]}}}},
            ],
        }
    )

    name: Annotated[str, TextRule(most=100), Field(examples=["my-project"])]
    """The project's name, on screen and in the log."""
    version: Annotated[str, TextRule(_version_problem, most=255)] = "1.0.0"
    """The version that is published for every agent and that its MCP server reports, in quotes."""
    host: Annotated[str, TextRule(host_problem), Field(examples=["my-host.example.com"])] = "localhost"
    """The host in published URLs: a name or an address, no scheme, no port."""
    namespace: Annotated[
        str,
        TextRule(_namespace_problem, pattern=f"^{_NAMESPACE.pattern}$"),
        Field(examples=["com.example.project"]),
    ] = "local.pallas"
    """The part of published names before the slash."""
    registry_port: Port = DEFAULT_REGISTRY_PORT
    """The port of the registry; leave it out if there is one ``port`` for everything."""
    port: Maybe[Port] = None
    """One port for everything: the registry, and each agent at ``/agents/NAME/mcp``."""
    public_url: Maybe[Annotated[str, TextRule(public_url_problem)]] = None
    """The http or https URL at which callers reach ``port`` through a proxy."""
    drain_timeout: Annotated[float, Field(ge=0, le=3_600)] = DEFAULT_DRAIN_TIMEOUT
    """Seconds that runs in flight may take when the fleet is asked to stop; then they are cut short."""
    drain: Annotated[Drain, CHOICE] = "finish"
    """What happens to runs of conversations then: they are cut short, or handed over to the next fleet."""
    workers: Annotated[int, Field(ge=1, le=64)] = 1
    """Processes that serve the project on the same ports; ``pallas dev`` always uses one."""
    unfinished_calls: UnfinishedCalls = None
    """What happens to a call whose answer was lost when a fleet died; the first matching pattern applies."""
    trusted_servers: Annotated[tuple[Loose, ...] | None, Field(examples=[["docs"]])] = None
    """MCP servers whose hints are trusted: tools marked read-only or idempotent may be called again."""
    tools_lock: Maybe[Annotated[LockMode, CHOICE]] = None
    """Tools that differ from ``tools.lock``: ``hold`` keeps them from models, ``warn`` only reports them."""
    tools: ToolsSection | None = None
    """Which calls are made, which ones a person is asked about, and which ones are never made."""
    approvals: ApprovalsSection | None = None
    """How questions to people wait for their answer."""
    loop_lag: Annotated[float, Field(ge=0, le=60)] = 1.0
    """Seconds that an agent's code may block the event loop before it is logged; 0 never logs it."""
    auth: ProjectAuth = None
    """Who may call: tokens, issuers of JWTs, scopes; ``off`` asks no caller."""
    rbac: Maybe[RbacSection] = None
    """Who may do what of those who may call."""
    bind: Maybe[Annotated[str, TextRule(bind_problem), Field(examples=["127.0.0.1"])]] = None
    """The address all ports listen on; ``0.0.0.0`` without it, ``127.0.0.1`` with ``pallas dev``."""
    allowed_hosts: Annotated[tuple[Loose, ...] | None, Field(examples=[["my-host.example.com"]])] = None
    """Further names that may be in a request's Host or Origin; ``*`` stands for one part of a name."""
    server_cards: bool = False
    """Publish at each port, for every caller, what is served there."""
    database_url: Maybe[Annotated[str, TextRule(database_url_problem), Secret()]] = None
    """Keeps threads: ``sqlite:///FILE``, ``postgresql://USER:PASSWORD@HOST/DATABASE``, ``memory``."""
    step_texts_mib: Annotated[int, Field(ge=0, le=1_048_576)] = 2_048
    """MiB that long texts of steps may take in the database; of later ones only the length is stored."""
    default_agent: Maybe[Line] = None
    """The agent that answers if a caller of the bridge names none."""
    sessions: SessionLimits | None = None
    """How many sessions there may be, and for how long."""
    tasks: TasksConfig | None = None
    """Long work with a durable handle."""
    verdict: VerdictConfig | None = None
    """Which recorded runs would go differently after a save, while the fleet watches its files."""
    messages: PumpLimits | None = None
    """How much typed handlers may do at once."""
    limits: ProjectLimitsEntry | None = None
    """What runs, callers and agents may spend: money, tokens, questions to models."""
    llm: LlmSection | None = None
    """The models that typed handlers may ask, over several backends."""
    plugins: Annotated[tuple[Loose, ...] | None, Field(examples=[["house_rules"]])] = None
    """Modules of the project that add to Pallas: checks, and functions that receive events."""
    prices: Prices = None
    """What models cost, by patterns of ``MODEL`` or ``PROVIDER.MODEL``; they precede the list of prices."""
    scripted: ScriptedSection | None = None
    """A model that follows a script, for work without a key and a network."""
    servers: dict[str, ProgramEntry] | None = None
    """Programs started with the fleet, by name."""
    agents: Annotated[dict[str, AnyAgent] | None, Field(json_schema_extra={"propertyNames": AGENT_NAMES})] = (
        None
    )
    """The agents by name. At least one, unless an ``organism.yaml`` beside this file has them."""

    @classmethod
    def unknown_key(cls, key: str, section: Section) -> tuple[str, ...] | None:
        """What replaces a key that there was."""
        if key != "reload":
            return None
        return "is not a section any more", "write `verdict: {gate: hold}` for `reload: {gate: tests}`"
