"""What may differ between a request and the recorded one that it is answered from: lost pictures.

A request in a recording has pictures by their length and digest; older recordings had all strings of more
than 32 KiB so. A replay sends a stand-in for it, which is valid base64 and says what it stands for.
"""

import json
import re
from base64 import b64decode, b64encode
from binascii import Error
from hashlib import sha256
from typing import Any, Final

from pallas.model.long_strings import LEFT_OUT, MAX_STRING, shortened

_STORED: Final = re.compile(rf"(?:data:[^,\[]*)?{LEFT_OUT.pattern}")
_LENGTH: Final = re.compile(r"\[(\d+) characters,")
_STAND_IN: Final = re.compile(r"(?:data:[^,]*,)?([A-Za-z0-9+/]{100,240}={0,2})")
_PICTURE: Final = "[picture]"


def stand_in(stored: str) -> str:
    """Base64 for the data of a picture of which this is stored."""
    return b64encode(stored.encode()).decode()


def is_stored(text: str) -> bool:
    """Whether this is what is stored of a long string."""
    return _STORED.fullmatch(text) is not None


def original(text: str) -> str:
    """What is stored of the picture that ``text`` replaces; of any other text itself."""
    return _stood_for(text) or text


def same(before: str, after: str) -> bool:
    """Whether a recorded text and one of a replay are the same, but for lost pictures."""
    if before == after:
        return True
    if is_stored(before):  # an earlier Pallas kept no more of a long text
        return shortened(after) == before or _is_of_one_picture(before, after)
    # A picture that the recording has again, and the replayed run has not.
    return len(before) > MAX_STRING and shortened(before) == after


def _is_of_one_picture(stored: str, sent: str) -> bool:
    """Whether what is stored is of the picture that ``sent`` replaces.

    What is stored of a data URL has the digest of all of it: then the lengths are compared.
    """
    stood_for = _stood_for(sent)
    head, comma, _ = sent.partition(",")
    if not comma:
        return stood_for == stored
    length, whole = _LENGTH.search(stood_for), _LENGTH.search(stored)
    if length is None or whole is None:
        return False
    return int(length[1]) + len(head) + 1 == int(whole[1])


def loose_key(form: Any) -> str:
    """A digest that all requests have in common that may be the same; ``same`` says whether they are.

    ``form`` is the canonical form of a request.
    """
    return sha256(json.dumps(_loosened(form), sort_keys=True).encode()).hexdigest()


def _loosened(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _loosened(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_loosened(each) for each in value]
    if isinstance(value, str):
        return _PICTURE if len(value) > MAX_STRING or is_stored(value) or _stood_for(value) else value
    return value


def _stood_for(text: str) -> str:
    found = _STAND_IN.fullmatch(text) if len(text) < 500 else None
    try:
        stored = b64decode(found[1], validate=True).decode() if found is not None else ""
    except (Error, UnicodeDecodeError):
        return ""
    return stored if is_stored(stored) else ""
