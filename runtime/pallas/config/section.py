"""A mapping of a file with its place, and the words for what is wrong in it."""

import re
from collections.abc import Callable
from typing import Any

from .models import Where
from .notes import Notes
from .tree import Items, Leaf, Node, Table


class Section:
    """A mapping of a file, and where mistakes in it are noted.

    ``where`` is the key that opens the section; ``echo`` allows that values are repeated in notes, which
    files with secrets must not.
    """

    def __init__(self, table: Table, path: str, where: Where, notes: Notes, *, echo: bool = True) -> None:
        self.table, self.path, self.where, self.notes, self.echo = table, path, where, notes, echo

    def __contains__(self, key: str) -> bool:
        return key in self.table.entries

    def key(self, key: str) -> str:
        """The whole name of ``key``, as notes show it."""
        return f"{self.path}.{key}" if self.path else key

    def place(self, key: str) -> Where:
        """Where ``key`` stands, or the section when the key is absent."""
        entry = self.table.entries.get(key)
        return entry.where if entry else self.where

    def error(self, key: str, problem: str, *hints: str, where: Where | None = None) -> None:
        """Note a mistake at ``key``."""
        self.notes.error(where or self.place(key), self.key(key), problem, *hints)

    def refuse(self, key: str, refusal: str, where: Where | None = None) -> None:
        """Note ``problem; hint``, as a check says it."""
        problem, _, hint = refusal.partition("; ")
        self.error(key, problem, hint, where=where)

    def warn(self, key: str, problem: str, *hints: str) -> None:
        """Note a warning at ``key``."""
        self.notes.warn(self.place(key), self.key(key), problem, *hints)

    def need(self, key: str, example: str) -> bool:
        """Whether ``key`` is there; noted when not."""
        if key in self:
            return True
        self.error(key, "is missing", f"required, for example `{key}: {example}`")
        return False

    def section(self, key: str) -> "Section | None":
        """The mapping under ``key``, None after noting that it is none, and where it is absent or empty."""
        node = self.table.get(key)
        if isinstance(node, Table):
            return Section(node, self.key(key), self.place(key), self.notes, echo=self.echo)
        if node is not None and not (isinstance(node, Leaf) and node.value is None):
            self.error(key, f"{self.described(node)}, where a mapping is needed", "write `key: value` lines")
        return None

    def described(self, node: Node) -> str:
        """What a value is, in words, with the value where it may be shown."""
        if isinstance(node, Table):
            return "is a mapping"
        if isinstance(node, Items):
            return "is a list"
        match node.value:
            case bool():
                truth = str(node.value).lower()
                return f"is {truth}" if node.raw.lower() == truth else f"is {truth} to YAML"
            case None:
                return "has no value"
            case str():
                return "is text" + because(node)
            case int() | float():
                return "is a number" + (f" ({node.raw})" if self.echo else "")
            case _:
                return "is a date" + (f" ({node.raw})" if self.echo else "")

    def as_text(self, node: Node) -> str:
        if not isinstance(node, Leaf):
            return ""
        if node.value is None:
            return "write a value or leave the key out"
        return f'quote it: "{node.raw}"' if self.echo else "quote it"


SURPRISING = re.compile(r"[-+]?(0[0-7_]+|[0-9_]+(:[0-9_]+)+)")
"""Octal and base sixty, which are written by accident."""


def because(node: Node) -> str:
    """Why a value is not what it should be, when a variable is missing."""
    names = node.unset if isinstance(node, Leaf) else ()
    verb = "is" if len(names) == 1 else "are"
    return f" because {', '.join(names)} {verb} not set" if names else ""


def filled(node: Node) -> str:
    """What to do about a text that is empty."""
    names = ", ".join(node.unset) if isinstance(node, Leaf) else ""
    return f"set {names} in the environment or in .env" if names else "write a value or leave the key out"


def converted(text: str, convert: Callable[[Any], int | float]) -> int | float | None:
    """The number that a text is, None for other texts."""
    try:
        return convert(text)
    except ValueError:
        return None
