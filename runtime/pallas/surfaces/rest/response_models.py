"""The bodies that the REST API sends, as in the OpenAPI document: camelCase, times in ISO 8601."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, WithJsonSchema

Time = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
JsonObject = dict[str, Any]


def iso(seconds: float) -> str:
    """Format Unix seconds as ISO 8601 in UTC, for example ``2026-03-12T15:42:00.123Z``."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


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


class AgentModel(ResourceModel):
    """An agent; ``source`` is ``api``, or the place in the project's files that declares it.

    ``kind``, ``capabilities`` and ``availability`` are as in discovery; the last is null if no fleet runs.
    ``model`` is the one that answers now. ``healthMessage`` gives the problem if ``health`` is not ok,
    ``reason`` the cause of its state, ``problem`` why a change did not take effect, and ``shadowed`` the
    place in the files that has its name now. ``shadows`` is ``api`` if an agent of a file has the name and
    ``id`` of one that was made over the API and replaces it. ``payload`` describes the input of a typed
    handler: the ``name`` of its class, its JSON ``schema`` and an ``example``.
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
    healthMessage: str | None = None
    reason: str | None = None
    problem: str | None = None
    shadowed: str | None = None
    shadows: str | None = None
    payload: JsonObject | None = None


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


class ThreadModel(Out):
    """A durable conversation."""

    id: str
    agent: str
    ownerId: str
    title: str
    origin: str
    messages: int
    createdAt: Time
    updatedAt: Time
    lastTurnAt: Time | None


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


class TokensModel(Out):
    """Tokens as the provider counted them."""

    inputTokens: int | None
    outputTokens: int | None


class RunModel(Out):
    """One run; ``fault`` and ``partial`` are what its caller received."""

    id: str
    agent: str
    threadId: str | None
    ownerId: str
    surface: str
    status: Literal["running", "ok", "error", "cancelled"]
    startedAt: Time
    finishedAt: Time | None
    seconds: float
    steps: int
    tools: int
    usage: TokensModel | None
    turnIndex: int | None
    fault: str | None
    partial: str | None


class AttemptModel(Out):
    """One request to a model; ``wait`` is the seconds until the next."""

    at: Time
    status: int | None
    seconds: float | None
    reason: str | None
    wait: float


class StepUsageModel(TokensModel):
    """Tokens of a model step; those of the cache are among the input, those of reasoning among the output."""

    cachedTokens: int | None
    cacheWriteTokens: int | None
    reasoningTokens: int | None


class StepModel(Out):
    """A step of a run: a question to a model with its repetitions, a call of a tool or an agent, a summary.

    ``parent`` is the number of the step that caused it. Times are in seconds.
    """

    number: int
    parent: int | None
    kind: Literal["model", "tool", "agent", "question", "compaction"]
    name: str
    provider: str | None
    url: str | None
    state: Literal["begun", "done", "failed", "unknown", "parked"]
    startedAt: Time
    seconds: float | None
    firstToken: float | None
    tokensPerSecond: float | None
    messages: int
    usage: StepUsageModel
    attempts: list[AttemptModel]
    digest: str
    fault: str | None
    callId: str | None
    spanId: str | None


class StepDetailModel(StepModel):
    """A step with its request and its response, secrets masked."""

    headers: dict[str, str]
    request: Any
    response: Any


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


class ChatAnswerModel(Out):
    """The answer to a message; ``turnIndex`` is its position in its thread.

    ``backend`` is the provider that answered, if there is a choice; ``routed`` the agent that a router
    chose, ``rerouted`` why a provider other than the requested one answered. ``missingServers`` are the MCP
    servers that were unavailable, by name, with the reason.
    """

    text: str
    threadId: str | None
    turnIndex: int | None
    runId: str
    stopReason: str
    seconds: float
    steps: int
    tools: int
    usage: TokensModel | None
    backend: str | None = None
    routed: str | None = None
    rerouted: list[str] | None = None
    missingServers: dict[str, str] | None = None


class Whoami(Out):
    """The caller and its grants; if ``enforced`` is false, everything is allowed."""

    principal: str
    enforced: bool
    grants: list[str]


class PageOf[T](Out):
    """One page of a list; ``next`` is the cursor for the rest, null on the last page."""

    items: list[T]
    next: str | None
