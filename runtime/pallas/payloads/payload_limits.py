"""Sizes that no message may pass, whoever sends it (HC-24)."""

from typing import Final

MAX_BYTES: Final = 1_048_576
"""Bytes of one message, unless the project says otherwise."""
MAX_ELEMENTS: Final = 20_000
"""Elements of one message, items of lists among them."""
MAX_DEPTH: Final = 32
"""Elements inside one another where no class says how many (``elements_of``)."""
MAX_ATTRIBUTES: Final = 16
"""Attributes of one element where no class says which (``elements_of``)."""
MAX_ROOTS: Final = 100
"""Messages in what one handler returns as bytes."""
MAX_DIGITS: Final = 1_000
"""Digits of a whole or decimal number."""
MAX_NESTED: Final = 8
"""Dataclasses inside one another."""
MAX_FIELDS: Final = 400
"""Fields of a class, those of the classes in it among them."""
MAX_CHOICES: Final = 200
"""Values of a Literal or an Enum."""
