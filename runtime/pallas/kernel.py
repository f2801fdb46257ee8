"""The kernel: admits a message, finds who answers now, bounds the run, and says what happens.

Surfaces call these verbs and hold no executor, so an executor can be exchanged under them.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final, Protocol

from pallas.conversations import Conversation, Conversations, key_of
from pallas.events import Hub
from pallas.executors import Executor, Turn, TurnResult
from pallas.images import check_images
from pallas.model import (
    AgentState,
    Event,
    Fault,
    FaultType,
    Health,
    Message,
    Outcome,
    Principal,
    RunFinished,
    RunRequest,
    RunResult,
    RunStarted,
    StepStarted,
    ToolEvent,
)
from pallas.text import one_line

log = logging.getLogger(__name__)

MAX_TEXT: Final = 2 * 1024 * 1024
MAX_RUNS: Final = 1_000

Listener = Callable[[Event], None]


class Answering(Protocol):
    """What the kernel asks of an agent that is alive: the fleet's own object offers it."""

    @property
    def name(self) -> str: ...
    @property
    def state(self) -> AgentState: ...
    @property
    def executor(self) -> Executor | None: ...
    @property
    def reason(self) -> str: ...
    async def health(self) -> Health: ...


@dataclass(slots=True)
class _Stats:
    admitted: int = 0
    active: int = 0
    total: int = 0
    last_latency: float | None = None


@dataclass(slots=True)
class _Run:
    id: str
    agent: str
    task: asyncio.Task[RunResult] | None = None
    steps: int = 0
    tools: int = 0
    listener: Listener | None = None
    stats: _Stats = field(default_factory=_Stats)


class Kernel:
    """list, health, open, run, cancel, close over the agents of one fleet. One event loop only."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._agents: dict[str, Answering] = {}
        self._conversations: dict[str, Conversations] = {}
        self._stats: dict[str, _Stats] = {}
        self._runs: dict[str, _Run] = {}
        self._closing = False

    def attach(self, agent: Answering) -> None:
        """Make an agent known; its conversations outlive whatever executor answers for it."""
        self._agents[agent.name] = agent
        self._conversations.setdefault(agent.name, Conversations())
        self._stats.setdefault(agent.name, _Stats())

    def stats(self, agent: str) -> tuple[int, int, int, float | None]:
        """Runs active, waiting for their conversation, in total, and the last one's seconds."""
        stats = self._stats[agent]
        active = stats.active
        return active, max(0, stats.admitted - active), stats.total, stats.last_latency

    def list(self) -> tuple[str, ...]:
        """Names of the agents, in the order of the project."""
        return tuple(self._agents)

    async def health(self, agent: str) -> Health:
        """The agent's health, never older than ten seconds, never asking a model."""
        return await self._agent(agent).health()

    def open(
        self, agent: str, handle: str | None, session: str | None, principal: Principal
    ) -> Sequence[Message]:
        """What was said in a conversation so far, by its handle or its MCP session.

        Raises Fault ("not found").
        """
        self._agent(agent)
        key = key_of(handle, session)
        return self._conversations[agent].find(key, principal).messages if key is not None else ()

    async def run(self, request: RunRequest, listener: Listener | None = None) -> RunResult:
        """One message in, a result out; ``listener`` hears the run's events as they happen.

        Runs of one conversation go one after the other. Cancelling this call cancels the run: the
        model's stream, the tool call and what they wait for. Raises Fault.
        """
        if self._closing:
            raise Fault(FaultType.TRANSPORT, "the fleet is stopping; try again when it is back")
        if len(self._runs) >= MAX_RUNS:
            raise Fault(FaultType.TRANSPORT, f"Server overloaded: {MAX_RUNS} runs are in flight")
        if len(request.text) > MAX_TEXT:
            raise Fault(
                FaultType.UPSTREAM, f"the message has {len(request.text)} characters; at most {MAX_TEXT}"
            )
        executor = self._executor(request.agent)
        check_images(request.images, vision=executor.info.vision, model=executor.info.model)
        key = key_of(request.conversation, request.session)
        conversation = self._conversations[request.agent].open(
            key if executor.info.keeps_history else None, request.principal
        )
        run = _Run(secrets.token_hex(6), request.agent, listener=listener, stats=self._stats[request.agent])
        self._runs[run.id] = run
        # The run's own task: a transport that gives up cancels it once, and its clean-up may still wait.
        run.task = asyncio.create_task(self._run(run, request, conversation), name=f"run {run.id}")
        run.task.add_done_callback(lambda _: self._runs.pop(run.id, None))
        try:
            await asyncio.wait({run.task})
        except asyncio.CancelledError:
            run.task.cancel()
            raise
        if run.task.cancelled():
            raise Fault(FaultType.UPSTREAM, "the run was cancelled", data={"cancelled": True})
        return run.task.result()

    def cancel(self, run_id: str) -> bool:
        """Ask a run to stop; False when there is none of that id."""
        run = self._runs.get(run_id)
        if run is None or run.task is None:
            return False
        return run.task.cancel()

    async def close(self, timeout: float = 2.0) -> None:
        """Take no more runs, give those in flight ``timeout`` seconds to end, cancel the rest."""
        self._closing = True
        tasks = {run.task for run in self._runs.values() if run.task is not None}
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=timeout)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=1.0)

    async def _run(self, run: _Run, request: RunRequest, conversation: Conversation) -> RunResult:
        began = perf_counter()
        run.stats.admitted += 1
        outcome: Outcome = "error"
        fault = ""
        result: TurnResult | None = None

        def emit(event: Event) -> None:
            if isinstance(event, StepStarted) and event.actor == run.agent:
                run.steps = max(run.steps, event.step)
            elif isinstance(event, ToolEvent) and event.phase == "started" and not event.nested:
                run.tools += 1
            numbered = self._hub.publish(event)
            if run.listener is not None:
                with suppress(Exception):  # a listener that fails is its own problem, never the run's
                    run.listener(numbered)

        emit(
            RunStarted(
                run_id=run.id,
                agent=run.agent,
                preview=one_line(request.text, 120),
                images=len(request.images),
                # A handle opens its conversation: no more of it is shown than tells two apart.
                conversation=one_line(request.conversation or "", 9),
            )
        )
        try:
            async with conversation.turn():
                # Asked only now: while this run waited, the executor may have been exchanged.
                executor = self._executor(run.agent)
                run.stats.active += 1
                try:
                    began = perf_counter()
                    result = await executor.run(self._turn(run, request, conversation), emit)
                    self._record(conversation, request, result)
                    outcome = "ok"
                finally:
                    run.stats.active -= 1
            seconds = perf_counter() - began
            return RunResult(
                run_id=run.id,
                texts=result.texts,
                conversation=request.conversation,
                seconds=seconds,
                steps=run.steps,
                tools=run.tools,
                usage=result.usage,
                stop_reason=result.stop_reason,
            )
        except asyncio.CancelledError:
            outcome, fault = "cancelled", "cancelled"
            raise
        except Fault as error:
            fault = one_line(error.message, 300)
            raise
        except Exception as error:
            log.exception("run %s of %s failed", run.id, run.agent)
            fault = f"internal error ({type(error).__name__})"
            raise Fault(
                FaultType.INTERNAL, f"the run failed ({type(error).__name__}); the log has the details"
            ) from error
        finally:
            run.stats.admitted -= 1
            run.stats.total += 1
            seconds = perf_counter() - began
            if outcome == "ok":
                run.stats.last_latency = seconds
            log.info(
                "%s: run %s %s in %.2f s, %d steps, %d tools",
                run.agent,
                run.id,
                outcome,
                seconds,
                run.steps,
                run.tools,
                extra={"agent": run.agent, "run_id": run.id},
            )
            emit(
                RunFinished(
                    run_id=run.id,
                    agent=run.agent,
                    outcome=outcome,
                    seconds=seconds,
                    steps=run.steps,
                    tools=run.tools,
                    tokens_in=result.usage.input_tokens if result else None,
                    tokens_out=result.usage.output_tokens if result else None,
                    fault=fault,
                )
            )

    def _turn(self, run: _Run, request: RunRequest, conversation: Conversation) -> Turn:
        return Turn(
            run_id=run.id,
            agent=run.agent,
            text=request.text,
            images=request.images,
            history=conversation.messages or request.history,
            lease=conversation.key,
            principal=request.principal.id,
            bearer=request.bearer,
        )

    def _record(self, conversation: Conversation, request: RunRequest, result: TurnResult) -> None:
        before = () if result.replaces else (conversation.messages or request.history)
        self._conversations[request.agent].store(conversation, before, result.messages)

    def _agent(self, name: str) -> Answering:
        agent = self._agents.get(name)
        if agent is None:
            raise Fault(FaultType.UPSTREAM, f"Agent not found: {one_line(name, 80)}")
        return agent

    def _executor(self, name: str) -> Executor:
        agent = self._agent(name)
        executor = agent.executor
        if executor is not None and agent.state is AgentState.READY:
            return executor
        if agent.state is AgentState.ERROR:
            raise Fault(FaultType.UPSTREAM, f"{name} cannot answer: {agent.reason}", data={"stage": "start"})
        raise Fault(
            FaultType.TRANSPORT, f"{name} is {agent.state.value}; try again in a moment", retryable=True
        )
