"""A form as lines: each field once, with its value, bounded for every schema."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pallas.safe_text import one_line

from .field_shape import FieldKind, FieldShape
from .form import Form
from .value_paths import ABSENT, Path, at

MAX_ROWS: Final = 500
MAX_CHILDREN: Final = 200
MAX_LEVELS: Final = 24
_OPEN_LEVELS: Final = 4


@dataclass(frozen=True, slots=True)
class FormRow:
    """A field of the form, or with the path ``()`` the choice of a variant for the whole.

    ``node`` is its part of the schema, ``shape`` what that asks for now.
    ``chooser`` is the shape that the variant came from, where there was one to choose. ``more`` counts the
    fields that are not shown: the line is then no field, but says so. ``known`` is False for a key that the
    schema does not have.
    """

    path: Path
    label: str
    shape: FieldShape
    node: Any
    value: Any
    required: bool = False
    foldable: bool = False
    opened: bool = False
    chooser: FieldShape | None = None
    variant: int = 0
    more: int = 0
    known: bool = True

    @property
    def depth(self) -> int:
        """0 for the tool's own arguments."""
        return max(0, len(self.path) - 1)

    @property
    def is_item(self) -> bool:
        """Whether it is an item of a list."""
        return bool(self.path) and isinstance(self.path[-1], int)


def rows(form: Form) -> tuple[FormRow, ...]:
    """The lines of the form, at most ``MAX_ROWS``, the last one saying how it goes on where it does."""
    found: list[FormRow] = []
    shape = form.root_shape
    if shape.kind is FieldKind.VARIANTS:
        # The whole is one of several: the choice stands first, on a line of its own.
        chooser, index = shape, form.variant((), shape)
        shape = form.shapes.of(chooser.variants[index])
        found.append(
            FormRow((), "variant", shape, form.root, form.value, True, chooser=chooser, variant=index)
        )
    walk = _children(form, (), shape, form.value, 0)
    for row in walk:
        if len(found) == MAX_ROWS:
            found.append(_rest(row.path, 0))
            break
        found.append(row)
    return tuple(found)


def _children(form: Form, path: Path, shape: FieldShape, value: Any, depth: int) -> Iterator[FormRow]:
    if isinstance(value, list) or (value is ABSENT and shape.kind is FieldKind.ARRAY):
        yield from _items(form, path, shape, value if isinstance(value, list) else [], depth)
        return
    held = value if isinstance(value, dict) else {}
    names = [*shape.properties, *(key for key in held if key not in shape.properties)]
    # Required fields come first.
    names.sort(key=lambda name: name not in shape.required)
    names += [name for name in sorted(shape.required) if name not in shape.properties and name not in held]
    for count, name in enumerate(names):
        if count == MAX_CHILDREN:
            yield _rest((*path, name), len(names) - count)
            return
        known = name in shape.properties or shape.more not in (None, True)
        node = shape.properties.get(name, True if shape.more is None else shape.more)
        yield from _field(form, (*path, name), node, name in shape.required, known, depth)


def _items(form: Form, path: Path, shape: FieldShape, items: list[Any], depth: int) -> Iterator[FormRow]:
    for index in range(len(items)):
        if index == MAX_CHILDREN:
            yield _rest((*path, index), len(items) - index)
            return
        node = form.item_node(shape, index)
        yield from _field(
            form, (*path, index), True if node is None else node, False, node is not None, depth
        )


def _field(form: Form, path: Path, node: Any, required: bool, known: bool, depth: int) -> Iterator[FormRow]:
    shape, chooser, variant = form.shapes.of(node), None, 0
    for _ in range(3):  # a variant may itself be one of several
        if shape.kind is not FieldKind.VARIANTS:
            break
        if chooser is None:
            chooser, variant = shape, form.variant(path, shape)
            node = shape.variants[variant]
        else:
            node = shape.variants[0]
        shape = form.shapes.of(node)
    value = at(form.value, path)
    holds = isinstance(value, dict | list) or (
        value is ABSENT and shape.kind in (FieldKind.OBJECT, FieldKind.ARRAY)
    )
    foldable = holds and depth < MAX_LEVELS
    opened = foldable and form.opened.get(path, value is not ABSENT and depth < _OPEN_LEVELS)
    step = path[-1]
    label = f"[{step}]" if isinstance(step, int) else one_line(step, 60) or '""'
    yield FormRow(path, label, shape, node, value, required, foldable, opened, chooser, variant, known=known)
    if opened:
        yield from _children(form, path, shape, value, depth + 1)


def _rest(path: Path, count: int) -> FormRow:
    label = f"{count} more: they are in the JSON" if count else "more: they are in the JSON"
    return FormRow(path, label, _TOP, None, ABSENT, more=count or 1)


_TOP: Final = FieldShape(FieldKind.ANY)
