"""Typed reading of one mapping: what does not fit is noted, and reading goes on."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pallas.safe_text import sanitize

from .models import Where
from .notes import Notes, allowed, did_you_mean
from .tree import Items, Leaf, Node, Table

type Check = Callable[[str], str | None]
"""Says what is wrong with a text and after a semicolon what is allowed, None when nothing is wrong."""


class Section:
    """A mapping of a file. Every reader returns None after noting a mistake, and when the key is absent.

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
        """Note what a Check said."""
        problem, _, hint = refusal.partition("; ")
        self.error(key, problem, hint, where=where)

    def warn(self, key: str, problem: str, *hints: str) -> None:
        """Note a warning at ``key``."""
        self.notes.warn(self.place(key), self.key(key), problem, *hints)

    def only(self, known: Sequence[str]) -> None:
        """Note every key that is not among ``known``."""
        for key in self.table.entries:
            if key not in known:
                self.error(key, "unknown key", allowed(known), did_you_mean(key, known))

    def need(self, key: str, example: str) -> bool:
        """Whether ``key`` is there; noted when not."""
        if key in self:
            return True
        self.error(key, "is missing", f"required, for example `{key}: {example}`")
        return False

    def text(self, key: str, *, check: Check | None = None, most: int | None = None) -> str | None:
        """A text on one line, sanitised, that ``check`` has nothing against.

        With ``most`` it is prose: its line breaks are folded, and it has 1 to ``most`` characters.
        """
        node = self.table.get(key)
        value = self.text_of(node, self.key(key)) if node is not None else None
        if value is None or node is None:
            return None
        value = sanitize(value.strip() if most is None else " ".join(value.split()))
        if "\n" in value:
            self.error(key, "has several lines", "allowed: one line", where=node.where)
        elif not value:
            self.error(key, "is empty" + because(node), filled(node), where=node.where)
        elif most is not None and len(value) > most:
            self.error(
                key, f"has {len(value)} characters", f"allowed: 1 to {most} characters", where=node.where
            )
        elif check and (refusal := check(value)):
            self.refuse(key, refusal, node.where)
        else:
            return value
        return None

    def text_of(self, node: Node, key: str) -> str | None:
        """The text of ``node`` as it is written; ``key`` is its name in a note."""
        if isinstance(node, Leaf) and isinstance(node.value, str):
            return node.value
        self.notes.error(node.where, key, f"{self.described(node)}, where text is needed", self.as_text(node))
        return None

    def choice(self, key: str, choices: Sequence[str]) -> str | None:
        """One of ``choices``."""
        node = self.table.get(key)
        if isinstance(node, Leaf) and not isinstance(node.value, str | None) and node.raw not in choices:
            self.error(key, self.described(node), allowed(choices))  # quoted it would be no better
            return None
        value = self.text(key)
        if value is None or value in choices:
            return value
        self.error(key, f"unknown value {value}", allowed(choices), did_you_mean(value, choices))
        return None

    def integer(self, key: str, low: int, high: int | None = None) -> int | None:
        """A whole number from ``low`` to ``high``."""
        value = self._number(key, "a whole number", int, low, high)
        return None if value is None else int(value)

    def number(self, key: str, low: float, high: float) -> float | None:
        """A number from ``low`` to ``high``."""
        value = self._number(key, "a number", float, low, high)
        return None if value is None else float(value)

    def _number(
        self, key: str, kind: str, convert: type[int] | type[float], low: float, high: float | None
    ) -> float | None:
        node = self.table.get(key)
        if node is None:
            return None
        span = f"allowed: {low:.15g} to {high:.15g}" if high is not None else f"allowed: {low:.15g} or more"
        value = node.value if isinstance(node, Leaf) else None
        if isinstance(node, Leaf) and isinstance(value, str):
            number = converted(value, convert)
            if number is None or not node.expanded:
                hint = "write it without quotes" if number is not None else span
                self.error(key, f"{self.described(node)}, where {kind} is needed", hint, where=node.where)
                return None
            value = number
        # A boolean is an int to Python, and not a number to anybody else.
        fits = isinstance(value, int | float) if convert is float else isinstance(value, int)
        if value is None or isinstance(value, bool) or not fits:
            self.error(key, f"{self.described(node)}, where {kind} is needed", span, where=node.where)
            return None
        if isinstance(node, Leaf) and isinstance(value, int) and SURPRISING.fullmatch(node.raw):
            # Octal and base sixty: written by accident.
            self.error(key, f"YAML reads {node.raw} as {value}", f"write {value} if that is meant", span)
            return None
        if not low <= value <= (value if high is None else high):
            shown = f"{value} " if self.echo and len(str(value)) < 40 else ""
            self.error(key, f"{shown}is out of range", span, where=node.where)
            return None
        return value  # type: ignore[no-any-return]

    def flag(self, key: str) -> bool | None:
        """true or false."""
        node = self.table.get(key)
        if node is None:
            return None
        if isinstance(node, Leaf):
            if isinstance(node.value, bool):
                return node.value
            if node.expanded and str(node.value).lower() in {"true", "false"}:
                return str(node.value).lower() == "true"
        hint = "allowed: true, false (without quotes)"
        self.error(key, f"{self.described(node)}, where true or false is needed", hint, where=node.where)
        return None

    def _given(self, key: str) -> Node | None:
        """The list or mapping under ``key``. One whose lines are all commented out counts as absent."""
        node = self.table.get(key)
        return None if isinstance(node, Leaf) and node.value is None else node

    def section(self, key: str) -> "Section | None":
        """The mapping under ``key``."""
        node = self._given(key)
        return None if node is None else self.section_of(node, self.key(key), self.place(key))

    def section_of(self, node: Node, path: str, where: Where) -> "Section | None":
        """``node`` as a section, None after noting that it is no mapping."""
        if isinstance(node, Table):
            return Section(node, path, where, self.notes, echo=self.echo)
        self.notes.error(
            where, path, f"{self.described(node)}, where a mapping is needed", "write `key: value` lines"
        )
        return None

    def sections(self, key: str) -> "Iterator[tuple[str, Section]]":
        """Every entry of the mapping under ``key`` that is itself a mapping, with its name."""
        outer = self.section(key)
        if outer is None:
            return
        for name, entry in outer.table.entries.items():
            inner = outer.section_of(entry.node, outer.key(name), entry.where)
            if inner is not None:
                yield name, inner

    def texts(self, key: str, example: str) -> tuple[tuple[str, Where], ...]:
        """A list of texts with the place of each, empty when absent or not a list."""
        node = self._given(key)
        if node is None:
            return ()
        if not isinstance(node, Items):
            self.error(
                key, f"{self.described(node)}, where a list is needed", f"write {example}", where=node.where
            )
            return ()
        found = ((self.text_of(item, self.key(key)), item.where) for item in node.items)
        return tuple((sanitize(value), where) for value, where in found if value is not None)

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
