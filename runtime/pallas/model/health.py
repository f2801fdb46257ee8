"""The one health record."""

from dataclasses import dataclass
from enum import StrEnum


class HealthStatus(StrEnum):
    """ok: all reachable; degraded: works, with a named lack; error: cannot answer (SPEC 4.1)."""

    OK = "ok"
    DEGRADED = "degraded"
    ERROR = "error"

    @property
    def gauge(self) -> float:
        """1.0, 0.5 or 0.0 (PI-16)."""
        return {"ok": 1.0, "degraded": 0.5, "error": 0.0}[self.value]


@dataclass(frozen=True, slots=True)
class Health:
    """How an agent is, why, and since when.

    ``message`` is never empty unless the status is ok. ``since`` and ``checked_at`` are Unix
    seconds: when the status last changed, and when it was last looked at.
    """

    status: HealthStatus
    message: str = ""
    since: float = 0.0
    checked_at: float = 0.0


class ProbeResult(StrEnum):
    """What a probe of one downstream found."""

    UNKNOWN = "unknown"
    OK = "ok"
    UNREACHABLE = "unreachable"
    AUTH_REQUIRED = "auth required"
    NOT_CONFIGURED = "not configured"


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """What became of the last real call of an agent to a downstream, as opposed to a probe.

    ``ok`` when the call completed; ``at`` is Unix seconds, ``detail`` one line, empty when all was well.
    ``reach`` is what the call says of the downstream itself: ``ok`` also for a tool that answered with an
    error, ``unknown`` where the failure is no fault of the downstream (the caller's own token was refused).
    """

    ok: bool
    at: float
    detail: str = ""
    reach: ProbeResult = ProbeResult.OK


@dataclass(frozen=True, slots=True)
class Downstream:
    """An MCP server that an agent calls, and how it was last found.

    ``transport`` is ``http`` or ``stdio``; ``target`` is its URL without query, or its command. ``last_call``
    is None until a run has called it.
    """

    name: str
    transport: str
    target: str
    reach: ProbeResult = ProbeResult.UNKNOWN
    detail: str = ""
    last_call: CallOutcome | None = None
