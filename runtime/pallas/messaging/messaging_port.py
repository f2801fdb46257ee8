"""What messaging needs from its environment: handlers that take messages, and the fleet that has them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pallas.config.kinds import PumpLimits
from pallas.contract import HandlerMetadata
from pallas.invocation import Completer, TodoList
from pallas.model import ANONYMOUS, Event, Image, Params, Principal, RunResult, TraceContext
from pallas.model.tool_rules import ToolAction
from pallas.payloads import Payload, PayloadType

Emit = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class MessageSender:
    """The sender of a run's messages, with which agents of other kinds are asked."""

    run_id: str
    agent: str
    principal: Principal = ANONYMOUS
    trace: TraceContext | None = None
    depth: int = 0
    bearer: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message for a handler."""

    payload: Payload
    metadata: HandlerMetadata
    frame: str
    run_id: str
    seconds: float
    """How long the handler may take."""
    completer: Completer | None = None
    """Asks models for the handler."""
    todos: TodoList | None = None
    """Those of its frame."""


@dataclass(frozen=True, slots=True)
class HandlerReply:
    """A handler's reply: its messages, each with its target (None: its caller).

    It is empty for ``None``. ``raw`` has the bytes that a handler returned; messaging reads messages and
    targets from them (HC-21).
    """

    messages: tuple[tuple[str | None, Payload], ...] = ()
    raw: bytes = b""


class HandlerEndpoint(Protocol):
    """A typed handler that currently takes messages."""

    @property
    def name(self) -> str:
        """The agent's name."""
        ...

    @property
    def shown(self) -> str:
        """The name that others know it by: that of its group if it shares one, else its own."""
        ...

    @property
    def payload(self) -> PayloadType:
        """The payload type it takes."""
        ...

    @property
    def peers(self) -> frozenset[str]:
        """The agents it may send to, besides itself and its caller."""
        ...

    @property
    def forwards_freely(self) -> bool:
        """Whether ``peers`` are all that its file declares, without instructions about them."""
        ...

    @property
    def is_agent(self) -> bool:
        """Whether it is declared with ``agent: true``: it receives its own name."""
        ...

    @property
    def timeout(self) -> float:
        """Seconds for one message."""
        ...

    @property
    def description(self) -> str:
        """What it is good for, for handlers that may send to it."""
        ...

    async def invoke(self, delivery: Delivery) -> HandlerReply:
        """Handle a message; cancelling this cancels the handler.

        The handler is cancelled after ``seconds``, and abandoned if it does not end then. It runs in a copy
        of the context in which the run was begun. Raises Fault: TIMEOUT; UPSTREAM for what it raised, or
        returned that is no answer, without its text; PayloadFault when its reply does not fit its own class
        (which is reported to the sender).
        """
        ...

    def ended(self, frame: str) -> None:
        """Drop the scratch storage of a frame that is over. Returns at once."""
        ...


@dataclass(frozen=True, slots=True)
class PeerFacts:
    """A peer for ``usage_instructions``; ``payload`` is None for one that takes text."""

    name: str
    description: str
    payload: PayloadType | None = None


class MessagingPeers(Protocol):
    """The fleet as messaging sees it; every call returns the present state."""

    @property
    def limits(self) -> PumpLimits:
        """The limits of the project's current files."""
        ...

    def at_once(self, agent: str) -> int:
        """Return how many messages the typed handler of that name handles concurrently (HC-31)."""
        ...

    @property
    def project(self) -> str:
        """The fleet's name."""
        ...

    def endpoints(self, name: str) -> Sequence[HandlerEndpoint]:
        """Return the typed handlers of that name: several if they share it (``broadcast``), empty if none.

        Raises Fault for one that cannot answer now.
        """
        ...

    @property
    def agents(self) -> int:
        """The number of agents in the fleet, for Boot."""
        ...

    def takers(self, key: str) -> Sequence[HandlerEndpoint]:
        """Return the typed handlers that take this class (``module:Class``), by name; for Boot."""
        ...

    def knows(self, name: str) -> bool:
        """Return whether the fleet has an agent of that name, of any kind."""
        ...

    def facts(self, names: Sequence[str]) -> tuple[PeerFacts, ...]:
        """Return those of them that exist, in this order."""
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
        """Ask an agent of another kind, in a run of its own below ``asker.trace``. Raises Fault.

        ``thread`` is its conversation.
        """
        ...

    def may_send(self, agent: str, to: str, payload: Payload) -> ToolAction:
        """What the rules of ``agent`` say of a message to ``to``."""
        ...

    async def approve(self, agent: str, to: str, text: str, asker: MessageSender, *, frame: str) -> None:
        """Have a person asked whether ``agent`` may send that. Raises Fault (UPSTREAM) if not."""
        ...

    def completer(self, asker: MessageSender, agent: str, thread: str, emit: Emit) -> Completer | None:
        """Return the completer for that handler, None if it has none."""
        ...
