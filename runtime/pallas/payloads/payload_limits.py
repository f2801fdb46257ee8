"""Size limits for every message (HC-24)."""

from typing import Final

MAX_BYTES: Final = 1_048_576
"""Bytes of one message, unless the project sets another limit."""
MAX_ELEMENTS: Final = 20_000
"""Elements of one message, items of lists included."""
MAX_DEPTH: Final = 32
"""Nested elements when no class limits them (``elements_of``)."""
MAX_ATTRIBUTES: Final = 16
"""Attributes of one element when no class limits them (``elements_of``)."""
MAX_ROOTS: Final = 100
"""Messages in what one handler returns as bytes."""
MAX_DIGITS: Final = 1_000
"""Digits of an integer or decimal number."""
MAX_NESTED: Final = 8
"""Nested dataclasses."""
MAX_FIELDS: Final = 400
"""Fields of a class, including those of nested classes."""
MAX_CHOICES: Final = 200
"""Values of a Literal or an Enum."""
