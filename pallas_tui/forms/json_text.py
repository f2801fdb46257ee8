"""JSON as text and as values, exact and bounded: the text is sent exactly as it is shown."""

import json
import math
from typing import Any, Final

from pallas.safe_text import sanitize

MAX_TEXT: Final = 1_000_000
"""Characters of one document."""
MAX_DEPTH: Final = 100
"""Objects and arrays within one another."""
_SHOWN_ITEMS: Final = 20


class JsonMistake(ValueError):
    """Why a text is not JSON that can be used, in one line ready to show."""


def parse(text: str) -> Any:
    """The value of a JSON text; whole numbers are exact, however long. Raises JsonMistake.

    Refused as well: a key twice in one object (one of the two would be lost), numbers that only infinity
    could stand for, half a surrogate pair, more than ``MAX_TEXT`` characters or ``MAX_DEPTH`` levels.
    """
    if len(text) > MAX_TEXT:
        raise JsonMistake(f"longer than {MAX_TEXT:,} characters")
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise JsonMistake(f"line {error.lineno}, column {error.colno}: {_reason(error)}") from None
    except JsonMistake:
        raise
    except RecursionError:
        raise JsonMistake(f"more than {MAX_DEPTH} objects and arrays within one another") from None
    except ValueError:  # Python's own bound for the digits of one number
        raise JsonMistake("a number has too many digits") from None
    _examine(value)
    return value


def dump(value: Any, indent: int | None = 2) -> str:
    """A value as JSON text, characters outside ASCII as they are."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def brief(value: Any, limit: int = 200) -> str:
    """Return a value in one safe line of at most ``limit`` characters: text in quotes, large ones as a count.

    Never walks through all of a large value, so that it may be called for every line that is painted.
    """
    if isinstance(value, str):
        return sanitize(dump(value[:limit], None)[: limit + 2], limit)
    if isinstance(value, dict):
        if not value:
            return "{}"
        names = ", ".join(str(key)[:limit] for key in list(value)[:_SHOWN_ITEMS])
        return sanitize(f"{{{len(value)}}} {names}".replace("\n", " "), limit)
    if isinstance(value, list):
        if not value:
            return "[]"
        return sanitize(f"[{len(value)}] {_plain_items(value, limit)}".rstrip(), limit)
    return sanitize(dump(value, None), limit)


def _plain_items(items: list[Any], limit: int) -> str:
    shown, room = [], limit
    for item in items[:_SHOWN_ITEMS]:
        if isinstance(item, dict | list) or room <= 0:
            break
        shown.append(brief(item, room))
        room -= len(shown[-1]) + 2
    return ", ".join(shown) + (", …" if shown and len(shown) < len(items) else "")


def same(one: Any, other: Any) -> bool:
    """Whether two values are one and the same in JSON: ``1``, ``1.0`` and ``true`` are three."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def _reason(error: json.JSONDecodeError) -> str:
    return error.msg[:1].lower() + error.msg[1:]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise JsonMistake(f"{brief(twice, 60)} occurs twice in one object")
    return found


def _constant(name: str) -> Any:
    raise JsonMistake(f"{name} is not a JSON number")


def _examine(value: Any) -> None:
    """Refuse what could not be sent; without recursion, so that no depth can break it."""
    left = [(value, 1)]
    while left:
        item, depth = left.pop()
        if isinstance(item, str):
            _refuse_surrogates(item)
        elif isinstance(item, float):
            if not math.isfinite(item):
                raise JsonMistake("a number is too large")
        elif isinstance(item, dict | list):
            if depth > MAX_DEPTH:
                raise JsonMistake(f"more than {MAX_DEPTH} objects and arrays within one another")
            if isinstance(item, dict):
                for key in item:
                    _refuse_surrogates(key)
            left += ((one, depth + 1) for one in (item.values() if isinstance(item, dict) else item))


def _refuse_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise JsonMistake("a text holds half a surrogate pair, which cannot be sent") from None
