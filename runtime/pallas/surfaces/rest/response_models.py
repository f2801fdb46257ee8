"""The bodies that the REST API sends, as in the OpenAPI document: camelCase, times in ISO 8601."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, WithJsonSchema

from pallas.model.context_bill import ContextKind
from pallas.model.time_text import iso

Time = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
JsonObject = dict[str, Any]


def iso_or_none(seconds: float | None) -> str | None:
    """Like ``iso``, but None for None."""
    return None if seconds is None else iso(seconds)


class Out(BaseModel):
    """The base of all response bodies."""

    model_config = ConfigDict(extra="forbid")


class FaultData(BaseModel):
    """The fields by which a program recognises a Fault; more keys give details."""

    model_config = ConfigDict(extra="allow")

    type: Literal["CONFIG", "AUTH", "UPSTREAM", "TIMEOUT", "TRANSPORT", "PROTOCOL", "INTERNAL"]
    retryable: bool
    reason: str | None = None
    key: str | None = None


class FaultBody(BaseModel):
    """The error: ``error`` is for people, ``data`` for programs."""

    error: str
    code: int
    data: FaultData


class Ref(Out):
    """Another resource; ``id`` is null for one that only files declare."""

    id: str | None = None
    name: str


class ResourceModel(Out):
    """The fields of every resource."""

    id: str
    name: str
    description: str = ""
    ownerId: str
    version: int
    createdAt: Time
    updatedAt: Time


class ContextPartModel(Out):
    """A part of a request: ``name`` is the server of the ``tools``, or the ``agent`` that is one."""

    kind: ContextKind
    name: str
    tokens: int


class ContextBillModel(Out):
    """What the last request to the agent's model took of the model's ``window``, in tokens.

    ``total`` is the provider's count, which the parts share by their sizes. ``isEstimated``: the version that
    answers has asked nothing yet, and these are its instruction and tools. ``window`` is 0 if not known.
    """

    total: int
    window: int
    model: str
    isEstimated: bool
    parts: list[ContextPartModel]


class ToolRuleModel(Out):
    """Which rule decides about the calls of a tool, by its name in rules."""

    tool: str
    rule: str


class AgentModel(ResourceModel):
    """An agent; ``source`` is ``api``, or the place in the project's files that declares it.

    ``kind``, ``capabilities`` and ``availability`` are as in discovery; the last is null if no fleet runs.
    ``model`` is the one that answers now, ``serves`` the agent of its module or cards, as these name it.
    ``healthMessage`` gives the problem if ``health`` is not ok,
    ``reason`` the cause of its state, ``problem`` why a change did not take effect, and ``shadowed`` the
    place in the files that has its name now. ``shadows`` is ``api`` if an agent of a file has the name and
    ``id`` of one that was made over the API and replaces it. ``payload`` describes the input of a typed
    handler: the ``name`` of its class, its JSON ``schema`` and an ``example``. ``context`` is null for an
    agent without a model of its own, and while it does not run. ``toolRules`` is empty where nobody has rules
    for tools; otherwise it has the tools of an agent that runs.
    """

    systemPrompt: str
    llm: Ref | None
    project: Ref | None
    proxyModelName: str | None
    defaultParams: JsonObject | None
    maxIterations: int | None
    loopRepeatThreshold: int | None
    extras: JsonObject | None
    source: str
    kind: str
    capabilities: list[str]
    availability: Literal["ready", "busy", "unavailable"] | None
    state: str | None
    health: str | None
    url: str | None
    model: str | None = None
    serves: str | None = None
    healthMessage: str | None = None
    reason: str | None = None
    problem: str | None = None
    shadowed: str | None = None
    shadows: str | None = None
    payload: JsonObject | None = None
    context: ContextBillModel | None = None
    toolRules: list[ToolRuleModel] = []


class KeyRefModel(Out):
    """A value of a secret."""

    name: str
    key: str


class LlmModel(ResourceModel):
    """A model at a provider."""

    type: str | None
    model: str | None
    url: str | None
    apiKeyRef: KeyRefModel | None
    defaultParams: JsonObject | None
    maxOutputTokens: int | None
    extra: JsonObject | None
    warning: str | None = None


class SecretModel(Out):
    """A secret: the names of its keys, never a value."""

    id: str
    name: str
    keys: list[str]
    ownerId: str
    version: int
    createdAt: Time
    updatedAt: Time
    problem: str | None = None


class ServerModel(Out):
    """An MCP server that only this project has."""

    name: str
    url: str
    headers: dict[str, str] = {}


class PromptModel(Out):
    """A text that every agent of the project gets; the highest ``priority`` comes first."""

    name: str = ""
    text: str
    priority: int = 0


class ProjectModel(ResourceModel):
    """Servers and prompts that agents share."""

    servers: list[str | ServerModel]
    prompts: list[str | PromptModel]
    source: str


class CostModel(Out):
    """What something cost: US dollars as a decimal, null if no price is known.

    ``unpriced`` answers of models have no known price: then it cost more than ``cost``.
    """

    cost: str | None
    unpriced: int


class ThreadModel(CostModel):
    """A durable conversation; it cost what its runs did, with the runs below them.

    ``snippet`` is a part of the newest message that a search found, null if it found only the title.
    ``branchedFrom`` is the thread from which it goes on, with the first ``branchedAt`` messages of that.
    """

    id: str
    agent: str
    ownerId: str
    title: str
    origin: str
    messages: int
    createdAt: Time
    updatedAt: Time
    lastTurnAt: Time | None
    snippet: str | None
    branchedFrom: str | None
    branchedAt: int | None


class ToolCallModel(Out):
    """A tool call by an agent's model; ``name`` is ``server__tool``."""

    id: str
    name: str
    arguments: JsonObject


class PictureModel(Out):
    """A picture: ``data`` is base64."""

    data: str
    mimeType: str


class MessageModel(Out):
    """One row of a thread; ``reason`` is why it is in error, ``toolCallId`` the call it answers."""

    id: str
    threadId: str
    turnIndex: int
    role: Literal["system", "user", "assistant", "tool"]
    content: str
    toolCalls: list[ToolCallModel] | None
    toolCallId: str | None
    status: Literal["pending", "complete", "error"]
    reason: str | None
    images: list[PictureModel]
    runId: str | None
    summary: bool
    createdAt: Time


class Task(Out):
    """Long work with a durable handle. ``text`` is the answer, ``fault`` the error, both null in lists.

    ``request`` holds the questions that wait for an answer, by their keys; ``expiresAt`` is when the task
    is deleted, null while it runs.
    """

    id: str
    agent: str
    kind: str
    ownerId: str
    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    preview: str
    progress: str | None
    runId: str | None
    threadId: str | None
    createdAt: Time
    updatedAt: Time
    expiresAt: Time | None
    request: JsonObject | None
    text: str | None
    fault: JsonObject | None


class QuestionModel(Out):
    """What a run asks a person: ``arguments`` of a call, secrets masked, or the JSON Schema of a ``form``.

    ``path`` are the agents of the runs above, outermost first. ``used`` says that the call was made.
    """

    id: str
    kind: Literal["approval", "form"]
    runId: str
    rootRunId: str
    agent: str
    path: list[str]
    threadId: str | None
    ownerId: str
    tool: str | None
    server: str | None
    callId: str | None
    digest: str | None
    arguments: Any
    message: str
    form: JsonObject | None
    askedAt: Time
    expiresAt: Time
    state: Literal["open", "answered", "expired", "withdrawn"]
    action: Literal["accept", "decline", "cancel"] | None
    always: bool
    content: JsonObject | None
    answeredBy: str | None
    answeredAt: Time | None
    used: bool


class AuditModel(Out):
    """One entry of the audit log: ``digest`` is that of the call's tool and arguments."""

    id: int
    at: Time
    who: str
    what: str
    question: str | None
    run: str | None
    agent: str | None
    tool: str | None
    digest: str | None
    detail: str | None


class StorageModel(Out):
    """What the ledger holds of one kind. ``characters`` are those of texts before they are compressed."""

    what: str
    count: int | None
    characters: int | None
    storedBytes: int | None
    limitBytes: int | None


class ReplicaModel(Out):
    """A fleet process on the ledger, as it reported itself last.

    ``lastBeatSeconds`` is null on SQLite, which has no heartbeats. ``continued`` are the runs among ``runs``
    that it took over, ``takenOver`` all since its start. ``isHere`` is true for the one that answers.
    """

    id: str
    host: str
    pid: int
    release: str
    state: Literal["starting", "serving", "draining", "dead"]
    startedAt: Time
    lastBeatSeconds: float | None
    runs: int
    continued: int
    takenOver: int
    isHere: bool


class Whoami(Out):
    """The caller and its grants; if ``enforced`` is false, everything is allowed."""

    principal: str
    enforced: bool
    grants: list[str]


class PageOf[T](Out):
    """One page of a list; ``next`` is the cursor for the rest, null on the last page."""

    items: list[T]
    next: str | None
