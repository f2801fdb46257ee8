"""The arguments of a call as a model wrote them, and what becomes of those that no tool can get.

A library completes arguments that are cut off, or leaves out what it cannot read, and the tool is called
with the rest. So it never gets them: it gets an object with a note in their place, and no call with
such a note is made. The model reads the note as the result of its call, and can correct itself.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from pydantic_core import from_json, to_json

from pallas.safe_text import encodable

NOTE: Final = "pallas:not_called"
"""The only key of arguments in whose place there is a note."""
_SHOWN: Final = 200
_CUT: Final = "the limit of output tokens was reached in the middle of its arguments; make them shorter"
_WRONG: Final = "its arguments are not one JSON object ({}); they began with {!r}; send one JSON object"


def whole_arguments(text: str, *, is_cut: bool = False) -> str:
    """Return the JSON text of arguments that are one object, or of a note if they are not.

    Empty arguments, and null, are an empty object. ``is_cut``: the answer ended at its limit of tokens.
    """
    if not text.strip():
        return text
    why = ""
    try:
        value = from_json(text)
    except ValueError as error:
        if (repaired := _without_half_pairs(text)) is not None:
            return repaired
        why = str(error)
    else:
        if isinstance(value, dict):
            return text
        if isinstance(value, str) and value.lstrip().startswith("{"):  # written as JSON twice
            return whole_arguments(value, is_cut=is_cut)
        if value is None:
            return "{}"
        why = f"they are {_KINDS.get(type(value), 'a number')}"
    return to_json(noted(_CUT if is_cut else _WRONG.format(why, text[:_SHOWN]))).decode()


def _without_half_pairs(text: str) -> str | None:
    """Return an object whose texts hold halves of surrogate pairs, with U+FFFD for each; None for others."""
    if "\\ud" not in text.lower():
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return json.dumps(encodable(value)) if isinstance(value, dict) else None


def arguments_object(value: Any) -> dict[str, Any]:
    """Return arguments that are sent as an object, or a note in the place of anything else."""
    if isinstance(value, dict):
        return value
    text = value if isinstance(value, str) else to_json(value, inf_nan_mode="null").decode()
    found: dict[str, Any] = from_json(whole_arguments(text) or "{}")
    return found


def noted(why: str) -> dict[str, str]:
    """Return the arguments of a call that is not made."""
    return {NOTE: why}


def note_in(arguments: Any) -> str:
    """Return why a call with these arguments is not made; empty if nothing is noted."""
    if not isinstance(arguments, Mapping) or arguments.keys() != {NOTE}:
        return ""
    return str(arguments[NOTE])


_KINDS: Final = {list: "a list", str: "a text", bool: "true or false"}
