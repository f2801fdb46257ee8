"""Conditions on the arguments of a tool call: ``amount: "> 100"``, read and evaluated.

What cannot be decided (a missing path, a text where a number is compared, a pattern that takes too long) is
``None``: who asks takes the careful side.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from time import monotonic
from typing import Any, Final, Literal

Operator = Literal["==", "!=", ">", ">=", "<", "<=", "in", "matches"]

MAX_PATTERN: Final = 500
MAX_TEXT: Final = 100_000
"""Most characters of a pattern, and of a text in which it is searched."""
_SECONDS: Final = 0.05
"""How long a pattern is searched, in all values together."""
_MAX_VALUES: Final = 1_000
"""Most values that a path with ``[*]`` may lead to."""
_CONDITION: Final = re.compile(r"(==|!=|>=|<=|>|<|in\b|matches\b)\s*(.+)", re.DOTALL)
_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[(\d{1,6}|\*)\]")
_HELP: Final = 'write it as "> 100", ">= 1", "< 5", \'== "EUR"\', "!= x", "in [a, b]" or "matches REGEX"'


@dataclass(frozen=True, slots=True)
class ArgumentCondition:
    """A condition on what ``path`` leads to in the arguments of a call."""

    path: str  # ``order.items[*].price``, as written
    operator: Operator
    value: Any  # a plain JSON value; a list for ``in``, a pattern for ``matches``

    def holds(self, arguments: Mapping[str, Any], *, for_all: bool) -> bool | None:
        """Whether it holds, None if that cannot be decided.

        Where ``path`` leads to several values it has to hold for all of them, or for one.
        """
        found = list(islice(_values(arguments, steps_of(self.path)), _MAX_VALUES + 1))
        if not found or len(found) > _MAX_VALUES or _MISSING in found:
            return None
        until = monotonic() + _SECONDS
        results = [self._holds_for(each, until) for each in found]
        decisive = not for_all
        if decisive in results:
            return decisive
        return None if None in results else for_all

    def _holds_for(self, value: Any, until: float) -> bool | None:
        match self.operator:
            case "==":
                return _same(value, self.value)
            case "!=":
                return not _same(value, self.value)
            case "in":
                return any(_same(value, each) for each in self.value)
            case "matches":
                return _matches(self.value, value, until - monotonic())
        if not (_is_number(value) and _is_number(self.value)):
            return None
        match self.operator:
            case ">":
                return bool(value > self.value)
            case ">=":
                return bool(value >= self.value)
            case "<":
                return bool(value < self.value)
        return bool(value <= self.value)

    def __str__(self) -> str:
        value = self.value if self.operator == "matches" else json.dumps(self.value, ensure_ascii=False)
        return f"{self.path} {self.operator} {value}"


_MISSING: Final = object()


def condition_of(path: str, text: Any) -> ArgumentCondition:
    """The condition as it is written in a file. Raises ValueError with ``problem; hint``."""
    if steps_of(path) is None:
        raise ValueError(f"{path} is not a path; write it as `amount`, `order.total` or `items[*].price`")
    if isinstance(text, bool | int | float):
        return ArgumentCondition(path, "==", text)
    match = _CONDITION.fullmatch(str(text).strip())
    if match is None:
        raise ValueError(f"{text} is not a condition; {_HELP}")
    operator, rest = match[1], match[2].strip()
    if operator == "matches":
        _check_pattern(rest)
        return ArgumentCondition(path, "matches", rest)
    value = _list(rest) if operator == "in" else _literal(rest)
    if operator in (">", ">=", "<", "<=") and not _is_number(value):
        raise ValueError(f"{rest} is not a number, and {operator} compares numbers; {_HELP}")
    return ArgumentCondition(path, operator, value)  # type: ignore[arg-type]


def steps_of(path: str) -> tuple[str | int | None, ...] | None:
    """The steps of a path: a key, an index, or None for ``[*]``; None for a text that is no path."""
    rest = path.removeprefix("$")
    steps: list[str | int | None] = []
    while rest:
        match = _STEP.match(rest)
        if match is None:
            return None
        steps.append(match[1] if match[1] is not None else None if match[2] == "*" else int(match[2]))
        rest = rest[match.end() :]
    return tuple(steps) or None


def _values(value: Any, steps: tuple[str | int | None, ...] | None) -> Iterator[Any]:
    if not steps:
        yield value
        return
    step, rest = steps[0], steps[1:]
    if step is None and isinstance(value, list | tuple):
        for each in value[: _MAX_VALUES + 1]:
            yield from _values(each, rest)
    elif _leads_on(value, step):
        yield from _values(value[step], rest)
    else:
        yield _MISSING


def _leads_on(value: Any, step: str | int | None) -> bool:
    if isinstance(value, Mapping):
        return isinstance(step, str) and step in value
    return isinstance(value, list | tuple) and isinstance(step, int) and step < len(value)


def _same(value: Any, other: Any) -> bool:
    return isinstance(value, bool) is isinstance(other, bool) and bool(value == other)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def _matches(pattern: str, value: Any, seconds: float) -> bool | None:
    import regex  # it takes a moment, and few rules need it

    if not isinstance(value, str) or len(value) > MAX_TEXT or seconds <= 0:
        return None
    try:
        return regex.search(pattern, value, timeout=seconds) is not None
    except (regex.error, TimeoutError, OverflowError, RecursionError):
        return None


def _check_pattern(pattern: str) -> None:
    import regex

    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"the pattern has {len(pattern)} characters; allowed: at most {MAX_PATTERN}")
    try:
        regex.compile(pattern)
    except (regex.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{pattern} is not a regular expression ({error}); see Python's module re") from None


def _literal(text: str) -> Any:
    """A JSON value, or the text as it stands."""
    try:
        value = json.loads(text)
    except ValueError:
        return text[1:-1] if len(text) > 1 and text[0] == text[-1] == "'" else text
    return value if not isinstance(value, dict | list) else text


def _list(text: str) -> list[Any]:
    if not (text.startswith("[") and text.endswith("]")):
        raise ValueError(f"{text} is not a list; {_HELP}")
    try:
        found = json.loads(text)
    except ValueError:
        found = [_literal(each.strip()) for each in text[1:-1].split(",") if each.strip()]
    return list(found)
