"""A person's conversation with a fleet: two handlers that join its agents for the length of the session."""

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Iterable
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import pallas.contract
from pallas.contract import ConsoleInput, ConsolePrompt
from pallas.executors.typed.payload_conversion import bind_payload, pack_payload
from pallas.executors.typed.typed_handler_loader import Handler, LoadedHandler, check_handler, key_of
from pallas.messaging.delivery import First
from pallas.messaging.messaging_port import Delivery, Emit, HandlerReply, MessageSender
from pallas.model import (
    ANONYMOUS,
    Event,
    Fault,
    FaultType,
    Outcome,
    Principal,
    RunFinished,
    RunStarted,
    TraceContext,
)
from pallas.payloads import PayloadType
from pallas.safe_text import one_line
from pallas.telemetry.log.log_path import log_path
from pallas.telemetry.trace_context import child_of

from .console_handlers import CONSOLE, ROUTER, Console, ConsoleDesk, LineRouter, Seen

if TYPE_CHECKING:
    from pallas.fleet.fleet import Fleet


WEEK: Final = 7 * 86_400.0


class Hosted:
    """A ``HandlerEndpoint`` of that name. It takes a ``kind``; ``known`` are the classes of its replies."""

    is_agent = True
    forwards_freely = False
    timeout = WEEK
    """Seconds: a handler that waits for a person waits long."""
    description = ""

    def __init__(
        self,
        name: str,
        handler: Any,
        kind: type,
        *,
        known: Iterable[type] = (),
        peers: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self.name = self.shown = name
        self.payload = PayloadType.of(kind)
        self._peers = peers
        self._handler: Handler = check_handler(handler, name)
        classes = {key_of(each): each for each in (*known, kind)}
        self._loaded = LoadedHandler(self._handler, kind, self.payload, classes)

    @property
    def peers(self) -> frozenset[str]:
        """The agents it may send to, as of now."""
        return frozenset(self._peers())

    async def invoke(self, delivery: Delivery) -> HandlerReply:
        """As ``HandlerEndpoint.invoke``. It has no time limit here, and raises what its handler raises."""
        returned = await self._handler(bind_payload(delivery.payload, self._loaded), delivery.metadata)
        if returned is None:
            return HandlerReply()
        payload = pack_payload(returned.payload)
        if not isinstance(returned.to, str | None):
            raise Fault(FaultType.INTERNAL, f"{self.name} has no caller to answer")
        return HandlerReply(((returned.to, payload),))

    def ended(self, frame: str) -> None:
        """Do nothing: it stores nothing for a frame."""


MAX_CONSOLES: Final = 100
_CONTRACT: Final = tuple(
    each
    for each in vars(pallas.contract).values()
    if isinstance(each, type) and each.__module__ == pallas.contract.__name__
)


async def hold(
    fleet: "Fleet",
    desk: ConsoleDesk,
    principal: Principal = ANONYMOUS,
    greeting: str = "",
    stop: asyncio.Event | None = None,
) -> None:
    """Hold the conversation until the person leaves (HC-26), in the fleet's loop; shows ``greeting`` first.

    It is one run, whose messages the workbench shows like any other's. If an agent ends without an answer, or
    the run fails (for example at its message limit), the next line begins another run. ``stop`` cancels the
    current question and asks for the next line; cancelling this ends the conversation. Raises Fault when not
    even a line can be read.
    """
    router = LineRouter(
        lambda: _agents(fleet),
        lambda: _status(fleet),
        lambda: fleet.project.default_agent,
        f"{log_path()} says why",
    )
    name = _free(fleet)
    beside = name.replace(CONSOLE, ROUTER, 1)
    console = Console(desk, lambda: router.addressee, beside)
    taken_out = [
        fleet.peers.add(each)
        for each in (
            Hosted(name, console.handle, ConsolePrompt, known=_CONTRACT, peers=lambda: (beside,)),
            Hosted(
                beside,
                router.handle,
                ConsoleInput,
                known=_CONTRACT,
                peers=lambda: (each.name for each in fleet.agents),
            ),
        )
    ]
    try:
        while True:
            lines = console.lines
            try:
                outcome = await _run(fleet, name, greeting, principal, stop)
            except Fault as fault:
                if console.left or console.lines == lines:
                    raise
                greeting = f"{fault.type.value.lower()}: {fault.message}"
                continue
            if console.left or console.lines == lines:
                return
            how = "ended without an answer" if outcome == "ok" else "was stopped"
            greeting = f"{router.addressee} {how}"
    finally:
        for take_out in taken_out:
            take_out()


async def _run(
    fleet: "Fleet", name: str, greeting: str, principal: Principal, stop: asyncio.Event | None
) -> Outcome:
    """Run the console once: until the person leaves or stops it, or no handler has anything left to do."""
    run_id, context = uuid.uuid4().hex[:12], child_of(None)
    fleet.hub.publish(_began(run_id, name, context))
    began = perf_counter()
    outcome: Outcome = "cancelled"
    try:
        prompt = PayloadType.of(ConsolePrompt).pack(ConsolePrompt(greeting, "system"))
        asker = MessageSender(run_id, name, principal, context)
        exchange = fleet.messaging.exchange(First(name, prompt, asker, nested=True), _emitting(fleet))
        if await _unless(stop, exchange):
            outcome = "ok"
        return outcome
    except Fault:
        outcome = "error"
        raise
    finally:
        seconds = perf_counter() - began
        fleet.hub.publish(RunFinished(run_id=run_id, agent=name, outcome=outcome, seconds=seconds))


async def _unless(stop: asyncio.Event | None, work: Coroutine[Any, Any, object]) -> bool:
    """Return whether ``work`` ended by itself; ``stop`` cancels it."""
    if stop is None:
        await work
        return True
    stop.clear()
    doing, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({doing, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            return False
        await doing
        return True
    finally:
        for task in (doing, stopped):
            task.cancel()
        await asyncio.gather(doing, stopped, return_exceptions=True)


def _emitting(fleet: "Fleet") -> Emit:
    def emit(event: Event) -> None:
        fleet.hub.publish(event)

    return emit


def _free(fleet: "Fleet") -> str:
    """Return a name for one more console: consoles of a fleet are numbered."""
    names = (CONSOLE, *(f"{CONSOLE}.{number}" for number in range(2, MAX_CONSOLES + 1)))
    found = next((name for name in names if not fleet.peers.endpoints(name)), None)
    if found is None:
        raise Fault(FaultType.TRANSPORT, f"{MAX_CONSOLES} consoles are open; close one")
    return found


def _began(run_id: str, name: str, context: TraceContext) -> RunStarted:
    return RunStarted(
        run_id=run_id,
        agent=name,
        preview="a console",
        trace_id=context.trace_id,
        span_id=context.span_id,
        surface="console",
    )


def _agents(fleet: "Fleet") -> list[Seen]:
    known = {each.name: each.payload for each in fleet.peers.facts([each.name for each in fleet.agents])}
    found = []
    for agent in fleet.agents:
        now = agent.snapshot()
        found.append(
            Seen(
                agent.name,
                agent.config.kind,
                now.availability,
                one_line(agent.config.description, 100),
                known.get(agent.name),
            )
        )
    return found


def _status(fleet: "Fleet") -> str:
    now = fleet.snapshot()
    ready = sum(each.availability != "unavailable" for each in now.agents)
    return f"{now.name} is {now.state.value}: {ready} of {len(now.agents)} agents take messages"
