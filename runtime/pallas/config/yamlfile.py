"""A YAML file read with care: bounded, no key twice, and a line number for everything."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml
from yaml.constructor import SafeConstructor

from pallas.bounds.bounded_yaml import MAX_YAML_DEPTH, BoundedLoader

from .models import Where
from .notes import Notes
from .odd_characters import in_key, in_value, near_failure, other_line_end, split_lines, without_line_ends
from .textfile import read_text
from .tree import REFERENCE, Entry, Items, Leaf, Node, Table
from .yaml_failures import note_failure

MAX_VALUES: Final = 100_000
_MAX_NUMBER: Final = 100

_TAG: Final = "tag:yaml.org,2002:"
_KINDS: Final = {
    "bool": "a boolean",
    "int": "a number",
    "float": "a number",
    "null": "no value",
    "timestamp": "a date",
}


_NO_KEY: Final = "write `key: value`; quote a text that begins with { or ["


_DOLLAR: Final = "PALLAS_A_DOLLAR_SIGN"
"""No variable: a reference to it stands for its default."""


def expand(text: str, environ: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """``text`` with its references replaced, and the names that are not set and have no default.

    Those become an empty string: the literal ``${VAR}`` is never sent anywhere (PR-10).
    """
    unset: dict[str, None] = {}

    def value(match: re.Match[str]) -> str:
        name, colon, default = match[1].partition(":")
        if name in environ:
            return environ[name]
        if not colon:
            unset.setdefault(name)
        return default

    end = _end_of_references(text)
    return REFERENCE.sub(value, text[:end]) + text[end:], tuple(unset)


def literal(text: str) -> str:
    """Return ``text`` as it is to be written into a file of ours, so that ``expand`` gives it back."""
    return text.replace("${", f"${{{_DOLLAR}:$}}{{")


def refers(text: str) -> bool:
    """Whether ``text`` holds a reference."""
    return REFERENCE.search(text, 0, _end_of_references(text)) is not None


def _end_of_references(text: str) -> int:
    """Where the last reference can end: one that is never closed would be looked for from each ``${``."""
    return text.rfind("}") + 1


def shell_style_defaults(text: str) -> tuple[str, ...]:
    """Names written ``${VAR:-default}``: the dash is the shell's habit and becomes part of the default."""
    found = REFERENCE.finditer(text, 0, _end_of_references(text))
    return tuple(
        name
        for name, colon, default in (match[1].partition(":") for match in found)
        if colon and default.startswith("-")
    )


def read_table(
    path: Path,
    file: str,
    notes: Notes,
    environ: Mapping[str, str],
    *,
    lenient: bool = False,
    last_wins: bool = False,
) -> Table | None:
    """The file's top-level mapping with ``${VAR}`` expanded, None after noting why there is none.

    ``lenient`` is for files whose keys are another program's: there a key that is not text is taken as
    it is written, an empty file is an empty mapping, and what was written is never repeated in a note.
    With ``last_wins`` a key that is given twice is a warning and has its last value.
    """
    text = read_text(path, file, notes)
    if text is None:
        return None
    plain = _with_plain_lines(text, file, notes)
    try:
        root = _composed(plain)
    except yaml.YAMLError as error:
        note_failure(error, text, file, notes)
        return None
    except RecursionError:
        notes.error(Where(file), "", "is nested too deep", f"allowed: {MAX_YAML_DEPTH} levels")
        return None
    if root is None:
        if lenient:
            return Table({}, Where(file))
        notes.error(Where(file), "", "is empty", "write the project's name and agents; see: pallas init DIR")
        return None
    try:
        node = _Builder(file, notes, environ, lenient, last_wins=last_wins).build(root, "", 0)
    except _Refused as refused:
        notes.error(refused.where, "", refused.problem, refused.hint)
        return None
    if isinstance(node, Table):
        return node
    odd = near_failure(split_lines(text), node.where.line)
    hints = (f"{odd} is no part of YAML", odd.remedy) if odd else ()
    notes.error(Where(file, 1), "", "holds no mapping at its top", "write `key: value` lines", *hints)
    return None


def _with_plain_lines(text: str, file: str, notes: Notes) -> str:
    """``text`` without the ends of lines that only YAML takes for such, after a warning about them."""
    if (odd := other_line_end(text)) is not None:
        notes.warn(Where(file, odd.line, odd.column), "", f"has {odd}, which is read as a space", odd.remedy)
    return without_line_ends(text)


def _composed(text: str) -> yaml.Node | None:
    """The root of a text, None for an empty one. Raises YAMLError, RecursionError where it is too deep."""
    try:
        # libyaml is many times faster; of what it refuses the other one says more.
        return yaml.compose(text, Loader=BoundedLoader)
    except yaml.YAMLError:
        return yaml.compose(text, Loader=yaml.SafeLoader)


def read_documents(
    text: str, file: str, notes: Notes, *, last_wins: bool = False
) -> tuple[tuple[Node, ...], bool]:
    """Every document of a text, empty ones left out, and whether all could be read; what cannot is noted.

    Nothing in it is expanded: a ``${VAR}`` is what it says. With ``last_wins`` a key that is given twice is a
    warning and has its last value.
    """
    found: list[Node] = []
    plain = _with_plain_lines(text, file, notes)
    try:
        for root in yaml.compose_all(plain, Loader=yaml.SafeLoader):
            # An empty document is read as a null.
            if isinstance(root, yaml.ScalarNode) and not root.value:
                continue
            builder = _Builder(file, notes, {}, lenient=False, verbatim=True, last_wins=last_wins)
            found.append(builder.build(root, "", 0))
    except yaml.YAMLError as error:
        note_failure(error, text, file, notes)
        return tuple(found), False
    except RecursionError:
        notes.error(Where(file), "", "is nested too deep", f"allowed: {MAX_YAML_DEPTH} levels")
        return tuple(found), False
    except _Refused as refused:
        notes.error(refused.where, "", refused.problem, refused.hint)
        return tuple(found), False
    return tuple(found), True


def _place(file: str, node: yaml.Node) -> Where:
    return Where(file, node.start_mark.line + 1, node.start_mark.column + 1)


class _Refused(Exception):
    def __init__(self, where: Where, problem: str, hint: str) -> None:
        super().__init__(problem)
        self.where, self.problem, self.hint = where, problem, hint


class _Builder:
    """Turns composed nodes into a tree. Aliases are followed, within bounds."""

    def __init__(
        self,
        file: str,
        notes: Notes,
        environ: Mapping[str, str],
        lenient: bool,
        verbatim: bool = False,
        last_wins: bool = False,
    ) -> None:
        self._file, self._notes, self._environ, self._lenient = file, notes, environ, lenient
        self._verbatim, self._last_wins = verbatim, last_wins
        self._scalars = SafeConstructor()
        self._open: set[int] = set()
        self._left = MAX_VALUES

    def build(self, node: yaml.Node, path: str, depth: int) -> Node:
        where = _place(self._file, node)
        self._left -= 1
        if self._left < 0:
            raise _Refused(where, "holds too many values", f"allowed: {MAX_VALUES:,} after aliases")
        if depth > MAX_YAML_DEPTH:
            raise _Refused(where, "is nested too deep", f"allowed: {MAX_YAML_DEPTH} levels")
        if isinstance(node, yaml.ScalarNode):
            return self._leaf(node, where, path)
        if id(node) in self._open:
            raise _Refused(where, "an alias refers to a value that contains it", "write the value out")
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                self._check_tag(node, "seq", where, path)
                return Items(
                    tuple(
                        self.build(item, f"{path}[{number}]", depth + 1)
                        for number, item in enumerate(node.value)
                    ),
                    where,
                )
            self._check_tag(node, "map", where, path)
            return self._table(node, where, path, depth)
        finally:
            self._open.discard(id(node))

    def _check_tag(self, node: yaml.Node, kind: str, where: Where, path: str) -> None:
        if node.tag != _TAG + kind:
            self._notes.error(where, path, "has a tag that is not supported", "remove the word after the !")

    def _leaf(self, node: yaml.ScalarNode, where: Where, path: str) -> Leaf:
        raw = str(node.value)
        if node.tag == _TAG + "str":
            if self._lenient and not node.style:
                self._warn_of_odd(raw, where, path)
            if self._verbatim or not refers(raw):
                return Leaf(raw, raw, where)
            for name in shell_style_defaults(raw):
                self._notes.warn(
                    where, path, f"the default of ${{{name}:-…}} begins with a dash", f"write ${{{name}:…}}"
                )
            text, unset = expand(raw, self._environ)
            return Leaf(text, raw, where, unset, expanded=True)
        try:
            if len(raw) > _MAX_NUMBER:
                raise ValueError(f"longer than {_MAX_NUMBER} characters")
            value = self._scalars.construct_object(node)
        except (yaml.YAMLError, ValueError, LookupError, ArithmeticError, AttributeError, TypeError):
            self._notes.error(where, path, "is not a valid value of the type that it looks like", "quote it")
            value = None
        return Leaf(value, raw, where)

    def _warn_of_odd(self, text: str, where: Where, path: str) -> None:
        """Warn of what a text begins or ends with that was hardly meant: its program takes it as it is."""
        if (odd := in_value(text, where.line, where.column)) is not None:
            self._notes.warn(where, path, f"has {odd} as a part of its text", odd.remedy)

    def _table(self, node: yaml.Node, where: Where, path: str, depth: int) -> Table:
        entries: dict[str, Entry] = {}
        inherited: dict[str, Entry] = {}
        for key_node, value_node in node.value:
            place = _place(self._file, key_node)
            if key_node.tag == _TAG + "merge":
                self._inherit(value_node, inherited, path, depth)
                continue
            key = self._key(key_node, place, path)
            if key is None:
                continue
            below = f"{path}.{key}" if path else key
            value = self.build(value_node, below, depth + 1)
            if key in entries:
                problem = f"is given twice, first on line {entries[key].where.line}"
                if not self._last_wins:
                    self._notes.error(place, below, problem, "keep one of them")
                    continue
                self._notes.warn(place, below, problem, "this one counts; remove the other")
            entries[key] = Entry(place, value)
        return Table({**entries, **{key: e for key, e in inherited.items() if key not in entries}}, where)

    def _inherit(self, node: yaml.Node, into: dict[str, Entry], path: str, depth: int) -> None:
        built = self.build(node, path, depth + 1)
        for source in built.items if isinstance(built, Items) else (built,):
            if isinstance(source, Table):
                for key, entry in source.entries.items():
                    into.setdefault(key, entry)
            else:
                self._notes.error(
                    source.where, path, "<< needs a mapping", "write an alias of one, as in *base"
                )

    def _key(self, node: yaml.Node, place: Where, path: str) -> str | None:
        """The key as text; noted and None when it is none."""
        if not isinstance(node, yaml.ScalarNode):
            self._notes.error(place, path, "a list or mapping cannot be a key", _NO_KEY)
            return None
        raw = str(node.value)
        if not node.style and (found := in_key(raw, place.line, place.column)) is not None:
            odd, meant = found
            if not self._lenient and not self._verbatim:
                self._notes.error(
                    place, f"{path}.{meant}" if path else meant, f"has {odd} in its name", odd.remedy
                )
                return meant
            self._notes.warn(place, path, f"a key has {odd} in its name", odd.remedy)
        if node.tag == _TAG + "str" or (self._lenient and raw):
            return raw
        if not raw:
            self._notes.error(place, path, "a key is empty", "write `key: value`")
            return None
        kind = node.tag.removeprefix(_TAG)
        self._notes.error(
            place,
            f"{path}.{raw}" if path else raw,
            f"YAML reads this key as {_KINDS.get(kind, 'something else than text')}",
            f'quote it: "{raw}"',
        )
        return raw
