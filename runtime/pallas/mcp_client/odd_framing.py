"""JSON texts of messages as the SDK reads them: without a byte order mark, one message each.

Batches were part of the protocol in one version. Some libraries write a byte order mark first.
"""

import json
from typing import Final

_MARK: Final = b"\xef\xbb\xbf"
_MAX_BATCH: Final = 1_000
"""Messages of one batch; the rest is dropped."""


def messages_in(text: bytes) -> list[bytes]:
    """Return the JSON texts of the messages in a JSON text: those of a batch, else the text itself.

    A text that is no JSON is returned as it is.
    """
    text = text.removeprefix(_MARK)
    if text.lstrip()[:1] != b"[":
        return [text]
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return [text]
    return [json.dumps(each).encode() for each in found[:_MAX_BATCH]]


def lines_of(lines: bytes) -> bytes:
    """Return whole lines with one message each."""
    if _MARK not in lines and not lines.lstrip().startswith(b"[") and b"\n[" not in lines:
        return lines
    return b"".join(message + b"\n" for line in lines.splitlines() for message in messages_in(line))
