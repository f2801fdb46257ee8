"""``sessions:`` and ``tasks:``: how much of either there may be, and for how long."""

from typing import Final

from .kinds import SessionLimits, TasksConfig
from .section import Section

SESSION_KEYS: Final = ("max", "idle", "ttl", "reap_every", "concurrent", "prompt_bytes", "metadata_bytes")
TASK_KEYS: Final = ("tools", "ttl", "max")
MAX_SECONDS: Final = 30 * 86_400.0
MAX_COUNT: Final = 100_000
# As much as a body of one request may have.
MAX_BYTES: Final = 16 * 1_048_576


def read_sessions(top: Section) -> SessionLimits:
    """``sessions:`` at the top; what is not given is as in ``SessionLimits``."""
    default, inner = SessionLimits(), top.section("sessions")
    if inner is None:
        return default
    inner.only(SESSION_KEYS)
    return SessionLimits(
        max=_integer(inner, "max", 1, MAX_COUNT, default.max),
        idle=_number(inner, "idle", 1, default.idle),
        ttl=_number(inner, "ttl", 1, default.ttl),
        reap_every=_number(inner, "reap_every", 0.1, default.reap_every),
        concurrent=_integer(inner, "concurrent", 1, MAX_COUNT, default.concurrent),
        prompt_bytes=_integer(inner, "prompt_bytes", 1, MAX_BYTES, default.prompt_bytes),
        metadata_bytes=_integer(inner, "metadata_bytes", 2, MAX_BYTES, default.metadata_bytes),
    )


def read_tasks(top: Section) -> TasksConfig:
    """``tasks:`` at the top; what is not given is as in ``TasksConfig``."""
    default, inner = TasksConfig(), top.section("tasks")
    if inner is None:
        return default
    inner.only(TASK_KEYS)
    return TasksConfig(
        tools=inner.flag("tools") or False,
        ttl=_number(inner, "ttl", 1, default.ttl, 10 * 365 * 86_400.0),
        max=_integer(inner, "max", 1, MAX_COUNT, default.max),
    )


def _integer(section: Section, key: str, low: int, high: int, default: int) -> int:
    given = section.integer(key, low, high)
    return default if given is None else given


def _number(section: Section, key: str, low: float, default: float, high: float = MAX_SECONDS) -> float:
    given = section.number(key, low, high)
    return default if given is None else given
