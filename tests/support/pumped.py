"""A pump with typed handlers in memory: real async functions, real payloads, no fleet."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from typing import Any

from pallas import contract
from pallas.config.kinds import PumpLimits
from pallas.contract import Document, HandlerMetadata, HandlerResponse, Text
from pallas.invocation import Completer
from pallas.messaging.delivery import First, MessageDelivery
from pallas.messaging.messaging_port import (
    Delivery,
    Emit,
    HandlerEndpoint,
    HandlerReply,
    MessageSender,
    PeerFacts,
)
from pallas.model import Event, Fault, FaultType, Image, MessagePassed, Params, RunResult, TraceContext
from pallas.model.tool_rules import ToolAction
from pallas.payloads import Payload, PayloadType

Answers = Callable[[Any, HandlerMetadata], Awaitable[Any]]
Asked = Callable[..., Awaitable[str]]
SECONDS = 60.0


@dataclass
class Ask:
    """What most handlers of the tests take."""

    text: str = ""


@dataclass
class Answer:
    """What most of them answer: no agent takes it."""

    text: str = ""


KNOWN: dict[str, type] = {
    PayloadType.of(kind).key: kind
    for kind in (Ask, Answer, *vars(contract).values())
    if is_dataclass(kind) and isinstance(kind, type) and kind not in (HandlerMetadata, HandlerResponse)
}


def knows(kind: type) -> type:
    """A decorator: handlers of the tests get instances of that class."""
    KNOWN[PayloadType.of(kind).key] = kind
    return kind


class Handler:
    """A typed handler in memory: ``got`` are its messages, ``seen`` their metadata."""

    def __init__(
        self,
        name: str,
        answers: Answers,
        *,
        takes: type = Ask,
        peers: Sequence[str] = (),
        agent: bool = False,
        timeout: float = 30.0,
        description: str = "",
        shown: str = "",
    ) -> None:
        assert inspect.iscoroutinefunction(answers)
        self.name = name
        self.shown = shown or name
        self.payload = PayloadType.of(takes)
        self.takes = takes
        self.peers = frozenset(peers)
        self.is_agent = agent
        self.forwards_freely = False
        self.timeout = timeout
        self.description = description
        self.answers = answers
        self.got: list[Any] = []
        self.seen: list[HandlerMetadata] = []
        self.running = 0
        self.most = 0
        self.over: list[str] = []
        self.scratch: dict[str, dict[str, Any]] = {}

    async def invoke(self, delivery: Delivery) -> HandlerReply:
        kind = KNOWN.get(delivery.payload.key)
        payload = (
            delivery.payload.type.bind(delivery.payload, kind)
            if kind is not None
            else Document(delivery.payload.name, delivery.payload.xml.decode())
        )
        self.got.append(payload)
        self.seen.append(delivery.metadata)
        self.scratch.setdefault(delivery.frame, {})
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            said = await self.answers(payload, delivery.metadata)
        except Fault:
            raise
        except Exception as error:
            raise Fault(FaultType.UPSTREAM, f"{self.name} failed; the log says why") from error
        finally:
            self.running -= 1
        if said is None:
            return HandlerReply()
        if isinstance(said, bytes):
            return HandlerReply(raw=said)
        if not isinstance(said, HandlerResponse):
            raise Fault(FaultType.UPSTREAM, f"{self.name} returned what is no answer")
        return HandlerReply(((said.to, PayloadType.of(type(said.payload)).pack(said.payload)),))

    def ended(self, frame: str) -> None:
        self.over.append(frame)
        self.scratch.pop(frame, None)


@dataclass
class Asking:
    """One question to an agent of another kind."""

    agent: str
    text: str
    asker: MessageSender
    sender: str
    thread: str


@dataclass
class Neighbours:
    """As ``Peers``: the handlers of a test, and agents of other kinds that answer text."""

    handlers: dict[str, Handler] = field(default_factory=dict)
    others: dict[str, Asked] = field(default_factory=dict)
    limits: PumpLimits = field(default_factory=PumpLimits)
    project: str = "tests"
    asked: list[Asking] = field(default_factory=list)
    down: dict[str, Fault] = field(default_factory=dict)
    own_limits: dict[str, int] = field(default_factory=dict)

    def at_once(self, agent: str) -> int:
        return self.own_limits.get(agent, self.limits.per_agent)

    @property
    def agents(self) -> int:
        return len(self.handlers) + len(self.others)

    def endpoints(self, name: str) -> Sequence[HandlerEndpoint]:
        if name in self.down:
            raise self.down[name]
        return [each for each in self.handlers.values() if name in (each.name, each.shown)]

    def takers(self, key: str) -> Sequence[HandlerEndpoint]:
        return [each for each in self.handlers.values() if each.payload.key == key]

    def knows(self, name: str) -> bool:
        return name in self.others or bool(self.endpoints(name))

    def facts(self, names: Sequence[str]) -> tuple[PeerFacts, ...]:
        found: list[PeerFacts] = []
        for name in names:
            if name in self.handlers:
                own = self.handlers[name]
                found.append(PeerFacts(name, own.description, own.payload))
            elif name in self.others:
                found.append(PeerFacts(name, f"{name} in words"))
        return tuple(found)

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
        self.asked.append(Asking(agent, text, asker, sender, thread))
        said = await self.others[agent](text)
        return RunResult("r", (said,), thread, 0.0)

    def may_send(self, agent: str, to: str, payload: Payload) -> ToolAction:
        return "allow"

    async def approve(self, agent: str, to: str, text: str, asker: MessageSender, *, frame: str) -> None:
        raise NotImplementedError

    def completer(self, asker: MessageSender, agent: str, thread: str, emit: Emit) -> Completer | None:
        return None


class World:
    """A pump with its neighbours; ``events`` are all that it told."""

    def __init__(
        self,
        *handlers: Handler,
        others: Mapping[str, Asked] | None = None,
        limits: PumpLimits | None = None,
    ) -> None:
        self.peers = Neighbours({each.name: each for each in handlers}, dict(others or {}))
        if limits is not None:
            self.peers.limits = limits
        self.pump = MessageDelivery(self.peers)
        self.events: list[Event] = []
        self._runs = 0

    def __getitem__(self, name: str) -> Handler:
        return self.peers.handlers[name]

    async def send(self, to: str, payload: Any, **more: Any) -> Any:
        """What comes back, as an instance; None where nothing does."""
        said = await asyncio.wait_for(self.raw(to, payload, **more), SECONDS)
        if said is None:
            return None
        kind = KNOWN.get(said.key)
        return said.type.bind(said, kind) if kind is not None else Document(said.name, said.xml.decode())

    async def raw(
        self,
        to: str,
        payload: Any,
        *,
        asker: MessageSender | None = None,
        bearer: str | None = None,
        **more: Any,
    ) -> Payload | None:
        self._runs += 1
        asker = asker or MessageSender(
            run_id=f"run-{self._runs}",
            agent=to,
            trace=TraceContext("1" * 32, f"{self._runs:016x}"),
            bearer=bearer,
        )
        packed = payload if isinstance(payload, Payload) else PayloadType.of(type(payload)).pack(payload)
        return await self.pump.exchange(First(to=to, payload=packed, asker=asker, **more), self.events.append)

    def messages(self, **wanted: Any) -> list[MessagePassed]:
        """The messages that were told, those whose fields are as given."""
        return [
            each
            for each in self.events
            if isinstance(each, MessagePassed)
            and all(getattr(each, name) == value for name, value in wanted.items())
        ]

    def clean(self) -> bool:
        """Whether nothing of any run is left."""
        return not (self.pump.open_frames or self.pump.handling or self.pump.waiting)


async def until(holds: Callable[[], object]) -> None:
    """Until that is so, or the test failed."""
    async with asyncio.timeout(SECONDS):
        while not holds():  # noqa: ASYNC110 - any condition
            await asyncio.sleep(0)


def respond(text: str = "") -> HandlerResponse:
    """An answer."""
    return HandlerResponse.respond(Answer(text))


def to(name: str, text: str = "") -> HandlerResponse:
    """A message."""
    return HandlerResponse(Ask(text), name)


async def echo(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
    """Responds with what it got."""
    return respond(getattr(payload, "text", ""))


async def forever(payload: Any, metadata: HandlerMetadata) -> None:
    """Never returns."""
    await asyncio.Event().wait()


def said(text: str) -> Text:
    """Text, as agents of other kinds take and give it."""
    return Text(text)
