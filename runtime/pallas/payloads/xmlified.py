"""How ``@xmlify`` names elements: ``order_id`` is ``OrderId``, a text in a list is ``Str``."""

from typing import Final

from .field_shape import PayloadField, PayloadShape

NONE: Final = "NoneType"
"""The element that stands for None."""


def folded(element: str) -> str:
    """What the name of a field and the one that ``@xmlify`` makes of it have in common."""
    return element.replace("_", "").replace("-", "").casefold()


def item_name(field: PayloadField) -> str:
    """The element of one value of a list, and of what may be None: the name of its type."""
    name = field.type.name
    if isinstance(field.type, PayloadShape):
        parts = [part for part in name.split("_") if part]
        return "".join(part[:1].upper() + part[1:] for part in parts)
    return name[:1].upper() + name[1:]
