"""Describe a shape for others: as XSD, as JSON schema, and with an example (HC-23)."""

from typing import Any, Final

from lxml import etree

from pallas.payloads.xml_element import Element

from .field_shape import PayloadField, PayloadShape

_XS: Final = "http://www.w3.org/2001/XMLSchema"


def xsd_tree(shape: PayloadShape) -> Element:
    """Return the XSD as elements: one element of that name, in no namespace."""
    schema = etree.Element(f"{{{_XS}}}schema", nsmap={"xs": _XS})
    _structure(_xs(schema, "element", name=shape.name), shape)
    return schema


def xsd(shape: PayloadShape) -> str:
    """Return the XSD as a document."""
    return etree.tostring(xsd_tree(shape), encoding="unicode", pretty_print=True)


def _xs(parent: Element, tag: str, **attributes: str) -> Element:
    element: Element = etree.SubElement(parent, f"{{{_XS}}}{tag}", attrib=attributes)
    return element


def _structure(element: Element, shape: PayloadShape) -> None:
    sequence = _xs(_xs(element, "complexType"), "sequence")
    for field in shape.fields:
        child = _xs(sequence, "element", name=field.element)
        if isinstance(field.type, PayloadShape):
            _structure(child, field.type)
        elif field.choices:
            restriction = _xs(_xs(child, "simpleType"), "restriction", base=f"xs:{field.type.xsd}")
            for choice in field.choices:
                _xs(restriction, "enumeration", value=field.type.of_json(choice))
        else:
            child.set("type", f"xs:{field.type.xsd}")
        if not field.required:
            child.set("minOccurs", "0")
        if field.many:
            child.set("maxOccurs", "unbounded")
        if field.nil:
            child.set("nillable", "true")


def json_schema(shape: PayloadShape) -> dict[str, Any]:
    """Return the JSON schema (2020-12) of an object of this shape."""
    schema: dict[str, Any] = {"title": shape.name, "type": "object"}
    if shape.doc:
        schema["description"] = shape.doc
    schema["properties"] = {field.name: _property(field) for field in shape.fields}
    if required := [field.name for field in shape.fields if field.required]:
        schema["required"] = required
    schema["additionalProperties"] = False
    return schema


def _property(field: PayloadField) -> dict[str, Any]:
    schema = json_schema(field.type) if isinstance(field.type, PayloadShape) else dict(field.type.schema)
    if field.many:
        schema = {"type": "array", "items": schema}
    if field.optional:
        schema = _or_null(schema)
    if field.doc:
        schema["description"] = field.doc
    if field.has_default and field.known:
        schema["default"] = field.default
    return schema


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    if "properties" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    nullable = {**schema, "type": [*kinds, "null"]}
    if "enum" in nullable:
        nullable["enum"] = [*nullable["enum"], None]
    return nullable


def example(shape: PayloadShape) -> dict[str, Any]:
    """Return an example as values by field."""
    return {field.name: _example(field) for field in shape.fields}


def _example(field: PayloadField) -> Any:
    if field.known and field.default not in (None, "", []):
        return field.default
    one = example(field.type) if isinstance(field.type, PayloadShape) else field.type.example
    return [one] if field.many else one
