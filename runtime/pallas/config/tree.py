"""A YAML file as values that know where they stand."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from .models import Where

REFERENCE: Final = re.compile(r"\$\{([^}]+)\}")
"""A variable in a text, with its default."""


PUBLIC: Final = frozenset(
    {
        "HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "PWD", "PYTHONPATH", "SHELL", "TEMP", "TERM", "TMP",
        "TMPDIR", "TZ", "USER", "VIRTUAL_ENV",
    }
)  # fmt: skip
"""Variables that are no secret, also where an entry hands them on."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A single value. ``raw`` is what the user wrote; ``unset`` names the variables it lacks (PR-10).

    ``expanded`` when the text held a ``${VAR}``: then it may be a number or a boolean too.
    """

    value: Any
    raw: str
    where: Where
    unset: tuple[str, ...] = ()
    expanded: bool = False


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    items: "tuple[Node, ...]"
    where: Where


@dataclass(frozen=True, slots=True)
class Entry:
    """A key of a mapping with its value; ``where`` is the key's place."""

    where: Where
    node: "Node"


@dataclass(frozen=True, slots=True)
class Table:
    """A mapping, in the order of the file."""

    entries: Mapping[str, Entry]
    where: Where

    def get(self, key: str) -> "Node | None":
        """The value under ``key``, None when it is not there."""
        entry = self.entries.get(key)
        return entry.node if entry else None


type Node = Leaf | Items | Table


def merge(base: Table, override: Table) -> Table:
    """``base`` with ``override`` laid on it: tables are merged, anything else is replaced."""
    entries = dict(base.entries)
    for key, entry in override.entries.items():
        below = entries.get(key)
        if below and isinstance(below.node, Table) and isinstance(entry.node, Table):
            entry = replace(entry, node=merge(below.node, entry.node))
        entries[key] = entry
    return Table(entries, base.where)


def plain(node: Node) -> Any:
    """The value without its places: dicts, lists and scalars."""
    match node:
        case Table(entries):
            return {key: plain(entry.node) for key, entry in entries.items()}
        case Items(items):
            return [plain(item) for item in items]
        case Leaf(value):
            return value


def as_written[N: Leaf | Items | Table](node: N) -> N:
    """The value without ``${VAR}`` expanded, for files in which that is plain text."""
    if isinstance(node, Table):
        entries = {key: replace(entry, node=as_written(entry.node)) for key, entry in node.entries.items()}
        return replace(node, entries=entries)
    if isinstance(node, Items):
        return replace(node, items=tuple(map(as_written, node.items)))
    if isinstance(node.value, str):
        return replace(node, value=node.raw, unset=(), expanded=False)
    return node


_HANDED: Final = frozenset(
    {"access_token", "api_key", "args", "command", "default_headers", "env", "extra_headers", "headers"}
)
"""Keys of entries whose values go to a child process or into a header."""


def handed_over(node: Node, environ: Mapping[str, str], *, inside: bool = False) -> Iterator[str]:
    """The values of the variables that entries below ``node`` hand to a child process or into a header."""
    match node:
        case Table(entries):
            for key, entry in entries.items():
                yield from handed_over(entry.node, environ, inside=inside or key in _HANDED)
        case Items(items):
            for item in items:
                yield from handed_over(item, environ, inside=inside)
        case Leaf(raw=raw, expanded=True) if inside:
            names = (found[1].partition(":")[0] for found in REFERENCE.finditer(raw))
            yield from (environ[name] for name in names if name in environ and name not in PUBLIC)


def unset_in(node: Node) -> tuple[str, ...]:
    """The variables that are referred to anywhere below ``node`` and not set, in order, once each."""
    match node:
        case Table(entries):
            below = [unset_in(entry.node) for entry in entries.values()]
        case Items(items):
            below = [unset_in(item) for item in items]
        case Leaf():
            return node.unset
    return tuple(dict.fromkeys(name for names in below for name in names))


def key_variable(server: Table) -> str:
    """The variable that the credential of a server with these keys is read from, empty if it names none."""
    headers = server.get("headers")
    inner = headers.entries.items() if isinstance(headers, Table) else ()
    nodes = [entry.node for name, entry in inner if name.strip().lower() == "authorization"]
    for node in (*nodes, server.get("access_token")):
        if isinstance(node, Leaf) and node.expanded and (found := REFERENCE.search(node.raw)) is not None:
            return found[1].partition(":")[0]
    return ""
