"""Names of a project's modules in ``sys.modules``, where two may have the same name.

The name of a top module may have a suffix: ``types@1a2b3c4d``. No import statement can be written with one.
"""

import re
from typing import Final

_MARK: Final = re.compile(r"(?<=\w)@[0-9a-f]{8}\b")


def marked_name(top: str, mark: bytes) -> str:
    """Return the name of a top module with a suffix; ``mark`` has four bytes."""
    return f"{top}@{mark.hex()}"


def plain_name(name: str) -> str:
    """Return the name by which code imports a module: ``types.unit`` for ``types@1a2b3c4d.unit``."""
    return _MARK.sub("", name, 1) if "@" in name else name


def without_marks(text: str) -> str:
    """Return a text with the plain names of the modules in it."""
    return _MARK.sub("", text)
