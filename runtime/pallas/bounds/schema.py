"""Checks values against JSON Schemas of servers, within limits of time, steps and memory.

Nothing is fetched, patterns are searched under a deadline, and a check that takes too long is aborted.
Importing this module takes a quarter of a second.
"""

from collections.abc import Callable, Iterator
from decimal import Context, Decimal
from json import dumps
from time import monotonic
from typing import Any, Final

import jsonschema
import referencing
import regex
from jsonschema import validators
from jsonschema.exceptions import ValidationError

SECONDS: Final = 0.02
MAX_PATTERN: Final = 1_000
MAX_SIZE: Final = 20_000
"""Most places of a pattern after its counted repeats are expanded, as the compiler does."""


class Unusable(ValueError):
    """A pattern that cannot be searched: too large, too slow, or invalid."""


def matches(pattern: object, text: str, seconds: float = SECONDS) -> bool:
    """Whether ``pattern`` is found in ``text``, within ``seconds``. Raises Unusable."""
    if not isinstance(pattern, str) or len(pattern) > MAX_PATTERN or size(pattern) > MAX_SIZE:
        raise Unusable
    try:
        return regex.search(pattern, text, timeout=seconds) is not None
    except (regex.error, TimeoutError, OverflowError, RecursionError) as error:
        raise Unusable from error


def size(pattern: str) -> int:
    """An upper estimate of the places in a pattern after its repeats are expanded."""
    groups: list[int] = [0]
    last = 0
    index = 0
    while index < len(pattern):
        char = pattern[index]
        if char == "\\":
            index += 1
            last = 1
        elif char == "[":
            end = pattern.find("]", index + 2)
            index, last = (len(pattern) if end < 0 else end), 1
        elif char == "(":
            groups.append(0)
            last = 0
        elif char == ")" and len(groups) > 1:
            last = groups.pop()
        elif char == "{" and (end := pattern.find("}", index)) > 0:
            counts = [
                int(part) for part in pattern[index + 1 : end].split(",") if part.isascii() and part.isdigit()
            ]
            if counts:
                groups[-1] += last * max(0, max(counts) - 1)
                last *= max(1, max(counts))
                index = end + 1
                continue
            last = 1
        else:
            last = 1
        groups[-1] += last
        index += 1
    return sum(groups)


_SKIPPED: Final = ("unevaluatedProperties", "unevaluatedItems")
"""Not checked, since they traverse the schema repeatedly, which cannot be bounded."""


class TooCostly(Exception):
    """A check takes more steps or seconds than allowed."""


class BoundedSchema:
    """A JSON Schema whose checks are bounded.

    One check takes at most ``steps`` keywords and ``seconds``, and each pattern ``pattern_seconds`` on each
    text. ``unusable`` has the keywords that could not be used in the last check.
    """

    def __init__(
        self,
        document: Any,
        *,
        steps: int,
        seconds: float,
        pattern_seconds: float = SECONDS,
        formats: jsonschema.FormatChecker | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._max_steps, self._seconds, self._pattern_seconds = steps, seconds, pattern_seconds
        self._clock = clock
        self._steps = 0
        self._until = 0.0
        self.unusable: set[str] = set()
        named = document.get("$schema") if isinstance(document, dict) else None
        known = {"$schema": named} if isinstance(named, str) else {}
        base = validators.validator_for(known, default=jsonschema.Draft202012Validator)
        keywords = {word: self._guarded(word, check) for word, check in base.VALIDATORS.items()}
        own = {"pattern": self._pattern, "patternProperties": self._pattern_properties} | {
            "additionalProperties": self._additional,
            "uniqueItems": _unique,
            "multipleOf": _multiple,
        }
        keywords |= {word: self._guarded(word, check) for word, check in own.items()}
        keywords |= dict.fromkeys(_SKIPPED, _nothing)
        # An empty registry of its own: the library's default would fetch whatever address a ``$ref`` names.
        self._validator = validators.extend(base, keywords)(  # type: ignore[no-untyped-call]
            document, registry=referencing.Registry(), format_checker=formats
        )

    def errors(self, value: Any) -> Iterator[ValidationError]:
        """Yield the errors in ``value``.

        Raises TooCostly, RecursionError, Unresolvable, and any error of an invalid schema.
        """
        self._steps, self._until = 0, self._clock() + self._seconds
        self.unusable.clear()
        yield from self._validator.iter_errors(value)

    def _guarded(self, keyword: str, check: Any) -> Any:
        def guarded(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
            self._count()
            try:
                yield from check(validator, value, instance, schema) or ()
            except (TooCostly, RecursionError, referencing.exceptions.Unresolvable):
                raise
            except Exception as error:  # the schema itself is of the wrong type there
                if type(error).__name__ == "_WrappedReferencingError":
                    raise
                self.unusable.add(keyword)

        return guarded

    def _count(self) -> None:
        self._steps += 1
        if self._steps > self._max_steps or self._clock() > self._until:
            raise TooCostly

    def _matches(self, pattern: Any, text: str) -> bool:
        self._count()
        return matches(pattern, text, self._pattern_seconds)

    def _pattern(self, validator: Any, pattern: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if isinstance(instance, str) and not self._matches(pattern, instance):
            yield ValidationError("does not match")

    def _pattern_properties(
        self, validator: Any, patterns: Any, instance: Any, schema: Any
    ) -> Iterator[ValidationError]:
        if isinstance(instance, dict):
            for pattern, node in patterns.items():
                for key, value in instance.items():
                    if self._matches(pattern, key):
                        yield from validator.descend(value, node, path=key, schema_path=pattern)

    def _additional(self, validator: Any, node: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if not isinstance(instance, dict):
            return
        named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        for key, value in instance.items():
            if key in named or any(self._matches(pattern, key) for pattern in patterns):
                continue
            if node is False:
                yield ValidationError("is not a field of the tool", path=(key,))
            else:
                yield from validator.descend(value, node, path=key)


def _nothing(*_: Any) -> None:
    return None


def _unique(validator: Any, expected: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if expected is not True or not isinstance(instance, list):
        return
    # Compare in JSON's terms, where 1 and 1.0 are the same number, and not each item with each.
    if len({_canonical(item) for item in instance}) < len(instance):
        yield ValidationError("not unique")


def _multiple(validator: Any, step: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, int | float) and not isinstance(instance, bool):
        # Decimal, as written: as binary fractions 19.99 is no multiple of 0.01.
        exact = Context(prec=5_000, Emax=999_999, Emin=-999_999)
        if exact.remainder(Decimal(str(instance)), Decimal(str(step))) != 0:
            yield ValidationError("no multiple")


def _canonical(value: Any) -> str:
    return dumps(_plain(value), sort_keys=True, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
