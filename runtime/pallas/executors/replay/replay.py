"""A recording that answers in place of models and MCP servers, in one event loop."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from weakref import WeakKeyDictionary

import httpx2
import msgspec

from pallas.executors.model_client.provider_connections import provider_connections
from pallas.model import Fault, FaultType, Recording, Step, StepDetail
from pallas.model.dated_template import DatedTemplate
from pallas.model.server_offer import ServerOffer
from pallas.recordings.event_stream import events_of
from pallas.recordings.first_difference import loaded
from pallas.recordings.nested_runs import RecordedCall
from pallas.recordings.recorded_steps import RecordedSteps, StepRequest
from pallas.recordings.recorded_tools import RecordedTools
from pallas.telemetry.step_record import current_step, enclosing_step
from pallas.telemetry.trace_context import current_run
from pallas.tools_lock.surface import Surface

MAX_SESSIONS: Final = 32
"""Replays that are known at the same time."""
MISS: Final = "replayMiss"
"""The key in the data of a Fault for a request that was not recorded."""
_STREAMS: Final = ("streamGenerateContent", "alt=sse")
REFUSED: Final = "replayRefused"
"""The key in the data of a Fault for a model that may not be asked."""
_CALL: Final = "replayCall"
_JSON, _EVENTS = "application/json", "text/event-stream"


type Admit = Callable[[StepRequest, Step], Awaitable[None]]
"""Called before a model is asked for real what is not in the recording; raises Fault to refuse that."""


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """What is answered from a recording, or from the runs of several in one.

    With ``goes_on`` a request to a model that is not in the recording is made for real. With ``live_models``
    models, workers and remote agents are asked for real, with ``live_tools`` all MCP
    servers and the agents' own functions, else those in ``live_servers``; functions are ``local`` there.
    ``agents_at`` are the servers that are agents of the replay's own fleet, with their URLs there.
    ``offered`` is what servers list by ``tools.lock``; ``asked`` is what changed servers said that they offer
    now. Both replace what was recorded of them. ``answered`` are agents whose questions are answered from the
    recording, whatever their kind. ``is_timed``: answers take as long as they did.
    """

    recording: Recording = field(repr=False)
    live_models: bool = False
    goes_on: bool = False
    live_tools: bool = False
    live_servers: frozenset[str] = frozenset()
    agents_at: Mapping[str, str] = field(default_factory=dict)
    offered: Mapping[str, Surface] = field(default_factory=dict, repr=False)
    asked: Mapping[str, ServerOffer] = field(default_factory=dict, repr=False)
    answered: frozenset[str] = frozenset()
    is_timed: bool = False

    @property
    def asks_models(self) -> bool:
        """Whether a model may be asked for real."""
        return self.live_models or self.goes_on

    def is_live(self, server: str) -> bool:
        """Whether this MCP server is connected for real."""
        return self.live_tools or server in self.live_servers or server in self.agents_at

    def offer(self, server: str, agent: str) -> ServerOffer | None:
        """What a server offers an agent: now, else in the first run of it that says so, else of another."""
        if (asked := self.asked.get(server)) is not None:
            return asked
        runs = sorted(self.recording.runs, key=lambda run: run.agent != agent)
        names = (run.offers.get(server, "") for run in runs)
        return next((found for each in names if (found := self.recording.offers.get(each))), None)

    def of_agent(self, agent: str) -> "ReplayPlan":
        """The plan with the runs of one agent only, for its own process."""
        runs = tuple(replace(run, images=()) for run in self.recording.runs if run.agent == agent)
        return replace(self, recording=replace(self.recording, runs=runs, history=()))


@dataclass(slots=True)
class ReplaySession:
    """One replay of the recorded run: a run with those that it leads to, which have a trace in common.

    ``miss`` is the Fault of the first request that was not recorded. After it requests to models that are not
    recorded have it too: the run went on with the error of a tool. ``asked`` are the steps for which a model
    was asked for real, each as the id of its run and its number.
    """

    steps: RecordedSteps
    miss: Fault | None = None
    asked: set[tuple[str, int]] = field(default_factory=set)
    is_over: bool = True


class Replay:
    """Answers from a recording, in one event loop."""

    def __init__(self, plan: ReplayPlan) -> None:
        self.plan = plan
        self.tools = RecordedTools(plan.recording)
        self.templates: dict[str, tuple[DatedTemplate, ...]] = {}
        """The templates of instructions that name the date, by agent."""
        self.call_of: Callable[[str], RecordedCall | None] = lambda run_id: None
        """The call that led to a run in flight; set by the fleet that has the runs."""
        self.admit: Admit | None = None
        """With a plan that goes on."""
        self._sessions: OrderedDict[str, ReplaySession] = OrderedDict()

    def know(self, agent: str, dated: Iterable[str]) -> None:
        """Know the templates of an agent's instructions that name the date."""
        self.templates[agent] = tuple(map(DatedTemplate, dated))

    def session(self, trace_id: str = "") -> ReplaySession:
        """The replay with that trace, by default that of the current run. A new one has all answers."""
        run = current_run()
        key = trace_id or (run.context.trace_id if run is not None else "")
        found = self._sessions.get(key)
        return found if found is not None else self.begin(key, self.plan.recording)

    def begin(self, trace_id: str, recording: Recording) -> ReplaySession:
        """Begin a replay with that trace, which ``recording`` answers: one of those of the plan."""
        begun = self._sessions[trace_id] = ReplaySession(RecordedSteps(recording))
        while len(self._sessions) > MAX_SESSIONS:
            over = (key for key, each in self._sessions.items() if each.is_over and each is not begun)
            if (key := next(over, None)) is None:
                break
            del self._sessions[key]
        return begun

    def recorded_run(self, run_id: str) -> str:
        """The id of the recorded run that a run of the current replay is bound to; empty for none.

        Binds it, after the runs that wait for it, to the one that the same call led to.
        """
        steps = self.session().steps
        if not steps.bound(run_id) and (call := self.call_of(run_id)) is not None:
            self.recorded_run(call.caller)
            steps.bind_nested(run_id, call)
        return steps.bound(run_id)

    def install(self) -> None:
        """Answer in place of the models and servers of this event loop from now on."""
        _of_loops[asyncio.get_running_loop()] = self
        provider_connections().interceptor = self.answer_model

    def uninstall(self) -> None:
        """Answer no more in this event loop."""
        if current_replay() is self:
            del _of_loops[asyncio.get_running_loop()]
            provider_connections().interceptor = None

    def note(self, fault: Fault, trace_id: str = "") -> None:
        """Remember a miss, also one that another process met, unless there was one before.

        ``trace_id`` is that of the replay, by default that of the current run.
        """
        session = self.session(trace_id)
        if MISS in fault.data and session.miss is None:
            session.miss = fault

    async def answer_model(self, request: httpx2.Request) -> httpx2.Response | None:
        """The recorded answer to a request to a model; None if models are asked for real.

        Raises Fault (CONFIG) for a miss. After one no model is asked for real. What is recorded still has its
        answer: a run that goes on beside the one with the miss is as it was.
        """
        if self.plan.live_models:
            if (miss := self.session().miss) is not None:
                raise miss
            return None
        run, step = current_run(), current_step()
        if run is None or step is None or step.request is None:
            raise Fault(
                FaultType.CONFIG,
                f"replay: a request to {request.url.host} is not a step of a run, and only those "
                f"are recorded",
            )
        value = step.value
        asked = StepRequest(
            run.run_id,
            run.agent,
            "model",
            value.name,
            value.digest,
            step.request.text(),
            (run.run_id, step.number),
            self.templates.get(run.agent, ()),
        )
        found = await self._to_ask(asked, value) if self.plan.goes_on else self._found(asked)
        return _response(found, request, is_timed=self.plan.is_timed) if found is not None else None

    async def answer_call(self, server: str, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The recorded result of a call of a server's tool: as its step has it.

        Raises Fault (CONFIG) for a miss.
        """
        run = current_run()
        if run is None or run.steps is None:
            raise Fault(FaultType.CONFIG, f"replay: a call of {server}/{tool} belongs to no run")
        name = f"{server}__{tool}"
        parts = run.steps.split_call(name, arguments)
        call = enclosing_step(run.steps)
        asked = StepRequest(
            run.run_id,
            run.agent,
            "tool",
            name,
            parts.digest,
            parts.text(),
            (run.run_id, call.number if call is not None else 0),
            tool_use_id=call.outline.tool_use_id if call is not None else "",
        )
        found = self._found(asked)
        if self.plan.is_timed:
            await asyncio.sleep(found.step.seconds or 0.0)
        result = loaded(found.response)
        return result if isinstance(result, dict) else {"content": []}

    async def _to_ask(self, request: StepRequest, step: Step) -> StepDetail | None:
        """The recorded answer to a request to a model; None if the model is to be asked. Raises Fault."""
        self.recorded_run(request.run_id)
        session = self.session()
        if (found := session.steps.find(request)) is not None:
            return found
        await self.let_ask(request, step)
        return None

    async def let_ask(self, request: StepRequest, step: Step, trace_id: str = "") -> None:
        """Note that a model is asked for real, if it may be. Raises Fault (CONFIG) if not.

        ``trace_id`` is that of the replay, by default that of the current run.
        """
        session = self.session(trace_id)
        if self.admit is not None:
            try:
                await self.admit(request, step)
            except Fault as fault:
                session.miss = session.miss or fault
                raise
        session.asked.add((request.run_id, step.number))

    def _found(self, request: StepRequest) -> StepDetail:
        self.recorded_run(request.run_id)
        found = self.session().steps.answer(request)
        if isinstance(found, StepDetail):
            return found
        if request.kind == "model" and (miss := self.session().miss) is not None:
            raise miss
        server = request.name.partition("__")[0]
        side = f"--tools {server}=live" if request.kind == "tool" else "--models live"
        fault = miss_fault(str(found), side, call=request.text if request.kind == "tool" else "")
        self.note(fault)
        raise fault


def miss_fault(why: str, side: str, *, call: str = "") -> Fault:
    """The Fault for a request that was not recorded; ``side`` is the option with which the replay goes on.

    ``call`` is the request of the step of a call.
    """
    text = f"replay: {why}; use {side}, or record the run again"
    return Fault(FaultType.CONFIG, text, data={MISS: True, **({_CALL: call} if call else {})})


def missed_call(fault: Fault | None) -> str:
    """The request of the call that a replay lacked, as its step has it; empty for another fault."""
    return str(fault.data.get(_CALL, "")) if fault is not None else ""


def current_replay() -> Replay | None:
    """The replay of the running event loop; None outside of one."""
    return _of_loops.get(asyncio.get_running_loop()) if _of_loops else None


def replays_models() -> bool:
    """Whether models of the running event loop are answered from a recording."""
    replay = current_replay()
    return replay is not None and not replay.plan.asks_models


def intercepting_replay() -> Replay | None:
    """The replay of the running event loop that sees each request to a model before it is sent."""
    replay = current_replay()
    return replay if replay is not None and not replay.plan.live_models else None


def is_answered(agent: str) -> bool:
    """Whether a replay of the running event loop answers the questions to this agent."""
    replay = current_replay()
    return replay is not None and agent in replay.plan.answered


def is_hurried() -> bool:
    """Whether the running event loop replays models, and no wait for them is worth while."""
    return replays_models() and (replay := current_replay()) is not None and not replay.plan.is_timed


_of_loops: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Replay]] = WeakKeyDictionary()


class _Body(msgspec.Struct):
    stream: bool = False


def _response(detail: StepDetail, request: httpx2.Request, *, is_timed: bool) -> httpx2.Response:
    """The recorded answer as it is sent: a document, or a stream if one is asked for."""
    step, document = detail.step, loaded(detail.response)
    status = (step.attempts[-1].status if step.attempts else None) or 200
    if status < 400 and wants_stream(request):
        pieces, kind = events_of(document), _EVENTS
    else:
        pieces, kind = (document if isinstance(document, str) else detail.response,), _JSON
    first, whole = (step.first_token or 0.0, step.seconds or 0.0) if is_timed else (0.0, 0.0)
    # An error that was final when it was recorded is not tried again.
    headers = {"content-type": kind, **({"x-should-retry": "false"} if status >= 400 else {})}
    stream = _Pieces(pieces, first, max(0.0, whole - first))
    return httpx2.Response(status, headers=headers, stream=stream, request=request)


def wants_stream(request: httpx2.Request) -> bool:
    """Return whether a request to a model asks for a stream of events."""
    if any(mark in str(request.url) for mark in _STREAMS):
        return True
    try:
        return msgspec.json.decode(request.content, type=_Body).stream
    except msgspec.DecodeError:
        return False


class _Pieces(httpx2.AsyncByteStream):
    """Texts, ``first`` seconds late and then over ``rest`` seconds; all at once if both are 0."""

    def __init__(self, pieces: tuple[str, ...], first: float, rest: float) -> None:
        self._pieces = pieces
        self._first = first
        self._rest = rest

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if not self._first and not self._rest:
            yield "".join(self._pieces).encode()
            return
        await asyncio.sleep(self._first)
        for piece in self._pieces:
            yield piece.encode()
            await asyncio.sleep(self._rest / len(self._pieces))
