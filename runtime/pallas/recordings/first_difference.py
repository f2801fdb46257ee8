"""The first field in which two JSON documents differ, and how much they differ at all."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from pallas.safe_text import one_line

MAX_SHOWN: Final = 100
"""Characters that are shown of a value."""
_BEFORE: Final = 20
"""Characters that are shown before the place where two long texts begin to differ."""
_NOTHING: Final = object()

type Same = Callable[[str, str], bool]
"""Whether two texts mean the same: the one of the first document, and that of the second."""


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """A field that differs: its path, such as ``messages[3].content``, and both values, a short line each."""

    path: str
    before: str
    after: str
    values: tuple[Any, Any] = field(default=(None, None), compare=False, repr=False)

    def texts(self, limit: int, mask: Callable[[str], str]) -> tuple[str, str]:
        """Both values with their line breaks, after ``mask``: ``limit`` characters around the difference.

        Both are empty if that is too far in.
        """
        was, now = (mask(_whole(each)) for each in self.values)
        if was == now:
            return "", ""
        at = _first_other(was, now)
        start = max(0, at - limit // 4) if max(len(was), len(now)) > limit else 0
        return _part(was, start, limit), _part(now, start, limit)


def differences(before: Any, after: Any, same: Same) -> Iterator[FieldDifference]:
    """The fields in which two documents differ, in the order of the second.

    Of requests to models these are documents of their canonical form.
    """
    return _Comparison(same).differences("", before, after)


def loaded(text: str) -> Any:
    """The value of a JSON text; a text that is none is itself."""
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return text


@dataclass(frozen=True, slots=True)
class _Comparison:
    same: Same

    def differences(self, path: str, before: Any, after: Any) -> Iterator[FieldDifference]:
        if isinstance(before, dict) and isinstance(after, dict):
            for name in (*after, *(each for each in before if each not in after)):
                below = f"{path}.{name}" if path else name
                yield from self.differences(below, before.get(name, _NOTHING), after.get(name, _NOTHING))
        elif isinstance(before, list) and isinstance(after, list):
            for index in range(max(len(before), len(after))):
                yield from self.differences(f"{path}[{index}]", _item(before, index), _item(after, index))
        elif isinstance(before, str) and isinstance(after, str):
            if before != after and not self.same(before, after):
                yield FieldDifference(path, *_excerpts(before, after), (before, after))
        elif before != after or type(before) is not type(after):
            yield FieldDifference(path, _shown(before), _shown(after), (before, after))


def _item(items: list[Any], index: int) -> Any:
    return items[index] if index < len(items) else _NOTHING


def _excerpts(before: str, after: str) -> tuple[str, str]:
    start = max(0, _first_other(before, after) - _BEFORE) if max(len(before), len(after)) > MAX_SHOWN else 0
    return _shown(before, start), _shown(after, start)


def _first_other(before: str, after: str) -> int:
    """The place where two texts begin to differ."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(before), len(after)))


def _whole(value: Any) -> str:
    if value is _NOTHING:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def _part(text: str, start: int, limit: int) -> str:
    found = text[start : start + limit]
    return f"{'…' if start and found else ''}{found}{'…' if start + limit < len(text) else ''}"


def _shown(value: Any, start: int = 0) -> str:
    if value is _NOTHING:
        return "nothing"
    text = json.dumps(value[start:] if isinstance(value, str) else value, ensure_ascii=False)
    if start:
        text = f"…{text}"
    return one_line(text, MAX_SHOWN)
