"""The arguments of one call while they are written: one value, seen as fields and as JSON text.

The value is the only truth. Fields are made from it and from the schema whenever they are shown, and every
change is a change of the value; so a key that the schema does not know is never lost, and nothing that is
half written can be sent. Only JSON text keeps its own wording until a field is changed.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from .field_shape import FieldKind, FieldShape, Shapes
from .field_text import meant
from .form_schema import Schema
from .json_text import JsonMistake, dump, parse
from .mistakes import Mistakes
from .value_paths import ABSENT, Path, at, moved, put, remove

if TYPE_CHECKING:
    from .form_check import Checker

_PREFILLED: Final = 5
"""Levels of required objects that are begun by themselves."""
_MOST_PREFILLED: Final = 200
"""Fields that are."""


class Form:
    """A form for a tool's input schema, beginning with ``arguments``, or with what the schema requires."""

    def __init__(self, schema_text: str, arguments: Mapping[str, Any] | None = None) -> None:
        self.schema = Schema(schema_text)
        self.shapes = Shapes(self.schema)
        self.root = self.schema.document
        self._checker: Checker | None = None
        self._value: dict[str, Any] = {}
        self._raw: str | None = None
        self.raw_mistake = ""
        """Why the JSON text cannot be used as it stands; the fields then show what it was before."""
        self._chosen: dict[Path, int] = {}
        self._put_aside: dict[tuple[Path, int], Any] = {}
        self.opened: dict[Path, bool] = {}
        """Which objects and lists were folded or unfolded by hand."""
        self.version = 0
        """Grows with each change."""
        self._checked: tuple[int, Mistakes] = (-1, Mistakes())
        self._refused: tuple[int, dict[Path, str]] = (-1, {})
        if arguments is not None:
            self._value = dict(arguments)
        else:
            begun = self._begun(self.root, 0, [_MOST_PREFILLED])
            self._value = begun if isinstance(begun, dict) else {}

    @property
    def value(self) -> dict[str, Any]:
        """The arguments as they would be sent."""
        return self._value

    @property
    def root_shape(self) -> FieldShape:
        """The shape of the whole form: always an object, because MCP knows no other arguments."""
        return self.shapes.of(self.root)

    @property
    def mistakes(self) -> Mistakes:
        """What of the arguments is not as the schema says."""
        if self._checked[0] != self.version:
            if self._checker is None:
                from .form_check import Checker

                self._checker = Checker(self.schema.document)
            self._checked = (self.version, self._checker.mistakes(self._value))
        found, (version, refused) = self._checked[1], self._refused
        return replace(found, fields={**found.fields, **refused}) if version == self.version else found

    def refuse(self, path: Path, reason: str) -> None:
        """Show at the field that the receiver refused it, until any value changes."""
        self._refused = (self.version, {path: reason})

    # As text

    @property
    def raw(self) -> str:
        """The arguments as JSON text: as it was typed, or as the fields say."""
        return dump(self._value) if self._raw is None else self._raw

    def edit_raw(self, text: str) -> bool:
        """The JSON text was changed; False while it stands for no arguments (``raw_mistake`` says why)."""
        if text == self.raw:
            return not self.raw_mistake
        self._raw = text
        self.version += 1
        try:
            value = parse(text) if text.strip() else {}
        except JsonMistake as mistake:
            self.raw_mistake = str(mistake)
            return False
        if not isinstance(value, dict):
            self.raw_mistake = "arguments are an object: { … }"
            return False
        self._value, self.raw_mistake = value, ""
        return True

    # As fields

    def type_in(self, path: Path, shape: FieldShape, text: str, required: bool = False) -> None:
        """Set a field from typed text. Raises JsonMistake, and then nothing changes."""
        value = meant(shape, text, required)
        if value is ABSENT and path and isinstance(path[-1], int) and shape.kind is FieldKind.TEXT:
            value = ""  # an item of a list is there, or it is removed
        self.unset(path) if value is ABSENT else self.set(path, value)

    def type_json(self, path: Path, text: str) -> None:
        """Take JSON for a field of any kind; empty text takes the field away. Raises JsonMistake."""
        if text.strip():
            self.set(path, parse(text))
        else:
            self.unset(path)

    def set(self, path: Path, value: Any) -> None:
        """Set the value at ``path``, and create the parents that it needs."""
        found = put(self._value, self._grounded(path), value)
        self._change(found if isinstance(found, dict) else {})

    def unset(self, path: Path) -> None:
        """Send nothing for that field; an item of a list is removed."""
        if not path or at(self._value, path) is ABSENT:
            return
        if isinstance(path[-1], int):
            self.opened = moved(self.opened, path)
            self._chosen = moved(self._chosen, path)
            self._put_aside.clear()
        self._change(remove(self._value, path))

    def add(self, path: Path, shape: FieldShape) -> Path | None:
        """A new last item of a list, begun as far as its schema says; None where no more may come."""
        items = at(self._value, path)
        count = len(items) if isinstance(items, list) else 0
        node = self.item_node(shape, count)
        if node is None:
            return None
        new = (*path, count)
        self.set(new, self._seed(node))
        self.opened[path] = True
        return new

    def name(self, path: Path, shape: FieldShape, key: str) -> Path | None:
        """A new field of an object that takes fields of any name; None where it does not, or has it."""
        value = at(self._value, path)
        if shape.more is None or not key or (isinstance(value, dict) and key in value):
            return None
        new = (*path, key)
        self.set(new, self._seed(shape.more))
        self.opened[path] = True
        return new

    def begin(self, path: Path, node: Any) -> None:
        """Put there what the schema says by itself: the default, the only choice, an object, a list."""
        self.set(path, self._seed(node))
        self.opened[path] = True

    def variant(self, path: Path, shape: FieldShape) -> int:
        """Which variant the field has now: the one that was chosen, else the first that fits the value."""
        value = at(self._value, path)
        chosen = self._chosen.get(path)
        if value is ABSENT or (chosen is not None and self._fits(shape.variants[chosen], value)):
            return chosen or 0
        return next((i for i, node in enumerate(shape.variants) if self._fits(node, value)), chosen or 0)

    def choose(self, path: Path, shape: FieldShape, index: int) -> None:
        """Change to another variant. What stood there comes back when one changes back."""
        before, value = self.variant(path, shape), at(self._value, path)
        if index == before:
            return
        if value is not ABSENT:
            self._put_aside[path, before] = value
        self._chosen[path] = index
        node = shape.variants[index]
        if (path, index) in self._put_aside:
            self.set(path, self._put_aside[path, index])
        elif value is ABSENT or not self._fits(node, value):
            seed = self._seed(node)
            self.set(path, seed) if value is not ABSENT or isinstance(seed, dict) else self._change(
                self._value
            )
        else:
            self._change(self._value)

    def item_node(self, shape: FieldShape, index: int) -> Any:
        """The schema of a list's item; None where none may stand."""
        return shape.first[index] if index < len(shape.first) else shape.items

    # Inside

    def _change(self, value: dict[str, Any]) -> None:
        self._value, self._raw, self.raw_mistake = value, None, ""
        self.version += 1

    def _grounded(self, path: Path) -> Path:
        """``path`` with positions no further than the end of their lists."""
        for index, step in enumerate(path):
            if isinstance(step, int):
                items = at(self._value, path[:index])
                count = len(items) if isinstance(items, list) else 0
                if step > count:
                    path = (*path[:index], count, *path[index + 1 :])
        return path

    def _fits(self, node: Any, value: Any) -> bool:
        shape = self.shapes.of(node)
        if not shape.fits(value):
            return False
        if isinstance(value, dict) and shape.kind is FieldKind.OBJECT:
            if not shape.required <= value.keys() and any(key not in shape.properties for key in value):
                return False
            for name in shape.properties.keys() & value.keys():
                inner = self.shapes.of(shape.properties[name])
                if inner.kind is FieldKind.CHOICE and not inner.fits(value[name]):
                    return False
            return shape.more is not None or value.keys() <= shape.properties.keys()
        return True

    def _seed(self, node: Any) -> Any:
        """What to begin with where something must stand."""
        begun = self._begun(node, 0, [_MOST_PREFILLED])
        if begun is not ABSENT:
            return begun
        shape = self.shapes.of(node)
        return _SEEDS.get(shape.kind, shape.choices[0] if shape.choices else None)

    def _begun(self, node: Any, depth: int, left: list[int]) -> Any:
        """What the schema says by itself, ABSENT when it leaves the choice."""
        shape = self.shapes.of(node)
        if shape.default is not ABSENT:
            return shape.default
        if shape.kind is FieldKind.CHOICE and len(shape.choices) == 1:
            return shape.choices[0]
        if shape.kind is FieldKind.VARIANTS and depth < _PREFILLED:
            return self._begun(shape.variants[0], depth + 1, left) if depth == 0 else ABSENT
        if shape.kind is not FieldKind.OBJECT or depth >= _PREFILLED or left[0] <= 0:
            return ABSENT
        found = {}
        for name in shape.properties:
            if name not in shape.required or left[0] <= 0:
                continue
            left[0] -= 1
            value = self._begun(shape.properties[name], depth + 1, left)
            if value is not ABSENT:
                found[name] = value
        return found


_SEEDS: Final[Mapping[FieldKind, Any]] = {
    FieldKind.TEXT: "",
    FieldKind.INTEGER: 0,
    FieldKind.NUMBER: 0,
    FieldKind.BOOLEAN: False,
    FieldKind.OBJECT: {},
    FieldKind.ARRAY: [],
}


def warm_up() -> None:
    """Load what the check needs, which takes a moment: for a thread, before the first form is opened."""
    from . import form_check

    assert form_check.MAX_STEPS
