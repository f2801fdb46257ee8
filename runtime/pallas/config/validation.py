"""A section of a file as a pydantic model: every mistake is noted in the user's words, with its line."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import NoneType, UnionType
from typing import Annotated, Any, Final, TypeAliasType, Union, get_args, get_origin

from annotated_types import Ge, Interval, Le
from pydantic import Tag, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from pallas.safe_text import sanitize

from .field_types import ABSENT, SKIPPED, AsWritten, FileValue, MissingHint, Secret
from .file_model import FileModel, Given, present
from .notes import allowed, did_you_mean
from .odd_characters import in_value
from .section import SURPRISING, Section, because, converted, filled
from .tree import Items, Leaf, Node, Table
from .where import Where

type Path = tuple[str | int, ...]
"""Keys and positions from the section that is validated to a value in it."""

type _Lists = dict[int, list[tuple[int, Node]]]
"""What is present in the lists of one table, by the ``id`` of each: they are looked up once per mistake."""

_NUMBERS: Final[Mapping[str, tuple[str, type[int] | type[float]]]] = {
    "int_type": ("a whole number", int),
    "float_type": ("a number", float),
}
_PLAIN: Final = re.compile(r"[\w:./@*+${}-]+")


def validate[M: FileModel](model: type[M], section: Section) -> M:
    """The section as a ``model``. Every mistake is noted; what is wrong is as if it was not given."""
    return _Validation(model, section).read()


class _Validation[M: FileModel]:
    def __init__(self, model: type[M], section: Section) -> None:
        self._model, self._section, self._table = model, section, section.table
        self._missing: dict[Path, list[str]] = {}

    def read(self) -> M:
        # Each pass notes or repairs what the last one found, so what is left gets smaller.
        while True:
            where = self._section.where
            given = self._given(self._table, (), self._section.path, where)
            try:
                return self._model.model_validate(given)
            except ValidationError as error:
                before = self._table, sum(map(len, self._missing.values()))
                self._settle(error.errors(include_url=False, include_input=False))
                if (self._table, sum(map(len, self._missing.values()))) == before:
                    raise  # a mistake in the models: the next pass would find the same

    def _given(self, node: Node, path: Path, key: str, where: Where) -> Any:
        """A node as pydantic takes it."""
        match node:
            case Table(entries):
                found = Given(Section(node, key, where, self._section.notes, echo=self._section.echo))
                for name, entry in entries.items():
                    if isinstance(entry.node, Leaf) and entry.node.value is SKIPPED:
                        continue
                    below = f"{key}.{name}" if key else name
                    found[name] = self._given(entry.node, (*path, name), below, entry.where)
                for name in self._missing.get(path, ()):
                    found[name] = ABSENT
                return found
            case Items():
                return tuple(
                    self._given(item, (*path, number), f"{key}[{number}]", item.where)
                    for number, item in present(node)
                )
            case Leaf(value):
                return _SURPRISE if _surprises(node) else value

    def _settle(self, errors: list[ErrorDetails]) -> None:
        """Repair what each error is about, or note it and take it out."""
        base = self._section
        section = Section(self._table, base.path, base.where, base.notes, echo=base.echo)
        changes: list[tuple[Path, Node]] = []
        lists: _Lists = {}
        for error in errors:
            spot = _spot(self._model, section, error["loc"], lists)
            repaired = _repaired(error["type"], spot)
            if repaired is None:
                problem, hints, where = _words(error, spot)
                hints = (*_odd(spot.node), *hints)
                base.notes.error(where, spot.key, problem, *hints)
            if error["type"] == "missing":
                self._missing.setdefault(spot.path[:-1], []).append(str(spot.path[-1]))
            else:
                changes.append((spot.path, repaired or _left(error, spot)))
        table = _changed(self._table, changes)
        assert isinstance(table, Table)
        self._table = table


def _odd(node: Node | None) -> tuple[str, ...]:
    """What to write for a character of a wrong text that is not the one that it looks like."""
    found = in_value(node.raw, node.where.line, node.where.column) if isinstance(node, Leaf) else None
    return (f"it has {found}: {found.remedy}",) if found is not None else ()


def _left(error: ErrorDetails, spot: "_Spot") -> Node:
    """What is left in place of a value that is wrong."""
    if error["type"] == "too_long" and isinstance(spot.node, Items):
        fitting = [node for _, node in present(spot.node)[: error["ctx"]["max_length"]]]
        return replace(spot.node, items=tuple(fitting))
    skipped = error["type"] == "extra_forbidden" or not spot.is_field
    return Leaf(SKIPPED if skipped else ABSENT, "", spot.where)


_SURPRISE: Final = object()


def _surprises(node: Leaf) -> bool:
    is_whole = isinstance(node.value, int) and not isinstance(node.value, bool)
    return is_whole and SURPRISING.fullmatch(node.raw) is not None


def _changed(node: Node, changes: list[tuple[Path, Node]]) -> Node:
    """``node`` with what is at each path replaced, in one walk: a file may have as many mistakes as lines."""
    below: dict[str | int, list[tuple[Path, Node]]] = {}
    for path, left in changes:
        if path:
            below.setdefault(path[0], []).append((path[1:], left))
        else:
            node, below = left, {}  # what was in it is taken out with it
    if isinstance(node, Table) and below:
        entries = dict(node.entries)
        for key, inner in below.items():
            if isinstance(key, str):
                entries[key] = replace(entries[key], node=_changed(entries[key].node, inner))
        return replace(node, entries=entries)
    if isinstance(node, Items) and below:
        items = list(node.items)
        for number, inner in below.items():
            if isinstance(number, int):
                items[number] = _changed(items[number], inner)
        return replace(node, items=tuple(items))
    return node  # what holds it was taken out already


@dataclass(slots=True)
class _Spot:
    """What an error is about."""

    path: Path
    section: Section
    """The mapping that it is in."""
    model: type[FileValue]
    """What that mapping may say."""
    key: str
    """Its whole name, as notes show it."""
    place: Where
    """Where its key is."""
    annotation: Any
    lists: _Lists
    """What was looked up so far."""
    node: Node | None = None
    """None where there is nothing in the file."""
    field: FieldInfo | None = None
    """The field that it is the value of, or in the value of."""
    is_field: bool = True
    """Whether it is the value of a field, and not an entry of a list or of a mapping."""
    marks: tuple[Any, ...] = ()
    """What its type is annotated with."""

    @property
    def where(self) -> Where:
        """Where its value is."""
        return self.node.where if self.node is not None else self.place


def _spot(model: type[FileValue], section: Section, loc: Path, lists: _Lists) -> _Spot:
    """Follow an error's path through the types and the file at once."""
    spot = _Spot((), section, model, section.path, section.where, model, lists, section.table)
    for part in loc:
        annotation, marks = _bare(spot.annotation)
        tagged = {
            mark.tag: each for each in get_args(annotation) for mark in _marks(each) if isinstance(mark, Tag)
        }
        if part in tagged:
            spot.annotation = tagged[str(part)]
        elif isinstance(annotation, type) and issubclass(annotation, FileValue):
            _into_model(spot, annotation, str(part))
        elif part != "[key]":
            _into_collection(spot, annotation, part, marks)
    annotation, marks = _bare(spot.annotation)
    spot.annotation, spot.marks = annotation, (*spot.marks, *marks)
    if any(isinstance(mark, Secret) for mark in spot.marks):
        at = spot.section
        spot.section = Section(at.table, at.path, at.where, at.notes, echo=False)
    return spot


def _into_model(spot: _Spot, model: type[FileValue], key: str) -> None:
    table = spot.node if isinstance(spot.node, Table) else Table({}, spot.where)
    quiet = any(isinstance(mark, Secret) for mark in (*spot.marks, *_marks(spot.annotation)))
    echo = spot.section.echo and not quiet
    spot.section = Section(table, spot.key, spot.place, spot.section.notes, echo=echo)
    spot.model, spot.key, spot.place = model, spot.section.key(key), spot.section.place(key)
    spot.node, spot.path, spot.is_field = table.get(key), (*spot.path, key), True
    spot.field = model.model_fields.get(key) or next(
        (each for each in model.model_fields.values() if each.alias == key), None
    )
    spot.annotation = spot.field.annotation if spot.field is not None else Any
    spot.marks = tuple(spot.field.metadata) if spot.field is not None else ()


def _into_collection(spot: _Spot, annotation: Any, part: str | int, marks: tuple[Any, ...]) -> None:
    secrets = tuple(mark for mark in (*spot.marks, *marks) if isinstance(mark, Secret))
    inner = get_args(annotation)
    if isinstance(part, int) and isinstance(spot.node, Items):
        if id(spot.node) not in spot.lists:
            spot.lists[id(spot.node)] = present(spot.node)
        part, spot.node = spot.lists[id(spot.node)][part]
        spot.annotation, spot.path = inner[0] if inner else Any, (*spot.path, part)
        if _is_model(spot.annotation):
            spot.key, spot.place = f"{spot.key}[{part}]", spot.node.where
    elif isinstance(spot.node, Table):
        entry = spot.node.entries[str(part)]
        spot.key = f"{spot.key}.{part}" if spot.key else str(part)
        spot.node, spot.place, spot.path = entry.node, entry.where, (*spot.path, str(part))
        spot.annotation = inner[-1] if inner else Any
    spot.is_field, spot.marks = False, secrets


def _is_model(annotation: Any) -> bool:
    bare, _ = _bare(annotation)
    members = get_args(bare) if get_origin(bare) in (Union, UnionType) else (bare,)
    return any(isinstance(each, type) and issubclass(each, FileValue) for each, _ in map(_bare, members))


def _marks(annotation: Any) -> tuple[Any, ...]:
    """What a type is annotated with."""
    given = annotation.__metadata__ if get_origin(annotation) is Annotated else ()
    return tuple(
        mark for each in given for mark in (each.metadata if isinstance(each, FieldInfo) else (each,))
    )


def _bare(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type without ``Annotated`` and ``| None`` around it, and what it was annotated with."""
    marks: tuple[Any, ...] = ()
    while True:
        if isinstance(annotation, TypeAliasType):
            annotation = annotation.__value__
        elif get_origin(annotation) is Annotated:
            marks += _marks(annotation)
            annotation = annotation.__origin__
        elif get_origin(annotation) in (Union, UnionType):
            members = [each for each in get_args(annotation) if each is not NoneType]
            if len(members) != 1 and len(members) == len(get_args(annotation)):
                return annotation, marks
            annotation = members[0] if len(members) == 1 else Union[tuple(members)]  # noqa: UP007
        else:
            return annotation, marks


def _repaired(kind: str, spot: _Spot) -> Node | None:
    """What a value is taken for: a variable for a number or a boolean, a number for a word."""
    leaf = spot.node
    if not isinstance(leaf, Leaf) or leaf.value is None:
        return None
    if kind == "string_type" and any(isinstance(mark, AsWritten) for mark in spot.marks):
        return None if isinstance(leaf.value, str) else replace(leaf, value=leaf.raw)
    if not leaf.expanded or not isinstance(leaf.value, str):
        return None
    if kind in _NUMBERS:
        number = converted(leaf.value, _NUMBERS[kind][1])
        return None if number is None else replace(leaf, value=number, expanded=False)
    if kind == "bool_type" and leaf.value.lower() in {"true", "false"}:
        return replace(leaf, value=leaf.value.lower() == "true", expanded=False)
    return None


type _Words = tuple[str, tuple[str, ...], Where]
"""A problem, hints, and the place."""


def _words(error: ErrorDetails, spot: _Spot) -> _Words:
    """What an error of pydantic's is to the user."""
    kind, node, section = error["type"], spot.node, spot.section
    match kind:
        case "extra_forbidden":
            return _unknown(spot)
        case "missing":
            return "is missing", (_required(spot),), section.where
        case "int_type" | "float_type":
            return _number(kind, spot)
        case "greater_than_equal" | "less_than_equal" if isinstance(node, Leaf):
            return f"{_shown(node, section)}is out of range", (_span(spot),), spot.where
        case "bool_type" if node is not None:
            problem = f"{section.described(node)}, where true or false is needed"
            return problem, ("allowed: true, false (without quotes)",), spot.where
        case "literal_error" if node is not None:
            return _choice(spot, node)
        case "empty" if isinstance(node, Leaf):
            return "is empty" + because(node), (filled(node),), spot.where
        case "model_type" | "dict_type" if node is not None:
            model = spot.annotation if isinstance(spot.annotation, type) else None
            hints = model.not_a_mapping if model and issubclass(model, FileModel) else FileModel.not_a_mapping
            return f"{section.described(node)}, where a mapping is needed", hints, spot.place
        case "tuple_type" if node is not None:
            hint = f"write {flow(_example(spot))}"
            return f"{section.described(node)}, where a list is needed", (hint,), spot.where
        case "too_long":
            return _too_many(error, node, spot.place)
        case "string_type" if node is not None:
            return f"{section.described(node)}, where text is needed", (_as_text(spot, node),), spot.where
        case "refused":
            problem, _, hint = error["ctx"]["problem"].partition("; ")
            return problem, (hint,), spot.where
    return error["msg"][:1].lower() + error["msg"][1:], (), spot.where


def _unknown(spot: _Spot) -> _Words:
    key, model = str(spot.path[-1]), spot.model
    if issubclass(model, FileModel) and (own := model.unknown_key(key, spot.section)) is not None:
        return own[0], own[1:], spot.place
    known = model.known() if issubclass(model, FileModel) else tuple(model.model_fields)
    return "unknown key", (allowed(known), did_you_mean(key, known)), spot.place


def _required(spot: _Spot) -> str:
    own = next((mark.hint for mark in spot.marks if isinstance(mark, MissingHint)), None)
    return own or f"required, for example `{spot.path[-1]}: {flow(_example(spot))}`"


def _number(kind: str, spot: _Spot) -> _Words:
    node, (words, convert) = spot.node, _NUMBERS[kind]
    assert node is not None
    hint = _span(spot)
    if isinstance(node, Leaf) and _surprises(node):
        return (
            f"YAML reads {node.raw} as {node.value}",
            (f"write {node.value} if that is meant", hint),
            spot.where,
        )
    if isinstance(node, Leaf) and isinstance(node.value, str) and converted(node.value, convert) is not None:
        hint = "write it without quotes"
    return f"{spot.section.described(node)}, where {words} is needed", (hint or f"write {words}",), spot.where


def _choice(spot: _Spot, node: Node) -> _Words:
    choices = [str(each) for each in get_args(spot.annotation)]
    section = spot.section
    if not isinstance(node, Leaf):
        return f"{section.described(node)}, where text is needed", (allowed(choices),), spot.where
    if node.value is None:
        return f"{section.described(node)}, where text is needed", (section.as_text(node),), spot.where
    if not isinstance(node.value, str):
        return section.described(node), (allowed(choices),), spot.place  # quoted it would be no better
    value = sanitize(node.value.strip())
    if "\n" in value:
        return "has several lines", ("allowed: one line",), spot.where
    if not value:
        return "is empty" + because(node), (filled(node),), spot.where
    return f"unknown value {value}", (allowed(choices), did_you_mean(value, choices)), spot.place


def _as_text(spot: _Spot, node: Node) -> str:
    """How to write text in the place of another value."""
    if isinstance(node, Leaf):
        return spot.section.as_text(node)
    name = spot.path[-1]
    return "write one text" if isinstance(name, int) else f"write `{name}: {flow(_example(spot))}`"


def _too_many(error: ErrorDetails, node: Node | None, where: Where) -> _Words:
    count = (
        len(node.items) if isinstance(node, Items) else len(node.entries) if isinstance(node, Table) else 0
    )
    return f"has {count} entries", (f"allowed: at most {error['ctx']['max_length']}",), where


def _shown(node: Leaf, section: Section) -> str:
    return f"{node.value} " if section.echo and len(str(node.value)) < 40 else ""


def _span(spot: _Spot) -> str:
    """Which numbers are allowed, as the field's limits say it."""
    low: Any = None
    high: Any = None
    for mark in spot.marks:
        if isinstance(mark, Ge | Interval):
            low = mark.ge if low is None else low
        if isinstance(mark, Le | Interval):
            high = mark.le if high is None else high
    if low is None:
        return ""
    return f"allowed: {low:.15g} or more" if high is None else f"allowed: {low:.15g} to {high:.15g}"


def _example(spot: _Spot) -> Any:
    found = spot.field.examples if spot.field is not None else None
    return found[0] if found else "…"


def flow(value: Any, inside: bool = False) -> str:
    """A value as YAML on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {flow(each, True)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(flow(each, True) for each in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    return f'"{text}"' if inside and not _PLAIN.fullmatch(text) else text
