"""What ``get_health`` answers."""

import json
from datetime import UTC, datetime
from time import time

from pallas.model import Health, HealthStatus


def health_text(health: Health) -> str:
    """The JSON text ``{status, timestamp, message?}`` (SPEC PI-8).

    ``timestamp`` is when the health was looked at, ISO 8601 in UTC; ``message`` is there, and holds
    something, whenever the status is not ok.
    """
    body = {"status": health.status.value, "timestamp": timestamp(health.checked_at or time())}
    if health.status is not HealthStatus.OK:
        body["message"] = health.message or f"The agent reports {health.status.value} without a reason"
    return json.dumps(body, ensure_ascii=False)


def timestamp(seconds: float) -> str:
    """Unix seconds as ISO 8601 in UTC, whole seconds, for example ``2026-03-12T15:42:00Z``."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
