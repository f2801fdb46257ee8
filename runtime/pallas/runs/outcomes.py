"""The event of a run that begins, and the Faults for one that is cut short or that no agent can take."""

from pallas.executors import Executor
from pallas.executors.live_agent import LiveAgent
from pallas.health.public_reasons import for_callers
from pallas.model import AgentState, Fault, FaultType, RunRequest, RunStarted, TraceContext
from pallas.runs.run import ActiveRun
from pallas.safe_text import one_line


def started(run: ActiveRun, request: RunRequest, trace: TraceContext, thread: str) -> RunStarted:
    """The event that a run begins, with its span and its thread."""
    return RunStarted(
        run_id=run.id,
        agent=run.agent,
        preview=one_line(request.text, 120),
        images=len(request.images),
        # A handle opens its conversation: show only enough of it to tell two apart.
        conversation=one_line(request.conversation or "", 9),
        principal=request.principal.fingerprint,
        identity=request.principal.shown,
        caller=request.caller,
        trace_id=trace.trace_id,
        span_id=trace.span_id,
        parent_span=request.trace.span_id if request.trace is not None else "",
        surface=request.surface,
        thread=one_line(thread, 9),
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
