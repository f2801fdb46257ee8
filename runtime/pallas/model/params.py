"""Parameters of a run: one set, one way to read it, one order to merge it (SPEC 6.2, C15, C16)."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final

from .fault import Fault, FaultType

KEYS: Final = (
    "temperature",
    "top_p",
    "top_k",
    "max_tokens",
    "stop",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "response_format",
    "tool_choice",
    "tools_allowlist",
    "systemOverride",
    "systemAppend",
    "messages",
    "extra",
)
"""The keys as they are stored and shown; in ``snake_case`` and ``camelCase`` they are understood as well."""

SYSTEM_KEYS: Final = frozenset({"systemOverride", "systemAppend"})
"""What holds for a conversation and is never saved as an agent's default (AG-13)."""
PER_CALL_KEYS: Final = frozenset({"messages", *SYSTEM_KEYS})
"""What makes sense with one call only, and is refused among an agent's defaults."""

MAX_STOP: Final = 4
MAX_DEPTH: Final = 64
"""Levels of a value."""
MAX_EXTRA: Final = 64
"""Keys below ``extra``."""

_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def _snake(key: str) -> str:
    return _HUMP.sub("_", key).lower().replace("-", "_")


_BY_SNAKE: Final = {
    **{_snake(key): key for key in KEYS},
    # As single providers call them.
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "stop_sequences": "stop",
}


@dataclass(frozen=True, slots=True)
class Params:
    """Some of the parameters. A key that is absent is inherited, one that is None clears what it inherits.

    ``values`` has the names of ``KEYS`` and values that were checked.
    """

    values: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @staticmethod
    def read(given: Mapping[str, Any], *, strict: bool, refused: frozenset[str] = frozenset()) -> "Params":
        """Parameters as a caller wrote them, in snake_case or camelCase (UN-5).

        An unknown key is refused where it is ``strict`` and goes below ``extra`` elsewhere (C16). Raises
        Fault (PROTOCOL) whose ``data["key"]`` names what is wrong, in the caller's spelling.
        """
        found: dict[str, Any] = {}
        extra: dict[str, Any] = {}
        for name, value in given.items():
            key = _BY_SNAKE.get(_snake(str(name)))
            if key is None:
                if strict:
                    near = get_close_matches(_snake(str(name)), list(_BY_SNAKE), 1, 0.6)
                    hint = f"did you mean {_BY_SNAKE[near[0]]}?" if near else f"known: {', '.join(KEYS)}"
                    raise _wrong(str(name), f"there is no such parameter; {hint}")
                extra[str(name)] = value
                continue
            if key in found:
                raise _wrong(str(name), "is given twice, in two spellings; leave one out")
            if key in refused:
                raise _wrong(str(name), "holds for one call only and cannot be a default; leave it out")
            found[key] = None if value is None else _json(str(name), _CHECKS[key](str(name), value))
        if extra:
            if found.get("extra", {}) is None:
                raise _wrong(next(iter(extra)), "is no parameter, and extra is null; leave one of them out")
            added = {name: _json(name, value) for name, value in extra.items()}
            found["extra"] = _extra("extra", {**found.get("extra", {}), **added})
        return Params(found)

    def over(self, below: "Params") -> "Params":
        """These laid over others: a key of these wins, None clears what is below it (AG-8).

        ``extra`` is merged key by key, null clears one of them. Layers are put together from the lowest one
        up: ``request.over(agent.over(llm))``.
        """
        merged = {**below.values, **self.values}
        mine, theirs = self.values.get("extra"), below.values.get("extra")
        if mine is not None and theirs is not None:
            merged["extra"] = {**theirs, **mine}
        return Params(merged)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key; ``default`` where it is absent or cleared."""
        value = self.values.get(key)
        return default if value is None else value

    def cleared(self, key: str) -> bool:
        """Whether somebody said null: what the model has as its own default is not sent either."""
        return key in self.values and self.values[key] is None

    def without(self, keys: frozenset[str]) -> "Params":
        """All but these."""
        kept = {key: value for key, value in self.values.items() if key not in keys}
        return Params(kept)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values, cleared keys as null."""
        return dict(self.values)

    def __bool__(self) -> bool:
        return bool(self.values)

    def __reduce__(self) -> Any:
        return _restored, (dict(self.values),)


NO_PARAMS: Final = Params()


def _restored(values: dict[str, Any]) -> Params:
    return Params(values)


def _wrong(key: str, problem: str) -> Fault:
    shown = key[:60] if key.isprintable() else ascii(key)[:60]
    return Fault(FaultType.PROTOCOL, f"{shown}: {problem}", data={"key": shown})


def is_json(value: Any) -> bool:
    """Whether a value can be written as JSON in UTF-8, and is nested no deeper than any reader follows."""
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


def _json(key: str, value: Any) -> Any:
    if not is_json(value):
        raise _wrong(key, f"is no JSON of at most {MAX_DEPTH} levels in valid Unicode")
    return value


def _number(low: float, high: float) -> Callable[[str, Any], Any]:
    def check(key: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise _wrong(key, f"must be a number from {low:g} to {high:g}")
        return value

    return check


def _integer(low: int, high: int) -> Callable[[str, Any], Any]:
    def check(key: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise _wrong(key, f"must be a whole number from {low} to {high}")
        return value

    return check


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > 200_000:
        raise _wrong(key, "must be text of at most 200000 characters")
    return value


def _stop(key: str, value: Any) -> list[str] | None:
    """An empty list clears."""
    texts = [value] if isinstance(value, str) else value
    fits = isinstance(texts, list) and all(isinstance(each, str) and each for each in texts)
    if not fits or len(texts) > MAX_STOP:
        raise _wrong(key, f"must be a text, or a list of at most {MAX_STOP} texts, none of them empty")
    return list(texts) or None


def _names(key: str, value: Any) -> list[str]:
    if not isinstance(value, list) or len(value) > 1_000 or not all(isinstance(each, str) for each in value):
        raise _wrong(key, "must be a list of names of tools; an empty list allows none")
    return list(value)


def _response_format(key: str, value: Any) -> dict[str, Any]:
    kinds = ("text", "json_object", "json_schema")
    if not isinstance(value, dict) or value.get("type") not in kinds:
        raise _wrong(key, 'must be an object with "type": "text", "json_object" or "json_schema"')
    schema = value.get("json_schema")
    if value["type"] != "json_schema":
        return {"type": value["type"]}
    if not isinstance(schema, dict) or not isinstance(schema.get("schema"), dict):
        raise _wrong(key, 'of type json_schema needs "json_schema": {"name": ..., "schema": {...}}')
    if not isinstance(schema.get("name", ""), str):
        raise _wrong(key, "has a name that is no text")
    return {"type": "json_schema", "json_schema": {"name": "answer", **schema}}


def _tool_choice(key: str, value: Any) -> Any:
    if value in ("auto", "none", "required"):
        return value
    named = value.get("function") if isinstance(value, dict) and value.get("type") == "function" else None
    if not isinstance(named, dict) or not isinstance(named.get("name"), str) or not named["name"]:
        form = '{"type": "function", "function": {"name": ...}}'
        raise _wrong(key, f'must be "auto", "none", "required" or {form}')
    return {"type": "function", "function": {"name": named["name"]}}


def _messages(key: str, value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not value or not all(isinstance(each, dict) for each in value):
        raise _wrong(key, "must be a list of messages, each with role and content")
    return value


def _extra(key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or len(value) > MAX_EXTRA or not all(isinstance(k, str) for k in value):
        raise _wrong(key, f"must be an object with at most {MAX_EXTRA} keys")
    return dict(value)


_CHECKS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "temperature": _number(0, 2),
    "top_p": _number(0, 1),
    "top_k": _integer(0, 1_000_000),
    "max_tokens": _integer(1, 100_000_000),
    "stop": _stop,
    "presence_penalty": _number(-2, 2),
    "frequency_penalty": _number(-2, 2),
    "seed": _integer(-(2**63), 2**63 - 1),
    "response_format": _response_format,
    "tool_choice": _tool_choice,
    "tools_allowlist": _names,
    "systemOverride": _text,
    "systemAppend": _text,
    "messages": _messages,
    "extra": _extra,
}
