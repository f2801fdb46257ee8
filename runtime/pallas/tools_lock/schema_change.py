"""What became of a JSON schema: does it accept more than before, less, or other things?"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

type Direction = Literal["widened", "narrowed", "changed"]

# A higher value of the first accepts more, of the second less.
_UPPER: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_LOWER: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_TEXTS: Final = ("title", "description", "examples", "$comment")
_MAX_DEPTH: Final = 64


def schema_change(before: Any, after: Any) -> tuple[str, ...]:
    """Return how ``after`` differs, in words: ``widened``, ``narrowed``, ``changed``,
    ``described otherwise``; empty if both are the same.
    """
    found = set(_compared(before, after, 0))
    directions: set[str] = found & {"widened", "narrowed", "changed"}
    words = []
    if directions:
        words.append(directions.pop() if len(directions) == 1 else "changed")
    if "text" in found:
        words.append("described otherwise")
    return tuple(words)


def _compared(before: Any, after: Any, depth: int) -> Iterator[str]:
    if before == after:
        return
    if not isinstance(before, Mapping) or not isinstance(after, Mapping) or depth > _MAX_DEPTH:
        yield _of_boolean(before, after)
        return
    for key in dict.fromkeys((*before, *after)):
        if before.get(key) == after.get(key) and (key in before) == (key in after):
            continue
        yield from _of_key(key, before, after, depth)


def _of_boolean(before: Any, after: Any) -> Direction:
    """A schema may be ``true``, which accepts everything, or ``false``."""
    if before is False or after is True:
        return "widened"
    return "narrowed" if before is True or after is False else "changed"


def _of_key(key: str, before: Mapping[str, Any], after: Mapping[str, Any], depth: int) -> Iterator[str]:
    old, new = before.get(key), after.get(key)
    if key in _TEXTS:
        yield "text"
    elif key == "properties" and _are_mappings(old, new):
        yield from _of_properties(old or {}, new or {}, depth)
    elif key == "required":
        yield _of_sets(new, old)
    elif key in ("enum", "type"):
        yield _of_sets(old, new) if key in before and key in after else _presence(key in before)
    elif key in _UPPER or key in _LOWER:
        yield _of_limits(old, new, is_upper=key in _UPPER)
    elif key == "additionalProperties":
        yield from _compared(before.get(key, True), after.get(key, True), depth + 1)
    elif key in ("items", "$defs", "definitions") and isinstance(old, Mapping) and isinstance(new, Mapping):
        yield from _compared(old, new, depth + 1) if key == "items" else _of_properties(old, new, depth)
    else:
        yield "changed"


def _are_mappings(*values: Any) -> bool:
    return all(value is None or isinstance(value, Mapping) for value in values)


def _of_properties(old: Mapping[str, Any], new: Mapping[str, Any], depth: int) -> Iterator[str]:
    for name in dict.fromkeys((*old, *new)):
        if name not in old:
            yield "widened"
        elif name not in new:
            yield "narrowed"
        else:
            yield from _compared(old[name], new[name], depth + 1)


def _presence(was_there: bool) -> Direction:
    return "widened" if was_there else "narrowed"


def _of_sets(old: Any, new: Any) -> Direction:
    """More values accept more."""
    try:
        before, after = (
            set(each if isinstance(each, list) else [each] if each else []) for each in (old, new)
        )
    except TypeError:  # values that are no texts
        return "changed"
    if before < after:
        return "widened"
    return "narrowed" if before > after else "changed"


def _of_limits(old: Any, new: Any, *, is_upper: bool) -> Direction:
    if old is None or new is None:
        return _presence(new is None)
    if not all(isinstance(each, int | float) for each in (old, new)):
        return "changed"
    return "widened" if (new > old) == is_upper else "narrowed"
