"""JSON values from outside as text that may be shown: valid, sanitised, secrets masked, bounded."""

import json
from collections.abc import Mapping
from typing import Any, Final

from pallas.model.redaction import MASK, is_sensitive, redact_head, redact_text
from pallas.safe_text import sanitize

_MAX_DEPTH: Final = 64
_DEEPER: Final = "… (nested too deeply)"


def json_text(
    value: Any, limit: int, *, each: int | None = None, indent: int | None = None, names: bool = True
) -> str:
    """Return ``value`` as JSON of at most about ``limit`` characters; each text in it of at most ``each``.

    Shortened texts are marked and the JSON stays valid; if it is still too long, one object with its size
    replaces it. Secrets are masked by value and shape, and with ``names`` also by the names of fields: not
    for a schema, where those only describe.
    """
    for most in (each or limit, 1_000, 100):
        text = json.dumps(_clean(value, most, 0, names), ensure_ascii=False, indent=indent, allow_nan=True)
        if len(text) <= limit:
            return text
    return json.dumps({"$comment": f"left out: it has {len(text)} characters, shown are at most {limit}"})


def text_of(value: str, limit: int) -> str:
    """Return one text, sanitised and masked; if it is longer than ``limit``, it says how much is left out."""
    if len(value) <= limit:
        return sanitize(redact_text(value))
    return f"{sanitize(redact_head(value, limit))}… ({len(value) - limit} more characters)"


def _clean(value: Any, each: int, depth: int, names: bool, name: str = "") -> Any:
    if isinstance(value, str):
        return MASK if names and value and is_sensitive(name) else text_of(value, each)
    if depth >= _MAX_DEPTH and isinstance(value, Mapping | list | tuple):
        return _DEEPER
    if isinstance(value, Mapping):
        return {
            text_of(str(key), 500): _clean(inner, each, depth + 1, names, str(key))
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_clean(inner, each, depth + 1, names, name) for inner in value]
    return value
