"""Choices: the values that a Literal or an Enum allows."""

from collections.abc import Callable
from enum import Enum
from typing import Any

from .payload_faults import Misfit, shown
from .scalars import Scalar, wrong


def chosen(scalar: Scalar, choices: tuple[Any, ...], *, enum: bool) -> Scalar:
    """Return a scalar limited to ``choices`` (JSON values), in Python Enum members with ``enum``."""
    words = "one of " + ", ".join(shown(choice) for choice in choices[:12]) + (", …" if choices[12:] else "")
    texts = frozenset(scalar.of_json(choice) for choice in choices)

    def of_python(value: Any) -> str:
        if enum and not isinstance(value, Enum):
            raise wrong(value, words)
        return allowed(scalar.of_python, value.value if enum else value)

    def allowed(write: Callable[[Any], str], value: Any) -> str:
        try:
            text = write(value)
        except Misfit:
            text = None
        if text not in texts:
            raise wrong(value, words)
        return text

    def to_json(text: str) -> Any:
        try:
            value = scalar.to_json(text)
        except Misfit:
            raise wrong(text, words) from None
        if value not in choices:
            raise wrong(text, words)
        return value

    schema = {**scalar.schema, "enum": list(choices)}
    return Scalar(
        scalar.name,
        scalar.xsd,
        words,
        choices[0],
        schema,
        of_python,
        lambda value: allowed(scalar.of_json, value),
        to_json,
        to_json,
    )
