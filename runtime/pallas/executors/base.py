"""The protocol between the kernel and every executor."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

from pallas.model import (
    ANONYMOUS,
    NO_PARAMS,
    Event,
    Image,
    Message,
    Notice,
    Params,
    ProviderFacts,
    ServerChange,
    ServerConnection,
    ServerDetail,
    Usage,
)
from pallas.model.questions import Question
from pallas.model.server_offer import StoredOffer
from pallas.model.tool_rules import NO_TOOL_RULES, ToolRules
from pallas.model.unfinished_calls import NO_RULES, UnfinishedRules

Emit = Callable[[Event], None]


@runtime_checkable
class TurnJournal(Protocol):
    """Stores a turn while it happens, so that another fleet can continue it.

    The messages themselves are reported as ``LoopMessage``. The run is cut, and the methods do not return,
    when another fleet has taken it over, or the messages cannot be stored.
    """

    @property
    def part(self) -> int:
        """The index of the last message that was reported, in the thread; in the fleet's own process only."""
        ...

    @property
    def is_left(self) -> bool:
        """Whether another fleet goes on with the turn; in the fleet's own process only."""
        ...

    async def committed(self) -> None:
        """Return once each message that was reported is stored: await it before calls are made."""
        ...

    async def step_over(self) -> None:
        """Say that the results of calls were reported; does not return if the run goes on elsewhere."""
        ...

    async def still_ours(self) -> None:
        """Return if this fleet still has the run: await it directly before each call."""
        ...

    def returned(self, call_id: str, native: str) -> None:
        """Store the result of one of several calls, in the executor's own form as JSON. Returns at once."""
        ...


@runtime_checkable
class People(Protocol):
    """The people that a run can ask. Both methods return the question once it is over.

    Cancelling them withdraws it. Raises Fault (UPSTREAM, PROTOCOL) if it cannot be asked.
    """

    async def approve(
        self, *, tool: str, arguments: Mapping[str, Any], call_id: str, server: str = "", message: str = ""
    ) -> Question:
        """Ask whether a call may be made: only if the question ``is_accepted``."""
        ...

    async def form(
        self,
        *,
        message: str,
        schema: Mapping[str, Any],
        server: str = "",
        tool: str = "",
        call_id: str = "",
        seconds: float | None = None,
    ) -> Question:
        """Have a form filled: ``content`` is the answer if the question ``is_accepted``."""
        ...


@dataclass(frozen=True, slots=True)
class ExecutorTurn:
    """One message for an executor, with its context."""

    # Of the codec that writes it for another process, where the journal is left out.
    __pydantic_config__: ClassVar = {"arbitrary_types_allowed": True}

    run_id: str
    agent: str
    text: str
    images: tuple[Image, ...] = ()
    history: Sequence[Message] = ()
    """The conversation's earlier messages, oldest first."""
    lease: str | None = None
    """The conversation, for executors that keep an instance for it; None for a single question."""
    thread: str = field(default="", repr=False)
    """The id of its thread; empty for a single question."""
    handle: str = field(default="", repr=False)
    """The caller's own name for the thread; empty without one."""
    principal: str = ANONYMOUS.id
    """The id that tells callers apart."""
    stream_text: bool = False
    """The caller wants text as it is written, so called agents are asked for theirs."""
    params: Params = NO_PARAMS
    """The run's merged parameters: absent ones are the executor's defaults, cleared ones are not sent."""
    defaulted: frozenset[str] = frozenset()
    """The names of those that come from the agent's defaults, not from the caller."""
    durable: bool = False
    """Messages are stored on the way, so they are reported in the executor's own form as well."""
    provider: str = ""
    """The provider that the caller chose; empty for the agent's default."""
    session: str = ""
    """The id of its session, the same as for ``SessionHooks``; empty without one."""
    sender: str = ""
    """As in the request."""
    depth: int = 0
    """As in the request."""
    bearer: str | None = field(default=None, repr=False)
    """The caller's token, for this turn only."""
    bearer_lost: bool = False
    """As in the request."""
    journal: TurnJournal | None = field(default=None, repr=False, compare=False)
    """None for a turn that is not durable."""
    attempt: int = 1
    """Above 1 another fleet was in the middle of this turn."""
    said: Sequence[Message] = ()
    """What it had said after the question: there, or in the run from which this one goes on."""
    unfinished: UnfinishedRules = NO_RULES
    """What becomes of calls whose answers were lost there."""
    results: Mapping[str, str] = field(default_factory=dict)
    """Of the calls in the last message of ``said``, those that had returned: as ``TurnJournal.returned``."""
    people: People | None = field(default=None, repr=False, compare=False)
    """Who is asked before a call that needs it; without them such a call is refused."""
    tool_rules: ToolRules = NO_TOOL_RULES
    """Which calls it makes, and which ones a person is asked about."""
    unmade: frozenset[str] = frozenset()
    """The ids of those calls that a person was asked about, and that were not made: they are made again."""
    nested: frozenset[str] = frozenset()
    """The ids of those calls that asked a peer whose run goes on, or is over: asked again they join it."""


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The result of a turn."""

    texts: tuple[str, ...]
    """All texts of the answer, in order."""
    messages: tuple[Message, ...]
    """The messages to add to the conversation."""
    usage: Usage = field(default_factory=Usage)
    stop_reason: str = "endTurn"
    replaces: bool = False
    """``messages`` replace the whole conversation: it was compacted."""
    backend: str = ""
    """The id of the provider that answered, if there is a choice."""
    notices: tuple[str, ...] = ()
    """Lines for the caller, in addition to the answer."""


@dataclass(frozen=True, slots=True)
class ExecutorInfo:
    """Facts about an agent that its executor learned when it started."""

    model: str = ""
    """Without a provider prefix; empty if there is none."""
    vision: bool = False
    servers: tuple[str, ...] = ()
    """The names of the downstreams that the agent declares."""
    keeps_history: bool = True
    """False for an agent without memory."""
    instruction: str = ""
    """The agent's instruction as it was written; sanitised."""
    defined: str = ""
    """The place of its code or card, relative to the project (``agents/research.py:8``); sanitised."""
    serves: str = ""
    """The agent of its module or cards that answers, as they name it; sanitised."""
    warnings: tuple[str, ...] = ()
    """What its files name that is not there and that it starts without, each with its place; sanitised."""
    files: tuple[str, ...] = ()
    """The project's files that it was made of, relative to the project if they are inside.

    Partial if ``load`` or ``start`` failed.
    """
    children: tuple["Child", ...] = ()
    """The other agents of the same definition."""
    tools: tuple[ServerDetail, ...] = ()
    """The tools of each downstream when it was started, by server."""
    providers: tuple[str, ...] | None = None
    """The providers that it and its children use, by their names in the configuration; None if unknown."""
    models: tuple[str, ...] | None = None
    """The models that it and its children use by default, as ``provider.model``; None if unknown."""
    names_models: bool = False
    """Neither it nor its children use the project's ``default_model``."""
    window: int = 0
    """The context window of its model in tokens; 0 if only the declared one is known."""
    providers_known: tuple[ProviderFacts, ...] | None = None
    """The providers that callers may choose among; None if there is no choice."""
    capabilities: tuple[str, ...] = ()
    """Its own description of what it can do."""
    continues: bool = False
    """Goes on in the middle of a turn that another fleet began; others are asked again, or fail."""
    joins: bool = False
    """Asked again, it joins the run that an earlier attempt of the turn asked for."""
    capacity: int = 0
    """How many runs it takes at a time; 0 for any number."""
    dated: tuple[str, ...] = ()
    """The instructions in its definition that name the date, with placeholders in place of it; masked."""
    payload: Any = None
    """The input of a typed handler (a PayloadType); None for agents that accept text."""


@dataclass(frozen=True, slots=True)
class Child:
    """An agent that another one of the same definition works with; the text is sanitised."""

    name: str
    instruction: str = ""
    model: str = ""


class Executor(Protocol):
    """Answers turns of one agent. Its owner calls ``load``, ``start`` and ``close``, once each, in order.

    Between ``start`` and ``close`` it may be parked, and started once more after that. ``close`` is called
    regardless of the outcome of the others, also while one of them was cancelled.

    Methods with a body here are right for an executor in this process that calls no downstreams, lets no run
    wait, does not fail by itself and keeps nothing for a conversation.
    """

    @property
    def pid(self) -> int | None:
        """The process it runs in, None for this one."""
        return None

    @property
    def info(self) -> ExecutorInfo:
        """Facts about the agent: after ``load`` all but its tools, which ``start`` finds."""
        ...

    async def load(self, *, fresh: bool = False) -> None:
        """Load the agent without connecting to anything. Raises Fault (CONFIG) with file and line.

        The fault's ``data`` has the ``place`` (``file:line``) if it is in the project. ``fresh`` loads the
        code again; if that fails, other agents keep the old code.
        """
        ...

    async def start(self) -> None:
        """Make ready to answer. Raises Fault (CONFIG) with the reason if the agent cannot be made."""
        ...

    async def run(self, turn: ExecutorTurn, emit: Emit) -> TurnResult:
        """Answer one turn; cancelling it cancels the work behind it. Raises Fault."""
        ...

    def problems(self) -> tuple[str, ...]:
        """The names of downstreams that could not be reached at the last attempt."""
        return ()

    def lock_changes(self) -> tuple[ServerChange, ...]:
        """What its downstreams list otherwise than the project's ``tools.lock`` says."""
        return ()

    def connections(self) -> tuple[ServerConnection, ...]:
        """The connections of its instances to its downstreams, as far as there are some."""
        return ()

    def offers(self) -> Mapping[str, StoredOffer]:
        """What its downstreams offered when they listed their tools last, by name; as far as it is known."""
        return {}

    async def check_connection(self, server: str, seconds: float) -> None:
        """Ask a downstream, over a connection that is open, whether it answers within ``seconds``.

        If none is open it is connected, as far as that takes no longer.
        ``connections`` has what was found. Never raises; ends soon after ``seconds``.
        """
        return

    @property
    def waiting(self) -> int:
        """The number of runs that wait for capacity."""
        return 0

    @property
    def full(self) -> bool:
        """Whether the next run waits, though none waits now."""
        return False

    def when_failed(self, tell: Callable[[str], None]) -> None:
        """Call ``tell`` with the reason, once at most, if the executor fails by itself.

        It is called in the loop of ``start``, and only between ``start`` and ``close``.
        """
        return

    def when_noticed(self, tell: Callable[[Notice], None]) -> None:
        """Call ``tell`` with what operators are to know and what belongs to no run; as ``when_failed``."""
        return

    def release(self, lease: str) -> None:
        """Release the resources of a conversation that is over; returns at once."""
        return

    async def park(self, timeout_s: float) -> None:
        """Stop what it runs and keep what it loaded, in about ``timeout_s`` seconds: ``start`` may follow.

        Runs in flight must be over or are cancelled by their owner.
        """
        ...

    async def close(self, timeout_s: float) -> None:
        """Release everything, in about ``timeout_s`` seconds; a second call may have a shorter timeout.

        Runs in flight must be over or are cancelled by their owner.
        """
        ...


class SessionHooks(Protocol):
    """Optional methods of an executor, each by itself: notifications of sessions.

    They are looked up by name; each has ``HOOK_SECONDS`` seconds. ``session`` is an id of 32 hex digits,
    the same as in ``ExecutorTurn.session``.
    """

    async def session_opened(self, session: str, metadata: Mapping[str, Any]) -> None:
        """A session begins, or a failed one is reopened. If it raises, there is no session (DR-27)."""
        ...

    async def session_closed(self, session: str, reason: str) -> None:
        """A session has ended, called once; if it raises, that is logged and the session has ended all the
        same.

        ``reason`` is ``closed``, ``expired``, ``reopened``, ``task-complete``, ``task-failed``,
        ``agent-gone``, ``shutdown``, or the caller's own text.
        """
        ...

    async def session_cancelled(self, session: str) -> None:
        """The work in the session was cancelled, its ``run`` too; an exception is logged."""
        ...
