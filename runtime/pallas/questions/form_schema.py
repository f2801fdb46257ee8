"""The JSON Schema of a form as it comes from a server or from the code of an agent: cleaned and limited."""

import math
from collections.abc import Mapping
from typing import Any, Final

from pallas.model import Fault, FaultType
from pallas.safe_text import sanitize

MAX_FIELDS: Final = 50
"""Most fields of a form."""
_MAX_TEXT: Final = 2_000
MAX_CHARACTERS: Final = 64_000
"""Most characters of a text in a form, and of all of them."""
_MAX_NODES: Final = 2_000
_MAX_DEPTH: Final = 8


def clean_schema(schema: Any) -> dict[str, Any]:
    """Return the schema of a form with clean texts.

    Raises Fault (PROTOCOL) for one that is no object of fields, is too large, or refers to another.
    """
    fields = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(fields, Mapping) or schema.get("type", "object") != "object":
        raise _wrong("it is not an object with properties")
    if len(fields) > MAX_FIELDS:
        raise _wrong(f"it has {len(fields)} fields, of at most {MAX_FIELDS}")
    cleaned: dict[str, Any] = _Cleaner().clean(schema)
    return {**cleaned, "type": "object"}


class _Cleaner:
    def __init__(self) -> None:
        self._left = _MAX_NODES
        self._characters = MAX_CHARACTERS

    def clean(self, value: Any, depth: int = 0) -> Any:
        self._left -= 1
        if self._left < 0 or depth > _MAX_DEPTH:
            raise _wrong("it is too large")
        if isinstance(value, str):
            return self._text(value)
        if value is None or isinstance(value, bool | int | float):
            if isinstance(value, float) and not math.isfinite(value):
                raise _wrong("it holds a number that JSON does not have")
            return value
        if isinstance(value, Mapping):
            return {self._name(key): self.clean(each, depth + 1) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.clean(each, depth + 1) for each in value]
        raise _wrong(f"it holds a {type(value).__name__}, which is not JSON")

    def _name(self, key: Any) -> str:
        if not isinstance(key, str) or key in ("$ref", "$dynamicRef"):
            raise _wrong("its fields have no references to other schemas")
        return self._text(key)

    def _text(self, text: str) -> str:
        clean = sanitize(text, _MAX_TEXT)
        self._characters -= len(clean)
        if self._characters < 0:
            raise _wrong("it is too large")
        return clean


def _wrong(why: str) -> Fault:
    return Fault(FaultType.PROTOCOL, f"the schema of a question cannot be used: {why}")
