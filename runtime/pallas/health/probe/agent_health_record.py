"""Combines probes, real calls and states into an agent's health record."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from time import time
from typing import Final

from pallas.model import (
    FAILED_STATES,
    AgentState,
    Downstream,
    Health,
    HealthStatus,
    ProbeResult,
    ServerChange,
)
from pallas.model.tool_lock import words_of
from pallas.safe_text import one_line

# Seconds that a failed real call counts, unless a later call succeeds: there may be no later call.
CALL_SECONDS: Final = 300.0
_AGAIN: Final = {
    AgentState.BACKOFF: "Failed, is started again: ",
    AgentState.CRASH_LOOP: "Crash loop: ",
}
_NOT_READY: Final = {
    AgentState.WAITING: "Starting: waiting for what it depends on",
    AgentState.IMPORTING: "Starting: importing its module",
    AgentState.CONNECTING: "Starting: connecting its servers",
    AgentState.ERROR: "The agent failed to start",
    AgentState.BACKOFF: "The agent failed and is started again",
    AgentState.CRASH_LOOP: "The agent failed too often",
    AgentState.STOPPING: "The agent is stopping",
    AgentState.STOPPED: "The agent has stopped",
}


@dataclass(frozen=True, slots=True)
class Lack:
    """A required agent that cannot answer. ``reason`` is one line."""

    name: str
    reason: str
    # The downstreams by which it is called; they are not reported again
    servers: frozenset[str] = field(default_factory=frozenset)


def health_of(
    state: AgentState,
    downstreams: Sequence[Downstream],
    provider_problem: str = "",
    reason: str = "",
    lacks: Sequence[Lack] = (),
    required: Collection[str] = (),
    failed_runs: tuple[int, str] = (0, ""),
    lock_changes: Sequence[ServerChange] = (),
) -> Health:
    """The health of an agent (PI-12, PR-21, PR-22); ``since`` and ``checked_at`` are both now.

    ``error`` unless its state is ready, with ``reason`` (of a failure or a stop) if there is one.
    ``degraded`` if a required agent failed, if a downstream cannot be reached, asks for credentials or fails
    real calls though it answers the probe, if it has no tool that can be used, if it lists other tools than
    the lock says, or if its provider has a problem; all causes in one line.
    Runs that failed since the last that succeeded count too: how many, and the last one's fault.
    Also ``error`` if a probe finds that a ``required`` downstream is not reached: ``needs x: crash-loop (its
    process died); Unreachable: a, b; Auth required: c; Failing: d (last call: HTTP 503); LLM: openai: model
    'x' not found; Failed: the last 2 runs (out of memory)``.
    """
    now = time()
    if state is not AgentState.READY:
        message = _NOT_READY[state]
        if reason and state in FAILED_STATES:
            message = _AGAIN.get(state, "") + one_line(reason, 300)
        elif reason and state is AgentState.STOPPED:
            message = one_line(f"The agent is {reason}", 300)
        return Health(HealthStatus.ERROR, message, now, now)
    found: dict[str, list[str]] = {"Unreachable": [], "Auth required": [], "Failing": []}
    unconfigured, troubles = [], []
    missing_servers = frozenset[str]().union(*(lack.servers for lack in lacks))
    for each in downstreams:
        if each.name in missing_servers:
            continue
        if each.reach is ProbeResult.NOT_CONFIGURED:
            unconfigured.append(f"{each.name} {each.detail}")
            continue
        if each.problem:
            troubles.append(f"{each.name} {each.problem}")
            continue
        label, name = _cause(each, now)
        if label:
            found[label].append(name)
    causes = [f"needs {lack.name}: {lack.reason}" for lack in lacks]
    causes += [f"{label}: {', '.join(names)}" for label, names in found.items() if names]
    causes += unconfigured
    causes += troubles
    causes += words_of(lock_changes)
    if provider_problem:
        causes.append(f"LLM: {one_line(provider_problem, 300)}")
    causes += _failed(*failed_runs, explained=bool(causes))
    status = HealthStatus.DEGRADED if causes else HealthStatus.OK
    if any(
        each.name in required and each.reach not in (ProbeResult.OK, ProbeResult.UNKNOWN)
        for each in downstreams
    ):
        status = HealthStatus.ERROR
    return Health(status, "; ".join(causes).replace(".; ", ". "), now, now)


def _failed(count: int, fault: str, *, explained: bool) -> list[str]:
    if not count:
        return []
    runs = "the last run" if count == 1 else f"the last {count} runs"
    return [f"Failed: {runs}" + (f" ({fault})" if fault and not explained else "")]


def _cause(downstream: Downstream, now: float) -> tuple[str, str]:
    """The label of a downstream's problem and its name in the message; two empty texts if there is none."""
    if downstream.reach is ProbeResult.UNREACHABLE:
        return "Unreachable", downstream.name
    if downstream.reach is ProbeResult.AUTH_REQUIRED:
        return "Auth required", downstream.name
    call = downstream.last_call
    if call is None or now - call.at > CALL_SECONDS:
        return "", ""
    named = f"{downstream.name} (last call: {call.detail})"
    labels = {ProbeResult.UNREACHABLE: "Failing", ProbeResult.AUTH_REQUIRED: "Auth required"}
    return labels.get(call.reach, ""), named
