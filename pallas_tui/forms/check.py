"""What of a tool's arguments is not as its schema says: field by field, in words, and never for long.

A schema comes from a stranger. Nothing is fetched, patterns are searched under a deadline, and a schema that
would take for ever is given up on: the server decides then.

Loading this module takes a quarter of a second: ``warm_up`` of a form does so in a thread.
"""

import datetime
import ipaddress
import uuid
from collections.abc import Callable, Iterator
from decimal import Context, Decimal
from time import monotonic
from typing import Any, Final
from urllib.parse import urlsplit

import jsonschema
import referencing
from jsonschema import validators
from jsonschema.exceptions import ValidationError

from pallas.text import one_line

from .json_text import brief, dump
from .mistakes import Mistakes
from .paths import Path
from .patterns import matches

MAX_STEPS: Final = 20_000
"""Keywords that are looked at for one check."""
MAX_SECONDS: Final = 0.1
_MAX_MISTAKES: Final = 200

_GIVEN_UP: Final = "too much to check here; the server decides"
_SKIPPED: Final = ("unevaluatedProperties", "unevaluatedItems")
"""Left to the server: they look through the schema again and again, which nothing bounds."""


class _TooMuch(Exception):
    pass


class Checker:
    """Checks values against one schema. ``clock`` gives seconds and only bounds the work."""

    def __init__(self, document: Any, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._steps = 0
        self._until = 0.0
        self._useless: set[str] = set()
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
            document, registry=referencing.Registry(), format_checker=_FORMATS
        )

    def mistakes(self, value: Any) -> Mistakes:
        """Everything that is wrong with ``value``; at most 200 fields are named."""
        self._steps, self._until = 0, self._clock() + MAX_SECONDS
        self._useless.clear()
        found: dict[Path, str] = {}
        note = ""
        try:
            for error in self._validator.iter_errors(value):
                self._take(error, found)
                if len(found) >= _MAX_MISTAKES:
                    break
        except (_TooMuch, RecursionError):
            note = _GIVEN_UP
        except referencing.exceptions.Unresolvable as error:
            note = (
                f"the schema refers to {one_line(str(error.ref), 80)}, which is not in it; the server decides"
            )
        except Exception as error:
            note = f"the schema cannot be used for a check ({type(error).__name__}); the server decides"
        if not note and self._useless:
            words = ", ".join(sorted(self._useless)[:5])
            note = f"the schema's {words} cannot be used; the server decides"
        return Mistakes(found, note)

    # Keywords

    def _guarded(self, keyword: str, check: Any) -> Any:
        def guarded(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
            self._steps += 1
            if self._steps > MAX_STEPS or (self._steps % 50 == 0 and self._clock() > self._until):
                raise _TooMuch
            try:
                yield from check(validator, value, instance, schema) or ()
            except (_TooMuch, RecursionError, referencing.exceptions.Unresolvable):
                raise
            except Exception as error:  # the schema itself is of the wrong type there
                if type(error).__name__ == "_WrappedReferencingError":
                    raise
                self._useless.add(keyword)

        return guarded

    def _pattern(self, validator: Any, pattern: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if isinstance(instance, str) and not matches(pattern, instance):
            yield ValidationError("does not match")

    def _pattern_properties(
        self, validator: Any, patterns: Any, instance: Any, schema: Any
    ) -> Iterator[ValidationError]:
        if isinstance(instance, dict):
            for pattern, node in patterns.items():
                for key, value in instance.items():
                    if matches(pattern, key):
                        yield from validator.descend(value, node, path=key, schema_path=pattern)

    def _additional(self, validator: Any, node: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if not isinstance(instance, dict):
            return
        named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        for key, value in instance.items():
            if key in named or any(matches(pattern, key) for pattern in patterns):
                continue
            if node is False:
                yield ValidationError("is none of the tool's fields", path=(key,))
            else:
                yield from validator.descend(value, node, path=key)

    # Words

    def _take(self, error: ValidationError, found: dict[Path, str], depth: int = 0) -> None:
        path: Path = tuple(error.absolute_path)
        if error.validator in ("anyOf", "oneOf") and error.context and depth < 8:
            for one in _nearest(error):
                self._take(one, found, depth + 1)
        elif error.validator == "required" and isinstance(error.instance, dict):
            names = error.validator_value if isinstance(error.validator_value, list) else []
            for name in names[:_MAX_MISTAKES]:
                if isinstance(name, str) and name not in error.instance:
                    found.setdefault((*path, name), "required")
        else:
            found.setdefault(path, _words(error))


def _nearest(error: ValidationError) -> list[ValidationError]:
    """The mistakes of the variant that comes nearest to what stands there."""
    groups: dict[Any, list[ValidationError]] = {}
    for one in error.context or ():
        groups.setdefault(one.relative_schema_path[0] if one.relative_schema_path else 0, []).append(one)

    def distance(group: list[ValidationError]) -> tuple[bool, int]:
        wrong_kind = any(
            one.validator in ("type", "const", "enum") and not one.relative_path for one in group
        )
        return wrong_kind, len(group)

    return min(groups.values(), key=distance)


def _words(error: ValidationError) -> str:
    limit = error.validator_value
    match error.validator:
        case "type":
            kinds = limit if isinstance(limit, list) else [limit]
            return f"must be {' or '.join(one_line(str(kind), 20) for kind in kinds[:8])}"
        case "enum":
            return f"must be one of {brief(limit, 100)}"
        case "const":
            return f"must be {brief(limit, 100)}"
        case "pattern":
            return f"must match {one_line(str(limit), 100)}"
        case "format":
            return f"must be {_AN.get(str(limit), 'a ' + one_line(str(limit), 40))}"
        case "oneOf" if not error.context:
            return "fits more than one of the variants"
        case "not":
            return "must not be as it is"
        case str(keyword) if keyword in _LIMIT_WORDS and isinstance(limit, int | float):
            return f"must {_LIMIT_WORDS[keyword]}".replace("#", brief(limit, 40))
    return one_line(error.message[:400], 160)


_LIMIT_WORDS: Final = {
    "minimum": "be at least #",
    "maximum": "be at most #",
    "exclusiveMinimum": "be more than #",
    "exclusiveMaximum": "be less than #",
    "multipleOf": "be a multiple of #",
    "minLength": "have # characters at least",
    "maxLength": "have # characters at most",
    "minItems": "have # items at least",
    "maxItems": "have # items at most",
    "minProperties": "have # fields at least",
    "maxProperties": "have # fields at most",
    "uniqueItems": "have no two items that are the same",
}
_AN: Final = {
    "email": "an e-mail address",
    "date": "a date such as 2026-05-31",
    "time": "a time such as 14:30:00Z",
    "date-time": "a date and time such as 2026-05-31T14:30:00Z",
    "uri": "an address such as https://example.org",
    "uuid": "a UUID",
    "ipv4": "an IPv4 address",
    "ipv6": "an IPv6 address",
}


def _nothing(*_: Any) -> None:
    return None


def _unique(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if wanted is True and isinstance(instance, list):
        # In JSON's own terms, and without comparing each with each: 1 and 1.0 are the same number there.
        seen = {dump(_plain(item), None) for item in instance}
        if len(seen) < len(instance):
            yield ValidationError("not unique")


def _multiple(validator: Any, step: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, int | float) and not isinstance(instance, bool):
        # As they are written: as binary fractions 19.99 is no multiple of 0.01.
        exact = Context(prec=5_000, Emax=999_999, Emin=-999_999)
        if exact.remainder(Decimal(str(instance)), Decimal(str(step))) != 0:
            yield ValidationError("no multiple")


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(value[key]) for key in sorted(value)}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _format(check: Callable[[str], Any]) -> Callable[[object], bool]:
    def checked(value: object) -> bool:
        return not isinstance(value, str) or bool(check(value))

    return checked


def _moment(text: str) -> bool:
    found = datetime.datetime.fromisoformat(text)
    return "T" in text.upper() and found.tzinfo is not None


_FORMATS: Final = jsonschema.FormatChecker(formats=())
for _name, _check in {
    "email": lambda text: 0 < text.find("@") < len(text) - 1 and " " not in text,
    "date": lambda text: len(text) == 10 and datetime.date.fromisoformat(text),
    "time": lambda text: datetime.time.fromisoformat(text).tzinfo is not None,
    "date-time": _moment,
    "uri": lambda text: urlsplit(text).scheme and " " not in text,
    "uuid": lambda text: len(text) == 36 and uuid.UUID(text),
    "ipv4": ipaddress.IPv4Address,
    "ipv6": ipaddress.IPv6Address,
}.items():
    _FORMATS.checks(_name, raises=ValueError)(_format(_check))
