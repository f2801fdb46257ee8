"""What an entry under ``agents:`` may say, by its ``kind``."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import ConfigDict, Discriminator, Field, Tag

from pallas.model import AgentKind, Isolation

from .auth_section import AgentAuthValue
from .command import Command
from .field_types import CHOICE, Line, Loose, Maybe, Port, Secret, TextRule, Word, split
from .file_model import FileModel, Given
from .files import module_problem
from .kinds import Dialect, Permissions, RouteBy
from .limits_section import LimitsEntry
from .network import url_problem
from .notes import allowed, did_you_mean
from .params import ParamsMapping
from .providers import ProviderEntry
from .section import Section
from .supervision import Needs, Restart, UnfinishedCalls
from .tool_section import ToolsSection
from .typed_handlers import Files, Memory, Peers, Prompt, Timeout, class_problem, group_problem

KINDS: Final[tuple[AgentKind, ...]] = get_args(AgentKind)
MAX_TEXT: Final = 100
_MAX_NAMED: Final = 200

InstanceScopeWord = Literal["pooled", "conversation", "request", "shared", "connection"]
_Title = Annotated[str, TextRule(most=MAX_TEXT)]
_Named = Annotated[str, TextRule(most=_MAX_NAMED)]
_Names = Annotated[tuple[Loose, ...], Field(max_length=200)]
_Capacity = Annotated[int, Field(ge=1, le=100_000)]
_Env = dict[str, Word] | None


TYPED_KEYS: Final = (
    "agent", "timeout", "broadcast", "group", "isolation", "memory", "env", "forward_inbound_auth", "files",
    "prompt", "peers",
)  # fmt: skip
"""Keys of a handler that need a ``payload``."""


def _shape(value: Any) -> str:
    if isinstance(value, Given):
        return "mapping"
    return "list" if isinstance(value, tuple) else "text"


def _text_or_mapping(value: Any) -> str:
    return "mapping" if isinstance(value, tuple | Given) else "text"


class IconEntry(FileModel):
    """A picture of the agent in the registry."""

    src: Annotated[str, TextRule(most=255), Field(examples=["icons/jarvis.png"])]
    """A URL, or the path of a picture in the project's folder, which the registry's port serves."""
    sizes: Annotated[
        Annotated[Line, Tag("text")] | Annotated[tuple[Loose, ...], Tag("list")],
        Discriminator(split),
        Field(examples=[["any"]]),
    ] = ()
    """``any``, or sizes such as ``48x48``, as a text or a list."""


_Src = Annotated[str, TextRule(most=255), Tag("text")]
_Mapping = Annotated[IconEntry, Tag("mapping")]
_Icons = tuple[Annotated[_Src | _Mapping, Discriminator(_text_or_mapping)], ...]
Icons = Annotated[_Src | _Mapping | Annotated[_Icons, Tag("list")], Discriminator(_shape)]


class CapabilitiesEntry(FileModel):
    """What a model can do: declared, never guessed from its name."""

    vision: Maybe[bool] = None
    """Whether it reads pictures; false unless declared."""
    context_window: Maybe[Annotated[int, Field(ge=1)]] = None
    """Tokens of a question with its history; 131072 unless declared."""
    max_output_tokens: Maybe[Annotated[int, Field(ge=1)]] = None
    """Tokens of an answer; 16384 unless declared."""


class RequiredEntry(FileModel):
    """An MCP server that the agent calls."""

    required: bool = False
    """The agent does not answer without it."""


class AgentEntry(FileModel):
    """What every kind of agent may say."""

    kind: Annotated[AgentKind, CHOICE]
    """What answers."""
    port: Annotated[Maybe[Port], Field(examples=[24201])] = None
    """The port of its MCP server; required unless the project has one ``port`` for everything."""
    title: Maybe[_Title] = None
    """The name that people see; without it the name, capitalised."""
    description: Maybe[_Title] = None
    """One line on what it is for; without it the title."""
    capabilities: Annotated[
        tuple[Loose, ...] | None, Field(max_length=50, examples=[["coding", "review"]])
    ] = None
    """Words for what it can do: clients of the bridge search by them, routers choose by them."""
    examples: Annotated[
        tuple[Loose, ...] | None, Field(max_length=50, examples=[["Why does this test fail?"]])
    ] = None
    """Questions that it is good at; routers choose by them."""
    depends_on: Annotated[Needs | None, Field(examples=[["archivist"]])] = None
    """Agents that are started first: names, or names each with ``started``, ``ready`` or ``healthy``."""
    icons: Icons = ()
    """Pictures in the registry: a URL or path, or a list of them and of ``{src, sizes}``."""
    run_timeout: Annotated[int, Field(ge=1, le=86_400)] = 1_800
    """Seconds that a run may take, without its wait for earlier messages; then it is stopped."""
    start_timeout: Annotated[float, Field(ge=0.1, le=3_600)] = 60.0
    """Seconds until it must be ready; after that the start counts as a failure."""
    restart: Restart = "on-failure"
    """What happens when it fails."""
    unfinished_calls: UnfinishedCalls = None
    """What happens to a call whose answer was lost when a fleet died; comes before the project's patterns."""
    limits: LimitsEntry | None = None
    """What its runs may spend; the project's limits apply too."""
    tools: ToolsSection | None = None
    """Which calls it may make, which ones a person must allow; the stricter of these and the project's."""
    auth: AgentAuthValue = None
    """Who may call this agent: ``off``, or a mapping; without it the project's rules apply."""

    @classmethod
    def known(cls) -> tuple[str, ...]:
        """As in ``FileModel``, with ``kind`` first."""
        common = [key for key in AgentEntry.model_fields if key != "kind"]
        own = [key for key in cls.model_fields if key not in AgentEntry.model_fields]
        return ("kind", *own, *common)

    @classmethod
    def unknown_key(cls, key: str, section: Section) -> tuple[str, ...] | None:
        """As in ``FileModel``: a key of another kind is said to be one."""
        theirs = [kind for kind, entry in ENTRIES.items() if key in entry.known()]
        if not theirs:
            return "unknown key", allowed(cls.known()), did_you_mean(key, cls.known())
        mine = next(kind for kind, entry in ENTRIES.items() if issubclass(cls, entry))
        return (
            f"is a key of kind {' or '.join(theirs)}, and this agent is of kind {mine}",
            f"write `kind: {theirs[0]}`" if "kind" not in section else "leave it out",
        )


class LlmEntry(AgentEntry):
    """A fast-agent agent: an instruction, a model, and tools. It needs ``module`` or ``card``."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["module"]}, {"required": ["card"]}]})

    kind: Annotated[Literal["llm"], CHOICE] = "llm"
    """What answers: a model."""
    module: Annotated[Maybe[Annotated[str, TextRule(module_problem)]], Field(examples=["agents.jarvis"])] = (
        None
    )
    """The module with a FastAgent: a dotted name such as ``agents.jarvis``."""
    card: Annotated[Maybe[Line], Field(examples=["agents/jarvis.md"])] = None
    """A fast-agent card in place of a module: a file, or a folder of them."""
    agent: Maybe[Line] = None
    """The agent of the module or folder that is served, if none has the entry's name."""
    instance_scope: Annotated[InstanceScopeWord, CHOICE] = "pooled"
    """What a conversation gets: any warm instance, one of its own, or one for each request."""
    max_instances: Annotated[int, Field(ge=1, le=64)] = 8
    """The most warm instances, and so the most runs at a time."""
    servers: dict[str, RequiredEntry] | None = None
    """MCP servers without which the agent does not answer: names with ``{required: true}``."""
    max_iterations: Annotated[int, Field(ge=1)] = 12
    """The most steps of a run; after them it ends with what it has."""
    loop_repeat_threshold: Annotated[int, Field(ge=0)] = 3
    """A run ends after this many equal calls with equal results; 0 switches this off."""
    isolation: Annotated[Isolation, CHOICE] = "none"
    """With ``process`` it runs in a process of its own; if that ends, nothing else does."""
    env: _Env = None
    """Variables that it gets beside those that programs get; needs ``isolation: process``."""
    model_capabilities: CapabilitiesEntry | None = None
    """What this agent's model can do, key by key over the fleet's."""
    params: ParamsMapping = None
    """Default parameters of its requests to the model."""
    providers: Annotated[
        tuple[ProviderEntry, ...] | None,
        Field(max_length=50, examples=[[{"id": "openai", "models": ["openai.gpt-4o"]}]]),
    ] = None
    """Providers that callers may choose among."""
    default_provider: Maybe[Line] = None
    """The id of the provider that answers where the caller chooses none."""
    peers: Peers = None
    """Agents that it may send messages to, as tools of its model."""


class UnknownEntry(LlmEntry):
    """An agent whose kind is not known: which keys it may have is not known either."""

    model_config = ConfigDict(extra="ignore")

    kind: Annotated[AgentKind, CHOICE] = "llm"  # type: ignore[assignment]


class HandlerEntry(AgentEntry):
    """Python code that answers. With a ``payload`` it is a typed handler."""

    model_config = ConfigDict(
        json_schema_extra={"dependentRequired": {key: ["payload"] for key in TYPED_KEYS}}
    )

    kind: Annotated[Literal["handler"], CHOICE]
    """What answers: Python code."""
    handler: Annotated[str, TextRule(), Field(examples=["my.code:AGENT"])]
    """The object that answers: ``module:NAME``."""
    params: ParamsMapping = None
    """Default parameters of its runs."""
    capacity: Maybe[_Capacity] = None
    """The most runs at a time, 64; for a typed handler the most messages, ``messages.per_agent``."""
    pure: bool = False
    """It does nothing but answer, ask models and send messages: a verdict may run it."""
    payload: Maybe[Annotated[str, TextRule(class_problem)]] = None
    """The dataclass that it takes, ``module:Class``; this makes it a typed handler."""
    agent: bool = False
    """Its metadata has its own name. This key and all keys below are for typed handlers."""
    timeout: Timeout = 30.0
    """Seconds for one message."""
    broadcast: bool = False
    """Other handlers may share its name as a target; a message to that name goes to all of them."""
    group: Maybe[Annotated[str, TextRule(group_problem)]] = None
    """The name that it shares: that of a handler with ``broadcast: true`` and the same ``payload``."""
    isolation: Annotated[Isolation, CHOICE] = "none"
    """With ``process`` it runs in a process of its own; if that ends, nothing else does."""
    memory: Memory = None
    """Memory of its process, 64MB to 1TB, or a number of MiB; needs ``isolation: process``."""
    env: _Env = None
    """Variables that it gets beside a few of the environment; needs ``isolation: process``."""
    forward_inbound_auth: bool = False
    """Send the caller's bearer to agents that it asks."""
    files: Files = None
    """Files and folders of the project that it may open beside its code; needs ``isolation: process``."""
    prompt: Prompt = None
    """A text before each of its questions to a model; its code cannot read it."""
    peers: Peers = None
    """Agents that it may send messages to, beside its caller."""


class WorkerEntry(AgentEntry):
    """A program that answers on its standard input and output."""

    kind: Annotated[Literal["worker"], CHOICE]
    """What answers: a program."""
    command: Annotated[Command, Field(examples=[["python", "worker.py"]])]
    """The program: a list of words, or one text split as a shell splits it; no shell runs it."""
    env: _Env = None
    """Variables added to its environment."""
    cwd: Maybe[Line] = None
    """The folder where it runs; without it the project's."""
    dialect: Annotated[Dialect, CHOICE] = "auto"
    """Its protocol; ``auto`` detects it."""
    agent_id: Maybe[_Named] = None
    """Its id in ``session/new``; without it the agent's name."""
    request_timeout: Annotated[float, Field(ge=0.1, le=3_600)] = 30.0
    """Seconds for each request other than a turn."""
    capacity: _Capacity = 1_000
    """Runs at a time; more wait."""
    permissions: Annotated[Permissions, CHOICE] = "ask"
    """The answer to its requests for permission."""


class RemoteEntry(AgentEntry):
    """An agent that runs elsewhere: an MCP endpoint."""

    kind: Annotated[Literal["remote"], CHOICE]
    """What answers: an MCP endpoint."""
    url: Annotated[str, TextRule(url_problem), Field(examples=["https://HOST/mcp"])]
    """The MCP endpoint."""
    tool: Maybe[_Named] = None
    """The tool that is called; without it Pallas finds it."""
    argument: Maybe[_Named] = None
    """The argument of that tool that takes the text; without it Pallas finds it."""
    conversation: Maybe[_Named] = None
    """The argument that takes the handle of a conversation; without it Pallas finds it."""
    headers: Annotated[dict[str, Word] | None, Secret()] = None
    """Headers of every request."""
    forward_inbound_auth: bool = False
    """Send the caller's own bearer; not with ``headers.Authorization``."""
    params: ParamsMapping = None
    """Default parameters of its runs."""
    capacity: _Capacity = 32
    """Runs at a time; more wait."""


class RouterEntry(AgentEntry):
    """An agent that only chooses who answers."""

    kind: Annotated[Literal["router"], CHOICE]
    """What answers: one of other agents."""
    agents: Annotated[_Names | None, Field(examples=[["coder", "writer"]])]
    """The agents among whom it chooses."""
    by: Annotated[RouteBy, CHOICE] = "examples"
    """How it chooses."""
    ask: Maybe[Line] = None
    """The agent that is asked who answers; needed with ``by: model``, and only then."""
    fallback: Maybe[Line] = None
    """The agent that answers where no other fits."""


ENTRIES: Final[Mapping[AgentKind, type[AgentEntry]]] = {
    "llm": LlmEntry,
    "handler": HandlerEntry,
    "worker": WorkerEntry,
    "remote": RemoteEntry,
    "router": RouterEntry,
}
_UNKNOWN: Final = "unknown"


def _kind(given: Any) -> str:
    """The kind of an entry, ``llm`` where none is given, unless its keys are those of other kinds."""
    if not isinstance(given, Given):
        return "llm"
    if "kind" in given:
        kind = given["kind"].strip() if isinstance(given["kind"], str) else ""
        return kind if kind in KINDS else _UNKNOWN
    is_code = not given.keys().isdisjoint({"module", "card"})
    others = {key for entry in ENTRIES.values() for key in entry.known()} - set(LlmEntry.known())
    return "llm" if is_code or given.keys().isdisjoint(others) else _UNKNOWN


AnyAgent = Annotated[
    Annotated[LlmEntry, Tag("llm")]
    | Annotated[HandlerEntry, Tag("handler")]
    | Annotated[WorkerEntry, Tag("worker")]
    | Annotated[RemoteEntry, Tag("remote")]
    | Annotated[RouterEntry, Tag("router")]
    | Annotated[UnknownEntry, Tag(_UNKNOWN)],
    Discriminator(_kind),
]
"""An entry under ``agents:``."""


def note_foreign_keys(entry: UnknownEntry) -> None:
    """Where no kind is given, say of the keys of others whose they are."""
    section = entry.at
    for key in section.table.entries if "kind" not in section else ():
        if key not in LlmEntry.known() and (words := LlmEntry.unknown_key(key, section)):
            section.error(key, *words)
