"""Checks of the parameters of a run. Each raises a Fault that says what is wrong with a value."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from .fault import Fault, FaultType

MAX_STOP: Final = 4
MAX_DEPTH: Final = 64
"""Most levels of nesting in a value."""
MAX_EXTRA: Final = 64
"""Most keys below ``extra``."""
_MODEL: Final = re.compile("[!-~]{1,200}")


def wrong(key: str, problem: str) -> Fault:
    """The Fault for a parameter: its shortened key, and the problem."""
    shown = key[:60] if key.isprintable() else ascii(key)[:60]
    return Fault(FaultType.PROTOCOL, f"{shown}: {problem}", data={"key": shown})


def is_json(value: Any) -> bool:
    """Whether a value can be written as JSON in UTF-8 and is nested at most ``MAX_DEPTH`` levels deep."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError):
        return False
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return True
    return False


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def as_json(key: str, value: Any) -> Any:
    """The value itself. Raises Fault (PROTOCOL) if it is not JSON."""
    if not is_json(value):
        raise wrong(key, f"is not JSON of at most {MAX_DEPTH} levels in valid Unicode")
    return value


def number(low: float, high: float) -> Callable[[str, Any], Any]:
    """A check for numbers from ``low`` to ``high``."""

    def check(key: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise wrong(key, f"must be a number from {low:g} to {high:g}")
        return value

    return check


def integer(low: int, high: int) -> Callable[[str, Any], Any]:
    """A check for whole numbers from ``low`` to ``high``."""

    def check(key: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise wrong(key, f"must be a whole number from {low} to {high}")
        return value

    return check


def one_of(*allowed: str) -> Callable[[str, Any], Any]:
    """A check for one of these texts."""

    def check(key: str, value: Any) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise wrong(key, f"must be one of {', '.join(allowed)}")
        return value

    return check


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > 200_000:
        raise wrong(key, "must be text of at most 200000 characters")
    return value


def _stop(key: str, value: Any) -> list[str] | None:
    """An empty list clears."""
    texts = [value] if isinstance(value, str) else value
    fits = isinstance(texts, list) and all(isinstance(each, str) and each for each in texts)
    if not fits or len(texts) > MAX_STOP:
        raise wrong(key, f"must be a text, or a list of at most {MAX_STOP} texts, none of them empty")
    return list(texts) or None


def _names(key: str, value: Any) -> list[str]:
    if not isinstance(value, list) or len(value) > 1_000 or not all(isinstance(each, str) for each in value):
        raise wrong(key, "must be a list of names of tools; an empty list allows none")
    return list(value)


def _response_format(key: str, value: Any) -> dict[str, Any]:
    kinds = ("text", "json_object", "json_schema")
    if not isinstance(value, dict) or value.get("type") not in kinds:
        raise wrong(key, 'must be an object with "type": "text", "json_object" or "json_schema"')
    schema = value.get("json_schema")
    if value["type"] != "json_schema":
        return {"type": value["type"]}
    if not isinstance(schema, dict) or not isinstance(schema.get("schema"), dict):
        raise wrong(key, 'of type json_schema needs "json_schema": {"name": ..., "schema": {...}}')
    if not isinstance(schema.get("name", ""), str):
        raise wrong(key, "has a name that is not text")
    return {"type": "json_schema", "json_schema": {"name": "answer", **schema}}


def _tool_choice(key: str, value: Any) -> Any:
    if value in ("auto", "none", "required"):
        return value
    named = value.get("function") if isinstance(value, dict) and value.get("type") == "function" else None
    if not isinstance(named, dict) or not isinstance(named.get("name"), str) or not named["name"]:
        form = '{"type": "function", "function": {"name": ...}}'
        raise wrong(key, f'must be "auto", "none", "required" or {form}')
    return {"type": "function", "function": {"name": named["name"]}}


def _messages(key: str, value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not value or not all(isinstance(each, dict) for each in value):
        raise wrong(key, "must be a list of messages, each with role and content")
    return value


def _model(key: str, value: Any) -> str:
    if not isinstance(value, str) or not _MODEL.fullmatch(value):
        raise wrong(key, "must be the name of a model, of at most 200 characters without a space")
    return value


def _extra(key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or len(value) > MAX_EXTRA or not all(isinstance(k, str) for k in value):
        raise wrong(key, f"must be an object with at most {MAX_EXTRA} keys")
    return dict(value)


CHECKS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "temperature": number(0, 2),
    "top_p": number(0, 1),
    "top_k": integer(0, 1_000_000),
    "max_tokens": integer(1, 100_000_000),
    "stop": _stop,
    "presence_penalty": number(-2, 2),
    "frequency_penalty": number(-2, 2),
    "seed": integer(-(2**63), 2**63 - 1),
    "response_format": _response_format,
    "tool_choice": _tool_choice,
    "tools_allowlist": _names,
    "systemOverride": _text,
    "systemAppend": _text,
    "messages": _messages,
    "model": _model,
    "extra": _extra,
}
"""The check of each key: takes the caller's spelling of the key and the value, returns the value to store."""
