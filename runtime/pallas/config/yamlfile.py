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
from .textfile import read_text
from .tree import REFERENCE, Entry, Items, Leaf, Node, Table

MAX_VALUES: Final = 100_000
_MAX_NUMBER: Final = 100

_TAG: Final = "tag:yaml.org,2002:"
_ADVICE: Final = {
    "found character '\\t'": "YAML is indented with spaces: replace the tab",
    "mapping values are not allowed here": "check the indentation; a text that holds ': ' must be quoted",
    "could not find expected ':'": "a key needs a colon and a space after it",
    "found unexpected end of stream": "a quote is opened and not closed",
    "expected <block end>": "check the indentation of this line against the lines above it",
    "cannot start any token": "quote a text that begins with this character",
    "found unknown escape character": "use single quotes where a backslash means itself",
}

_KINDS: Final = {
    "bool": "a boolean",
    "int": "a number",
    "float": "a number",
    "null": "no value",
    "timestamp": "a date",
}


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
    try:
        root = _composed(text)
    except yaml.YAMLError as error:
        _note_syntax(error, text, file, notes)
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
    notes.error(Where(file, 1), "", "holds no mapping at its top", "write `key: value` lines")
    return None


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
    try:
        for root in yaml.compose_all(text, Loader=yaml.SafeLoader):
            # An empty document is read as a null.
            if isinstance(root, yaml.ScalarNode) and not root.value:
                continue
            builder = _Builder(file, notes, {}, lenient=False, verbatim=True, last_wins=last_wins)
            found.append(builder.build(root, "", 0))
    except yaml.YAMLError as error:
        _note_syntax(error, text, file, notes)
        return tuple(found), False
    except RecursionError:
        notes.error(Where(file), "", "is nested too deep", f"allowed: {MAX_YAML_DEPTH} levels")
        return tuple(found), False
    except _Refused as refused:
        notes.error(refused.where, "", refused.problem, refused.hint)
        return tuple(found), False
    return tuple(found), True


def _note_syntax(error: yaml.YAMLError, text: str, file: str, notes: Notes) -> None:
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        column = error.position - (text.rfind("\n", 0, error.position) + 1) + 1
        problem = f"a control character (0x{int(error.character):02x}) is not allowed"
        advice = "remove it"
    elif isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        line, column = error.problem_mark.line + 1, error.problem_mark.column + 1
        problem = error.problem or "cannot be understood"
        advice = next((advice for words, advice in _ADVICE.items() if words in problem), "")
        if "undefined alias" in problem:
            # The alias may be a password that begins with a star: its name is not repeated.
            problem, advice = "a value that begins with * is an alias", "quote it if it is meant as text"
        elif "another document" in problem:
            problem, advice = "a second document begins here", "allowed: one document; remove the --- line"
    else:
        line, column, problem, advice = 1, 1, "cannot be understood", ""
    notes.error(Where(file, line), "", f"not valid YAML: line {line}, column {column}: {problem}", advice)


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
            self._notes.error(place, path, "a list or mapping cannot be a key", "write `key: value`")
            return None
        raw = str(node.value)
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
