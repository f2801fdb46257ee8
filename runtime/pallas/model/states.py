"""The lifecycle states of an agent and of a fleet."""

from enum import StrEnum
from typing import Final


class AgentState(StrEnum):
    """The lifecycle of an agent.

    ``waiting`` for its dependencies; ``importing`` its module; ``connecting`` its instances; ``ready`` to
    answer. ``error``: its port answers ``get_health`` and says why, nothing else works, and only a person or
    a changed file helps. ``backoff``: it failed and is about to be restarted. ``crash-loop``: it failed too
    often for that, and waits for a person or a changed file.
    """

    WAITING = "waiting"
    IMPORTING = "importing"
    CONNECTING = "connecting"
    READY = "ready"
    ERROR = "error"
    BACKOFF = "backoff"
    CRASH_LOOP = "crash-loop"
    STOPPING = "stopping"
    STOPPED = "stopped"


FAILED_STATES: Final = frozenset({AgentState.ERROR, AgentState.BACKOFF, AgentState.CRASH_LOOP})
"""The states in which an agent cannot answer because of an error."""

_WHY: Final[dict[str, str]] = {
    AgentState.ERROR: "it failed",
    AgentState.BACKOFF: "it failed and is started again soon",
    AgentState.CRASH_LOOP: "it failed too often and is not restarted automatically",
}


def why_not(state: str) -> str:
    """Why an agent in that state cannot answer, if no better reason is known: half a sentence."""
    return _WHY.get(state, f"it is {state}")


class FleetState(StrEnum):
    """The lifecycle of a fleet.

    ``draining``: it takes no new runs, finishes those in flight for a while, then stops. ``failed``: it could
    not start.
    """

    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
