"""What of a tool's arguments is not as its schema says: field by field, in words, and never for long.

A schema comes from a stranger. Nothing is fetched, patterns are searched under a deadline, and a schema that
would take for ever is given up on: the server decides then.

Loading this module takes a quarter of a second: ``warm_up`` of a form does so in a thread.
"""

import datetime
import ipaddress
import uuid
from collections.abc import Callable
from time import monotonic
from typing import Any, Final
from urllib.parse import urlsplit

import jsonschema
import referencing
from jsonschema.exceptions import ValidationError

from pallas.bounds.schema import BoundedSchema, TooCostly
from pallas.safe_text import one_line

from .json_text import brief
from .mistakes import Mistakes
from .value_paths import Path

MAX_STEPS: Final = 20_000
"""Keywords that are looked at for one check."""
MAX_SECONDS: Final = 0.1
_MAX_MISTAKES: Final = 200

_GIVEN_UP: Final = "too much to check here; the server decides"


class Checker:
    """Checks values against one schema. ``clock`` gives seconds and only bounds the work."""

    def __init__(self, document: Any, clock: Callable[[], float] = monotonic) -> None:
        self._schema = BoundedSchema(
            document, steps=MAX_STEPS, seconds=MAX_SECONDS, formats=_FORMATS, clock=clock
        )

    def mistakes(self, value: Any) -> Mistakes:
        """Everything that is wrong with ``value``; at most 200 fields are named."""
        found: dict[Path, str] = {}
        note = ""
        try:
            for error in self._schema.errors(value):
                self._take(error, found)
                if len(found) >= _MAX_MISTAKES:
                    break
        except (TooCostly, RecursionError):
            note = _GIVEN_UP
        except referencing.exceptions.Unresolvable as error:
            note = (
                f"the schema refers to {one_line(str(error.ref), 80)}, which is not in it; the server decides"
            )
        except Exception as error:
            note = f"the schema cannot be used for a check ({type(error).__name__}); the server decides"
        if not note and self._schema.unusable:
            words = ", ".join(sorted(self._schema.unusable)[:5])
            note = f"the schema's {words} cannot be used; the server decides"
        return Mistakes(found, note)

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
    """Return the mistakes of the variant that is nearest to the value."""
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
            return "must not have this value"
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
