"""Convert checked XML elements to values: JSON values by field, or a new instance of the class."""

from collections.abc import Callable
from typing import Any

from pallas.payloads.xml_element import Element

from .class_shape import Derived
from .field_shape import MISSING, PayloadField, PayloadShape
from .xml_writer import NIL

Make = Callable[[Element], Any]


def as_json(shape: PayloadShape) -> Make:
    """Return a function that makes a dict by field. A missing field is in it if its default is known."""
    takers = _takers(shape, lambda field: _json_of(field))
    absent = {field.name: field.absent for field in shape.fields if field.absent is not MISSING}
    order = [field.name for field in shape.fields]

    def make(element: Element) -> dict[str, Any]:
        values = _values(element, takers)
        return {
            name: values[name] if name in values else _fresh(absent[name])
            for name in order
            if name in values or name in absent
        }

    return make


def as_instance(derived: Derived) -> Make:
    """Return a function that makes an instance; missing fields get the class's defaults.

    Raises what the class's own code raises.
    """
    kind = derived.kind

    def maker(field: PayloadField) -> Make:
        part = derived.parts.get(field.name)
        if isinstance(part, Derived):
            return as_instance(part)
        assert not isinstance(field.type, PayloadShape)
        read = field.type.to_python
        if part is None:
            return lambda element: read(element.text or "")
        return lambda element: part(read(element.text or ""))

    takers = _takers(derived.shape, maker)
    # Without a default in the class, these become None and empty instead of missing.
    given = [
        (field.name, field.many)
        for field in derived.shape.fields
        if not (field.has_default or field.required)
    ]

    def make(element: Element) -> Any:
        values = _values(element, takers)
        for name, many in given:
            if name not in values:
                values[name] = [] if many else None
        return kind(**values)

    return make


def _json_of(field: PayloadField) -> Make:
    if isinstance(field.type, PayloadShape):
        return as_json(field.type)
    read = field.type.to_json
    return lambda element: read(element.text or "")


def _takers(
    shape: PayloadShape, maker: Callable[[PayloadField], Make]
) -> dict[str, tuple[str, bool, bool, Make]]:
    return {field.element: (field.name, field.many, field.nil, maker(field)) for field in shape.fields}


def _values(element: Element, takers: dict[str, tuple[str, bool, bool, Make]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for child in element:
        name, many, may_be_nil, make = takers[str(child.tag)]
        if may_be_nil and child.get(NIL) is not None and child.get(NIL, "").strip() in ("true", "1"):
            values[name] = [] if many else None
        elif many:
            values.setdefault(name, []).append(make(child))
        else:
            values[name] = make(child)
    return values


def _fresh(value: Any) -> Any:
    if isinstance(value, list):
        return [_fresh(one) for one in value]
    if isinstance(value, dict):
        return {key: _fresh(one) for key, one in value.items()}
    return value
