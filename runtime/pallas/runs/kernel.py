"""The kernel: admits a message, finds the executor of its agent, bounds the run, and publishes its events.

Surfaces call its methods and hold no executor, so an executor can be exchanged while they work.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Final

from pallas.bounds.images import check_images
from pallas.bounds.sizes import check_said, check_text, fits, too_large
from pallas.executors import Executor, TurnResult
from pallas.executors.live_agent import LiveAgent
from pallas.executors.run_asker import asking
from pallas.limits.spending import Spending
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
    Said,
    TraceContext,
    Usage,
)
from pallas.model.other_workers import CANCEL_RUN, OtherWorkers
from pallas.model.redaction import forget, redact
from pallas.model.refusals import check_provider, draining, stopping, taken_run
from pallas.questions.questions import Questions
from pallas.runs.chat_messages import MessageOverride, read_messages
from pallas.runs.conversations import Conversation, ConversationMemory, Conversations, key_of, minted
from pallas.runs.in_flight import InFlight
from pallas.runs.metering import meter_of
from pallas.runs.outcomes import check_fork, ended, new_run, result_of, started, what_answers
from pallas.runs.run import ActiveRun, Listener, Stats
from pallas.runs.run_people import RunPeople
from pallas.runs.run_recorder import RunRecorder, StepReader
from pallas.runs.session_counts import SessionCounts
from pallas.runs.thread_store import ThreadStore
from pallas.runs.turns import ConversationTurns
from pallas.safe_text import one_line
from pallas.telemetry.context_meter import ContextMeter
from pallas.telemetry.event_hub import EventHub
from pallas.telemetry.step_record import StepRecord, repeat_steps
from pallas.telemetry.trace_context import RunTrace, running
from pallas.telemetry.wire_record import WireRecord

if TYPE_CHECKING:  # the database is imported by a fleet that has one
    from pallas.ledger import Ledger
    from pallas.runs.keyed_runs import KeyedRuns
    from pallas.runs.nested_runs import NestedRuns

log = logging.getLogger(__name__)

MAX_RUNS: Final = 1_000
MAX_DEPTH: Final = 32
"""How deep runs may call each other; it ends agents that ask each other for ever."""
_RUN_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
# Seconds between two sweeps for conversations that expired.
SWEEP_EVERY: Final = 60.0


class Kernel:
    """Runs messages over the agents of one fleet. One event loop only.

    ``wire`` records what runs send and receive; without one nothing is recorded. ``steps`` records what they
    ask models, and what that costs.
    """

    def __init__(
        self, hub: EventHub, clock: Callable[[], float] = monotonic, *,
        wire: WireRecord | None = None, steps: StepRecord | None = None,
    ) -> None:  # fmt: skip
        self._hub = hub
        self.wire = wire
        self.steps = steps or StepRecord()
        self.step_reader = StepReader(self.steps)
        self.context_meter = ContextMeter()
        self._clock = clock
        self._agents: dict[str, LiveAgent] = {}
        self._conversations: dict[str, Conversations] = {}
        self._conversation_memory = ConversationMemory()
        self.recorder: RunRecorder | None = None  # with a ledger
        self._stats: dict[str, Stats] = {}
        self._runs = InFlight()
        self.session_counts = SessionCounts()
        self.questions = Questions(self._runs.chain)
        self._turns = ConversationTurns(self._conversations, self.questions)
        self.others: OtherWorkers | None = None
        self.keyed: KeyedRuns | None = None
        self.nested: NestedRuns | None = None
        self.spending: Spending | None = None
        self.when_resumed: Callable[[ActiveRun], None] = lambda run: None
        self._draining = False
        self._closing = False

    def use_ledger(self, ledger: "Ledger") -> None:
        """Store conversations with a handle or a session in this ledger. Call it before the first run."""
        recorder = self.recorder = RunRecorder(ledger)

        def record_steps(run: ActiveRun) -> None:
            if (steps := self.steps.of(run.id)) is not None:
                recorder.record_steps(run.id, steps)

        self._turns.use_store(ThreadStore(ledger, self._hub, record_steps))
        self.step_reader.ledger = ledger
        self.questions.records = ledger.questions

    async def close_records(self, seconds: float = 2.0) -> None:
        """Write the queued records, within ``seconds``. Call it after ``close``."""
        if self._turns.thread_store is not None and self.recorder is not None:
            await asyncio.gather(self._turns.thread_store.close(seconds), self.recorder.close(seconds))

    def unwritten(self) -> Iterator[RunRecord]:
        """Yield runs that the ledger may not know yet: in flight, or just over."""
        yield from (run.record for run in self._runs if not run.thread)
        if self.recorder is not None:
            yield from self.recorder.unwritten()

    def attach(self, agent: LiveAgent) -> None:
        """Add an agent. Its conversations survive a change of its executor."""
        self._agents[agent.name] = agent
        name = agent.name
        if name not in self._conversations:
            self._conversations[name] = Conversations(
                memory=self._conversation_memory,
                clock=self._clock,
                forgotten=lambda key: self._release(name, key),
            )
        self._stats.setdefault(name, Stats())

    def detach(self, agent: LiveAgent) -> None:
        """Remove an agent, whose runs are over, and its conversations.

        Does nothing if another agent has its name by now.

        Its run statistics are kept for the next agent of this name.
        """
        if self._agents.get(agent.name) is agent:
            del self._agents[agent.name]
            self._conversations.pop(agent.name).close_all()

    def stats(self, agent: str) -> Stats:
        """The agent's run statistics. May be read from any thread."""
        return self._stats[agent]

    def list(self) -> tuple[str, ...]:
        """The names of the agents, in the order of the project."""
        return tuple(self._agents)

    def ready(self, agent: str) -> tuple[LiveAgent, Executor]:
        """The agent of this name and its executor. Raises Fault that says why it cannot answer."""
        self._admit(None)
        found = self.agent(agent)
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
        executor = self.agent(agent).executor
        return executor is not None and executor.info.keeps_history

    async def health(self, agent: str) -> Health:
        """The agent's health, at most ten seconds old. Never asks a model."""
        return await self.agent(agent).health()

    async def open(
        self, agent: str, handle: str | None, session: str | None, principal: Principal
    ) -> Sequence[Message]:
        """The messages of a conversation, by its handle or its MCP session. Raises Fault ("not found")."""
        key = key_of(handle, session)
        if key is None:
            self.agent(agent)
            return ()
        conversation = await self.find(agent, key, handle, principal)
        if self._turns.thread_store is not None:
            again = self.others is not None and not conversation.busy
            await self._turns.thread_store.load(self._conversations[agent], conversation, again=again)
        return conversation.messages

    async def find(self, agent: str, key: str, handle: str | None, principal: Principal) -> Conversation:
        """The conversation for a ``key_of`` a handle or a session. Does not load its messages.

        Raises Fault ("not found") if the agent has none of that key or it is another principal's.
        """
        self.agent(agent)
        return await self._found(agent, key, handle, principal, new=False)

    def forget_thread(self, agent: str, thread: str) -> None:
        """Forget a durable thread that was deleted, and end its runs."""
        if agent in self._conversations:
            self._conversations[agent].drop(thread)
        for run in self._runs.of(agent):
            if run.thread == thread:
                run.cut("its thread was deleted")

    async def run(
        self, request: RunRequest, listener: Listener | None = None, *, place: int | None = None
    ) -> RunResult:
        """Run one message and return its result; ``listener`` gets the run's events as they happen.

        ``place`` is that of a run that waited for its thread in another fleet.

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
        executor = what_answers(self.agent(request.agent))
        check_fork(request, executor)
        check_provider(request.provider, executor.info.providers_known or ())
        shown = (request.images, *(message.images for message in request.history))
        for images in shown if given is None else (given.images, *(each.images for each in given.history)):
            check_images(images, vision=executor.info.vision, model=executor.info.model, agent=request.agent)
        conversation = await self._conversation(request, keeps=executor.info.keeps_history)
        with conversation.held():
            self._admit(request.trace)
            # Sessions and nested runs make their ids themselves.
            if request.run_id and not request.leased and not request.within:
                await self._not_taken(request.run_id)
            run = self._begun(request, given, conversation, listener)
            run.place = place
        if place is not None:
            self.when_resumed(run)
        return await ended(run, request)

    async def resume(
        self, request: RunRequest, record: RunRecord, said: Said, listener: Listener | None = None
    ) -> RunResult:
        """Go on with a run of a thread that another fleet began; as ``run``. Raises Fault."""
        self._admit(None)
        self.agent(request.agent)
        conversations, owner = self._conversations[request.agent], Principal(record.owner)
        name, handle = f"id:{request.conversation or record.thread}", request.conversation or ""
        if request.is_nested:
            conversation = conversations.nested(record.thread, owner, record.thread)
        else:
            conversation = conversations.bind(
                name, record.thread, handle if handle != record.thread else "", owner
            )
        given = read_messages(whole) if (whole := request.params.get("messages")) is not None else None
        run = self._begun(replace(request, run_id=record.id), given, conversation, listener)
        run.go_on(record, said)
        self.when_resumed(run)
        return await ended(run, request)

    def serves(self, agent: str) -> bool:
        """Whether this fleet has an agent of that name."""
        return agent in self._agents

    def knows(self, run_id: str) -> bool:
        """Whether a run is in flight, or its end is still to be written."""
        store = self._turns.thread_store
        return self._runs.knows(run_id) or (store is not None and store.owes(run_id))

    @property
    def takes_runs(self) -> bool:
        """Whether the fleet neither drains nor stops."""
        return not (self._draining or self._closing)

    def _begun(
        self,
        request: RunRequest,
        given: MessageOverride | None,
        conversation: Conversation,
        listener: Listener | None,
    ) -> ActiveRun:
        """Start the run in a task of its own. Its conversation stays in memory until that task is done."""
        run = new_run(
            request, self._hub, self._stats[request.agent], listener, given=given, thread=conversation.thread
        )
        run.caused_by = request.within or self._runs.caller_of(request.trace)
        run.leaves_when_parked = self._draining or self._closing
        # A task of its own: a transport that gives up cancels it once, and its clean-up may still wait.
        task = run.start(self._run(run, request, conversation))
        conversation.hold(task)
        self._runs.add(run)
        if bearer := request.bearer:  # a downstream may repeat it in an error: masked while the run lasts
            redact(bearer)
            task.add_done_callback(lambda _: forget(bearer))
        return run

    def cancel(self, run_id: str) -> bool:
        """Cancel a run, here or in another worker process; False if it is not here. Its text is kept."""
        run = self._runs.get(run_id)
        if run is None and self.others is not None:
            self.others.tell(CANCEL_RUN, run_id)
        if run is None and self._turns.thread_store is not None:  # or in a fleet on another machine
            self._turns.thread_store.ask_cancel(run_id)
        return run is not None and run.cut()

    @property
    def in_flight(self) -> InFlight:
        """The runs that are not over."""
        return self._runs

    def refuse(self, *, hand_over: bool = False) -> None:
        """Begin to drain: refuse new runs, except those that runs in flight ask for.

        With ``hand_over`` durable runs end after their current step, and another fleet goes on with them;
        those that wait for a person end at once in any case.
        """
        self._draining = True
        for run in self._runs:
            run.is_leaving = run.is_leaving or hand_over
            run.leave_parked()

    async def close(self, timeout_s: float = 2.0, *, grace_s: float = 1.0) -> int:
        """Refuse new runs, give those in flight ``timeout_s`` seconds to end, then cancel the rest.

        Returns how many were cancelled. Their callers get a Fault within ``grace_s`` seconds.
        """
        self._closing = True
        for run in self._runs:
            run.leave_parked()
        late = await self._runs.wait_ended(timeout_s)
        await self._runs.cut(late, "the fleet is stopping", grace_s)
        self.context_meter.close()
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
            await self.questions.tidy()

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
        if key is not None and request.is_nested:
            assert request.conversation is not None
            return self._conversations[request.agent].nested(request.conversation, request.principal)
        if key is None:
            return self._conversations[request.agent].open(None, request.principal)
        handle = None if request.new_conversation else request.conversation
        # A handle that Pallas made is known, or it expired: its caller must not silently begin a new one.
        new = request.new_conversation or not minted(request.conversation)
        # A session has the name that it was given before its first message.
        if request.new_conversation and not request.leased:
            found = self._conversations[request.agent].open(key, request.principal, new=True)
        else:
            found = await self._found(request.agent, key, handle, request.principal, new=new)
        # Sessions between agents of the fleet get no thread.
        found.durable = request.conversation is not None or not self._runs.has_call(request.trace)
        return found

    async def _found(
        self, agent: str, key: str, handle: str | None, principal: Principal, *, new: bool
    ) -> Conversation:
        """The conversation of that name, in memory or in the ledger. Raises Fault ("not found")."""
        conversations, threads = self._conversations[agent], self._turns.thread_store
        if threads is not None and key not in conversations:
            await threads.recall(conversations, agent, key, handle, principal, new=new)
        return conversations.open(key, principal, new=new)

    async def _run(self, run: ActiveRun, request: RunRequest, conversation: Conversation) -> RunResult:
        run.stats.admitted += 1
        assert run.context is not None
        trace = RunTrace(
            run.id,
            run.agent,
            run.context,
            self.wire.open(run.id) if self.wire is not None else None,
            self.steps.open(run.id, conversation.key or run.id, run.steps_before, run.tell_step),
            meter_of(self.spending, run, request, self._runs),
        )
        run.recorded = trace.steps
        with running(trace), asking(RunPeople(self.questions, run)):
            run.emit(started(run, request, run.context, conversation.thread))
            repeat_steps(() if run.fork is None else run.fork.steps)
            return await self._run_traced(run, request, conversation)

    async def _run_traced(self, run: ActiveRun, request: RunRequest, conversation: Conversation) -> RunResult:
        outcome: Outcome = "error"
        fault, usage, partial = "", Usage(), ""
        texts: tuple[str, ...] = ()
        try:
            result = await self._turns.in_order(self._ready, run, request, conversation)
            usage = result.usage
            done = await self._result(run, request, conversation, result)
            outcome, texts = "ok", done.texts
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
            self.context_meter.note(run.agent, run.version.number if run.version else 0, run.recorded)
            self._runs.add_cost(run, usage)
            if run.before is not None and not run.goes_on_elsewhere:
                self.questions.end_run(run.id)
            if self.recorder is not None:
                self.recorder.record_end(run, request, outcome, fault, usage, run.recorded, texts)

    async def _result(
        self, run: ActiveRun, request: RunRequest, conversation: Conversation, result: TurnResult
    ) -> RunResult:
        done = result_of(run, request, result)
        if fits(done.text):
            return done
        handle = request.conversation
        executor = self.agent(run.agent).executor
        if conversation.key is None and executor is not None and executor.info.keeps_history:
            # The caller has no handle to it, and without one the answer would be lost.
            handle = await self._turns.adopt(run, request, conversation, result)
        raise too_large(done.text, handle, is_stored=conversation.key is not None)

    def _admit(self, trace: TraceContext | None) -> None:
        """Raise Fault (TRANSPORT) if the fleet does not take this run any more."""
        if self._closing:
            raise stopping()
        if self._draining and not self._runs.has_call(trace):
            raise draining()

    def _release(self, name: str, key: str) -> None:
        executor = self._agents[name].executor
        if executor is not None:
            executor.release(key)

    def agent(self, name: str) -> LiveAgent:
        """The agent of that name. Raises Fault (UPSTREAM)."""
        agent = self._agents.get(name)
        if agent is None:
            raise Fault(FaultType.UPSTREAM, f"Agent not found: {one_line(name, 80)}")
        return agent

    def _ready(self, name: str) -> tuple[LiveAgent, Executor]:
        found = self.agent(name)
        return found, what_answers(found)
