"""Messages of JSON texts that are nearly JSON-RPC.

A text that the SDK reads is read once, and nothing else is done. Any other one may be a batch, several
messages behind each other, or in another encoding, and have a byte order mark, words of the program before or
behind it, raw tabs, half an emoji, an id that is a float, nulls in place of keys that are left out, an error
without a number or a text, or a result that is no object.
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCResponse, jsonrpc_message_adapter
from pydantic import ValidationError

_INTERNAL_ERROR: Final = -32603
_MAX_CODE: Final = 1 << 31
_MAX_BATCH: Final = 1_000
"""Messages of one text; the rest is dropped."""
_OBJECT: Final = re.compile(r'\{\s*"')
_DECODER: Final = json.JSONDecoder(strict=False)
_BLANK: Final = " \t\r\n\0\ufeff"
_ENVELOPE: Final = frozenset(("jsonrpc", "id", "method", "params", "result", "error"))


def messages_in(text: str | bytes) -> list[JSONRPCMessage]:
    """Return the messages of a JSON text; none if there is none in it."""
    with suppress(ValidationError):
        sound = jsonrpc_message_adapter.validate_json(text, by_name=False)
        if not isinstance(sound, JSONRPCError):  # its number and text may be odd
            return [sound]
    found: list[JSONRPCMessage] = []
    with suppress(ValueError, RecursionError):
        for value in _values(text if isinstance(text, str) else _decoded(text)):
            for each in value if isinstance(value, list) else [value]:
                if len(found) == _MAX_BATCH:
                    return found
                if isinstance(each, dict) and (message := _message(each)) is not None:
                    found.append(message)
    return found


def _decoded(text: bytes) -> str:
    return text.decode(json.detect_encoding(text), "replace")


def _values(text: str) -> Iterator[Any]:
    """Yield the JSON values that stand behind each other in a text.

    Of one that has words before a value, only answers are taken: programs log what they were sent.
    """
    text = text.lstrip(_BLANK)
    has_words = text[:1] not in ("{", "[")
    at = 0
    if has_words:
        if (found := _OBJECT.search(text)) is None:
            return
        at = found.start()
    while at < len(text) and text[at] in "{[":
        value, at = _DECODER.raw_decode(text, at)
        if not has_words or (isinstance(value, dict) and "method" not in value):
            yield value
        while at < len(text) and text[at] in _BLANK:
            at += 1


def _message(said: dict[str, Any]) -> JSONRPCMessage | None:
    """Return the message that an object is meant to be; None if it is none."""
    message = {key: value for key, value in said.items() if key in _ENVELOPE and value is not None}
    is_answer = "method" not in message
    if isinstance(number := message.get("id"), float) and number.is_integer():
        message["id"] = int(number)
    if is_answer and not {"result", "error"} & said.keys():
        return None
    if "jsonrpc" not in said and not is_answer and "params" not in said and "id" not in said:
        return None  # a log record, perhaps
    message["jsonrpc"] = "2.0"
    if is_answer and "id" not in said:
        return None if "result" in message else _error({**message, "id": None})
    if is_answer and "error" in said and "result" not in message:
        return _error({**message, "error": said["error"]})
    if is_answer:
        message.pop("error", None)
        if not isinstance(result := message.get("result"), dict):
            return _bare_answer(message.get("id"), result)
    # Half an emoji is no text to the SDK.
    text = json.dumps(message, ensure_ascii=False).encode("utf-8", "replace")
    try:
        return jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValidationError:
        return None


def _bare_answer(number: Any, result: Any) -> JSONRPCMessage | None:
    """Return an answer whose result is no object, for who knows what was asked."""
    if isinstance(number, bool) or not isinstance(number, int | str):
        return None
    return JSONRPCResponse.model_construct(jsonrpc="2.0", id=number, result=result)


def _error(message: dict[str, Any]) -> JSONRPCMessage | None:
    """Return an error with a number and a text."""
    error = message["error"]
    given = error if isinstance(error, dict) else {"message": error}
    code = given.get("code")
    if isinstance(code, float) and code.is_integer():
        code = int(code)
    is_number = isinstance(code, int) and not isinstance(code, bool) and abs(code) < _MAX_CODE
    sound = {**given, "code": code if is_number else _INTERNAL_ERROR, "message": _words(given)}
    number = message.get("id")
    if isinstance(number, bool) or not isinstance(number, int | str | None):
        return None
    text = json.dumps({"jsonrpc": "2.0", "id": number, "error": sound}, ensure_ascii=False)
    try:
        return JSONRPCError.model_validate_json(text.encode("utf-8", "replace"), by_name=False)
    except ValidationError:
        return None


def _words(error: dict[str, Any]) -> str:
    """The text of an error: its message, or what else is said in it."""
    text = error.get("message")
    if isinstance(text, str) and text.strip():
        return text
    said = text if text is not None else error.get("data") or error.get("code")
    if isinstance(said, str):
        return said
    with suppress(ValueError, RecursionError):
        return json.dumps(said, ensure_ascii=False)
    return "an error without a text"
