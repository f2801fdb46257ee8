"""One health record out of what is known of an agent."""

from collections.abc import Sequence
from time import time
from typing import Final

from pallas.model import AgentState, Downstream, Health, HealthStatus, Reach
from pallas.text import one_line

_NOT_READY: Final = {
    AgentState.WAITING: "Starting: waiting for what it depends on",
    AgentState.IMPORTING: "Starting: importing its module",
    AgentState.CONNECTING: "Starting: connecting its servers",
    AgentState.ERROR: "The agent failed to start",
    AgentState.STOPPING: "The agent is stopping",
    AgentState.STOPPED: "The agent has stopped",
}


def health_of(
    state: AgentState, downstreams: Sequence[Downstream], provider_problem: str = "", reason: str = ""
) -> Health:
    """How an agent is (SPEC PI-12, PR-21, PR-22): ``since`` and ``checked_at`` are both now.

    ``error`` unless its state is ready, with ``reason`` where there is one; ``degraded`` when a downstream
    cannot be reached or asks for credentials, or the active provider has a problem; all causes in one
    line: ``Unreachable: a, b; Auth required: c; LLM: openai: model 'x' not found``.
    """
    now = time()
    if state is not AgentState.READY:
        message = _NOT_READY[state]
        if reason and state is AgentState.ERROR:
            message = one_line(reason, 300)
        return Health(HealthStatus.ERROR, message, now, now)
    causes = [
        f"{label}: {', '.join(names)}"
        for label, reach in (("Unreachable", Reach.UNREACHABLE), ("Auth required", Reach.AUTH_REQUIRED))
        if (names := [each.name for each in downstreams if each.reach is reach])
    ]
    if provider_problem:
        causes.append(f"LLM: {one_line(provider_problem, 300)}")
    status = HealthStatus.DEGRADED if causes else HealthStatus.OK
    return Health(status, "; ".join(causes), now, now)
