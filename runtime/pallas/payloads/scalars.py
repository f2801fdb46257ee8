"""The plain values of fields: each as text in XML, as JSON, and in Python.

Reading is strict: text that Python would accept but XML Schema would not (``1_000``, ``"yes"``, digits of
other scripts) is a ``Misfit``.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

from .payload_faults import Misfit, misfit, shown
from .payload_limits import MAX_DIGITS

_INT: Final = re.compile(rf"[+-]?[0-9]{{1,{MAX_DIGITS}}}").fullmatch
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)").fullmatch
_FLOAT: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?").fullmatch
_MOMENT: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"
    r"(?:Z|[+-](?:(?:0[0-9]|1[0-3]):[0-5][0-9]|14:00))?"  # The maximum offset from UTC in XML Schema.
).fullmatch
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}").fullmatch
_TRUTH: Final = {"true": True, "1": True, "false": False, "0": False}
SPACE: Final = " \t\r\n"
# An integer with more bits has more than MAX_DIGITS digits.
_MAX_BITS: Final = int(MAX_DIGITS * math.log2(10))


@dataclass(frozen=True, slots=True)
class Scalar:
    """One kind of plain value. Its functions raise ``Misfit`` for other values.

    ``of_python`` and ``of_json`` return the text in XML, ``to_python`` and ``to_json`` read it; ``words``
    describe it, with an example.
    """

    name: str
    xsd: str
    words: str
    example: Any
    schema: dict[str, Any]
    of_python: Callable[[Any], str]
    of_json: Callable[[Any], str]
    to_python: Callable[[str], Any]
    to_json: Callable[[str], Any]


def wrong(value: Any, words: str) -> Misfit:
    """Return the Misfit for a value that is not what ``words`` describe."""
    return Misfit(f"is {shown(value)}", words)


_TEXT: Final = "text"
_WHOLE: Final = "a whole number, such as 42"
_NUMBER: Final = "a finite number, such as 1.5"
_BOOL: Final = "true or false"
_EXACT: Final = "a decimal number, such as 12.50"
_TIME: Final = "a date and time, such as 2026-01-31T12:00:00+00:00"
_DATE: Final = "a date, such as 2026-01-31"


def _text_of(value: Any) -> str:
    if type(value) is str:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    raise wrong(value, _TEXT)


def _same(text: str) -> str:
    return text


def _int_of(value: Any) -> str:
    if type(value) is not int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise wrong(value, _WHOLE)
        value = int.__int__(value)
    if value.bit_length() > _MAX_BITS:
        misfit("is a number of too many digits", f"at most {MAX_DIGITS} of them")
    return str(value)


def _int_of_json(value: Any) -> str:
    # JSON has one kind of number: 3.0 is an integer.
    if isinstance(value, float) and value.is_integer():
        return _int_of(int(value))
    return _int_of(value)


def _to_int(text: str) -> int:
    text = text.strip(SPACE)
    if _INT(text) is None:
        raise wrong(text, _WHOLE)
    return int(text)


def _number_of(value: Any) -> str:
    if type(value) is not float:
        if isinstance(value, float):
            value = float.__float__(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            value = _near(int.__int__(value))
        else:
            raise wrong(value, _NUMBER)
    if not math.isfinite(value):
        raise wrong(value, _NUMBER)
    return repr(value)


def _near(value: int) -> float:
    try:
        near = float(value)
    except OverflowError:
        raise wrong(value, _NUMBER) from None
    if near != value:
        misfit("is a whole number that a float cannot hold exactly", "a float, such as 1.5")
    return near


def _number(text: str) -> float:
    text = text.strip(SPACE)
    if _FLOAT(text) is None or not math.isfinite(value := float(text)):
        raise wrong(text, _NUMBER)
    return value


def _truth_of(value: Any) -> str:
    if value is True:
        return "true"
    if value is False:
        return "false"
    raise wrong(value, _BOOL)


def _truth(text: str) -> bool:
    value = _TRUTH.get(text.strip(SPACE))
    if value is None:
        raise wrong(text, _BOOL)
    return value


def _exact_of(value: Any) -> str:
    if not isinstance(value, Decimal):
        raise wrong(value, _EXACT)
    if not value.is_finite():
        misfit("is not a finite number", _EXACT)
    return format(_short(value), "f")


def _short(value: Decimal) -> Decimal:
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    if abs(exponent) > MAX_DIGITS or len(digits) > MAX_DIGITS:
        misfit("is a number of too many digits", f"at most {MAX_DIGITS} of them")
    return value


def _exact_of_json(value: Any) -> str:
    if isinstance(value, str):
        return _exact_of(_exact(value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong(value, _EXACT)
    return _int_of(value) if isinstance(value, int) else _exact_of(Decimal(_number_of(value)))


def _exact(text: str) -> Decimal:
    text = text.strip(SPACE)
    if len(text) > 2 * MAX_DIGITS + 2 or _DECIMAL(text) is None:
        raise wrong(text, _EXACT)
    return _short(Decimal(text))


def _exact_json(text: str) -> str:
    return format(_exact(text), "f")


def _moment_of(value: Any) -> str:
    if not isinstance(value, datetime):
        raise wrong(value, _TIME)
    text = datetime.isoformat(value)
    if _MOMENT(text) is None:  # An offset with seconds, or of a day or more.
        raise wrong(text, _TIME)
    return text


def _moment(text: str) -> datetime:
    text = text.strip(SPACE)
    try:
        if _MOMENT(text):
            return datetime.fromisoformat(text)
    except ValueError:
        pass
    raise wrong(text, _TIME)


def _moment_json(text: str) -> str:
    return _moment(text).isoformat()


def _moment_of_json(value: Any) -> str:
    return _moment(_text_or(value, _TIME)).isoformat()


def _day_of(value: Any) -> str:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise wrong(value, _DATE)
    return date.isoformat(value)


def _day(text: str) -> date:
    text = text.strip(SPACE)
    try:
        if _DAY(text):
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise wrong(text, _DATE)


def _day_json(text: str) -> str:
    return _day(text).isoformat()


def _day_of_json(value: Any) -> str:
    return _day(_text_or(value, _DATE)).isoformat()


def _text_or(value: Any, words: str) -> str:
    if not isinstance(value, str):
        raise wrong(value, words)
    return value


SCALARS: Final[dict[str, Scalar]] = {
    one.name: one
    for one in (
        Scalar("str", "string", _TEXT, "text", {"type": "string"}, _text_of, _text_of, _same, _same),
        Scalar("int", "integer", _WHOLE, 42, {"type": "integer"}, _int_of, _int_of_json, _to_int, _to_int),
        Scalar("float", "double", _NUMBER, 1.5, {"type": "number"}, _number_of, _number_of, _number, _number),
        Scalar("bool", "boolean", _BOOL, True, {"type": "boolean"}, _truth_of, _truth_of, _truth, _truth),
        Scalar(
            "Decimal",
            "decimal",
            _EXACT,
            "12.50",
            {"type": ["string", "number"], "description": "a decimal number"},
            _exact_of,
            _exact_of_json,
            _exact,
            _exact_json,
        ),
        Scalar(
            "datetime",
            "dateTime",
            _TIME,
            "2026-01-31T12:00:00+00:00",
            {"type": "string", "format": "date-time"},
            _moment_of,
            _moment_of_json,
            _moment,
            _moment_json,
        ),
        Scalar(
            "date",
            "date",
            _DATE,
            "2026-01-31",
            {"type": "string", "format": "date"},
            _day_of,
            _day_of_json,
            _day,
            _day_json,
        ),
    )
}
