"""What a person types into a field, and the value it stands for."""

import re
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from .field_shape import FieldKind, FieldShape
from .json_text import JsonMistake, dump, parse
from .value_paths import ABSENT

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,4000}\Z")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?\Z")
_LARGEST: Final = 400
"""Digits that a whole number written with an exponent may come to."""


def written(shape: FieldShape, value: Any) -> str:
    """Return the text to begin editing with; empty for an absent value."""
    if value is ABSENT:
        return ""
    if shape.kind is FieldKind.TEXT and isinstance(value, str):
        return value
    return dump(value, 2 if isinstance(value, dict | list) else None)


def meant(shape: FieldShape, text: str, required: bool) -> Any:
    """The value that ``text`` stands for in that place, ABSENT for none. Raises JsonMistake.

    Left empty, an optional field is not sent. A text that is required is then the empty text, since nothing
    else could be meant; any other value that is required stays absent, which the check tells.
    """
    if shape.kind is FieldKind.TEXT:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise JsonMistake("holds half a surrogate pair, which cannot be sent") from None
        return text if text or required else ABSENT
    if not text.strip():
        return ABSENT
    if shape.kind in (FieldKind.INTEGER, FieldKind.NUMBER):
        return _number(text.strip(), shape)
    try:
        return parse(text)
    except JsonMistake as mistake:
        hint = (
            '; write a text in "quotes"'
            if shape.kind is not FieldKind.ARRAY and text.strip()[0] not in '[{"'
            else ""
        )
        raise JsonMistake(f"{mistake}{hint}") from None


def _number(text: str, shape: FieldShape) -> Any:
    if text == "null" and shape.nullable:
        return None
    if _WHOLE.match(text):
        return int(text)
    if not _NUMBER.match(text):
        raise JsonMistake("not a whole number" if shape.kind is FieldKind.INTEGER else "not a number")
    if shape.kind is FieldKind.INTEGER:
        try:
            exact = Decimal(text)
        except InvalidOperation:
            raise JsonMistake("not a whole number") from None
        if exact.adjusted() > _LARGEST or exact != exact.to_integral_value():
            raise JsonMistake("not a whole number" if exact.adjusted() <= _LARGEST else "too large")
        return int(exact)
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise JsonMistake("too large for a number")
    return value
