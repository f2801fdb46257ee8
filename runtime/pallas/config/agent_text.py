"""What the text of a module or a card says of one agent: names with their places."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .models import Where
from .tree import Items, Leaf, Node

FILTERS: Final = ("tools", "resources", "prompts")
"""What fast-agent filters by server."""
CONNECT: Final = "mcp_connect"
"""Where an agent has servers that the configuration does not name."""


@dataclass(frozen=True, slots=True)
class Name:
    """A name that the text gives, and where."""

    text: str
    where: Where


@dataclass(frozen=True, slots=True)
class AgentText:
    """One agent of a module or card. ``filters`` are servers with patterns, those of tools alone."""

    servers: tuple[Name, ...] = ()
    filters: tuple[tuple[Name, tuple[Name, ...]], ...] = ()
    model: Name | None = None
    has_all_servers: bool = True
    """Whether ``servers`` are all of them, and not what could be read."""
    computes_model: bool = False
    """Whether it has a model that could not be read."""
    has_default_model: bool = False
    """Whether it is an agent of a module that names no model."""
    adds_models: bool = False
    """Whether its module uses fast-agent's tables of models, and so may add some."""
    name: Name | None = None
    """None if it could not be read."""
    is_default: bool = False
    is_tool_only: bool = False
    is_own: bool = True
    """Whether the entry may serve it: not what a card refers to."""
    skills: tuple[Name, ...] = ()
    """The folders that it has skills from, as far as they are written out."""


def leaves(node: Node | None) -> Iterator[Name]:
    """The texts of a list, or the one text that it is."""
    items = node.items if isinstance(node, Items) else (node,)
    for item in items:
        if isinstance(item, Leaf) and isinstance(item.value, str):
            yield Name(item.value, item.where)
