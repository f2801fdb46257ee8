"""Write values as XML: an instance of the class, or JSON values, by a plan made once per shape."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from lxml import etree

from pallas.payloads.xml_element import Element

from .field_shape import PayloadField, PayloadShape
from .payload_faults import Misfit, shown
from .payload_limits import MAX_BYTES, MAX_ELEMENTS

XSI: Final = "http://www.w3.org/2001/XMLSchema-instance"
NIL: Final = f"{{{XSI}}}nil"

Fill = Callable[[Element, Any, list[int]], None]
"""Adds the fields of a value to an element. Raises Misfit.

The last argument is what is left of the message's budget: bytes, which each element uses up, and elements.
"""
_LEAST: Final = 4
_new = etree.SubElement
_ABSENT: Final = object()


def of_python(shape: PayloadShape) -> Fill:
    """Return the writer for instances of a class of that name."""
    name = shape.name
    steps = tuple(
        (field.name, _field(field, _items(field, of_python, "of_python"))) for field in shape.fields
    )

    def fill(parent: Element, value: Any, left: list[int]) -> None:
        kind = type(value)
        if kind.__name__ != name and name not in (base.__name__ for base in kind.__mro__):
            raise Misfit(f"is {shown(value)}", f"an instance of {name}")
        for field, step in steps:
            try:
                given = getattr(value, field)
            except Exception:
                raise Misfit("has no value").within(field) from None
            step(parent, given, left)

    return fill


def of_json(shape: PayloadShape) -> Fill:
    """Return the writer for mappings by field, of JSON values; missing optional fields stay missing."""
    steps = tuple(
        (field.name, _missing(field), _field(field, _items(field, of_json, "of_json")))
        for field in shape.fields
    )
    names = frozenset(field.name for field in shape.fields)

    def fill(parent: Element, value: Any, left: list[int]) -> None:
        if not isinstance(value, Mapping):
            raise Misfit(f"is {shown(value)}", f"an object with {_listed(shape)}")
        for key in value:
            if key not in names:
                raise Misfit(f"has no field {shown(str(key))}", _listed(shape))
        for field, missing, step in steps:
            given = value.get(field, _ABSENT)
            if given is not _ABSENT:
                step(parent, given, left)
            elif missing is not None:
                raise Misfit("is missing", missing).within(field)

    return fill


def budget(limit: int) -> list[int]:
    """Return the budget of a message of ``limit`` bytes."""
    return [limit, MAX_ELEMENTS]


def check(field: PayloadField, value: Any) -> None:
    """Check that a JSON value is valid for the field. Raises Misfit."""
    _field(field, _items(field, of_json, "of_json"))(etree.Element("_"), value, budget(MAX_BYTES))


def _missing(field: PayloadField) -> str | None:
    if not field.required:
        return None
    return (
        f"an object with {_listed(field.type)}" if isinstance(field.type, PayloadShape) else field.type.words
    )


def _listed(shape: PayloadShape) -> str:
    names = [field.name for field in shape.fields]
    return ", ".join(names[:10]) + (", …" if names[10:] else "") if names else "no fields"


def _items(field: PayloadField, nested: Callable[[PayloadShape], Fill], text_of: str) -> Fill:
    """Return a writer that writes one value of the field as one element."""
    element = field.element
    if isinstance(field.type, PayloadShape):
        inner = nested(field.type)

        def structure(parent: Element, value: Any, left: list[int]) -> None:
            _take(left, _LEAST)
            inner(_new(parent, element), value, left)

        return structure
    write: Callable[[Any], str] = getattr(field.type, text_of)

    def text(parent: Element, value: Any, left: list[int]) -> None:
        text = write(value)
        _take(left, len(text) + _LEAST)
        try:
            _new(parent, element).text = text
        except ValueError:
            raise Misfit("has a character that XML cannot carry", "text without control characters") from None

    return text


def _take(left: list[int], size: int) -> None:
    # Count while writing: a list that repeats one object is small until it is written.
    left[0] -= size
    left[1] -= 1
    if left[0] < 0:
        raise Misfit("is too long: the message has more bytes than one may have", "less of it")
    if left[1] < 0:
        raise Misfit(f"is too much: the message has more than {MAX_ELEMENTS} elements", "fewer of them")


def _field(field: PayloadField, item: Fill) -> Fill:
    """Return a writer for the field's whole value: none, one or several elements."""
    name, element, optional, many = field.name, field.element, field.optional, field.many
    # Omit the field if a missing one reads back the same, otherwise write it as nil.
    left_out = field.absent is None if optional else field.absent == []

    def one(parent: Element, value: Any, left: list[int]) -> None:
        try:
            if value is None and optional:
                if not left_out:
                    _take(left, _LEAST)
                    _new(parent, element).set(NIL, "true")
            else:
                item(parent, value, left)
        except Misfit as error:
            raise error.within(name) from None

    def several(parent: Element, value: Any, left: list[int]) -> None:
        if not isinstance(value, list):
            raise Misfit(f"is {shown(value)}", "a list").within(name)
        if type(value) is not list:
            # The plain str, whatever a subclass makes of it.
            value = list.__getitem__(value, slice(None))
        if not value and not left_out:
            _take(left, _LEAST)
            _new(parent, element).set(NIL, "true")
        index = 0
        try:
            for one in value:
                item(parent, one, left)
                index += 1
        except Misfit as error:
            raise error.within(f"{name}[{index}]") from None

    return several if many else one
