"""The kernel: admits a message, finds the executor of its agent, bounds the run, and publishes its events.

Surfaces call its methods and hold no executor, so an executor can be exchanged while they work.
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
from pallas.model.redaction import forget, redact
from pallas.model.refusals import check_provider, taken_run
from pallas.runs.chat_messages import MessageOverride, read_messages
from pallas.runs.conversations import Conversation, Conversations, key_of, minted
from pallas.runs.in_flight import InFlight
from pallas.runs.outcomes import cut_short, started, what_answers
from pallas.runs.run import ActiveRun, Listener, Stats
from pallas.runs.run_recorder import RunRecorder, StepReader
from pallas.runs.session_counts import SessionCounts
from pallas.runs.thread_store import BegunElsewhere, ThreadStore
from pallas.runs.turns import ConversationTurns, late
from pallas.safe_text import one_line
from pallas.telemetry.event_hub import EventHub
from pallas.telemetry.step_record import StepRecord
from pallas.telemetry.trace_context import RunTrace, child_of, running
from pallas.telemetry.wire_record import WireRecord

if TYPE_CHECKING:  # the database is imported by a fleet that has one
    from pallas.ledger import Ledger

log = logging.getLogger(__name__)

MAX_RUNS: Final = 1_000
MAX_DEPTH: Final = 32
"""How deep runs may call each other; it ends agents that ask each other for ever."""
_RUN_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
# Seconds between two sweeps for conversations that expired.
SWEEP_EVERY: Final = 60.0
# Seconds a run has to end after its caller's timeout; the caller waits no longer than that (DR-15).
LEEWAY: Final = 0.05
RETRY_AFTER: Final = 5.0
"""Seconds after which a caller should try again that was refused because the fleet stops."""


class Kernel:
    """Runs messages over the agents of one fleet. One event loop only.

    ``wire`` records what runs send and receive; without one nothing is recorded. ``steps`` records what they
    ask models.
    """

    def __init__(
        self, hub: EventHub, clock: Callable[[], float] = monotonic, *, wire: WireRecord | None = None
    ) -> None:
        self._hub = hub
        self.wire = wire
        self.steps = StepRecord()
        self.step_reader = StepReader(self.steps)
        self._clock = clock
        self._agents: dict[str, LiveAgent] = {}
        self._conversations: dict[str, Conversations] = {}
        self._turns = ConversationTurns(self._conversations)
        self._recorder: RunRecorder | None = None
        self._stats: dict[str, Stats] = {}
        self._runs = InFlight()
        self.session_counts = SessionCounts()
        self._draining = False
        self._closing = False

    def use_ledger(self, ledger: "Ledger") -> None:
        """Store conversations with a handle or a session in this ledger. Call it before the first run."""
        self._turns.use_store(ThreadStore(ledger, self._hub))
        self._recorder = RunRecorder(ledger)
        self.step_reader.ledger = ledger

    async def close_records(self, seconds: float = 2.0) -> None:
        """Write the queued records, within ``seconds``. Call it after ``close``."""
        if self._turns.thread_store is not None and self._recorder is not None:
            await asyncio.gather(self._turns.thread_store.close(seconds), self._recorder.close(seconds))

    def unwritten(self) -> Iterator[RunRecord]:
        """Yield runs that the ledger may not know yet: in flight, or just over."""
        yield from (run.record for run in self._runs if not run.thread)
        if self._recorder is not None:
            yield from self._recorder.unwritten()

    def attach(self, agent: LiveAgent) -> None:
        """Add an agent. Its conversations survive a change of its executor."""
        self._agents[agent.name] = agent
        name = agent.name
        if name not in self._conversations:
            self._conversations[name] = Conversations(
                clock=self._clock, forgotten=lambda key: self._release(name, key)
            )
        self._stats.setdefault(name, Stats())

    def detach(self, agent: LiveAgent) -> None:
        """Remove an agent, whose runs are over, and its conversations.

        Does nothing if another agent has its name by now.

        Its run statistics are kept for the next agent of this name.
        """
        if self._agents.get(agent.name) is agent:
            del self._agents[agent.name]
            del self._conversations[agent.name]

    def stats(self, agent: str) -> Stats:
        """The agent's run statistics. May be read from any thread."""
        return self._stats[agent]

    def list(self) -> tuple[str, ...]:
        """The names of the agents, in the order of the project."""
        return tuple(self._agents)

    def ready(self, agent: str) -> tuple[LiveAgent, Executor]:
        """The agent of this name and its executor. Raises Fault that says why it cannot answer."""
        self._admit(None)
        found = self._agent(agent)
        return found, what_answers(found)

    def conversation(self, agent: str, handle: str) -> Conversation | None:
        """The conversation of that handle if it is in memory, for any principal."""
        known = self._conversations.get(agent)
        return None if known is None else known.peek(f"id:{handle}")

    def let_go(self, agent: LiveAgent, handle: str) -> None:
        """Release what the executor holds for a conversation, unless a run is in it. Its thread stays."""
        found = self.conversation(agent.name, handle)
        if agent.executor is not None and found is not None and found.key is not None and not found.busy:
            agent.executor.release(found.key)

    def remembers(self, agent: str) -> bool:
        """Whether the agent keeps conversations; if so, the handle of a new one is its thread's id."""
        executor = self._agent(agent).executor
        return executor is not None and executor.info.keeps_history

    async def health(self, agent: str) -> Health:
        """The agent's health, at most ten seconds old. Never asks a model."""
        return await self._agent(agent).health()

    async def open(
        self, agent: str, handle: str | None, session: str | None, principal: Principal
    ) -> Sequence[Message]:
        """The messages of a conversation, by its handle or its MCP session. Raises Fault ("not found")."""
        key = key_of(handle, session)
        if key is None:
            self._agent(agent)
            return ()
        conversation = await self.find(agent, key, handle, principal)
        if self._turns.thread_store is not None:
            await self._turns.thread_store.load(self._conversations[agent], conversation)
        return conversation.messages

    async def find(self, agent: str, key: str, handle: str | None, principal: Principal) -> Conversation:
        """The conversation for a ``key_of`` a handle or a session. Does not load its messages.

        Raises Fault ("not found") if the agent has none of that key or it is another principal's.
        """
        self._agent(agent)
        return await self._found(agent, key, handle, principal, new=False)

    def forget_thread(self, agent: str, thread: str) -> None:
        """Forget a durable thread that was deleted, and end its runs."""
        if agent in self._conversations:
            self._conversations[agent].drop(thread)
        for run in self._runs.of(agent):
            if run.thread == thread:
                run.cut("its thread was deleted")

    async def run(self, request: RunRequest, listener: Listener | None = None) -> RunResult:
        """Run one message and return its result; ``listener`` gets the run's events as they happen.

        Runs of one conversation go one after the other. Cancelling this call cancels the run: the model's
        stream, the tool call and what they wait for. Raises Fault.
        """
        self._admit(request.trace)
        if request.depth > MAX_DEPTH:
            raise Fault(
                FaultType.UPSTREAM, f"more than {MAX_DEPTH} agents asked each other, one below the other"
            )
        if len(self._runs) >= MAX_RUNS:
            raise Fault(FaultType.TRANSPORT, f"Server overloaded: {MAX_RUNS} runs are in flight")
        given = read_messages(whole) if (whole := request.params.get("messages")) is not None else None
        question = given or request
        check_said(question.text, images=len(question.images))
        check_text(question.text)
        executor = self._executor(request.agent)
        check_provider(request.provider, [each.id for each in executor.info.providers_known or ()])
        shown = (request.images, *(message.images for message in request.history))
        for images in shown if given is None else (given.images, *(each.images for each in given.history)):
            check_images(images, vision=executor.info.vision, model=executor.info.model, agent=request.agent)
        conversation = await self._conversation(request, keeps=executor.info.keeps_history)
        with conversation.held():
            self._admit(request.trace)
            if request.run_id and not request.leased:  # a session makes its run ids itself
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
        """Start the run in a task of its own. Its conversation stays in memory until that task is done."""
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
        # A task of its own: a transport that gives up cancels it once, and its clean-up may still wait.
        task = run.start(self._run(run, request, conversation))
        conversation.hold(task)
        self._runs.add(run)
        if bearer := request.bearer:  # a downstream may repeat it in an error: masked while the run lasts
            redact(bearer)
            task.add_done_callback(lambda _: forget(bearer))
        return run

    async def _ended(self, run: ActiveRun, request: RunRequest) -> RunResult:
        """Wait for the run's result. Raises Fault. Cancelling this call cancels the run."""
        assert run.task is not None
        assert run.left is not None
        ends: set[asyncio.Future[Any]] = {run.task, run.left}
        timeout = None if run.seconds_left is None else max(0.0, run.seconds_left) + LEEWAY
        try:
            done, _ = await asyncio.wait(ends, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            run.task.cancel()
            raise
        if not done:  # its deadline has cancelled it, but its clean-up takes longer
            run.task.add_done_callback(_seen)
            raise late(run, request, request.timeout or 0.0)
        if run.task.done() and not run.task.cancelled():
            return run.task.result()
        raise cut_short(run, request)

    def cancel(self, run_id: str) -> bool:
        """Cancel a run; False if there is none of that id. Text it has written so far is kept."""
        run = self._runs.get(run_id)
        return run is not None and run.cut()

    @property
    def in_flight(self) -> InFlight:
        """The runs that are not over."""
        return self._runs

    def refuse(self) -> None:
        """Begin to drain: refuse new runs, except those that runs in flight ask for."""
        self._draining = True

    async def close(self, timeout_s: float = 2.0, *, grace_s: float = 1.0) -> int:
        """Refuse new runs, give those in flight ``timeout_s`` seconds to end, then cancel the rest.

        Returns how many were cancelled. Their callers get a Fault within ``grace_s`` seconds.
        """
        self._closing = True
        late = await self._runs.wait_ended(timeout_s)
        await self._runs.cut(late, "the fleet is stopping", grace_s)
        return len(late)

    async def drain(self, agent: str, seconds: float, why: str, on: Executor | None = None) -> None:
        """Wait until the agent has no run in flight; after ``seconds`` cancel the rest and tell them ``why``.

        With ``on`` only the runs that this executor answers count. Cancelled runs get two seconds to end.
        """
        late = await self._runs.wait_ended(seconds, self._runs.of(agent, on))
        await self._runs.cut(late, why, 2.0)

    async def break_off(self, agent: str, fault: Fault, on: Executor) -> None:
        """End the runs of this executor, which broke. Each caller gets ``fault``."""
        await self._runs.break_off(self._runs.of(agent, on), fault, 2.0)

    async def tidy(self) -> None:
        """Sweep at intervals until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_EVERY)
            self.sweep()

    def sweep(self) -> None:
        """Forget the conversations that were not used for a day, and what executors hold for them.

        One that has a run in it, or a run that waits for it, stays.
        """
        for conversations in self._conversations.values():
            conversations.sweep()

    def end_session(self, agent: str, session: str, principal: Principal) -> None:
        """Forget the conversation of a handshake-era session that is over."""
        key = key_of(None, session)
        if key is not None and agent in self._conversations:
            self._conversations[agent].close(key, principal)

    async def _not_taken(self, run_id: str) -> None:
        """Raise Fault (conflict, PROTOCOL) if a run cannot have that id."""
        if not _RUN_ID.fullmatch(run_id):
            raise Fault(FaultType.PROTOCOL, "run_id has 1 to 64 letters, digits, dashes and underscores")
        known = self._turns.thread_store is not None and await self._turns.thread_store.has_run(run_id)
        if known or self._runs.get(run_id) or any(each.id == run_id for each in self.unwritten()):
            raise taken_run()

    async def _conversation(self, request: RunRequest, *, keeps: bool) -> Conversation:
        key = key_of(request.conversation, request.session) if keeps else None
        if key is None:
            return self._conversations[request.agent].open(None, request.principal)
        handle = None if request.new_conversation else request.conversation
        # A handle that Pallas made is known, or it expired: its caller must not silently begin a new one.
        new = request.new_conversation or not minted(request.conversation)
        found = await self._found(request.agent, key, handle, request.principal, new=new)
        # Sessions between agents of the fleet get no thread.
        found.durable = request.conversation is not None or not self._runs.has_call(request.trace)
        return found

    async def _found(
        self, agent: str, key: str, handle: str | None, principal: Principal, *, new: bool
    ) -> Conversation:
        """The conversation of that name, in memory or in the ledger. Raises Fault ("not found")."""
        conversations, threads = self._conversations[agent], self._turns.thread_store
        named = handle or conversations.thread_of(key)
        if threads is not None and named is not None and key not in conversations:
            known = await threads.known(agent, named, principal)
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
            self.steps.open(run.id, conversation.key or run.id),
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
                self._recorder.record_end(run, request, outcome, fault, usage, trace.steps)

    async def _in_turn(self, run: ActiveRun, request: RunRequest, conversation: Conversation) -> TurnResult:
        """Wait for the conversation's turn and answer.

        Continues in its successor if its thread is another.
        """
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
        # Looked up only now: the executor may have been exchanged while this run waited.
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
            # The caller has no handle to it, and without one the answer would be lost.
            handle = await self._turns.adopt(run, request, conversation, result)
        raise too_large(done.text, handle, is_stored=conversation.key is not None)

    def _admit(self, trace: TraceContext | None) -> None:
        """Raise Fault (TRANSPORT) if the fleet does not take this run any more."""
        if self._closing:
            text = "the fleet is stopping; try again when it is back"
        elif self._draining and not self._runs.has_call(trace):
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
    """A new run id."""
    return secrets.token_hex(6)


def _seen(task: asyncio.Task[RunResult]) -> None:
    """Retrieve the exception of a run whose caller no longer waits, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
