"""What the REST API sends, as the OpenAPI document has it: camelCase, times in ISO 8601."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, WithJsonSchema

Time = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
JsonObject = dict[str, Any]


def iso(seconds: float) -> str:
    """Unix seconds as ISO 8601 in UTC, for example ``2026-03-12T15:42:00.123Z``."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def iso_or_none(seconds: float | None) -> str | None:
    """The same, None for none."""
    return None if seconds is None else iso(seconds)


class Out(BaseModel):
    """What is sent."""

    model_config = ConfigDict(extra="forbid")


class FaultData(BaseModel):
    """What a program can tell a Fault by; more keys say more."""

    model_config = ConfigDict(extra="allow")

    type: Literal["CONFIG", "AUTH", "UPSTREAM", "TIMEOUT", "TRANSPORT", "PROTOCOL", "INTERNAL"]
    retryable: bool
    reason: str | None = None
    key: str | None = None


class FaultBody(BaseModel):
    """What went wrong: for a person in ``error``, for a program in ``data``."""

    error: str
    code: int
    data: FaultData


class Ref(Out):
    """Another resource; ``id`` is null for one that only files declare."""

    id: str | None = None
    name: str


class ResourceModel(Out):
    """What every resource has."""

    id: str
    name: str
    description: str = ""
    ownerId: str
    version: int
    createdAt: Time
    updatedAt: Time


class AgentModel(ResourceModel):
    """An agent; ``source`` is ``api``, or the place in the project's files that declares it.

    ``kind``, ``capabilities`` and ``availability`` are as discovery has them; the last is null where no fleet
    runs. ``healthMessage`` is what is wrong where ``health`` is not ok, ``reason`` why it is in its state,
    ``problem`` what kept a change from taking effect and ``shadowed`` the place in the files that has its
    name now; ``shadows`` is ``api`` where a file's agent stands before one of its name that was made over the
    API, and has its ``id``. ``payload`` is what a typed handler takes: the ``name`` of its class, its JSON
    ``schema`` and an ``example``.
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
    """A text that every agent of the project is told; the highest ``priority`` first."""

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
    """What an agent's model decided to call; ``name`` is ``server__tool``."""

    id: str
    name: str
    arguments: JsonObject


class PictureModel(Out):
    """A picture: ``data`` is base64."""

    data: str
    mimeType: str


class MessageModel(Out):
    """One row of a thread; ``reason`` says why it is in error, ``toolCallId`` which call it answers."""

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
    """One run; ``fault`` and ``partial`` are what its caller was told."""

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


class Task(Out):
    """Long work with a durable handle. ``text`` is the answer, ``fault`` what went wrong, both null in lists.

    ``request`` are the questions that wait for an answer, by their keys; ``expiresAt`` is when it is
    forgotten, null while it is under way.
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
    """What came of a message; ``turnIndex`` is the place of the answer in its thread.

    ``backend`` is the provider that answered, where there is a choice; ``routed`` the agent that a router
    chose, ``rerouted`` why another provider answered than the one that was asked for. ``missingServers`` are
    the MCP servers that it had to do without, by name, and why.
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
    """Who asks, and what they were granted; everything is allowed where nothing is ``enforced``."""

    principal: str
    enforced: bool
    grants: list[str]


class PageOf[T](Out):
    """Some of a list; ``next`` is the cursor for the rest, null at its end."""

    items: list[T]
    next: str | None
