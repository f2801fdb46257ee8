"""What pydantic finds wrong in a request, in words for its author."""

import re
from collections.abc import Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel

from pallas.config.notes import did_you_mean, no_such_key
from pallas.safe_text import one_line

_UNKNOWN: Final = "extra_forbidden"
_IN_WORDS: Final[Mapping[str, str]] = {
    # Pydantic's error types whose texts speak of Python rather than JSON.
    "missing": "is missing",
    "string_type": "must be a text",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "string_too_short": "must have {min_length} characters at least",
    "string_too_long": "must have {max_length} characters at most",
    "too_short": "must have {min_length} items at least",
    "too_long": "must have {max_length} items at most",
    "string_pattern_mismatch": "must match {pattern}",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
}
_OPTION: Final = re.compile(r"'([^']*)'")


def first_of(errors: Sequence[Any]) -> Mapping[str, Any]:
    """Return the mistake to report: a misspelt key is also a missing one, and says how to fix it."""
    unknown = (error for error in errors if error.get("type") == _UNKNOWN)
    return next(unknown, errors[0] if errors else {})


def problem_of(error: Mapping[str, Any], kind_of_all: Any = None, path: Sequence[str] = ()) -> str:
    """Return what is wrong with a value, in words that say what it must be.

    ``kind_of_all`` is the type of the whole, in which ``path`` leads to the value.
    """
    kind, limits = str(error.get("type", "")), error.get("ctx") or {}
    if kind == _UNKNOWN:
        return no_such_key(path[-1] if path else "", keys_at(kind_of_all, path[:-1]))
    if kind == "string_too_short" and limits.get("min_length") == 1:
        return "must not be empty"
    if kind in ("literal_error", "enum"):
        options = _OPTION.findall(str(limits.get("expected", "")))
        near = did_you_mean(str(error.get("input", "")), options)
        return (
            "must be "
            + " or ".join(filter(None, (", ".join(options[:-1]), *options[-1:])))
            + (f"; {near}" if near else "")
        )
    try:
        problem = _IN_WORDS[kind].format(**limits)
    except (KeyError, IndexError):
        problem = str(error.get("msg", "is not understood")).replace("Input should ", "must ", 1)
        problem = problem[:1].lower() + problem[1:]
    return one_line(problem, 300)


def keys_at(kind: Any, path: Sequence[str]) -> tuple[str, ...]:
    """Return the keys of the objects at a place in what a type describes; empty if it has any keys."""
    kinds = list(_models(kind))
    for part in path:
        below = [field.annotation for each in kinds if (field := _field(each, part)) is not None]
        if below:  # else it is the position in a list, or the name of a member of a union
            kinds = [model for each in below for model in _models(each)]
    return tuple(dict.fromkeys(key for each in kinds for key in _keys(each)))


def _models(kind: Any) -> Iterator[type[BaseModel]]:
    """The models in a type: its own, those of a list's items, and of each member of a union."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    elif get_origin(kind) is Annotated:
        yield from _models(get_args(kind)[0])
    elif get_origin(kind) in (Union, UnionType, list, tuple):
        for each in get_args(kind):
            yield from _models(each)


def _keys(model: type[BaseModel]) -> tuple[str, ...]:
    return tuple(field.alias or name for name, field in model.model_fields.items())


def _field(model: type[BaseModel], key: str) -> Any:
    found = (field for name, field in model.model_fields.items() if key in (name, field.alias))
    return next(found, None)
