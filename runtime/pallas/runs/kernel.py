"""The kernel: admits a message, finds who answers now, bounds the run, and says what happens.

Surfaces call these verbs and hold no executor, so an executor can be exchanged under them.
"""

import asyncio
import logging
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, Final

from pallas.bounds.images import check_images
from pallas.bounds.sizes import check_said, check_text, fits, too_large
from pallas.executors import Executor, TurnResult
from pallas.executors.live_agent import LiveAgent
from pallas.model import (
    Fault,
    FaultType,
    Health,
    Message,
    Outcome,
    Principal,
    RunRecord,
    RunRequest,
    RunResult,
    TraceContext,
    Usage,
)
from pallas.model.refusals import check_provider, taken_run
from pallas.model.safe_text import one_line
from pallas.runs.chat_messages import MessageOverride, read_messages
from pallas.runs.conversations import Conversation, Conversations, key_of, minted
from pallas.runs.in_flight import InFlight
from pallas.runs.leases import Leases
from pallas.runs.outcomes import cut_short, started, what_answers
from pallas.runs.run import ActiveRun, Listener, Stats
from pallas.runs.run_recorder import RunRecorder
from pallas.runs.thread_store import BegunElsewhere, ThreadStore
from pallas.runs.turns import ConversationTurns, late
from pallas.telemetry.event_hub import EventHub
from pallas.telemetry.log import forget, redact
from pallas.telemetry.trace_context import RunTrace, child_of, running
from pallas.telemetry.wire_record import WireRecord

if TYPE_CHECKING:  # the database is imported by a fleet that has one
    from pallas.ledger import Ledger

log = logging.getLogger(__name__)

MAX_RUNS: Final = 1_000
MAX_DEPTH: Final = 32
"""Runs of one fleet that may be below each other: agents that ask each other for ever end there."""
_RUN_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
# Seconds between two looks for conversations that expired.
SWEEP_EVERY: Final = 60.0
# What a run has to end once its caller's time is up; the caller waits no longer than that (DR-15).
LEEWAY: Final = 0.05
RETRY_AFTER: Final = 5.0
"""Seconds after which a caller that a fleet on its way out has refused does well to come again."""


class Kernel:
    """list, health, open, run, cancel, close over the agents of one fleet. One event loop only.

    ``wire`` keeps what runs say over the wire; without one nothing is kept.
    """

    def __init__(
        self, hub: EventHub, clock: Callable[[], float] = monotonic, *, wire: WireRecord | None = None
    ) -> None:
        self._hub = hub
        self.wire = wire
        self._clock = clock
        self._agents: dict[str, LiveAgent] = {}
        self._conversations: dict[str, Conversations] = {}
        self._turns = ConversationTurns(self._conversations)
        self._recorder: RunRecorder | None = None
        self._stats: dict[str, Stats] = {}
        self._runs = InFlight()
        self.leases = Leases()
        self._draining = False
        self._closing = False

    def keep_in(self, ledger: "Ledger") -> None:
        """Conversations with a handle or a session are durable there; to be said before the first run."""
        self._turns.keep_in(ThreadStore(ledger, self._hub))
        self._recorder = RunRecorder(ledger)

    async def close_records(self, seconds: float = 2.0) -> None:
        """Write down what is still waiting for that, within so many seconds; after ``close``."""
        if self._turns.keeper is not None and self._recorder is not None:
            await asyncio.gather(self._turns.keeper.close(seconds), self._recorder.close(seconds))

    def unwritten(self) -> Iterator[RunRecord]:
        """Runs that the ledger may not know yet: in flight, or over just now."""
        yield from (run.record for run in self._runs if not run.thread)
        if self._recorder is not None:
            yield from self._recorder.unwritten()

    def attach(self, agent: LiveAgent) -> None:
        """Make an agent known; its conversations outlive whatever executor answers for it."""
        self._agents[agent.name] = agent
        name = agent.name
        if name not in self._conversations:
            self._conversations[name] = Conversations(
                clock=self._clock, forgotten=lambda key: self._release(name, key)
            )
        self._stats.setdefault(name, Stats())

    def detach(self, agent: LiveAgent) -> None:
        """Forget an agent and its conversations, unless another one has its name by now; its runs are over.

        What its runs add up to is kept for one that comes under this name again.
        """
        if self._agents.get(agent.name) is agent:
            del self._agents[agent.name]
            del self._conversations[agent.name]

    def stats(self, agent: str) -> Stats:
        """How the agent's runs add up, to be read from any thread."""
        return self._stats[agent]

    def list(self) -> tuple[str, ...]:
        """Names of the agents, in the order of the project."""
        return tuple(self._agents)

    def ready(self, agent: str) -> tuple[LiveAgent, Executor]:
        """The agent of this name and what answers for it now. Raises Fault that says why nothing does."""
        self._admit(None)
        found = self._agent(agent)
        return found, what_answers(found)

    def conversation(self, agent: str, handle: str) -> Conversation | None:
        """What is known here of the conversation of that handle, whoever asks."""
        known = self._conversations.get(agent)
        return None if known is None else known.peek(f"id:{handle}")

    def let_go(self, agent: LiveAgent, handle: str) -> None:
        """What answers keeps nothing for a conversation any more, unless a run is in it; its thread stays."""
        found = self.conversation(agent.name, handle)
        if agent.executor is not None and found is not None and found.key is not None and not found.busy:
            agent.executor.release(found.key)

    def remembers(self, agent: str) -> bool:
        """Whether the agent's conversations are kept: then the handle of a new one is its thread's id."""
        executor = self._agent(agent).executor
        return executor is not None and executor.info.keeps_history

    async def health(self, agent: str) -> Health:
        """The agent's health, never older than ten seconds, never asking a model."""
        return await self._agent(agent).health()

    async def open(
        self, agent: str, handle: str | None, session: str | None, principal: Principal
    ) -> Sequence[Message]:
        """What was said in a conversation so far, by its handle or its MCP session.

        Raises Fault ("not found").
        """
        key = key_of(handle, session)
        if key is None:
            self._agent(agent)
            return ()
        conversation = await self.find(agent, key, handle, principal)
        if self._turns.keeper is not None:
            await self._turns.keeper.load(self._conversations[agent], conversation)
        return conversation.messages

    async def find(self, agent: str, key: str, handle: str | None, principal: Principal) -> Conversation:
        """The conversation of that ``key_of`` a handle or a session, which is not loaded for it.

        Raises Fault ("not found"): there is none with this agent, or it is another principal's.
        """
        self._agent(agent)
        return await self._found(agent, key, handle, principal, new=False)

    def forget_thread(self, agent: str, thread: str) -> None:
        """A durable thread is deleted: what is known of it here goes too, and runs in it end."""
        if agent in self._conversations:
            self._conversations[agent].drop(thread)
        for run in self._runs.of(agent):
            if run.thread == thread:
                run.cut("its thread was deleted")

    async def run(self, request: RunRequest, listener: Listener | None = None) -> RunResult:
        """One message in, a result out; ``listener`` hears the run's events as they happen.

        Runs of one conversation go one after the other. Cancelling this call cancels the run: the
        model's stream, the tool call and what they wait for. Raises Fault.
        """
        self._admit(request.trace)
        if request.depth > MAX_DEPTH:
            raise Fault(
                FaultType.UPSTREAM, f"more than {MAX_DEPTH} agents asked each other, one below the other"
            )
        if len(self._runs) >= MAX_RUNS:
            raise Fault(FaultType.TRANSPORT, f"Server overloaded: {MAX_RUNS} runs are in flight")
        given = read_messages(whole) if (whole := request.params.get("messages")) is not None else None
        said = given or request
        check_said(said.text, images=len(said.images))
        check_text(said.text)
        executor = self._executor(request.agent)
        check_provider(request.provider, [each.id for each in executor.info.providers_known or ()])
        shown = (request.images, *(message.images for message in request.history))
        for images in shown if given is None else (given.images, *(each.images for each in given.history)):
            check_images(images, vision=executor.info.vision, model=executor.info.model, agent=request.agent)
        conversation = await self._conversation(request, keeps=executor.info.keeps_history)
        with conversation.held():
            self._admit(request.trace)
            if request.run_id and not request.leased:  # a session's was made for it, and is nobody's
                await self._not_taken(request.run_id)
            run = self._begun(request, given, conversation, listener)
        return await self._ended(run, request)

    def _begun(
        self,
        request: RunRequest,
        given: MessageOverride | None,
        conversation: Conversation,
        listener: Listener | None,
    ) -> ActiveRun:
        """The run in flight, in a task of its own: its conversation stays in memory until that is done."""
        run = ActiveRun(
            request.run_id or mint_run(),
            request.agent,
            self._hub,
            self._stats[request.agent],
            listener,
            given=given,
            until=None if request.timeout is None else perf_counter() + request.timeout,
            principal=request.principal,
            above=request.above,
            within=request.within,
            surface=request.surface,
            about=conversation.thread,
            context=child_of(request.trace),
            left=asyncio.get_running_loop().create_future(),
        )
        # The run's own task: a transport that gives up cancels it once, and its clean-up may still wait.
        task = run.start(self._run(run, request, conversation))
        conversation.hold(task)
        self._runs.add(run)
        if bearer := request.bearer:  # a downstream may repeat it in an error: masked while the run lasts
            redact(bearer)
            task.add_done_callback(lambda _: forget(bearer))
        return run

    async def _ended(self, run: ActiveRun, request: RunRequest) -> RunResult:
        """What came of it. Raises Fault. Cancelling this call cancels the run."""
        assert run.task is not None
        assert run.left is not None
        ends: set[asyncio.Future[Any]] = {run.task, run.left}
        patience = None if run.seconds_left is None else max(0.0, run.seconds_left) + LEEWAY
        try:
            done, _ = await asyncio.wait(ends, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            run.task.cancel()
            raise
        if not done:  # it was cancelled in time, and what it does about that takes its own
            run.task.add_done_callback(_seen)
            raise late(run, request, request.timeout or 0.0)
        if run.task.done() and not run.task.cancelled():
            return run.task.result()
        raise cut_short(run, request)

    def cancel(self, run_id: str) -> bool:
        """Ask a run to stop; False when there is none of that id. What it has written so far is kept."""
        run = self._runs.get(run_id)
        return run is not None and run.cut()

    @property
    def in_flight(self) -> InFlight:
        """The runs that are not over."""
        return self._runs

    def refuse(self) -> None:
        """Take no new runs but those that runs in flight ask for: the fleet drains."""
        self._draining = True

    async def close(self, timeout: float = 2.0, *, grace: float = 1.0) -> int:
        """Take no more runs, give those in flight ``timeout`` seconds to end, cancel the rest.

        Returns how many were cancelled; their callers are told within ``grace`` seconds.
        """
        self._closing = True
        late = await self._runs.over(timeout)
        await self._runs.cut(late, "the fleet is stopping", grace)
        return len(late)

    async def drain(self, agent: str, seconds: float, why: str, on: Executor | None = None) -> None:
        """Until no run of the agent is in flight; after ``seconds`` the rest is cancelled and told ``why``.

        With ``on`` only the runs that this executor answers count. Cancelled runs get two seconds to end.
        """
        late = await self._runs.over(seconds, self._runs.of(agent, on))
        await self._runs.cut(late, why, 2.0)

    async def break_off(self, agent: str, fault: Fault, on: Executor) -> None:
        """End the runs that this executor answers: it broke, and each caller is told ``fault``."""
        await self._runs.break_off(self._runs.of(agent, on), fault, 2.0)

    async def tidy(self) -> None:
        """Forget now and then, until cancelled, the conversations that nobody used for a day.

        What was kept for them goes too. One with a run in it, or waiting for it, stays.
        """
        while True:
            await asyncio.sleep(SWEEP_EVERY)
            self.sweep()

    def sweep(self) -> None:
        """Forget the conversations that are too old now."""
        for conversations in self._conversations.values():
            conversations.sweep()

    def end_session(self, agent: str, session: str, principal: Principal) -> None:
        """Forget the conversation of a handshake-era session that is over."""
        key = key_of(None, session)
        if key is not None and agent in self._conversations:
            self._conversations[agent].close(key, principal)

    async def _not_taken(self, run_id: str) -> None:
        """Raises Fault (conflict, PROTOCOL) where a run cannot have that id."""
        if not _RUN_ID.fullmatch(run_id):
            raise Fault(FaultType.PROTOCOL, "run_id has 1 to 64 letters, digits, dashes and underscores")
        known = self._turns.keeper is not None and await self._turns.keeper.has_run(run_id)
        if known or self._runs.get(run_id) or any(each.id == run_id for each in self.unwritten()):
            raise taken_run()

    async def _conversation(self, request: RunRequest, *, keeps: bool) -> Conversation:
        key = key_of(request.conversation, request.session) if keeps else None
        if key is None:
            return self._conversations[request.agent].open(None, request.principal)
        handle = None if request.new_conversation else request.conversation
        # A handle that we made once is known, or it is gone: its caller must not go on unawares.
        new = request.new_conversation or not minted(request.conversation)
        found = await self._found(request.agent, key, handle, request.principal, new=new)
        # What agents of the fleet say to each other over a session of theirs is nobody's thread.
        found.durable = request.conversation is not None or not self._runs.asked_for(request.trace)
        return found

    async def _found(
        self, agent: str, key: str, handle: str | None, principal: Principal, *, new: bool
    ) -> Conversation:
        """The conversation of that name, here or in the ledger. Raises Fault ("not found")."""
        conversations, keeper = self._conversations[agent], self._turns.keeper
        named = handle or conversations.thread_of(key)
        if keeper is not None and named is not None and key not in conversations:
            known = await keeper.known(agent, named, principal)
            if known is not None:
                conversations.bind(key, known.id, known.handle, Principal(known.owner))
        return conversations.open(key, principal, new=new)

    async def _run(self, run: ActiveRun, request: RunRequest, conversation: Conversation) -> RunResult:
        run.stats.admitted += 1
        assert run.context is not None
        trace = RunTrace(
            run.id,
            run.agent,
            run.context,
            self.wire.open(run.id) if self.wire is not None else None,
        )
        with running(trace):
            return await self._run_traced(run, request, conversation, trace)

    async def _run_traced(
        self, run: ActiveRun, request: RunRequest, conversation: Conversation, trace: RunTrace
    ) -> RunResult:
        outcome: Outcome = "error"
        fault, usage, partial = "", Usage(), ""
        run.emit(started(run, request, trace.context, conversation.thread))
        try:
            result = await self._in_turn(run, request, conversation)
            usage = result.usage
            done = await self._result(run, request, conversation, result)
            outcome = "ok"
            return done
        except asyncio.CancelledError:
            outcome, fault, partial = run.cancelled_as, run.ended_by, run.draft.text()
            raise
        except Fault as error:
            partial = str(error.data.get("partial", ""))
            _, fault = run.end_of(error)
            raise
        except Exception as error:
            log.exception("run %s of %s failed", run.id, run.agent)
            _, fault = run.end_of(error)
            raise Fault(
                FaultType.INTERNAL, "the run failed; the log has the details", cause=run.cause
            ) from error
        finally:
            run.finish(outcome, fault, usage, partial)
            if self._recorder is not None:
                self._recorder.over(run, request, outcome, fault, usage)

    async def _in_turn(self, run: ActiveRun, request: RunRequest, conversation: Conversation) -> TurnResult:
        """The answer, when the turn has come: of another conversation, where its name turns out to be one."""
        turn: Conversation | None = conversation
        while turn is not None:
            async with turn.turn(run.seconds_left):
                if turn.successor is None:
                    run.stats.active += 1
                    run.begins()
                    try:
                        return await self._answer(run, request, turn)
                    except BegunElsewhere as other:
                        known = other.thread
                        self._conversations[run.agent].replace(
                            turn, known.id, known.handle, Principal(known.owner)
                        )
                    finally:
                        run.stats.active -= 1
            turn = turn.successor
        raise Fault(FaultType.TRANSPORT, "this conversation was begun elsewhere; send the message again")

    async def _answer(self, run: ActiveRun, request: RunRequest, conversation: Conversation) -> TurnResult:
        # Asked only now: while this run waited, the executor may have been exchanged.
        executor = run.executor = self._executor(run.agent)
        return await self._turns.take(self._agent(run.agent), executor, run, request, conversation)

    async def _result(
        self, run: ActiveRun, request: RunRequest, conversation: Conversation, result: TurnResult
    ) -> RunResult:
        done = RunResult(
            run_id=run.id,
            texts=result.texts,
            conversation=request.conversation,
            seconds=run.seconds,
            steps=run.steps,
            tools=run.tools,
            usage=result.usage,
            stop_reason=result.stop_reason,
            thread=run.thread,
            turn_index=run.turn_index,
            backend=result.backend,
            routed=run.routed,
            rerouted=tuple(run.rerouted),
            missing=dict(run.missing),
            notices=result.notices,
        )
        if fits(done.text):
            return done
        handle = request.conversation
        executor = self._agent(run.agent).executor
        if conversation.key is None and executor is not None and executor.info.keeps_history:
            # Nobody has a handle to it, and without one the answer would be lost.
            handle = await self._turns.adopt(run, request, conversation, result)
        raise too_large(done.text, handle, kept=conversation.key is not None)

    def _admit(self, trace: TraceContext | None) -> None:
        """Raises Fault (TRANSPORT) for a run that the fleet does not take any more."""
        if self._closing:
            text = "the fleet is stopping; try again when it is back"
        elif self._draining and not self._runs.asked_for(trace):
            text = "the fleet is draining: it finishes the runs it has and takes no new ones; try again later"
        else:
            return
        raise Fault(FaultType.TRANSPORT, text, data={"retry_after": RETRY_AFTER})

    def _release(self, name: str, key: str) -> None:
        executor = self._agents[name].executor
        if executor is not None:
            executor.release(key)

    def _agent(self, name: str) -> LiveAgent:
        agent = self._agents.get(name)
        if agent is None:
            raise Fault(FaultType.UPSTREAM, f"Agent not found: {one_line(name, 80)}")
        return agent

    def _executor(self, name: str) -> Executor:
        return what_answers(self._agent(name))


def mint_run() -> str:
    """A new id for a run."""
    return secrets.token_hex(6)


def _seen(task: asyncio.Task[RunResult]) -> None:
    """How it ended interests nobody any more."""
    if not task.cancelled():
        task.exception()
