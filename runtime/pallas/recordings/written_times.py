"""Dates and times of day in texts, which do not count when two runs are shown side by side.

Replays and tests take none of them for equal.
"""

import re
from typing import Final

_MONTHS: Final = (
    "(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sep(?:t(?:ember)?)?|"
    "Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)"
)
_DAYS: Final = "(?:(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?,? )?"
_CLOCK: Final = r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?: ?[AaPp][Mm]\b)?(?: ?Z\b| ?UTC\b|[+-]\d{2}:?\d{2}\b)?"
_TIMES: Final = re.compile(
    rf"\b{_DAYS}(?:\d{{4}}-\d{{2}}-\d{{2}}|\d{{1,2}} {_MONTHS}\.? \d{{4}}|{_MONTHS}\.? \d{{1,2}}, \d{{4}})"
    rf"(?:(?:T|,? )(?={_CLOCK}))?(?:(?<=[T ]){_CLOCK})?|(?<![\d:.]){_CLOCK}(?![\d:])"
)
"""ISO dates, ``28 November 2026``, ``November 28, 2026``, and clock times, also together."""
_TIME: Final = "[time]"


def without_times(text: str) -> str:
    """A text with the same word in place of each date and each time."""
    return _TIMES.sub(_TIME, text)
