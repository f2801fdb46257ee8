"""What the values of JSON Schema's keywords must be (2020-12); providers refuse requests with any other."""

import re
from collections.abc import Callable
from math import isfinite
from typing import Any, Final

DROPPED: Final = object()
"""In the place of a value that says nothing: its keyword is left out."""
NAMED_OR_LISTED: Final = "dependencies"
"""Has schemas by name, or lists of names."""
NAMED: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", NAMED_OR_LISTED}
)
"""The keywords with schemas by name."""
SINGLE: Final = frozenset(
    {"items", "additionalProperties", "contains", "not", "if", "then", "else", "propertyNames"}
    | {"unevaluatedItems", "unevaluatedProperties", "contentSchema"}
)
"""Those with one schema."""
LISTED: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
"""Those with a list of schemas."""
_COUNTS: Final = tuple(
    f"{bound}{what}" for bound in ("min", "max") for what in ("Length", "Items", "Properties", "Contains")
)
_TYPES: Final = ("array", "boolean", "integer", "null", "number", "object", "string")
_ID: Final = re.compile(r"[^#]*#?")
# What patterns of JavaScript have and Python's have not.
_ECMA: Final = re.compile(r"\\[pP]\{[^}]*\}|\\k<\w+>|\\c[A-Za-z]")
_GROUP: Final = re.compile(r"\(\?<(?=\w)")
_ANCHOR: Final = re.compile(r"[A-Za-z_][-A-Za-z0-9._]*")


def fitted_value(keyword: str, value: Any) -> Any:
    """Return the nearest value of a keyword without schemas; the same object if it fits, or ``DROPPED``."""
    if isinstance(value, float) and not isfinite(value):  # no JSON
        return DROPPED
    rule = _RULES.get(keyword)
    return value if rule is None else rule(value)


def is_pattern(value: Any) -> bool:
    """Return whether a value is a regular expression, also one of JavaScript's."""
    if not isinstance(value, str):
        return False
    try:
        re.compile(_GROUP.sub("(?P<", _ECMA.sub("x", value)))
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def _if(fits: Callable[[Any], bool]) -> Callable[[Any], Any]:
    return lambda value: value if fits(value) else DROPPED


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and float(value).is_integer()


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _names(value: Any) -> Any:
    """Each name once, as the same object if they are so already."""
    if not isinstance(value, list):
        return DROPPED
    names = list(dict.fromkeys(each for each in value if isinstance(each, str)))
    return value if len(names) == len(value) else names


def _names_by_name(value: Any) -> Any:
    if not isinstance(value, dict):
        return DROPPED
    fitting = {name: made for name, each in value.items() if (made := _names(each)) is not DROPPED}
    is_same = len(fitting) == len(value) and all(fitting[name] is value[name] for name in fitting)
    return value if is_same else fitting


def _known_types(value: Any) -> Any:
    """The types that JSON Schema has; the same object if all are, nothing if none is."""
    if isinstance(value, str):
        return value if value in _TYPES else DROPPED
    known = [each for each in _TYPES if isinstance(value, list) and each in value]
    return (value if sorted(map(str, value)) == known else known) if known else DROPPED


_RULES: Final[dict[str, Callable[[Any], Any]]] = {
    "type": _known_types,
    "required": _names,
    "dependentRequired": _names_by_name,
    "pattern": _if(is_pattern),
    "multipleOf": _if(lambda value: _is_number(value) and value > 0),
    "$id": _if(lambda value: isinstance(value, str) and _ID.fullmatch(value) is not None),
    "$vocabulary": lambda value: DROPPED,  # of a schema for schemas
    **dict.fromkeys(("enum", "examples"), _if(lambda value: isinstance(value, list))),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _if(_is_number)),
    **dict.fromkeys(_COUNTS, _if(_is_count)),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _if(_is_flag)),
    **dict.fromkeys(("title", "description", "format", "$comment", "$schema"), _if(_is_text)),
    **dict.fromkeys(("$ref", "$dynamicRef", "$recursiveRef"), _if(_is_text)),
    **dict.fromkeys(("contentEncoding", "contentMediaType"), _if(_is_text)),
    **dict.fromkeys(
        ("$anchor", "$dynamicAnchor", "$recursiveAnchor"),
        _if(lambda value: isinstance(value, str) and _ANCHOR.fullmatch(value) is not None),
    ),
}
