"""``icons:`` of an agent: a text, or a list of texts and of ``{src, sizes}``."""

import re
from typing import Final

from .models import Icon
from .section import Section
from .tree import Entry, Items, Leaf, Node, Table

ICON_KEYS: Final = ("src", "sizes")
_MAX_SRC: Final = 255
_SIZE: Final = re.compile(r"\d+x\d+|any", re.ASCII)


def read_icons(agent: Section) -> tuple[Icon, ...]:
    """The icons of an agent; ``sizes`` may be a text or a list and is ``any`` when left out (PI-3)."""
    node = agent.table.get("icons")
    if node is None:
        return ()
    nodes = node.items if isinstance(node, Items) else (node,)
    found = (_icon(agent, item, f"{agent.key('icons')}[{number}]") for number, item in enumerate(nodes))
    return tuple(icon for icon in found if icon is not None)


def _icon(agent: Section, node: Node, path: str) -> Icon | None:
    if isinstance(node, Leaf):
        node = Table({"src": Entry(node.where, node)}, node.where)
    icon = agent.section_of(node, path, node.where)
    if icon is None:
        return None
    icon.only(ICON_KEYS)
    sizes = _sizes(icon)
    src = icon.text("src", most=_MAX_SRC) if icon.need("src", "icons/jarvis.png") else None
    return Icon(src, sizes) if src else None


def _sizes(icon: Section) -> tuple[str, ...]:
    if isinstance(icon.table.get("sizes"), Items):
        given = tuple(size for size, _ in icon.texts("sizes", '["any"]'))
    else:
        given = tuple((icon.text("sizes") or "").split())
    for size in given:
        if not _SIZE.fullmatch(size):
            icon.error("sizes", f"{size} is not a size", "allowed: any, or WIDTHxHEIGHT such as 48x48")
    return given or ("any",)
