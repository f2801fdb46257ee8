"""The health record of an agent and of its downstreams."""

from dataclasses import dataclass
from enum import StrEnum

from .server_connection import ServerConnection


class HealthStatus(StrEnum):
    """ok: all reachable; degraded: works, but something named is missing; error: cannot answer."""

    OK = "ok"
    DEGRADED = "degraded"
    ERROR = "error"

    @property
    def gauge(self) -> float:
        """1.0, 0.5 or 0.0 (PI-16)."""
        return {"ok": 1.0, "degraded": 0.5, "error": 0.0}[self.value]


@dataclass(frozen=True, slots=True)
class Health:
    """The health of an agent. Times are Unix seconds."""

    status: HealthStatus
    message: str = ""  # why; empty only if the status is ok
    since: float = 0.0  # when the status last changed
    checked_at: float = 0.0  # when it was last checked


class ProbeResult(StrEnum):
    """The result of probing one downstream."""

    UNKNOWN = "unknown"
    OK = "ok"
    UNREACHABLE = "unreachable"
    AUTH_REQUIRED = "auth required"
    NOT_CONFIGURED = "not configured"


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """The outcome of an agent's last real call to a downstream, as opposed to a probe."""

    ok: bool  # whether the call completed
    at: float  # Unix seconds
    detail: str = ""  # one line, empty if all was well
    # What the call shows of the downstream itself: ``ok`` also for a tool error, ``unknown`` if the failure
    # is not the downstream's (it refused the caller's own token)
    reach: ProbeResult = ProbeResult.OK


@dataclass(frozen=True, slots=True)
class Downstream:
    """An MCP server that an agent calls, and its last known state."""

    name: str
    transport: str  # ``http`` or ``stdio``
    target: str  # its URL without query, or its command
    reach: ProbeResult = ProbeResult.UNKNOWN
    detail: str = ""
    last_call: CallOutcome | None = None  # None until a run called it
    problem: str = ""  # why agents cannot use it though it answers, as the end of a sentence
    connection: ServerConnection | None = None  # None where no instance was connected
