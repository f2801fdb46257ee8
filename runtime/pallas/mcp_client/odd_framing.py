"""JSON texts of messages as the SDK reads them: without a byte order mark, one message each.

Batches were part of the protocol in one version. Some libraries write a byte order mark first, an error
without a number or a text, or ``"error": null`` beside a result.
"""

import json
from contextlib import suppress
from typing import Any, Final

from pallas.bounds.message_nodes import too_many_nodes

ERROR_KEY: Final = b'"error"'
"""What a message has in it whose error may have to be repaired."""
_INTERNAL_ERROR: Final = -32603
_MAX_CODE: Final = 1 << 31
_MARK: Final = b"\xef\xbb\xbf"
_MAX_BATCH: Final = 1_000
"""Messages of one batch; the rest is dropped."""


def messages_in(text: bytes) -> list[bytes]:
    """Return the JSON texts of the messages in a JSON text: those of a batch, else the text itself.

    A text that is no JSON is returned as it is.
    """
    text = text.removeprefix(_MARK)
    is_batch = text.lstrip()[:1] == b"["
    if (not is_batch and ERROR_KEY not in text) or too_many_nodes(text) is not None:
        return [text]
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return [text]
    if is_batch:
        return [json.dumps(_with_sound_error(each)).encode() for each in found[:_MAX_BATCH]]
    sound = _with_sound_error(found)
    return [text if sound is found else json.dumps(sound).encode()]


def _with_sound_error(message: Any) -> Any:
    """Return an answer whose error has a number and a text; anything else as it is."""
    if not isinstance(message, dict) or "error" not in message or "method" in message:
        return message
    error = message["error"]
    if message.get("result") is not None and error is None:
        return {key: value for key, value in message.items() if key != "error"}
    if "id" not in message or (message.get("result") is not None):
        return message
    given = error if isinstance(error, dict) else {"message": error}
    code, text = given.get("code"), given.get("message")
    if isinstance(code, float) and code.is_integer():
        code = int(code)
    is_number = isinstance(code, int) and not isinstance(code, bool) and abs(code) < _MAX_CODE
    sound = {**given, "code": code if is_number else _INTERNAL_ERROR, "message": _words(text, given)}
    if sound == error and type(code) is type(error["code"]) and "result" not in message:
        return message
    return {"jsonrpc": "2.0", "id": message["id"], "error": sound}


def _words(text: Any, error: dict[str, Any]) -> str:
    """The text of an error: its message, or what else is said in it."""
    if isinstance(text, str) and text.strip():
        return text
    said = text if text is not None else error.get("data") or error.get("code")
    if isinstance(said, str):
        return said
    with suppress(ValueError, RecursionError):
        return json.dumps(said, ensure_ascii=False)
    return "an error without a text"


def lines_of(lines: bytes) -> bytes:
    """Return whole lines with one message each."""
    is_plain = _MARK not in lines and not lines.lstrip().startswith(b"[") and b"\n[" not in lines
    if is_plain and ERROR_KEY not in lines:
        return lines
    return b"".join(message + b"\n" for line in lines.splitlines() for message in messages_in(line))
