"""Paths into a JSON value: read, set and remove the value at a path."""

from collections.abc import Mapping
from typing import Any, Final

Path = tuple[str | int, ...]
"""Keys and positions from the top; ``()`` is the whole."""


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"

    def __bool__(self) -> bool:
        return False


ABSENT: Final = _Absent()
"""Nothing stands there: neither null nor an empty text."""


def at(value: Any, path: Path) -> Any:
    """Return the value at ``path``, or ABSENT."""
    for step in path:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step, ABSENT)
        elif isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value):
            value = value[step]
        else:
            return ABSENT
    return value


def put(value: Any, path: Path, new: Any) -> Any:
    """Return a copy with ``new`` at ``path``. Creates missing objects on the way; a list grows at the end.

    A value on the way that is neither object nor list is replaced.
    """
    if not path:
        return new
    step, rest = path[0], path[1:]
    if isinstance(step, str):
        found = dict(value) if isinstance(value, dict) else {}
        found[step] = put(found.get(step, ABSENT), rest, new)
        return found
    items = list(value) if isinstance(value, list) else []
    if step < len(items):
        items[step] = put(items[step], rest, new)
    else:
        items.append(put(ABSENT, rest, new))
    return items


def remove(value: Any, path: Path) -> Any:
    """Return a copy without the value at ``path``; later items of a list move up."""
    if not path or at(value, path) is ABSENT:
        return value
    parent = at(value, path[:-1])
    step = path[-1]
    left = (
        {key: one for key, one in parent.items() if key != step}
        if isinstance(parent, dict)
        else [one for index, one in enumerate(parent) if index != step]
    )
    return put(value, path[:-1], left)


def moved(marks: Mapping[Path, Any], gone: Path) -> dict[Path, Any]:
    """Return ``marks`` after the list item at ``gone`` was removed: paths of later items move up."""
    found: dict[Path, Any] = {}
    parent, index = gone[:-1], gone[-1]
    for path, mark in marks.items():
        step = path[len(parent)] if len(path) > len(parent) and path[: len(parent)] == parent else None
        if step is None or step == index:
            if step is None:
                found[path] = mark
        elif isinstance(step, int) and isinstance(index, int) and step > index:
            found[(*parent, step - 1, *path[len(parent) + 1 :])] = mark
        else:
            found[path] = mark
    return found
