"""The outcome of a failure: the state that it leads to, and the words for operators and callers."""

from dataclasses import dataclass
from typing import Final

from pallas.config.models import RestartConfig
from pallas.health.public_reasons import for_callers
from pallas.model import AgentState, Fault, FaultType

from .restart_policy import AfterFailure, RestartDecision

FOR_EVER: Final = 1_000
"""A number of failures that the waits make unreachable within the window: no limit is shown."""
_LASTING: Final = frozenset({FaultType.CONFIG, FaultType.AUTH, FaultType.PROTOCOL})


@dataclass(frozen=True, slots=True)
class FailureOutcome:
    """Where something is after a failure: ``reason`` holds for as long as that lasts, ``detail`` tells it."""

    state: AgentState
    reason: str
    detail: str


def passes(error: BaseException) -> bool:
    """Whether the same start may succeed at another time, without any edit."""
    if isinstance(error, Fault):
        return error.retryable or error.type not in _LASTING
    return isinstance(error, OSError)


def lasting(cause: str) -> FailureOutcome:
    """A failure that only an edit fixes."""
    return FailureOutcome(AgentState.ERROR, cause, cause)


def outcome_of(decision: RestartDecision, cause: str, config: RestartConfig) -> FailureOutcome:
    """What follows from a failure for the ``cause``, one line, by the decision of its restart policy."""
    if decision.after is AfterFailure.RESTART:
        of = f" of {config.crashes}" if config.crashes < FOR_EVER else ""
        count = f"failure {decision.crashes}{of} within {config.within:g} s"
        when = f"it is started again in {round(decision.delay_s, 2):g} s"
        return FailureOutcome(AgentState.BACKOFF, cause, f"{cause}; {when} ({count})")
    if decision.after is AfterFailure.CRASH_LOOP:
        times = "1 failure" if decision.crashes == 1 else f"{decision.crashes} failures"
        reason = f"{times} within {config.within:g} s, the last: {cause}; correct that and start it again"
        return FailureOutcome(AgentState.CRASH_LOOP, reason, f"crash loop: {reason}")
    reason_text = f"{cause} (restart: never)" if config.policy == "never" else cause
    return FailureOutcome(AgentState.ERROR, reason_text, reason_text)


def lost(name: str, cause: str, seconds: float | None, *, down: bool = False) -> Fault:
    """The Fault for callers of runs in flight when the executor that answered them broke.

    ``seconds`` as ``Supervisor.retry_after``; with ``down`` it does not restart by itself.
    """
    data: dict[str, str | float] = {"stage": "run"}
    again = "it is not restarted automatically; send it again once it is up" if down else "send it again"
    if seconds is not None:
        data["retry_after"] = round(seconds + 0.05, 1)
        again += f" in {data['retry_after']:g} s"
    text = f"{name} failed while it answered this: {for_callers(cause)}; {again}"
    return Fault(FaultType.TRANSPORT, text, retryable=True, data=data, cause=cause)
