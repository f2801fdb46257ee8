"""How often agents are asked how they are, and what their answers mean."""

import json
import math
from collections.abc import Mapping
from typing import Any, Final

from pallas.model import Fault, FaultType, HealthStatus
from pallas.safe_text import one_line, sanitize

VARIABLE: Final = "DAEDALUS_MCP_HEALTH_INTERVAL"
DEFAULT_INTERVAL: Final = 60.0
MESSAGE_LIMIT: Final = 2_000

_LONGEST: Final = 86_400.0


def poll_interval(environment: Mapping[str, str]) -> tuple[float, str]:
    """Return seconds between two polls (PI-15), and the mistake in the user's value, if any."""
    text = environment.get(VARIABLE, "").strip()
    if not text:
        return DEFAULT_INTERVAL, ""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if 1 <= seconds <= _LONGEST:
        return seconds, ""
    return DEFAULT_INTERVAL, (
        f"environment variable {VARIABLE}: must be a number of seconds from 1 to {_LONGEST:.0f}, "
        f"not {one_line(text, 40)!r}; {DEFAULT_INTERVAL:.0f} is used"
    )


def health_in(result: Any) -> tuple[HealthStatus, str]:
    """Status and reason in the result of ``get_health``; what cannot be understood is an error."""
    texts = [str(block.text) for block in result.content if getattr(block, "type", "") == "text"]
    if result.is_error:
        return HealthStatus.ERROR, f"get_health failed: {one_line(' '.join(texts)) or 'no reason was given'}"
    try:
        body = json.loads(texts[0])
        status = HealthStatus(body["status"])
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        return HealthStatus.ERROR, "get_health did not answer with a health record"
    message = body.get("message")
    message = sanitize(message, MESSAGE_LIMIT).strip() if isinstance(message, str) else ""
    if not message and status is not HealthStatus.OK:
        message = f"The agent reports {status.value} without a reason"
    return status, message


def reason_of(fault: Fault, url: str, timeout: float) -> str:
    """Return why a poll failed, in one line; ``timeout`` is its deadline in seconds."""
    if fault.type is FaultType.TIMEOUT:
        return f"get_health was not answered within {timeout:g} s at {url}"
    if fault.type is FaultType.TRANSPORT:
        return f"get_health failed: nothing answers at {url}, or the connection broke off"
    return f"get_health failed: {one_line(fault.message, 300)}"
