"""What is wrong with a message: said inside by ``Misfit``, to its sender by ``PayloadFault``."""

from typing import Final, NoReturn

from pallas.model import Fault, FaultType
from pallas.model.safe_text import one_line

ECHO: Final = 60
"""Characters of a sender's text that an error repeats."""
_LONG: Final = 400


class PayloadFault(Fault):
    """A message that is not what its class says (PROTOCOL): ``field`` names what, one line, safe to show."""

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(
            FaultType.PROTOCOL, message, data={"system": "validation", **({"field": field} if field else {})}
        )


class NotXml(PayloadFault):
    """The same of what is not even XML."""


class NotTaken(PayloadFault):
    """A message that fits its schema, and is refused by the code of the class itself: its sender's mistake.

    What that code says is for who wrote it: it is the cause, for the log.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} does not take these values")


class Misfit(Exception):
    """Something below a root does not fit: ``what`` is wrong, ``expected`` is how it would be right.

    Whoever passes it on puts the name of the field before it.
    """

    def __init__(self, what: str, expected: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.expected = expected
        self.path: list[str] = []

    def within(self, name: str) -> "Misfit":
        """The same, in the field of that name (``items[2]`` for an item of a list)."""
        self.path.insert(0, name)
        return self

    def fault(self, root: str) -> PayloadFault:
        """The same for the sender, about a message of the class ``root``."""
        field = ".".join(self.path)
        where = f"{root}.{field}" if field else root
        said = f"{where} {self.what}" + (f"; expected {self.expected}" if self.expected else "")
        kind = NotXml if isinstance(self, Malformed) else PayloadFault
        return kind(one_line(said, _LONG), field=one_line(field, 100))


class Malformed(Misfit):
    """It is not even XML: perhaps it can be mended."""


def shown(value: object) -> str:
    """A value as an error repeats it: its start, harmless; of other than plain values only their type."""
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
    """Raise it."""
    raise Misfit(what, expected)
