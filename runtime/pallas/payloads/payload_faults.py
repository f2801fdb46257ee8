"""Errors in messages: ``Misfit`` inside this package, ``PayloadFault`` for the sender."""

from typing import Final, NoReturn

from pallas.model import Fault, FaultType
from pallas.safe_text import one_line

ECHO: Final = 60
"""Characters of a sender's text that an error quotes."""
_LONG: Final = 400


class PayloadFault(Fault):
    """A message that does not fit its class (PROTOCOL).

    ``field`` names the place, in one line, safe to show.
    """

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(
            FaultType.PROTOCOL, message, data={"system": "validation", **({"field": field} if field else {})}
        )


class NotXml(PayloadFault):
    """A message that is not well-formed XML."""


class NotTaken(PayloadFault):
    """A message that fits its schema but is refused by the class's own code: a mistake of the sender.

    The error of that code is for its author: it is the cause, for the log.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} does not take these values")


class Misfit(Exception):
    """A value below the root does not fit: ``what`` is wrong, ``expected`` is the right form.

    Callers add the name of the field with ``within``.
    """

    def __init__(self, what: str, expected: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.expected = expected
        self.path: list[str] = []

    def within(self, name: str) -> "Misfit":
        """Return the same error in the field of that name (``items[2]`` for an item of a list)."""
        self.path.insert(0, name)
        return self

    def fault(self, root: str) -> PayloadFault:
        """Return the PayloadFault for the sender, about a message of the class ``root``."""
        field = ".".join(self.path)
        where = f"{root}.{field}" if field else root
        text = f"{where} {self.what}" + (f"; expected {self.expected}" if self.expected else "")
        kind = NotXml if isinstance(self, Malformed) else PayloadFault
        return kind(one_line(text, _LONG), field=one_line(field, 100))


class Malformed(Misfit):
    """Text that is not well-formed XML; ``text_input`` may be able to fix it."""


def shown(value: object) -> str:
    """Return a value for an error: its start, sanitised; of values that are not plain only the type."""
    if isinstance(value, str):
        head = one_line(value[:ECHO], ECHO)
        return f'"{head}{"…" if len(value) > ECHO and not head.endswith("…") else ""}"'
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int):
        return str(int(value)) if value.bit_length() < 128 else "a number of many digits"
    if isinstance(value, float):
        return repr(float(value))
    return {"dict": "an object", "list": "a list"}.get(
        type(value).__name__
    ) or f"a {one_line(type(value).__name__, ECHO)}"


def misfit(what: str, expected: str = "") -> NoReturn:
    """Raise a Misfit."""
    raise Misfit(what, expected)
