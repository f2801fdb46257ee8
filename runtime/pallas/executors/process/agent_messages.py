"""The messages between the fleet and the process of an agent."""

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pallas.config import Project
from pallas.executors import ExecutorInfo, ExecutorTurn
from pallas.executors.fastagent.peer_tools import PeerTool
from pallas.executors.ipc.child_messages import Number
from pallas.executors.ipc.people_questions import PeopleQuestion
from pallas.executors.replay.replay import ReplayPlan
from pallas.limits.meter import ModelCall, ModelUse
from pallas.model import (
    Exchange,
    Image,
    Message,
    ServerChange,
    ServerConnection,
    StepDetail,
    ToolAnswer,
    ToolCall,
    TraceContext,
    Usage,
)
from pallas.model.fault_rules import FaultPlan
from pallas.model.packed import Packed, packed_of
from pallas.model.run_values import Role


@dataclass(frozen=True, slots=True)
class HistoryMessage:
    """A message of a thread on its way; ``native`` is the JSON of the agent library's own form."""

    role: Role
    text: str = ""
    images: tuple[Image, ...] = ()
    native: str | None = None
    calls: tuple[ToolCall, ...] = ()
    answers: tuple[ToolAnswer, ...] = ()
    summary: bool = False

    @staticmethod
    def of(message: Message, *, complete: bool) -> "HistoryMessage":
        """Return ``message`` as it travels; ``complete`` repeats in fields what its native form contains."""
        native = packed_of(message.native)
        if native is not None and not complete:
            return HistoryMessage(message.role, native=native, summary=message.summary)
        return HistoryMessage(
            message.role,
            message.text,
            message.images,
            native,
            message.calls,
            message.answers,
            message.summary,
        )

    def message(self) -> Message:
        """Return the entry of a thread; its native form stays packed."""
        return Message(
            self.role,
            self.text,
            self.images,
            Packed(self.native) if self.native is not None else None,
            self.calls,
            self.answers,
            self.summary,
        )


# From the fleet.


@dataclass(frozen=True, slots=True)
class AgentSetup:
    """Which agent this process is for; follows the hello.

    ``salt`` is that of fingerprints, in hex. ``sources`` are modules as they were when the agent was loaded
    before, as in ``CommandDone``. ``replay`` has the runs of this agent that are replayed,
    ``faults`` what is injected into its calls.
    """

    agent: str
    project: Project = field(repr=False)
    salt: str = field(repr=False)
    sources: dict[str, str] = field(default_factory=dict, repr=False)
    replay: ReplayPlan | None = None
    faults: FaultPlan | None = None


@dataclass(frozen=True, slots=True)
class AgentCommand:
    """``load``, ``start``, ``check`` or ``park``; ``seconds`` is the timeout of the last two.

    ``server`` is the one that is to be checked.
    """

    call: int
    name: str
    seconds: float = 0.0
    server: str = ""


@dataclass(frozen=True, slots=True)
class HistoryPart:
    """Messages of the thread that a turn continues, in parts, before the turn.

    ``said``: messages of the turn itself, which another fleet began.
    """

    call: int
    messages: tuple[HistoryMessage, ...] = field(repr=False)
    said: bool = False


@dataclass(frozen=True, slots=True)
class AgentTurn:
    """A turn without its history.

    ``keep`` messages of its thread are known there from earlier turns; ``HistoryPart`` had the rest.
    ``record`` asks for its exchanges, ``scope`` is the conversation that its steps belong to. ``faults`` are
    injected into it in place of those of the process. ``is_metered``: the fleet is asked before each question
    to a model. ``replays`` is the id of the recorded run that answers it in a replay, empty for none.
    """

    call: int
    turn: ExecutorTurn = field(repr=False)
    keep: int = 0
    trace: TraceContext | None = None
    record: bool = False
    faults: FaultPlan | None = None
    scope: str = field(default="", repr=False)
    is_metered: bool = False
    replays: str = ""


@dataclass(frozen=True, slots=True)
class ForgetThread:
    """The messages of a conversation need not be known any more; ``over``: nor the conversation."""

    lease: str = field(repr=False)
    over: bool = False


@dataclass(frozen=True, slots=True)
class PeerList:
    """The agents that it may ask from now on, as tools."""

    tools: tuple[PeerTool, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class UnreachedServers:
    """Downstreams that a health probe did not reach."""

    servers: tuple[str, ...]


# From the child.


@dataclass(frozen=True, slots=True)
class CommandDone:
    """The command was carried out; ``info`` are the facts about the agent now, None after a check.

    ``sources`` are the project's modules that were imported, by path: their bytes, as Latin-1.
    """

    call: Number
    info: ExecutorInfo | None = None
    sources: dict[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class AgentCallFailed:
    """A command or a turn failed: the body of the Fault, and the traceback behind it."""

    call: Number
    fault: dict[str, Any]
    traceback: str = ""
    info: ExecutorInfo | None = None


@dataclass(frozen=True, slots=True)
class TurnMessages:
    """Messages that a turn adds to its thread, in parts, before its answer."""

    call: Number
    messages: tuple[HistoryMessage, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class TurnAnswer:
    """The answer of a turn, as in ``TurnResult``."""

    call: Number
    texts: tuple[str, ...]
    usage: Usage
    stop_reason: str
    replaces: bool
    backend: str = ""
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunEventMessage:
    """An event of a turn's run, as the codec encodes it."""

    call: Number
    event: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ExchangeUpdate:
    """An exchange of a turn as it is now, new or known by its number."""

    call: Number
    number: int
    exchange: Exchange


@dataclass(frozen=True, slots=True)
class StepUpdate:
    """A step of a turn as it is now. Its texts and pictures are sent once each, the request first."""

    call: Number
    detail: StepDetail
    pictures: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True)
class ExecutorState:
    """Turns that wait for an instance, and downstreams that could not be reached."""

    waiting: int
    problems: tuple[str, ...]
    lock_changes: tuple[ServerChange, ...] = ()
    connections: tuple[ServerConnection, ...] = ()


@dataclass(frozen=True, slots=True)
class ServerOffered:
    """What a downstream offers from now on, as JSON text of a ``ServerOffer``."""

    server: str
    offer: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class AgentBroken:
    """The agent cannot answer any more, without the end of its process."""

    reason: str


@dataclass(frozen=True, slots=True)
class AgentNoticed:
    """What operators are to know, as in ``Notice``."""

    level: Literal["info", "warning", "error"]
    text: str
    server: str


@dataclass(frozen=True, slots=True)
class PeerQuestion:
    """The turn ``call`` asks a peer; ``span`` and ``call_id`` are those of the tool call."""

    call: Number
    question: Number
    peer: str
    text: str = field(repr=False)
    span: str = ""
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class JournalQuestion:
    """The durable turn ``call`` waits for a method of its journal (``TurnJournal``)."""

    call: Number
    question: Number
    wanted: Literal["committed", "still_ours", "step_over"]


@dataclass(frozen=True, slots=True)
class LimitQuestion:
    """The turn ``call`` asks whether its limits leave room for a question to a model."""

    call: Number
    question: Number
    asked: ModelCall


@dataclass(frozen=True, slots=True)
class ReplayQuestion:
    """In a replay that goes on, the turn ``call`` asks whether a model may be asked for real.

    ``step`` is the number of its step there, ``url`` the address of the model. ``miss`` is the body of the
    Fault of the first call that was not recorded, if there was one.
    """

    call: Number
    question: Number
    step: Number
    url: str = ""
    miss: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class LimitSettled:
    """What became of a question to a model that ``reserved`` had asked for."""

    call: Number
    reserved: Number
    use: ModelUse


@dataclass(frozen=True, slots=True)
class CallReturned:
    """The result of one of several calls of a durable turn, as JSON."""

    call: Number
    call_id: str
    native: str = field(repr=False)


TO_AGENT: Final = (AgentSetup, AgentCommand, HistoryPart, AgentTurn, ForgetThread, PeerList, UnreachedServers)
FROM_AGENT: Final = (
    CommandDone,
    AgentCallFailed,
    TurnMessages,
    TurnAnswer,
    RunEventMessage,
    ExchangeUpdate,
    StepUpdate,
    ExecutorState,
    ServerOffered,
    AgentBroken,
    AgentNoticed,
    PeerQuestion,
    JournalQuestion,
    LimitQuestion,
    LimitSettled,
    ReplayQuestion,
    PeopleQuestion,
    CallReturned,
)
