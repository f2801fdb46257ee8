"""A checked message and its type."""

import contextlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final, Literal, cast

from lxml import etree

from pallas.model import Fault, FaultType
from pallas.model.module_name import plain_name
from pallas.payloads.xml_element import Element
from pallas.safe_text import one_line

from . import class_shape, element_values, payload_schemas, xml_writer
from .field_shape import PayloadShape, shape_of_json, shape_to_json
from .payload_faults import Misfit, NotTaken, PayloadFault
from .payload_limits import MAX_BYTES
from .scalars import Scalar
from .xml_reader import XmlReader

__all__ = ["MAX_BYTES", "Form", "NotTaken", "Payload", "PayloadFault", "PayloadType"]

Form = Literal["json", "xml", "text"]
_KEPT: Final = "__pallas_payload__"

# libxml2 makes the built-in types with a process' first schema. Two threads that do it at once break them.
etree.XMLSchema(etree.XML('<schema xmlns="http://www.w3.org/2001/XMLSchema"/>'))


class Payload:
    """One checked message. Immutable.

    ``key`` is ``module:Class``, ``name`` the class's name, ``element`` its XML.
    """

    __slots__ = ("_xml", "element", "type")

    def __init__(self, type: "PayloadType", element: Element) -> None:  # noqa: A002
        self.type = type
        self.element = element
        self._xml: bytes | None = None

    @property
    def key(self) -> str:
        """``module:Class``."""
        return self.type.key

    @property
    def name(self) -> str:
        """The name of its class."""
        return self.type.name

    @property
    def xml(self) -> bytes:
        """The element, UTF-8, without a declaration."""
        if self._xml is None:
            self._xml = etree.tostring(self.element, encoding="utf-8", with_tail=False)
        return self._xml

    def __repr__(self) -> str:
        return f"Payload({self.key}, {len(self.xml)} bytes)"


class PayloadType:
    """A dataclass as others see it: made by ``of``, or from ``to_json`` in another process.

    It holds no class, so that an old version of one is freed when its last instance is.
    """

    def __init__(self, key: str, shape: PayloadShape) -> None:
        self.key = key
        self.name = shape.name
        self.shape = shape
        self._tree = payload_schemas.xsd_tree(shape)
        self._valid = etree.XMLSchema(self._tree)
        self._plan = XmlReader(shape)
        self._of_python = xml_writer.of_python(shape)
        self._of_json = xml_writer.of_json(shape)
        self._as_json = element_values.as_json(shape)

    def __repr__(self) -> str:
        return f"PayloadType({self.key})"

    @classmethod
    def of(cls, kind: type) -> "PayloadType":
        """Return the type of a dataclass, cached as long as the class lives.

        Raises Fault (CONFIG) with the field and the reason.
        """
        return _known(kind).type

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> "PayloadType":
        """Return the type from what ``to_json`` returned. Raises PayloadFault."""
        if not isinstance(given, Mapping):
            raise PayloadFault("this describes no class of messages: it is not an object")
        key = given.get("key")
        if not isinstance(key, str) or len(key) > 1_000:
            raise PayloadFault("this describes no class of messages: its key is a text")
        shape = shape_of_json(given.get("shape"))
        try:
            payload_type = cls(key, shape)
            for field in shape.walk():
                if field.known:
                    xml_writer.check(field, field.default)
            return payload_type
        except (ValueError, etree.XMLSchemaParseError, Misfit) as error:
            raise PayloadFault(f"this describes no class of messages: {one_line(str(error))}") from None

    def to_json(self) -> dict[str, Any]:
        """Return the type as plain values."""
        return {"key": self.key, "shape": shape_to_json(self.shape)}

    def same(self, other: "PayloadType") -> bool:
        """Return whether payloads of both are interchangeable: the same class, or an equal shape."""
        return self is other or self.shape_text == other.shape_text

    @cached_property
    def shape_text(self) -> str:
        """Its shape as JSON text, equal for equal shapes."""
        return json.dumps(shape_to_json(self.shape))

    @cached_property
    def xsd(self) -> str:
        """Its XML schema: a whole document, without comments."""
        return payload_schemas.xsd(self.shape)

    @property
    def json_schema(self) -> dict[str, Any]:
        """Its JSON schema (2020-12): an object, with descriptions if the class has some."""
        return payload_schemas.json_schema(self.shape)

    @cached_property
    def example(self) -> str:
        """An example as XML text, indented."""
        return etree.tostring(
            self.pack(self.example_json).element, encoding="unicode", pretty_print=True
        ).strip()

    @property
    def example_json(self) -> dict[str, Any]:
        """The example as JSON values."""
        return payload_schemas.example(self.shape)

    @cached_property
    def text_field(self) -> str | None:
        """The field for plain text: the only one, or the only one without a default, and a str."""
        fields = self.shape.fields
        if len(fields) > 1:
            fields = tuple(field for field in fields if field.required)
        if len(fields) != 1 or fields[0].many or fields[0].choices:
            return None
        kind = fields[0].type
        return fields[0].name if isinstance(kind, Scalar) and kind.name == "str" else None

    def pack(self, value: Any, *, limit: int = MAX_BYTES) -> Payload:
        """Check an instance of the class, or a mapping by field, and return its payload.

        Raises PayloadFault.
        """
        element = etree.Element(self.name)
        try:
            write = self._of_json if isinstance(value, Mapping) else self._of_python
            write(element, value, xml_writer.budget(limit))
        except Misfit as error:
            raise error.fault(self.name) from None
        except Exception as error:
            # Errors of the values' own classes (a time zone, a mapping) are for their author.
            raise PayloadFault(f"{self.name} has a value that cannot be written") from error
        payload = self._checked(element)
        if len(payload.xml) > limit:
            raise PayloadFault(f"{self.name} has {len(payload.xml)} bytes as XML; at most {limit}")
        return payload

    def parse(self, xml: bytes, *, limit: int = MAX_BYTES) -> Payload:
        """Read and check one XML element. Raises PayloadFault."""
        if len(xml) > limit:
            raise PayloadFault(f"{self.name} has {len(xml)} bytes as XML; at most {limit}")
        try:
            element = self._plan.of_bytes(xml)
        except Misfit as error:
            raise error.fault(self.name) from None
        return self._checked(element)

    def adopt(self, element: Element) -> Payload:
        """Check an element that was parsed safely, and return a copy of it. Raises PayloadFault."""
        try:
            instance = self._plan.of_element(element)
        except Misfit as error:
            raise error.fault(self.name) from None
        return self._checked(instance)

    def names(self, tag: str) -> bool:
        """Return whether the local name means this type: its name or ``{any}.{class}``, in any case."""
        return self._plan.names(tag)

    def values(self, payload: Payload) -> dict[str, Any]:
        """Return a payload as JSON values by field."""
        if not self.same(payload.type):
            payload = self.adopt(payload.element)
        return cast(dict[str, Any], self._as_json(payload.element))

    def bind(self, payload: Payload, kind: type) -> Any:
        """Return a new instance of ``kind``, the class or another version of it.

        Raises PayloadFault: NotTaken when the class's own code refuses the values.
        """
        known = _known(kind)
        if not known.type.same(payload.type):
            payload = known.type.adopt(payload.element)
        try:
            return known.make(payload.element)
        except MemoryError:  # The message is not at fault.
            raise
        except Exception as error:
            raise NotTaken(known.type.name) from error  # For instance in its __post_init__.

    def write(self, payload: Payload, form: Form) -> str:
        """Return a payload for a caller from outside: as JSON, as XML, or as text.

        As text it is its ``text_field`` if it has one, else JSON.
        """
        if form == "xml":
            return payload.xml.decode()
        values = self.values(payload)
        if form == "text" and self.text_field:
            return str(values.get(self.text_field) or "")
        return json.dumps(values, ensure_ascii=False)

    def _checked(self, element: Element) -> Payload:
        if self._valid(element):
            return Payload(self, element)
        last = self._valid.error_log.last_error
        raise PayloadFault(
            f"{self.name} does not fit its schema: {one_line(last.message if last else '', 150)}"
        )


class _Known:
    """A type with what makes its instances; stored in the class, and freed with it."""

    def __init__(self, kind: type) -> None:
        derived_class = class_shape.derived(kind)
        try:
            self.type = PayloadType(f"{plain_name(kind.__module__)}:{kind.__qualname__}", derived_class.shape)
        except (ValueError, etree.XMLSchemaParseError, Misfit) as error:
            raise Fault(
                FaultType.CONFIG, f"{derived_class.shape.name} cannot be a payload: {one_line(str(error))}"
            ) from None
        self.make = element_values.as_instance(derived_class)


def _known(kind: type) -> _Known:
    known = getattr(kind, "__dict__", {}).get(_KEPT)
    if known is None:
        known = _Known(kind)
        with contextlib.suppress(AttributeError, TypeError):  # A class without assignable attributes.
            setattr(kind, _KEPT, known)
    return cast(_Known, known)
