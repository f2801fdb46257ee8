"""The shape of a class: its fields as plain values, which can be sent to another process.

Everything else of a ``PayloadType`` (schemas, example, reading and writing) is derived from it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from xml.parsers import expat

from lxml import etree

from pallas.safe_text import sanitize

from .choice_values import chosen
from .payload_faults import Misfit, PayloadFault, misfit
from .payload_limits import MAX_CHOICES, MAX_FIELDS, MAX_NESTED
from .scalars import SCALARS, Scalar

_XML_NAME: Final = re.compile(r"[^\W\d][\w.-]{0,99}").fullmatch


def _is_name(name: str) -> bool:
    """Return whether both XML parsers accept an element of that name."""
    if not _XML_NAME(name):
        return False
    try:
        # One of the parsers follows an older edition of XML than the other.
        expat.ParserCreate("utf-8").Parse(f"<{name}/>".encode(), True)
        etree.Element(name)
    except (expat.ExpatError, ValueError):
        return False
    return True


@dataclass(frozen=True, slots=True)
class PayloadField:
    """One field of a class."""

    name: str
    element: str
    """Its name in XML."""
    type: "Scalar | PayloadShape"
    many: bool = False
    """Whether it is a list of ``type``."""
    optional: bool = False
    """Whether it may be None."""
    has_default: bool = False
    """Whether a message may leave it out."""
    known: bool = False
    """Whether ``default`` is known; the result of a default factory may differ each time."""
    default: Any = None
    """A JSON value."""
    choices: tuple[Any, ...] = ()
    enum: bool = False
    doc: str = ""

    @property
    def required(self) -> bool:
        """Whether a message must have it. A missing list is an empty one."""
        return not (self.has_default or self.many or self.optional)

    @property
    def absent(self) -> Any:
        """The JSON value of a missing field; ``MISSING`` when unknown."""
        if self.has_default:
            return self.default if self.known else MISSING
        return [] if self.many else None if self.optional else MISSING

    @property
    def nil(self) -> bool:
        """Whether it may be written as nothing (``xsi:nil``): None, or an empty list that has a default."""
        return self.optional or (self.many and self.absent != [])


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()


@dataclass(frozen=True, slots=True)
class PayloadShape:
    """A dataclass: its name, its docstring, and its fields in order."""

    name: str
    fields: tuple[PayloadField, ...]
    doc: str = ""

    def walk(self) -> Iterator[PayloadField]:
        """Yield its fields and those of the dataclasses in it."""
        for field in self.fields:
            yield field
            if isinstance(field.type, PayloadShape):
                yield from field.type.walk()

    def depth(self) -> int:
        """How many dataclasses are nested, itself included."""
        return 1 + max(
            (one.type.depth() for one in self.fields if isinstance(one.type, PayloadShape)), default=0
        )


def problem(shape: PayloadShape) -> str | None:
    """Return why the class cannot be used for messages, None if it can: names and sizes."""
    if not _is_name(shape.name):
        return f"{shape.name} is not a valid XML name"
    if shape.depth() > MAX_NESTED:
        return f"more than {MAX_NESTED} dataclasses inside one another"
    if sum(1 for _ in shape.walk()) > MAX_FIELDS:
        return f"more than {MAX_FIELDS} fields, those of the dataclasses in it counted"
    return _names(shape)


def _names(shape: PayloadShape) -> str | None:
    taken: set[str] = set()
    for field in shape.fields:
        if not _is_name(field.element):
            return (
                f"{shape.name}.{field.name}: {field.element} is not a valid XML name; ELEMENTS "
                f"can give another"
            )
        if field.element in taken:
            return f"{shape.name}.{field.name}: two fields have the element {field.element}"
        taken.add(field.element)
        if isinstance(field.type, PayloadShape) and (wrong := _names(field.type)):
            return wrong
    return None


def shape_to_json(shape: PayloadShape) -> dict[str, Any]:
    """Return the shape as plain values."""
    return {
        "name": shape.name,
        "fields": [_field_to_json(field) for field in shape.fields],
        **({"doc": shape.doc} if shape.doc else {}),
    }


def _field_to_json(field: PayloadField) -> dict[str, Any]:
    kind: Any = shape_to_json(field.type) if isinstance(field.type, PayloadShape) else field.type.name
    field_document: dict[str, Any] = {"name": field.name, "type": kind}
    if field.element != field.name:
        field_document["element"] = field.element
    for flag in ("many", "optional", "has_default", "known", "enum"):
        if getattr(field, flag):
            field_document[flag] = True
    if field.known:
        field_document["default"] = field.default
    if field.choices:
        field_document["choices"] = list(field.choices)
    if field.doc:
        field_document["doc"] = field.doc
    return field_document


def shape_of_json(given: object) -> PayloadShape:
    """Return the checked shape from what ``shape_to_json`` returned. Raises PayloadFault."""
    try:
        shape = _shape(given, 1)
        if wrong := problem(shape):
            misfit(wrong)
    except Misfit as error:
        raise PayloadFault(f"this describes no class of messages: {error.what}") from None
    return shape


def _shape(given: object, depth: int) -> PayloadShape:
    if not isinstance(given, Mapping) or depth > MAX_NESTED:
        misfit("a shape is an object, and not many inside one another")
    fields = given.get("fields")
    if not isinstance(fields, list) or len(fields) > MAX_FIELDS:
        misfit("its fields are a list")
    return PayloadShape(
        _text(given, "name"), tuple(_field(one, depth) for one in fields), sanitize(_text(given, "doc", ""))
    )


def _field(given: object, depth: int) -> PayloadField:
    if not isinstance(given, Mapping):
        misfit("a field is an object")
    kind = given.get("type")
    listed = given.get("choices", [])
    if (
        not isinstance(listed, list)
        or len(listed) > MAX_CHOICES
        or {type(one) for one in listed} - {str, int}
    ):
        misfit(f"choices are a list of at most {MAX_CHOICES} texts or numbers")
    choices = tuple(listed)
    enum = given.get("enum") is True
    field_document: Scalar | PayloadShape
    if isinstance(kind, str) and kind in SCALARS:
        field_document = SCALARS[kind]
        if choices:
            field_document = chosen(field_document, choices, enum=enum)
    else:
        field_document = _shape(kind, depth + 1)
    name = _text(given, "name")
    if given.get("many") is True and given.get("optional") is True:
        misfit("a list is not optional")
    return PayloadField(
        name=name,
        element=_text(given, "element", name),
        type=field_document,
        many=given.get("many") is True,
        optional=given.get("optional") is True,
        has_default=given.get("has_default") is True,
        known=given.get("known") is True,
        default=given.get("default"),
        choices=choices,
        enum=enum,
        doc=sanitize(_text(given, "doc", "")),
    )


def _text(given: Mapping[Any, Any], key: str, otherwise: str | None = None) -> str:
    value = given.get(key, otherwise)
    if not isinstance(value, str) or len(value) > 10_000:
        misfit(f"{key} is a text")
    return value
