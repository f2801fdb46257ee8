"""What the pump needs of others: a handler that takes a message, and the fleet in which it finds it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pallas.config.kinds import PumpLimits
from pallas.contract import HandlerMetadata
from pallas.invocation import Completer, TodoList
from pallas.model import ANONYMOUS, Event, Image, Params, Principal, RunResult, TraceContext
from pallas.payloads import Payload, PayloadType

Emit = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class MessageSender:
    """On whose behalf a run's messages travel: what agents of other kinds are asked with."""

    run_id: str
    agent: str
    principal: Principal = ANONYMOUS
    trace: TraceContext | None = None
    depth: int = 0
    bearer: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message for a handler. ``seconds`` is what it may take; ``completer`` asks models for it,
    ``todos`` are those of its frame."""

    payload: Payload
    metadata: HandlerMetadata
    frame: str
    run_id: str
    seconds: float
    completer: Completer | None = None
    todos: TodoList | None = None


@dataclass(frozen=True, slots=True)
class HandlerReply:
    """What a handler returned: its messages, each with whom it is for (None: its caller).

    Empty for ``None``. ``raw`` are bytes as a handler returned them: what they say, and to whom, is read by
    the pump (HC-21).
    """

    messages: tuple[tuple[str | None, Payload], ...] = ()
    raw: bytes = b""


class HandlerEndpoint(Protocol):
    """A typed handler that takes messages now."""

    @property
    def name(self) -> str:
        """The agent's name."""
        ...

    @property
    def shown(self) -> str:
        """The name that others know it by: that of its group where it shares one, else its own."""
        ...

    @property
    def payload(self) -> PayloadType:
        """What it takes."""
        ...

    @property
    def peers(self) -> frozenset[str]:
        """Whom it may send to beside itself and its caller."""
        ...

    @property
    def forwards_freely(self) -> bool:
        """Whether ``peers`` are all that its file declares, of whom it is not told."""
        ...

    @property
    def is_agent(self) -> bool:
        """``agent: true``: it is told its own name."""
        ...

    @property
    def timeout(self) -> float:
        """Seconds for one message."""
        ...

    @property
    def description(self) -> str:
        """What it is good for, for those that may send to it."""
        ...

    async def invoke(self, delivery: Delivery) -> HandlerReply:
        """Have it handle a message; cancelling that cancels the handler.

        It is cancelled after ``seconds``, and left to itself where it does not end then. Runs in a context of
        its own, a copy of that in which the run was begun. Raises Fault: TIMEOUT; UPSTREAM for what it raised
        or returned that is no answer, without its text; PayloadFault where what it returned does not fit its
        own class (the sender is told that).
        """
        ...

    def ended(self, frame: str) -> None:
        """A frame of this handler is over: its scratch storage goes. Returns at once."""
        ...


@dataclass(frozen=True, slots=True)
class PeerFacts:
    """A peer as ``usage_instructions`` tell of it; ``payload`` is None for one that takes text."""

    name: str
    description: str
    payload: PayloadType | None = None


class MessagingPeers(Protocol):
    """The fleet as the pump sees it; every call tells how it is now."""

    @property
    def limits(self) -> PumpLimits:
        """As the project's files say now."""
        ...

    def at_once(self, agent: str) -> int:
        """How many messages the typed handler of that name handles at a time (HC-31)."""
        ...

    @property
    def project(self) -> str:
        """The fleet's name."""
        ...

    def endpoints(self, name: str) -> Sequence[HandlerEndpoint]:
        """The typed handler of that name, several where they share it (``broadcast``); none if there is none.

        Raises Fault where there is one that cannot answer now.
        """
        ...

    @property
    def agents(self) -> int:
        """How many agents the fleet has, for Boot."""
        ...

    def takers(self, key: str) -> Sequence[HandlerEndpoint]:
        """The typed handlers that take this class (``module:Class``), by name; for Boot."""
        ...

    def knows(self, name: str) -> bool:
        """Whether the fleet has an agent of that name, of whichever kind."""
        ...

    def facts(self, names: Sequence[str]) -> tuple[PeerFacts, ...]:
        """Those of them that there are, in this order."""
        ...

    async def ask(
        self,
        agent: str,
        text: str,
        asker: MessageSender,
        *,
        sender: str,
        thread: str,
        images: tuple[Image, ...] = (),
        params: Params | None = None,
    ) -> RunResult:
        """Have an agent of another kind answer, in a run of its own below ``asker.trace``; ``thread`` is its
        conversation. Raises Fault."""
        ...

    def completer(self, asker: MessageSender, agent: str, thread: str, emit: Emit) -> Completer | None:
        """What asks models for that handler, None where there is none."""
        ...
