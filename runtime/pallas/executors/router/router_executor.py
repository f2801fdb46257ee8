"""The executor of a router: it chooses one of the fleet's agents, reports why, and passes the turn on to
it."""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from pallas.config import AgentConfig, Project
from pallas.config.kinds import RouterConfig
from pallas.model import (
    Event,
    Fault,
    FaultType,
    LoopMessage,
    Message,
    Principal,
    Rerouted,
    Routed,
    RunContinued,
    RunRequest,
    RunResult,
    ServerMissing,
    StepStarted,
    TextDelta,
    ToolCall,
    ToolEvent,
)
from pallas.model.ids import mint
from pallas.model.run_values import ROUTER
from pallas.routing.choice import Candidate, Choice, choose, resume
from pallas.routing.route_prompt import route_prompt
from pallas.safe_text import one_line
from pallas.telemetry.step_record import begin_call_step
from pallas.telemetry.trace_context import begin_call, current_run

from ..base import Emit, Executor, ExecutorInfo, ExecutorTurn, TurnResult
from ..tool_gate import CallGate

ASK_SECONDS: Final = 60.0
"""Seconds that a model may take to choose an agent; after that the examples decide."""
MAX_KEPT: Final = 10_000
"""The limit of conversations whose agent is remembered; for older ones it is chosen again."""
_CALL: Final = "route"
"""The id of the call of the agent that was chosen."""
_OTHERS: Final = 20
_WHY: Final = 500


class RouterPeers(Protocol):
    """The part of the fleet that a router uses."""

    def candidates(self, agents: Sequence[str], principal: Principal) -> tuple[Candidate, ...]:
        """Return those of ``agents`` that ``principal`` may run, in this order, in their current state."""
        ...

    def serves(self, agent: str) -> bool:
        """Return whether the fleet has that agent."""
        ...

    def vision(self, agent: str) -> bool:
        """Return whether an agent accepts images."""
        ...

    def principal(self, run_id: str) -> Principal:
        """Return the caller of a run in flight."""
        ...

    async def run(self, request: RunRequest, listener: Callable[[Event], None] | None = None) -> RunResult:
        """Run a request at an agent; cancelling it cancels the run. Raises Fault."""
        ...

    def continues(self, agent: str) -> bool:
        """Return whether a run of an agent can go on in the middle."""
        ...

    def repeats(self, agent: str) -> bool:
        """Return whether an agent's own rules let it be asked again."""
        ...

    async def run_durably(
        self,
        turn: ExecutorTurn,
        call_id: str,
        request: RunRequest,
        listener: Callable[[Event], None] | None = None,
    ) -> RunResult:
        """As ``run``, for a call of a durable turn: the same call of a later attempt joins the run."""
        ...

    def end(self, agent: str, session: str, principal: Principal) -> None:
        """End that conversation with an agent."""
        ...


@dataclass(frozen=True, slots=True)
class _Kept:
    """The agent that answers a conversation.

    ``session`` is its conversation with the router, in which it knows ``known`` messages; empty if the
    history has to be sent again. A durable one is a thread.
    """

    agent: str
    principal: Principal
    session: str = ""
    known: int = 0
    is_durable: bool = False


class RouterExecutor(Executor):
    """Answers by running another agent. A conversation stays with the agent that was chosen first.

    The chosen agent runs as if its caller had called it, with the same principal and bearer, in its own run
    below the router's. It continues in one conversation of its own as long as no other agent answers in
    between, so that a worker or a remote server keeps its state. Nothing else of it outlives a turn.
    """

    def __init__(self, project: Project, config: AgentConfig, route: RouterPeers) -> None:
        self._project = project
        self._config = config
        self._reach = route
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    @property
    def _rules(self) -> RouterConfig:
        assert self._config.router is not None
        return self._config.router

    @property
    def _members(self) -> tuple[str, ...]:
        rules = self._rules
        return tuple(dict.fromkeys((*rules.agents, *([rules.fallback] if rules.fallback else ()))))

    @property
    def info(self) -> ExecutorInfo:
        """The combined capabilities of the agents that it chooses among."""
        words = (word for each in self._all() for word in each.capabilities)
        return ExecutorInfo(
            vision=any(self._reach.vision(name) for name in self._members),
            instruction=f"Chooses by {self._rules.by} among {', '.join(self._rules.agents)}.",
            defined=str(self._config.where),
            providers=(),
            names_models=True,
            capabilities=tuple(dict.fromkeys(words)),
            continues=True,
        )

    def _all(self) -> tuple[Candidate, ...]:
        return self._reach.candidates(self._rules.agents, Principal("control:full"))

    async def load(self, *, fresh: bool = False) -> None:
        """Raise Fault (CONFIG) if the fleet does not serve the agents that it names."""
        named = (*self._members, *([self._rules.ask] if self._rules.ask else ()))
        missing = [name for name in named if name not in self._project.agents or not self._reach.serves(name)]
        if missing:
            raise Fault(
                FaultType.CONFIG,
                f"{self._config.where}: {self._config.name} is a router, and this fleet serves it without "
                f"{', '.join(missing)}; serve the whole project",
            )

    async def start(self) -> None:
        """Do nothing: the state of the agents is checked at each turn."""

    async def run(self, turn: ExecutorTurn, emit: Emit) -> TurnResult:
        """Choose an agent, report it, and run it. Its Fault comes back with ``data.routed``."""
        principal = self._reach.principal(turn.run_id)
        choice = self._chosen_before(turn, emit) or await self._choose(turn, principal, emit)
        emit(
            Routed(
                run_id=turn.run_id,
                agent=turn.agent,
                to=choice.agent,
                by=choice.by,
                why=one_line(choice.why, _WHY),
                others=tuple(each.agent for each in choice.others[:_OTHERS]),
            )
        )
        is_durable = await self._keep_choice(turn, choice.agent, emit)
        session, history, is_new = self._session_of(turn, choice.agent, principal, is_durable)
        vision = self._reach.vision(choice.agent)
        request = RunRequest(
            agent=choice.agent,
            text=turn.text,
            images=turn.images,
            principal=principal,
            session=None if is_durable else session or None,
            conversation=session if is_durable else None,
            new_conversation=is_durable and is_new,
            history=history if vision else _without_images(history),
            stream_text=turn.stream_text,
            params=turn.params,
            provider=turn.provider,
            bearer=turn.bearer,
            bearer_lost=turn.bearer_lost,
        )
        await _allowed(turn, choice.agent)
        try:
            hear = _telling(turn, choice.agent, emit)
            result = await self._ask(turn, emit, request, hear, durably=is_durable)
        except Fault as fault:
            raise _told(fault, choice.agent) from fault
        if turn.lease is not None:
            # A run that was joined has a thread of its own.
            name = result.thread if is_durable else session
            self._keep(turn.lease, _Kept(choice.agent, principal, name, len(turn.history) + 2, is_durable))
        said = Message("user", turn.text, turn.images), Message("assistant", result.text)
        return TurnResult(
            texts=result.texts,
            messages=said,
            usage=result.usage.tokens,
            stop_reason=result.stop_reason,
            backend=result.backend,
            notices=result.notices,
        )

    def _chosen_before(self, turn: ExecutorTurn, emit: Emit) -> Choice | None:
        """Return the choice of an earlier attempt, None if nobody was asked then. Raises Fault (UPSTREAM)."""
        if turn.attempt == 1:
            return None
        call = turn.said[-1].calls[0] if turn.said and turn.said[-1].calls else None
        made = turn.nested | turn.unmade
        is_lost = call is not None and call.id not in made and not self._reach.continues(call.name)
        if call is not None and is_lost and not self._reach.repeats(call.name):
            turn.unfinished.check_repeatable(call.name)
        emit(RunContinued(run_id=turn.run_id, agent=turn.agent, attempt=turn.attempt))
        if call is None:
            return None
        return Choice(call.name, "conversation", "it was chosen before the fleet was stopped")

    async def _keep_choice(self, turn: ExecutorTurn, agent: str, emit: Emit) -> bool:
        """Store who is about to be asked; returns whether that agent's run is durable as well."""
        if turn.journal is None:
            return False
        if not turn.said:
            call = ToolCall(_CALL, agent, {})
            emit(LoopMessage(run_id=turn.run_id, agent=turn.agent, role="assistant", text="", calls=(call,)))
            await turn.journal.committed()
        await turn.journal.still_ours()
        return self._reach.continues(agent)

    async def _choose(self, turn: ExecutorTurn, principal: Principal, emit: Emit) -> Choice:
        rules = self._rules
        among = self._reach.candidates(self._members, principal)
        gate = CallGate.of(turn)
        among = tuple(each for each in among if gate.shows(f"agent:{each.id}"))
        if turn.images:
            among = tuple(self._if_it_sees(each) for each in among)
        changed = ""
        if turn.lease is not None and (before := self._kept.get(turn.lease)) is not None:
            found = resume(before.agent, among)
            if isinstance(found, Choice):
                return found
            changed = f"{found}; "
        # If that was forgotten, as after a restart, a conversation's first question finds the same agent.
        begun = turn.lease is not None and not changed
        first = next((each.text for each in turn.history if each.role == "user"), "") if begun else ""
        question = first or turn.text
        listed = tuple(each for each in among if each.id in rules.agents)
        model_answer = None
        if rules.by == "model" and sum(each.status != "unavailable" for each in listed) > 0:
            model_answer = await self._ask_model(question, listed, turn, principal, emit)
        fallback = next((each for each in among if each.id == rules.fallback), None)
        # Off the loop: the first time, the examples of many agents are read.
        choice = await asyncio.to_thread(
            choose, question, listed, by=rules.by, model_answer=model_answer, fallback=fallback
        )
        return replace(choice, why=changed + choice.why) if changed else choice

    def _if_it_sees(self, candidate: Candidate) -> Candidate:
        if candidate.status == "unavailable" or self._reach.vision(candidate.id):
            return candidate
        return replace(candidate, status="unavailable", reason="it takes no images")

    async def _ask_model(
        self, question: str, among: Sequence[Candidate], turn: ExecutorTurn, principal: Principal, emit: Emit
    ) -> str | None:
        """Return the answer of the model that chooses; None if it gives none."""
        able = [each for each in among if each.status != "unavailable"]
        request = RunRequest(
            agent=self._rules.ask, text=route_prompt(question, able), principal=principal, timeout=ASK_SECONDS
        )
        try:
            return (await self._ask(turn, emit, request)).text
        except Fault as fault:
            return f"with an error: {fault.message}"

    async def _ask(
        self,
        turn: ExecutorTurn,
        emit: Emit,
        request: RunRequest,
        listener: Callable[[Event], None] | None = None,
        *,
        durably: bool = False,
    ) -> RunResult:
        """Run another agent as a call of this run, so that their spans are linked."""
        span, call = begin_call(), secrets.token_hex(6)
        run = current_run()
        trace = replace(run.context, span_id=span) if run is not None and span else None
        facts: dict[str, Any] = {
            "run_id": turn.run_id,
            "agent": turn.agent,
            "server": request.agent,
            "tool": "send_message",
            "call_id": call,
            "span_id": span,
        }
        emit(ToolEvent(phase="started", **facts))
        step = begin_call_step("agent", request.agent, {"message": request.text}, call_id=call, span_id=span)
        done = False
        try:
            request = replace(request, trace=trace, caller=f"router {turn.agent}", surface=ROUTER)
            if durably:
                result = await self._reach.run_durably(turn, _CALL, request, listener)
            else:
                result = await self._reach.run(request, listener)
            done = True
            if step is not None:
                step.content([{"type": "text", "text": result.text}])
            return result
        finally:
            if step is not None:
                step.finish("done" if done else "failed")
            emit(ToolEvent(phase="completed" if done else "failed", **facts))

    def _session_of(
        self, turn: ExecutorTurn, agent: str, principal: Principal, is_durable: bool
    ) -> tuple[str, tuple[Message, ...], bool]:
        """Return the conversation in which the chosen agent answers, the messages that it needs to get, and
        whether it is new.

        Until it has answered it counts as knowing nothing: after a failure its state is unknown.
        """
        history = tuple(turn.history)
        if turn.lease is None:
            return "", history, True
        before = self._kept.get(turn.lease)
        self._keep(turn.lease, _Kept(agent, principal))
        if before is not None and before.session:
            goes_on = (before.agent, before.known, before.is_durable) == (agent, len(history), is_durable)
            if goes_on:
                return before.session, (), False
        if before is not None:
            self._end(before)
        return mint() if is_durable else f"router-{secrets.token_hex(16)}", history, True

    def _keep(self, lease: str, session: _Kept) -> None:
        self._kept[lease] = session
        self._kept.move_to_end(lease)
        if len(self._kept) > MAX_KEPT:
            self._end(self._kept.popitem(last=False)[1])

    def _end(self, session: _Kept) -> None:
        if session.session and not session.is_durable:
            self._reach.end(session.agent, session.session, session.principal)

    def release(self, lease: str) -> None:
        """Forget the agent of a conversation that is over."""
        if (session := self._kept.pop(lease, None)) is not None:
            self._end(session)

    async def park(self, timeout_s: float) -> None:
        """Do nothing: it runs nothing."""

    async def close(self, timeout_s: float) -> None:
        """Forget the agents of all conversations."""
        while self._kept:
            self._end(self._kept.popitem()[1])


async def _allowed(turn: ExecutorTurn, agent: str) -> None:
    """Ask a person where the router's rules say so. Raises Fault (UPSTREAM) if the agent is not asked."""
    call = f"agent:{agent}"
    if refusal := await CallGate.of(turn).refusal([call], {"message": turn.text}, _CALL):
        raise Fault(FaultType.UPSTREAM, refusal, data={"routed": agent})


def _telling(turn: ExecutorTurn, agent: str, emit: Emit) -> Callable[[Event], None]:
    """Return a listener that passes the chosen agent's text on as the router's; its steps stay its own."""

    def hear(event: Event) -> None:
        if isinstance(event, TextDelta):
            actor = "" if event.actor in ("", agent) else event.actor
            emit(replace(event, seq=0, run_id=turn.run_id, agent=turn.agent, actor=actor))
        elif isinstance(event, StepStarted | Rerouted | ServerMissing):
            emit(replace(event, seq=0, run_id=turn.run_id, agent=turn.agent))

    return hear


def _told(fault: Fault, agent: str) -> Fault:
    data: Mapping[str, Any] = {**fault.data, "routed": fault.data.get("routed", agent)}
    return Fault(
        fault.type, fault.message, retryable=fault.retryable, code=fault.code, data=data, cause=fault.cause
    )


def _without_images(history: Sequence[Message]) -> tuple[Message, ...]:
    return tuple(replace(each, images=()) if each.images else each for each in history)
