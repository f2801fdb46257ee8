"""The bodies that the REST API sends of runs: their steps, limits and costs, and the answer to a message."""

from typing import Any, Literal

from pallas.model.steps import StepKind, StepState

from .response_models import CostModel, Out, Time


class TokensModel(Out):
    """Tokens as the provider counted them."""

    inputTokens: int | None
    outputTokens: int | None


class RunModel(Out):
    """One run; ``fault`` and ``partial`` are what its caller received."""

    id: str
    agent: str
    threadId: str | None
    parentRunId: str | None
    forkedFrom: str | None
    forkedAtStep: int | None
    ownerId: str
    surface: str
    status: Literal["running", "ok", "error", "cancelled"]
    attempt: int
    startedAt: Time
    finishedAt: Time | None
    seconds: float
    steps: int
    tools: int
    usage: TokensModel | None
    cost: str | None
    unpriced: int
    treeCost: str | None
    treeUnpriced: int
    turnIndex: int | None
    fault: str | None
    partial: str | None


class AccountModel(Out):
    """One limit of an account; amounts are US dollars as a decimal text, tokens, or steps.

    ``scope`` is ``run:ID``, ``caller:ID``, ``caller@AGENT:ID`` or ``agent:NAME``, ``limit`` the key below
    ``limits:`` in agents.yaml, ``where`` its line. ``held`` is reserved for open questions to models.
    """

    scope: str
    limit: str
    allowed: int | str
    used: int | str
    held: int | str
    left: int | str
    resetsAt: Time | None
    where: str | None


class RunDetailModel(RunModel):
    """A run with what became of its calls whose answers were lost with another fleet, a line for each.

    ``limits`` are those that hold for it, with what remains; empty for a run that is over for long.
    """

    unfinishedCalls: list[str]
    limits: list[AccountModel]


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


class StepModel(CostModel):
    """A step of a run: a question to a model with its repetitions, a call of a tool or an agent, a summary.

    ``parent`` is the number of the step that caused it. Times are in seconds.
    """

    number: int
    parent: int | None
    kind: StepKind
    name: str
    provider: str | None
    url: str | None
    state: StepState
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
    toolUseId: str | None


class StepDetailModel(StepModel):
    """A step with its request and its response, secrets masked.

    ``lacks`` says why a text is there by its length and digest only, a line for each.
    """

    headers: dict[str, str]
    request: Any
    response: Any
    lacks: list[str]


class ChatAnswerModel(Out):
    """The answer to a message; ``turnIndex`` is its position in its thread.

    ``cost`` is in US dollars, ``treeCost`` with that of the runs below; as in ``RunModel``.
    ``backend`` is the provider that answered, if there is a choice; ``routed`` the agent that a router
    chose, ``rerouted`` why a provider other than the requested one answered. ``missingServers`` are the MCP
    servers that were unavailable, by name, with the reason. ``version`` and ``recording`` are of a fork with
    another version of the project: the commit, and the run as a tar archive in base64, since no ledger has
    it.
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
    cost: str | None
    unpriced: int
    treeCost: str | None
    treeUnpriced: int
    backend: str | None = None
    routed: str | None = None
    rerouted: list[str] | None = None
    missingServers: dict[str, str] | None = None
    version: str | None = None
    recording: str | None = None


class CostSumModel(CostModel):
    """What several runs cost. ``key`` is empty for what belongs to none; of a model there are no tokens."""

    key: str
    runs: int
    usage: TokensModel | None


class CostsModel(Out):
    """Sums of what runs cost, the most expensive first; together they are ``total``."""

    items: list[CostSumModel]
    total: CostSumModel
    next: None = None
