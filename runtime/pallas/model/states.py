"""Where an agent and a fleet are in their lives."""

from enum import StrEnum
from typing import Final


class AgentState(StrEnum):
    """Where an agent is in its life.

    ``waiting`` for what it depends on; ``importing`` its module; ``connecting`` its instances;
    ``ready`` to answer; ``error``: its port answers ``get_health`` and says why, nothing else works, and
    only a person or a changed file helps. ``backoff``: it failed and is started again in a moment;
    ``crash-loop``: it failed too often for that, and waits for a person or a changed file.
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
"""Those in which an agent cannot answer because something went wrong."""

_WHY: Final[dict[str, str]] = {
    AgentState.ERROR: "it failed",
    AgentState.BACKOFF: "it failed and is started again soon",
    AgentState.CRASH_LOOP: "it failed too often and is not started again by itself",
}


def why_not(state: str) -> str:
    """Why an agent in that state cannot be asked, where nothing better is known: half a sentence."""
    return _WHY.get(state, f"it is {state}")


class FleetState(StrEnum):
    """Where the whole fleet is: ``failed`` means that it could not start at all.

    ``draining``: it takes no new runs, those in flight go on for a while, then it stops.
    """

    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
