"""JSON in the canonical form of RFC 8785, for digests that are the same wherever they are computed."""

import json
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any


def canonical(value: Any) -> str:
    """A plain JSON value in the form of RFC 8785.

    Integers beyond 2**53 keep their digits. Raises ValueError for a value that JSON does not have, and for
    one that is nested too deeply.
    """
    try:
        return _text(value)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, Mapping):
        named = {str(name): each for name, each in value.items()}
        ordered = sorted(named, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{_text(name)}:{_text(named[name])}" for name in ordered) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_text, value)) + "]"
    raise ValueError(f"{type(value).__name__} is not a JSON value")


def _number(value: float) -> str:
    """A number as ECMAScript writes it."""
    if not math.isfinite(value):
        raise ValueError("JSON has no such number")
    if value == 0:
        return "0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    text, place = "".join(map(str, digits)), len(digits) + int(exponent)
    if 0 < place <= 21:
        text = text.ljust(place, "0")
        text = text if len(text) == place else f"{text[:place]}.{text[place:]}"
    elif -6 < place <= 0:
        text = f"0.{'0' * -place}{text}"
    else:
        rest = f".{text[1:]}" if len(text) > 1 else ""
        text = f"{text[0]}{rest}e{place - 1:+d}"
    return f"-{text}" if sign else text
