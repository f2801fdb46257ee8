"""``messages:``: how much typed handlers may do at once, and how much one run may be (HC-31)."""

from typing import Final

from .kinds import PumpLimits
from .section import Section

MESSAGE_KEYS: Final = ("pipelines", "handlers", "per_agent", "queue", "per_run", "bytes")
MAX_AT_ONCE: Final = 10_000
MAX_MESSAGES: Final = 1_000_000
MIN_BYTES: Final = 1_024
MAX_BYTES: Final = 16 * 1_048_576


def read_messages(top: Section) -> PumpLimits:
    """``messages:`` at the top; what is not given is as in ``PumpLimits``."""
    default, inner = PumpLimits(), top.section("messages")
    if inner is None:
        return default
    inner.only(MESSAGE_KEYS)
    return PumpLimits(
        pipelines=_integer(inner, "pipelines", 1, MAX_AT_ONCE, default.pipelines),
        handlers=_integer(inner, "handlers", 1, MAX_AT_ONCE, default.handlers),
        per_agent=_integer(inner, "per_agent", 1, MAX_AT_ONCE, default.per_agent),
        queue=_integer(inner, "queue", 1, MAX_MESSAGES, default.queue),
        per_run=_integer(inner, "per_run", 1, MAX_MESSAGES, default.per_run),
        bytes=_integer(inner, "bytes", MIN_BYTES, MAX_BYTES, default.bytes),
    )


def _integer(section: Section, key: str, low: int, high: int, default: int) -> int:
    given = section.integer(key, low, high)
    return default if given is None else given
