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
