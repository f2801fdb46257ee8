"""A run that begins, with its event; its result, and the Faults for one that is cut short or not taken."""

import asyncio
from time import perf_counter
from typing import Any, Final

from pallas.executors import Executor, TurnResult
from pallas.executors.live_agent import LiveAgent
from pallas.health.public_reasons import for_callers
from pallas.model import AgentState, Fault, FaultType, RunRequest, RunResult, RunStarted, TraceContext
from pallas.model.ids import mint_run
from pallas.model.redaction import redact_head
from pallas.runs.chat_messages import MessageOverride
from pallas.runs.run import ActiveRun, Listener, Stats
from pallas.safe_text import one_line
from pallas.telemetry.event_hub import EventHub
from pallas.telemetry.trace_context import child_of

# Seconds a run has to end after its caller's timeout; the caller waits no longer than that (DR-15).
_LEEWAY: Final = 0.05


def new_run(
    request: RunRequest,
    hub: EventHub,
    stats: Stats,
    listener: Listener | None,
    *,
    given: MessageOverride | None,
    thread: str,
) -> ActiveRun:
    """The run of a request, which is not started yet; ``thread`` is the one that it waits for."""
    run = ActiveRun(
        request.run_id or mint_run(),
        request.agent,
        hub,
        stats,
        listener,
        given=given,
        until=None if request.timeout is None else perf_counter() + request.timeout,
        principal=request.principal,
        above=request.above,
        within=request.within,
        parent_span=request.trace.span_id if request.trace is not None else "",
        surface=request.surface,
        about=thread,
        context=child_of(request.trace),
        left=asyncio.get_running_loop().create_future(),
    )
    run.fork_from(request)
    return run


def started(run: ActiveRun, request: RunRequest, trace: TraceContext, thread: str) -> RunStarted:
    """The event that a run begins, with its span and its thread."""
    return RunStarted(
        run_id=run.id,
        agent=run.agent,
        preview=one_line(redact_head(request.text, 1_000), 120),
        images=len(request.images),
        # A handle opens its conversation: show only enough of it to tell two apart.
        conversation=one_line(request.conversation or "", 9),
        principal=request.principal.fingerprint,
        identity=request.principal.shown,
        caller=request.caller,
        trace_id=trace.trace_id,
        span_id=trace.span_id,
        parent_span=run.parent_span,
        surface=request.surface,
        thread=one_line(thread, 9),
        forked_from=request.fork.run if request.fork is not None else "",
        forked_at=request.fork.step if request.fork is not None else 0,
    )


def result_of(run: ActiveRun, request: RunRequest, result: TurnResult) -> RunResult:
    """The result of a run that was answered."""
    return RunResult(
        run_id=run.id,
        texts=result.texts,
        conversation=request.conversation,
        seconds=run.end_clock(),
        steps=run.steps,
        tools=run.tools,
        usage=(whole := run.priced(result.usage)),
        stop_reason=result.stop_reason,
        thread=run.thread,
        turn_index=run.turn_index,
        backend=result.backend,
        routed=run.routed,
        rerouted=tuple(run.rerouted),
        missing=dict(run.missing),
        notices=result.notices,
        tree=run.below + whole,
    )


def cut_short(run: ActiveRun, request: RunRequest) -> Fault:
    """The Fault for the caller of a run that ended for another reason than its own wish."""
    if (broken := run.broken) is not None:
        data = {**broken.data, **run.rest(request)}
        return Fault(broken.type, broken.message, retryable=broken.retryable, data=data, cause=broken.cause)
    because = f": {run.why}" if run.why else ""
    return Fault(
        FaultType.UPSTREAM,
        f"the run was cancelled{because}",
        data={"cancelled": True, **run.rest(request)},
    )


def check_fork(request: RunRequest, executor: Executor) -> None:
    """Raise Fault (PROTOCOL) if the agent cannot go on where the request says."""
    if request.fork is not None and request.fork.said and not executor.info.continues:
        raise Fault(
            FaultType.PROTOCOL,
            f"step: {request.agent} cannot continue in the middle of a run; ask it the whole question again "
            "(step 1)",
            data={"key": "step"},
        )


def what_answers(agent: LiveAgent) -> Executor:
    """The agent's current executor. Raises Fault that says why there is none and when to try again."""
    executor, name = agent.executor, agent.name
    if executor is not None and agent.state is AgentState.READY:
        return executor
    if agent.state in (AgentState.ERROR, AgentState.CRASH_LOOP):
        stage = "start" if agent.state is AgentState.ERROR else agent.state.value
        # A mistake in its files is CONFIG for callers too: trying again does not help (DR-26).
        kind = FaultType.CONFIG if agent.failure is FaultType.CONFIG else FaultType.UPSTREAM
        text = f"{name} cannot answer: {for_callers(agent.reason)}"
        raise Fault(kind, text, data={"stage": stage}, cause=agent.reason)
    if agent.reason and agent.state in (AgentState.STOPPING, AgentState.STOPPED):
        raise Fault(
            FaultType.UPSTREAM,
            f"{name} is {for_callers(agent.reason)}; start it in the workbench, or start the fleet again",
            data={"stage": "stopped"},
        )
    # While it is being restarted it is not in ``backoff``, and no better time than "a moment" is known.
    again = agent.retry_after if agent.state is AgentState.BACKOFF else None
    seconds = {} if again is None else {"retry_after": round(again + 0.05, 1)}
    why = for_callers(agent.reason)
    what = f"failed ({why})" if agent.state is AgentState.BACKOFF else f"is {agent.state.value}"
    when = f"in {seconds['retry_after']:g} s" if seconds else "in a moment"
    data = {"stage": agent.state.value, **seconds}
    raise Fault(FaultType.TRANSPORT, f"{name} {what}; try again {when}", data=data, cause=agent.reason)


def late(run: ActiveRun, request: RunRequest, seconds: float) -> Fault:
    """The Fault for the caller of a run that took longer than ``seconds`` (TIMEOUT, DR-15)."""
    limit = request.timeout
    if limit is not None and run.seconds_left is not None and run.seconds_left <= 0:
        what = (
            f"the run took longer than the {limit:.3g} s that its caller gave it and was stopped; "
            f"raise timeout"
        )
    else:
        limit = seconds
        what = (
            f"the run took longer than {seconds:g} s and was stopped; ask for less at once, or raise "
            f"run_timeout of {run.agent} in agents.yaml"
        )
    return Fault(FaultType.TIMEOUT, what, data={"limit": limit, **run.rest(request)})


async def ended(run: ActiveRun, request: RunRequest) -> RunResult:
    """Wait for the run's result. Raises Fault. Cancelling this call cancels the run."""
    assert run.task is not None
    assert run.left is not None
    ends: set[asyncio.Future[Any]] = {run.task, run.left}
    timeout = None if run.seconds_left is None else max(0.0, run.seconds_left) + _LEEWAY
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


def _seen(task: asyncio.Task[RunResult]) -> None:
    """Retrieve the exception of a run whose caller no longer waits, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
