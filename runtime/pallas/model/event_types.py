"""What a run or the fleet says while it happens.

Every surface encodes these same events: MCP progress, the workbench's feed, the log. All text in
them is sanitised by whoever makes the event. ``seq`` is given by the hub and grows by one.
"""

from dataclasses import dataclass, field
from time import time
from typing import Literal

from .health import Health
from .run_values import Role, ToolAnswer, ToolCall
from .states import AgentState, FleetState

Outcome = Literal["ok", "error", "cancelled"]
ToolPhase = Literal["started", "completed", "failed"]
CredentialSource = Literal["forwarded", "configured", "none"]
LoopStop = Literal["repeat", "iterations"]
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
    """An agent moved to another state; ``detail`` is one line, for example why it failed."""

    agent: str
    state: AgentState
    detail: str = ""


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
    """A message was accepted; ``preview`` is its first line, at most 120 characters.

    ``conversation`` is the beginning of the caller's handle, never all of a long one. ``principal`` is the
    fingerprint of who asked, empty for anonymous; ``identity`` who that is where it was verified, for example
    ``token:ci``, or ``unverified:1a2b3c4d`` for the issuer and subject that an unchecked JWT claims, else
    empty; ``caller`` what the client calls itself. ``trace_id``
    (32 hex digits), ``span_id`` (16, this run's own) and ``parent_span`` (the ``span_id`` of the ToolEvent or
    client that asked, empty without one) are those of W3C Trace Context. ``surface`` is how the message came
    in, ``thread`` the beginning of its durable thread's id.
    """

    preview: str = ""
    images: int = 0
    conversation: str = ""
    principal: str = ""
    identity: str = ""
    caller: str = ""
    trace_id: str = ""
    span_id: str = ""
    parent_span: str = ""
    surface: str = ""
    thread: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted(RunEvent):
    """The agent's loop goes to step ``step`` (from 1). ``actor`` differs from the agent for a child."""

    actor: str
    step: int
    kind: Literal["llm", "tool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEvent(RunEvent):
    """A downstream call began or ended. ``call_id`` pairs the two; ``nested`` when a sub-agent made it.

    ``span_id`` is what the call sends along in ``traceparent``, empty where it is not known: a run of another
    agent with that ``parent_span`` is what this call asked for. ``relayed``: a call of a run below, told to
    this run's caller alone; whoever watches the fleet has it from that run.
    """

    server: str
    tool: str
    phase: ToolPhase
    call_id: str
    nested: bool = False
    span_id: str = ""
    relayed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta(RunEvent):
    """Model text as it streams. ``rollback`` says that this attempt's text so far is taken back.

    ``actor`` is who wrote it where that is an agent further down, else empty.
    """

    text: str
    reasoning: bool = False
    rollback: bool = False
    actor: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthHop(RunEvent):
    """One HTTP request of a run to a downstream, and the credential that went with it.

    ``source``: ``forwarded`` is the caller's own bearer, ``configured`` one from the project's files.
    ``fingerprint`` is salted and tells credentials apart, empty for ``none``; never the token. ``audience``
    and ``expires_at`` (Unix seconds) are what a JWT claims, unverified. ``status`` is the HTTP status, None
    when no answer came; ``method`` the JSON-RPC method, empty where there is none.
    """

    downstream: str
    source: CredentialSource
    fingerprint: str = ""
    audience: tuple[str, ...] = ()
    expires_at: float | None = None
    status: int | None = None
    method: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopStopped(RunEvent):
    """A guard ended the agent's loop: the same call with the same result again and again, or the cap.

    ``tool`` is ``server/tool`` of the repeated call, ``count`` how often it was made or how many steps.
    """

    reason: LoopStop
    tool: str = ""
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopMessage(RunEvent):
    """A message of the agent's own loop is complete: what the model decided to call, or what came back.

    For the ledger and for the caller of this run, never published: it holds whole texts and arguments.
    ``native`` is the executor's own form of the message as JSON text. What a run ends with is in its result.
    """

    role: Role
    text: str
    calls: tuple[ToolCall, ...] = ()
    answers: tuple[ToolAnswer, ...] = ()
    native: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted(RunEvent):
    """The conversation came near the model's window: ``messages`` older ones are now told by a summary.

    ``before`` and ``after`` are its tokens as they are estimated, ``window`` the model's.
    """

    messages: int
    before: int
    after: int
    window: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed(RunEvent):
    """A router chose who answers: ``to`` is the agent, ``why`` one line, ``by`` what it went by.

    ``others`` are those that it could have chosen, best first.
    """

    to: str
    by: str
    why: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerouted(RunEvent):
    """Another provider answers than the one that was asked for (C13, DR-32); ``why`` is one line."""

    asked: str
    to: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerMissing(RunEvent):
    """The run has to do without the tools of an MCP server; ``why`` is a few words."""

    server: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePassed(RunEvent):
    """One message between handlers went where it goes, or did not (SPEC 5.1).

    ``number`` counts the messages of the run from 1; ``frame`` is where it is delivered, ``parent`` the frame
    above that, both UUIDs; ``span_id`` the frame's span: a run with that ``parent_span`` hangs below it.
    ``route``: ``call`` opens ``frame``; ``self`` stays in it; ``respond`` goes back to ``frame`` and ends
    ``left``, the frame of ``sender``, with all below it; ``result`` does so to whoever began the run;
    ``error`` is a SystemError to ``to``; ``end`` says that ``left`` ended without a message. ``payload`` is
    the name of its class. ``code`` is that of a refusal, ``detail`` why, for operators alone: both one line.
    """

    number: int
    sender: str
    to: str
    frame: str
    route: MessageRoute
    outcome: MessageOutcome = "delivered"
    parent: str = ""
    left: str = ""
    payload: str = ""
    size: int = 0
    code: str = ""
    detail: str = ""
    span_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TodoChanged(RunEvent):
    """A handler waits for something (``TodoUntil``): ``todo`` is its id, ``actor`` who waits in ``frame``.

    ``was_raised`` once it is closed. All text on one line.
    """

    todo: str
    actor: str
    frame: str
    status: TodoStatus
    wait_for: str = ""
    from_agent: str = ""
    description: str = ""
    was_raised: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendChosen(RunEvent):
    """What answers a handler's ``complete``: ``actor`` asked for ``model``, ``backend`` is asked, ``why``.

    ``attempt`` counts from 1 over all backends; ``outcome`` is empty as it is asked, and then how it ended:
    ``ok``, ``busy``, ``limited``, ``failed``, ``refused``, ``unreachable``, ``timeout``, ``cancelled``.
    ``seconds`` it waited for its turn, and then what it took. ``instead`` is the backend that failed before.
    """

    actor: str
    model: str
    backend: str
    why: str
    attempt: int = 1
    outcome: str = ""
    seconds: float = 0.0
    tokens_in: int | None = None
    tokens_out: int | None = None
    instead: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished(RunEvent):
    """The run is over. ``seconds`` is wall time; tokens are None where the provider gave none.

    ``partial`` is what a run had answered that was cut short, sanitised; empty for one that was answered.
    ``cause`` is what callers are not told beside ``fault``.
    """

    outcome: Outcome
    seconds: float
    steps: int = 0
    tools: int = 0
    tokens_in: int | None = None
    tokens_out: int | None = None
    fault: str = ""
    cause: str = ""
    partial: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionChanged(Event):
    """A session was opened, moved or ended (``closed``); ``session`` is the first part of its id."""

    agent: str
    session: str
    status: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChanged(Event):
    """A task began, moved or ended; ``status`` as in ``TaskRecord``."""

    agent: str
    task: str
    status: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice(Event):
    """Something a person should know that belongs to no run; ``agent`` may be empty."""

    level: Literal["info", "warning", "error"]
    text: str
    agent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopBlocked(Event):
    """Code of an agent kept the fleet's event loop from going on, and every other agent with it.

    ``seconds`` so far; told once when it is noticed, with ``over`` False, and once when it is over. ``agent``
    is empty where nobody can be named; ``place`` is the ``file:line`` in the project, ``stack`` the lines of
    the call stack, outermost first; both sanitised.
    """

    seconds: float
    agent: str = ""
    place: str = ""
    stack: str = ""
    over: bool = False
