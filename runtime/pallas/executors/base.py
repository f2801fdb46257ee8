"""The one protocol between the kernel and whatever answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pallas.model import (
    ANONYMOUS,
    NO_PARAMS,
    Event,
    Image,
    Message,
    Params,
    ProviderFacts,
    ServerDetail,
    Usage,
)

Emit = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class ExecutorTurn:
    """One message for an executor, with all that it may know.

    ``history`` are the conversation's messages so far, oldest first; ``lease`` names the conversation
    for executors that keep an instance for it, None for a throw-away one. ``thread`` is the id of its thread,
    empty for a throw-away one, and ``handle`` the caller's own name for that, empty without one.
    ``principal`` tells callers apart, ``bearer`` is the caller's token, for this turn only. ``stream_text``:
    the caller hears the text as it is written, so agents further down are asked for theirs. ``params`` are
    those of the run, merged: what is absent is the executor's own default, what is cleared is not sent.
    ``durable``: what is said on the way is kept, so it is told in the executor's own form too. ``provider``
    is the one that the caller chose among the agent's, empty for its default. ``session`` is the id of the
    session that it belongs to, as the ``SessionHooks`` know it, empty without one. ``sender`` and ``depth``
    are as in the request.
    """

    run_id: str
    agent: str
    text: str
    images: tuple[Image, ...] = ()
    history: Sequence[Message] = ()
    lease: str | None = None
    thread: str = field(default="", repr=False)
    handle: str = field(default="", repr=False)
    principal: str = ANONYMOUS.id
    stream_text: bool = False
    params: Params = NO_PARAMS
    durable: bool = False
    provider: str = ""
    session: str = ""
    sender: str = ""
    depth: int = 0
    bearer: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class TurnResult:
    """What came of a turn: ``texts`` in order, and the ``messages`` to add to the conversation.

    ``replaces`` says that the messages stand for the whole conversation: it was compacted. ``backend`` is the
    id of the provider that answered, where there is a choice of them; ``notices`` are told to the caller
    beside the answer, in a line each.
    """

    texts: tuple[str, ...]
    messages: tuple[Message, ...]
    usage: Usage = field(default_factory=Usage)
    stop_reason: str = "endTurn"
    replaces: bool = False
    backend: str = ""
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExecutorInfo:
    """What an executor learned about its agent when it started.

    ``model`` has no provider prefix and is empty where there is none; ``servers`` are the names of
    the downstreams the agent declares; ``keeps_history`` is False for an agent without memory.
    ``instruction`` is what the agent is told, as it was written; ``defined`` where its code or card is,
    relative to the project (``agents/research.py:8``). Both are sanitised. ``children`` are the other agents
    of the same definition. ``providers`` are those that it and its children ask, by the names of their blocks
    in the configuration, None where nobody can tell; ``names_models`` says that none of them goes by the
    project's ``default_model``. ``files`` are those of the project that it was made of, relative to it where
    they are inside; as far as it came, also where ``load`` or ``start`` failed. ``tools`` is what each
    downstream offered when it was started, by server. ``window`` is how many tokens its model takes in at
    once, 0 where only what is declared counts. ``providers_known`` are those that callers may choose among,
    None where there is no choice; ``capabilities`` what it says of itself that it can do; ``capacity`` how
    many runs it takes at a time, 0 for any number. ``payload`` is what a typed handler takes (a PayloadType),
    None for agents that take text.
    """

    model: str = ""
    vision: bool = False
    servers: tuple[str, ...] = ()
    keeps_history: bool = True
    instruction: str = ""
    defined: str = ""
    files: tuple[str, ...] = ()
    children: tuple["Child", ...] = ()
    tools: tuple[ServerDetail, ...] = ()
    providers: tuple[str, ...] | None = None
    names_models: bool = False
    window: int = 0
    providers_known: tuple[ProviderFacts, ...] | None = None
    capabilities: tuple[str, ...] = ()
    capacity: int = 0
    payload: Any = None


@dataclass(frozen=True, slots=True)
class Child:
    """An agent that another one of the same definition works with; the text is sanitised."""

    name: str
    instruction: str = ""
    model: str = ""


class Executor(Protocol):
    """Answers turns of one agent. Its owner calls ``load``, ``start`` and ``close``, once each, in order.

    Between ``start`` and ``close`` it may be parked, and started once more after that. ``close`` is called
    whatever became of the others, also while one of them was cancelled.
    """

    @property
    def pid(self) -> int | None:
        """The process it runs in, None where that is this one."""
        ...

    @property
    def info(self) -> ExecutorInfo:
        """What is known of the agent: after ``load`` all but its tools, which ``start`` finds."""
        ...

    async def load(self, *, fresh: bool = False) -> None:
        """Learn what the agent is, connecting to nothing. Raises Fault (CONFIG) with file and line.

        The fault's ``data`` has the ``place`` (``file:line``) where it is in the project. ``fresh`` reads
        code that was loaded before anew; where that fails, others go on with the old one.
        """
        ...

    async def start(self) -> None:
        """Make ready to answer. Raises Fault (CONFIG) with the reason when the agent cannot be made."""
        ...

    async def run(self, turn: ExecutorTurn, emit: Emit) -> TurnResult:
        """Answer one turn; cancelling it cancels the work behind it. Raises Fault."""
        ...

    def problems(self) -> tuple[str, ...]:
        """Downstreams that could not be reached at the last attempt, by name."""
        ...

    @property
    def waiting(self) -> int:
        """Runs that wait until there is room to answer them."""
        ...

    def when_failed(self, tell: Callable[[str], None]) -> None:
        """``tell`` is called with the reason, once at most, when it can answer no more by itself.

        In the loop it was started in, and only between ``start`` and ``close``.
        """
        ...

    def release(self, lease: str) -> None:
        """Let go of what is kept for a conversation that is over; returns at once."""
        ...

    async def park(self, timeout: float) -> None:
        """Let go of what it runs and keep what it loaded, in about ``timeout`` seconds: ``start`` may follow.

        Runs in flight must be over or are cancelled by their owner.
        """
        ...

    async def close(self, timeout: float) -> None:
        """Let go of everything, in about ``timeout`` seconds; a second call may be in more of a hurry.

        Runs in flight must be over or are cancelled by their owner.
        """
        ...


class SessionHooks(Protocol):
    """What an executor may have besides, each by itself: sessions (SPEC 7.4) are told to it.

    They are looked up by name; each has ``HOOK_SECONDS`` seconds. ``session`` is an id of
    32 hex digits, the same as in ``ExecutorTurn.session``.
    """

    async def session_opened(self, session: str, metadata: Mapping[str, Any]) -> None:
        """A session begins, or one that failed is opened again. Whatever it raises: there is none (DR-27)."""
        ...

    async def session_closed(self, session: str, reason: str) -> None:
        """A session is over, told once; whatever it raises is logged, and it is over all the same.

        ``reason`` is ``closed``, ``expired``, ``reopened``, ``task-complete``, ``task-failed``,
        ``agent-gone``, ``shutdown``, or what the caller said.
        """
        ...

    async def session_cancelled(self, session: str) -> None:
        """What ran in the session was cancelled, its ``run`` too; what it raises is logged."""
        ...
