"""The fleet as the pump of its messages sees it: who there is, and asking those that take text."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final

from pallas.config import Project
from pallas.config.kinds import PumpLimits, TypedConfig
from pallas.executors.nested_events import NestedEvents
from pallas.executors.tool_gate import CallGate
from pallas.executors.typed.typed_executor import TypedExecutor
from pallas.invocation import Completer, Completion, LLMResponse
from pallas.messaging.messaging_port import (
    Delivery,
    Emit,
    HandlerEndpoint,
    HandlerReply,
    MessageSender,
    PeerFacts,
)
from pallas.messaging.payload_fit import text_of
from pallas.model import NO_PARAMS, Fault, FaultType, Image, Params, RunRequest, RunResult, Usage
from pallas.model.tool_rules import ToolAction
from pallas.payloads import Payload, PayloadType
from pallas.runs.outcomes import what_answers
from pallas.runs.run_people import RunPeople

from .agent import FleetAgent
from .context import FleetContext
from .cycles import waiting_above

if TYPE_CHECKING:
    from pallas.llm.llm_service import LlmService

_REFUSED: Final = "there is no such peer"


class MessagePeers:
    """The ``Peers`` of messages between handlers, over the agents of one fleet. Belongs to its event loop."""

    def __init__(self, context: FleetContext, llms: "Callable[[], LlmService]") -> None:
        self._context = context
        self._llms = llms
        self._added: dict[str, HandlerEndpoint] = {}
        self._tallies: dict[str, _Tally] = {}
        self._listeners: tuple[Project | None, frozenset[str]] = None, frozenset()

    def add(self, endpoint: HandlerEndpoint) -> Callable[[], None]:
        """Deliver messages to that name to ``endpoint``, until the returned function is called.

        Raises Fault (CONFIG) where the name takes messages already.
        """
        name = endpoint.name
        if self.knows(name):
            raise Fault(FaultType.CONFIG, f"{name} takes messages already")
        self._added[name] = endpoint

        def take_out() -> None:
            if self._added.get(name) is endpoint:
                del self._added[name]

        return take_out

    # What the pump asks

    @property
    def limits(self) -> PumpLimits:
        """``messages:`` as the project's files say now."""
        return self._context.project.messages

    def at_once(self, agent: str) -> int:
        """Its own ``capacity``, else ``messages.per_agent``."""
        config = self._context.project.agents.get(agent)
        typed = config.typed if config is not None else None
        return self.limits.per_agent if typed is None else typed.at_once(self.limits)

    @property
    def project(self) -> str:
        """The fleet's name."""
        return self._context.project.name

    @property
    def agents(self) -> int:
        """How many agents the fleet has."""
        return len(self._context.agents.all)

    def endpoints(self, name: str) -> Sequence[HandlerEndpoint]:
        """The typed handlers of that name. Raises Fault where there are some and none of them can answer."""
        if (added := self._added.get(name)) is not None:
            return (added,)
        found: list[HandlerEndpoint] = []
        failure: Fault | None = None
        for agent in self._sharing(name):
            try:
                found.append(self._live(agent))
            except Fault as fault:
                failure = failure or fault
        if failure is not None and not found:
            raise failure
        return found

    def takers(self, key: str) -> Sequence[HandlerEndpoint]:
        """The typed handlers whose payload is the class ``module:Class``, by name; those that answer now."""
        found = [each for each in self._added.values() if each.payload.key == key]
        for agent in self._context.agents.all:
            if (payload := payload_of(agent)) is not None and payload.key == key:
                with suppress(Fault):
                    found.append(self._live(agent))
        return sorted(found, key=lambda each: each.name)

    def knows(self, name: str) -> bool:
        """Whether there is an agent of that name, or several that share it."""
        return name in self._added or self._agent(name) is not None or any(self._sharing(name))

    def facts(self, names: Sequence[str]) -> tuple[PeerFacts, ...]:
        """Those of them that there are; a typed handler that was never loaded is none."""
        return tuple(each for name in names if (each := self._facts(name)) is not None)

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
        """Have an agent of another kind answer, as far as the run's principal may run it.

        Its conversation is over with the answer: each message to a peer has a frame of its own. The caller's
        bearer is passed on only if the asking handler has ``forward_inbound_auth``. Raises Fault.
        """
        found = self._agent(agent)
        if found is None or not self._context.grants.may_run(asker.principal, agent):
            raise Fault(FaultType.UPSTREAM, _REFUSED, data={"system": "routing"})
        own = _typed(self._agent(asker.agent))
        request = RunRequest(
            agent=agent,
            text=text,
            images=images,
            conversation=thread,
            new_conversation=True,
            principal=asker.principal,
            caller=f"handler {sender}",
            trace=asker.trace,
            params=params if params is not None else NO_PARAMS,
            surface="handler",
            sender=sender,
            depth=asker.depth,
            above=waiting_above(self._context, asker.run_id, agent),
            within=asker.run_id,
            bearer=asker.bearer if own is not None and own.forward_inbound_auth else None,
        )
        try:
            return await self._context.kernel.run(request, self._on_event(asker))
        finally:
            self._context.kernel.let_go(found, thread)

    def may_send(self, agent: str, to: str, payload: Payload) -> ToolAction:
        """What the rules of ``agent`` say of a message to ``to``."""
        found = self._agent(agent)
        if found is None or (rules := found.tool_rules).are_empty:
            return "allow"
        return rules.decide(f"agent:{to}", {"message": text_of(payload)}).action

    async def approve(self, agent: str, to: str, text: str, asker: MessageSender, *, frame: str) -> None:
        """Have a person asked whether ``agent`` may send that. Raises Fault (UPSTREAM) if not."""
        found, run = self._agent(agent), self._context.kernel.in_flight.get(asker.run_id)
        if found is None or run is None:
            raise Fault(FaultType.UPSTREAM, "the run that asks is over")
        people = RunPeople(self._context.kernel.questions, run, agent)
        gate = CallGate(found.tool_rules, people, agent=agent, run_id=asker.run_id)
        if refusal := await gate.refusal([f"agent:{to}"], {"message": text}, frame):
            raise Fault(FaultType.UPSTREAM, refusal)

    def completer(self, asker: MessageSender, agent: str, thread: str, emit: Emit) -> Completer | None:
        """What asks models for a handler; its tokens are the run's too."""
        own = _typed(self._agent(agent))
        tally = self._tallies.get(asker.run_id)
        asks = self._llms().completer(
            agent=agent,
            thread=thread,
            run_id=asker.run_id,
            emit=emit,
            prompt=own.prompt if own is not None else "",
            run_agent=asker.agent,
            conversation=tally.conversation if tally is not None else "",
            deadline=monotonic() + own.timeout if own is not None else None,
        )
        return _Counting(asks, tally) if tally is not None else asks

    # What the executor of a run asks

    @contextmanager
    def counting(self, run_id: str, conversation: str) -> Iterator["_Tally"]:
        """What the handlers of a run ask models for in this block is added up, and has the budget of that
        conversation."""
        tally = self._tallies[run_id] = _Tally(conversation)
        try:
            yield tally
        finally:
            del self._tallies[run_id]

    def budget_above(self, run_id: str) -> str:
        """Return the conversation whose budget a run below others uses; empty without one.

        It is that of the next handler above the run, through any models in between: otherwise what a handler
        asks through a model would be free.
        """
        flight = self._context.kernel.in_flight
        while (run := flight.get(run_id)) is not None and (run_id := run.within):
            if (tally := self._tallies.get(run_id)) is not None:
                return tally.conversation
        return ""

    # How it is done

    def _on_event(self, asker: MessageSender) -> NestedEvents | None:
        """Return the listener that passes events of the asked run to the run that asks."""
        run = self._context.kernel.in_flight.get(asker.run_id)
        if run is None:
            return None
        return NestedEvents(
            run.id, run.agent, asker.trace.span_id if asker.trace is not None else "", run.emit
        )

    def _agent(self, name: str) -> FleetAgent | None:
        return self._context.agents.get(name)

    def _sharing(self, name: str) -> Iterable[FleetAgent]:
        """The typed handlers of that name, or of that group."""
        own = _typed(found := self._agent(name))
        if found is not None and (own is None or not own.group):
            return (found,) if own is not None else ()
        return [
            agent
            for agent in self._context.agents.all
            if (typed := _typed(agent)) is not None and name in (agent.name, typed.group)
        ]

    def _live(self, agent: FleetAgent) -> HandlerEndpoint:
        executor = what_answers(agent)
        assert isinstance(executor, TypedExecutor)
        config = agent.config
        is_free = config.typed is not None and config.typed.forwards_freely
        return _Live(
            executor=executor,
            name=agent.name,
            shown=executor.shown,
            payload=executor.payload,
            peers=self._of_the_organism() if is_free else frozenset(config.peers),
            forwards_freely=is_free,
            is_agent=executor.is_agent,
            timeout=executor.timeout,
            description=config.description,
        )

    def _of_the_organism(self) -> frozenset[str]:
        """The listeners of the project's organism.yaml, and the names that several of them share."""
        project = self._context.project
        if self._listeners[0] is not project:
            typed = {name: each.typed for name, each in project.agents.items() if each.typed is not None}
            listeners = {name: each for name, each in typed.items() if each.listener}
            groups = {each.group for each in listeners.values() if each.group}
            self._listeners = project, frozenset(listeners.keys() | groups)
        return self._listeners[1]

    def _facts(self, name: str) -> PeerFacts | None:
        if (added := self._added.get(name)) is not None:
            return PeerFacts(name, added.description, added.payload)
        for agent in self._sharing(name):
            if (payload := payload_of(agent)) is not None:
                return PeerFacts(name, agent.config.description, payload)
        found = self._agent(name)
        if found is None or _typed(found) is not None:
            return None
        return PeerFacts(name, found.config.description)


@dataclass(slots=True)
class _Tally:
    """What the handlers of one run used; ``conversation`` has the budget of all of them."""

    conversation: str = ""
    prompt: int = 0
    completion: int = 0
    asked_model: bool = False

    @property
    def usage(self) -> Usage:
        """All of it; nothing is known where no model was asked."""
        return Usage(self.prompt, self.completion) if self.asked_model else Usage()


class _Counting:
    """Asks as another one does, and counts."""

    def __init__(self, asks: Completer, tally: _Tally) -> None:
        self._asks = asks
        self._tally = tally

    async def complete(self, completion: Completion) -> LLMResponse:
        """Raises Fault."""
        response = await self._asks.complete(completion)
        tally = self._tally
        tally.asked_model = True
        tally.prompt += response.usage.prompt
        tally.completion += response.usage.completion
        return response


@dataclass(frozen=True, slots=True)
class _Live:
    """A typed handler as its agent's files say now, which may differ from what its code was loaded with."""

    executor: TypedExecutor
    name: str
    shown: str
    payload: PayloadType
    peers: frozenset[str]
    forwards_freely: bool
    is_agent: bool
    timeout: float
    description: str

    async def invoke(self, delivery: Delivery) -> HandlerReply:
        """As ``HandlerEndpoint.invoke``."""
        return await self.executor.invoke(delivery)

    def ended(self, frame: str) -> None:
        """As ``HandlerEndpoint.ended``."""
        self.executor.ended(frame)


def payload_of(agent: FleetAgent) -> PayloadType | None:
    """What an agent takes, None where that is text or not known."""
    return agent.executor.info.payload if agent.executor is not None else None


def _typed(agent: FleetAgent | None) -> TypedConfig | None:
    own = agent.config.handler if agent is not None else None
    return own.typed if own is not None else None
