"""The events of runs and of the fleet.

Every surface encodes these same events: MCP progress, the workbench's feed, the log. Their text is sanitised
by the code that makes the event. The hub sets ``seq``, which grows by one.
"""

from dataclasses import dataclass, field
from time import time
from typing import Literal

from .health import Health
from .money import ModelCost
from .run_values import Role, ToolAnswer, ToolCall
from .states import AgentState, FleetState
from .steps import Step

Outcome = Literal["ok", "error", "cancelled"]
ToolPhase = Literal["started", "completed", "failed"]
CredentialSource = Literal["forwarded", "configured", "none"]
LoopStop = Literal["repeat", "iterations", "limit"]
MessageRoute = Literal["boot", "call", "self", "respond", "result", "error", "end"]
MessageOutcome = Literal["delivered", "refused", "dropped"]
TodoStatus = Literal["open", "raised", "closed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened at ``at`` (Unix seconds)."""

    seq: int = 0
    at: float = field(default_factory=time)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetChanged(Event):
    """The fleet moved to another state."""

    state: FleetState
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentChanged(Event):
    """An agent moved to another state."""

    agent: str
    state: AgentState
    detail: str = ""  # one line, for example why it failed


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthChanged(Event):
    """An agent's health status or its message changed."""

    agent: str
    health: Health


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent(Event):
    """Something about one run of one agent."""

    run_id: str
    agent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(RunEvent):
    """A message was accepted. The ids are those of W3C Trace Context."""

    preview: str = ""  # its first line, at most 120 characters
    images: int = 0
    conversation: str = ""  # the beginning of the caller's handle
    principal: str = ""  # the fingerprint of the caller, empty for anonymous
    # The caller's verified name, for example ``token:ci``; ``unverified:1a2b3c4d`` for the issuer and subject
    # that an unchecked JWT claims; else empty
    identity: str = ""
    caller: str = ""  # the client's name for itself
    trace_id: str = ""  # 32 hex digits
    span_id: str = ""  # 16 hex digits, the run's own span
    parent_span: str = ""  # the span of the ToolEvent or client that asked, or empty
    surface: str = ""  # how the message came in
    thread: str = ""  # the beginning of its durable thread's id
    forked_from: str = ""  # the run from which it goes on, empty if it began by itself
    forked_at: int = 0  # the number of the step there that it does once more
    replica: str = ""  # the replica that has it, empty for this fleet


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted(RunEvent):
    """The agent's loop begins step ``step`` (from 1)."""

    actor: str  # differs from the agent for a child
    step: int
    kind: Literal["llm", "tool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepChanged(RunEvent):
    """A recorded step of the run began or ended: its number and its duration are those of the record."""

    step: Step


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEvent(RunEvent):
    """A downstream call began or ended."""

    server: str
    tool: str
    phase: ToolPhase
    call_id: str  # the same at the beginning and the end of a call
    nested: bool = False  # a sub-agent made the call
    # Sent with the call in ``traceparent``, empty if unknown; the run of another agent with this
    # ``parent_span`` belongs to this call
    span_id: str = ""
    # A call of a run below, for this run's caller only; others get the event from that run
    relayed: bool = False
    # Why it failed, in one line, for the operator of the fleet: callers do not get it
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta(RunEvent):
    """A piece of streamed model text."""

    text: str
    reasoning: bool = False
    rollback: bool = False  # the text of this attempt so far is withdrawn
    actor: str = ""  # the agent further down that wrote it, else empty


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthHop(RunEvent):
    """One HTTP request of a run to a downstream, and the credential that was sent with it."""

    downstream: str
    # ``forwarded`` is the caller's bearer, ``configured`` one from the project's files
    source: CredentialSource
    fingerprint: str = ""  # salted, never the token; empty for ``none``
    audience: tuple[str, ...] = ()  # as a JWT claims, unverified, like the next four
    subject: str = ""
    issuer: str = ""
    scope: str = ""  # separated by spaces
    expires_at: float | None = None  # Unix seconds
    variable: str = ""  # that a ``configured`` credential was read from, empty if unknown
    status: int | None = None  # the HTTP status, None without a response
    method: str = ""  # the JSON-RPC method, or empty
    tool: str = ""  # the tool that it calls


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopStopped(RunEvent):
    """A guard ended the agent's loop: repeated calls with the same result, too many steps, or a limit on what
    it may spend.
    """

    reason: LoopStop
    tool: str = ""  # ``server/tool`` of the repeated call
    count: int = 0  # the number of its calls, or of steps
    limit: str = ""  # as agents.yaml names it: ``per_run.tokens``


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContinued(RunEvent):
    """This fleet continues a run that another one, or its own earlier process, left unfinished."""

    attempt: int
    # A line for each call whose answer was lost: ``server/tool: told``, with what is done about it
    calls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopMessage(RunEvent):
    """A complete message of the agent's own loop: the model's tool calls, or their results.

    For the ledger and the caller of this run; never published, since it holds whole texts and arguments. The
    final answer is in the run's result.
    """

    role: Role
    text: str
    calls: tuple[ToolCall, ...] = ()
    answers: tuple[ToolAnswer, ...] = ()
    native: str = ""  # the executor's own form of the message as JSON text


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted(RunEvent):
    """The conversation came near the model's window: ``messages`` older ones were replaced by a summary."""

    messages: int
    before: int  # its estimated tokens before, and ``after``
    after: int
    window: int  # the model's window in tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed(RunEvent):
    """A router chose an agent."""

    to: str  # the agent
    by: str  # the criterion
    why: str  # one line
    others: tuple[str, ...] = ()  # the other candidates, best first


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerouted(RunEvent):
    """Another provider answers than the requested one (DR-32)."""

    asked: str
    to: str
    why: str  # one line


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRetry(RunEvent):
    """A model call failed, and is made again after a wait."""

    reason: str  # a few words: ``HTTP 429``, ``the connection broke off``
    retry: int  # counts from 1, as does ``retries``
    retries: int  # how many there may be
    wait: float  # seconds
    characters: int = 0  # of the text that this attempt had written, which no longer counts


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerMissing(RunEvent):
    """The run continues without the tools of an MCP server."""

    server: str
    why: str  # a few words


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAsked(RunEvent):
    """A run waits for the answer of a person. The runs above it report it too, to their callers only."""

    question: str  # its id
    kind: Literal["approval", "form"]
    tool: str = ""  # as in ``Question``, like the next three
    server: str = ""
    message: str = ""
    call_id: str = ""
    expires_at: float = 0.0  # Unix seconds
    # A run below asks: for this run's caller only; others get the event from that run
    relayed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAnswered(RunEvent):
    """A question is over; without a ``reason`` a person answered it."""

    question: str  # its id
    action: Literal["", "accept", "decline", "cancel"] = ""
    by: str = ""  # the name to show of who answered
    reason: Literal["", "expired", "withdrawn"] = ""
    relayed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePassed(RunEvent):
    """One message between handlers was delivered, refused or dropped. Frames are UUIDs.

    ``route``: ``call`` opens ``frame``; ``self`` stays in it; ``respond`` goes back to ``frame`` and ends
    ``left`` with all frames below it; ``result`` does so to the caller of the run; ``error`` is a SystemError
    to ``to``; ``end`` says that ``left`` ended without a message.
    """

    number: int  # counts the messages of the run from 1
    sender: str
    to: str
    frame: str  # where it is delivered
    route: MessageRoute
    outcome: MessageOutcome = "delivered"
    parent: str = ""  # the frame above ``frame``
    left: str = ""  # the frame of ``sender`` that ended
    payload: str = ""  # the name of its class
    size: int = 0
    code: str = ""  # that of a refusal, one line
    detail: str = ""  # why, one line, for operators only
    span_id: str = ""  # the frame's span: a run with this ``parent_span`` belongs below it


@dataclass(frozen=True, slots=True, kw_only=True)
class TodoChanged(RunEvent):
    """A todo of a handler (``TodoUntil``) changed. All text is one line."""

    todo: str  # its id
    actor: str  # the handler that waits in ``frame``
    frame: str
    status: TodoStatus
    wait_for: str = ""
    from_agent: str = ""
    description: str = ""
    was_raised: bool = False  # set when it is closed


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendChosen(RunEvent):
    """A backend was chosen for a handler's ``complete``, or its attempt ended."""

    actor: str  # the handler that asked for ``model``
    model: str
    backend: str
    why: str  # why this ``backend`` was chosen
    attempt: int = 1  # counts from 1 over all backends
    # Empty at the start, then ``ok``, ``busy``, ``limited``, ``failed``, ``refused``, ``unreachable``,
    # ``timeout`` or ``cancelled``
    outcome: str = ""
    seconds: float = 0.0  # the wait for its turn, and at the end the whole time
    tokens_in: int | None = None
    tokens_out: int | None = None
    instead: str = ""  # the backend that failed before


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished(RunEvent):
    """The run is over."""

    outcome: Outcome
    seconds: float  # wall time
    steps: int = 0
    tools: int = 0
    tokens_in: int | None = None  # None if the provider gave none, like ``tokens_out``
    tokens_out: int | None = None
    # What its own steps cost, in nano-US-dollars; None if no price is known
    cost: int | None = None
    unpriced: int = 0  # how many answers of models no price is known of
    models: tuple[ModelCost, ...] = ()  # the same by model
    fault: str = ""
    of_agent: bool = False  # the agent's own work failed; nothing refused, cancelled or outlived it
    cause: str = ""  # for operators, in addition to ``fault``
    partial: str = ""  # the sanitised text of a run that was cut short
    replica: str = ""  # as of ``RunStarted``


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionChanged(Event):
    """A session was opened, changed its status, or ended (``closed``)."""

    agent: str
    session: str  # the beginning of its id
    status: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChanged(Event):
    """A task began, changed or ended."""

    agent: str
    task: str  # the beginning of its id
    status: str  # as in ``TaskRecord``
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice(Event):
    """A message for operators that belongs to no run."""

    level: Literal["info", "warning", "error"]
    text: str
    agent: str = ""  # may be empty
    server: str = ""  # the MCP server of the agent that it is about, if it is about one


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopBlocked(Event):
    """An agent's code blocks the fleet's event loop, and with it every other agent.

    Published when that is noticed, with ``over`` False, and again when it is over.
    """

    seconds: float  # so far
    agent: str = ""  # empty if no agent can be named
    place: str = ""  # ``file:line`` in the project, sanitised
    stack: str = ""  # the call stack, outermost first, sanitised
    over: bool = False
