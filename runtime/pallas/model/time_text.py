"""Times as people write them."""

import re
from datetime import UTC, datetime
from typing import Final

_SPAN: Final = re.compile(r"(\d{1,6})([smhdw])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def since_of(text: str, now: float) -> float | None:
    """The Unix time that ``24h``, ``7d``, or a date or time in ISO 8601 means; 0 for an empty text.

    Without a time zone it is in UTC. None for any other text.
    """
    text = text.strip()
    if not text:
        return 0.0
    if span := _SPAN.fullmatch(text):
        return max(0.0, now - int(span[1]) * _SECONDS[span[2]])
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def iso(seconds: float, timespec: str = "milliseconds") -> str:
    """Format Unix seconds as ISO 8601 in UTC, for example ``2026-03-12T15:42:00.123Z``."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def duration(seconds: float, running: bool = False) -> str:
    """``40 ms``, ``3.1 s``, ``2:05 min``, ``1:02 h``; whole seconds while ``running``: less would flicker."""
    seconds = max(0.0, seconds)
    if seconds < 0.0995 and not running:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 99.95:
        return f"{int(seconds)} s" if running else f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 100:
        return f"{minutes}:{rest:02} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02} h"
