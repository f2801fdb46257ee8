"""What may differ between a request and the recorded one that it is answered from: times, and lost pictures.

A recording lacks strings of more than 32 KiB; it has their length and digest. A picture that a tool returned
is such a string. A replay sends a stand-in for it, which is valid base64 and says what it stands for.
"""

import json
import re
from base64 import b64decode, b64encode
from binascii import Error
from hashlib import sha256
from typing import Any, Final

from pallas.model.long_strings import LEFT_OUT, MAX_STRING, shortened
from pallas.model.steps import IDS, VOLATILE_FIELDS

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
_STORED: Final = re.compile(rf"(?:data:[^,\[]*)?{LEFT_OUT.pattern}")
_STAND_IN: Final = re.compile(r"(?:data:[^,]*,)?([A-Za-z0-9+/]{100,240}={0,2})")
_TIME, _PICTURE = "[time]", "[picture]"


def stand_in(stored: str) -> str:
    """Base64 for the data of a picture of which this is stored."""
    return b64encode(stored.encode()).decode()


def is_stored(text: str) -> bool:
    """Whether this is what is stored of a long string."""
    return _STORED.fullmatch(text) is not None


def original(text: str) -> str:
    """What is stored of the picture that ``text`` stands in for; of any other text itself."""
    return _stood_for(text) or text


def same(before: str, after: str) -> bool:
    """Whether a recorded text and one of a replay are the same, but for times and lost pictures."""
    if before == after:
        return True
    if is_stored(before):
        return bool(_stood_for(after))
    if len(before) > MAX_STRING:  # a picture that the recording has again, and the replayed run has not
        return shortened(before) == after
    return without_times(before) == without_times(after)


def without_times(text: str) -> str:
    """A text with the same word in place of each date and each time."""
    return _TIMES.sub(_TIME, text)


def loose_key(document: Any, *, ids: bool) -> str:
    """A digest that all requests have in common that may be the same; ``same`` says whether they are.

    ``ids`` says whether values that are named as ids count: they do in calls.
    """
    if isinstance(document, dict):
        document = {name: each for name, each in document.items() if name not in VOLATILE_FIELDS}
    return sha256(json.dumps(_loosened(document, ids=ids), sort_keys=True).encode()).hexdigest()


def _loosened(value: Any, *, ids: bool) -> Any:
    if isinstance(value, dict):
        return {name: _loosened(each, ids=ids) for name, each in value.items() if ids or name not in IDS}
    if isinstance(value, list):
        return [_loosened(each, ids=ids) for each in value]
    if isinstance(value, str):
        return _PICTURE if is_stored(value) or _stood_for(value) else without_times(value)
    return value


def _stood_for(text: str) -> str:
    found = _STAND_IN.fullmatch(text) if len(text) < 500 else None
    try:
        stored = b64decode(found[1], validate=True).decode() if found is not None else ""
    except (Error, UnicodeDecodeError):
        return ""
    return stored if is_stored(stored) else ""
