"""Payloads without a class: from a handler's bytes, when no class is known for them (HC-21)."""

import json
from collections.abc import Mapping
from typing import Any

from lxml import etree

from pallas.payloads import Form, Payload, PayloadFault, PayloadType
from pallas.payloads.xml_element import Element


class UntypedPayload(PayloadType):
    """The type of an element without a class: its key is empty, its name the element's.

    Its receiver gets a ``pallas.contract.Document``; a class of a typed handler can adopt it.
    """

    _said = ""  # looks like no other

    def __init__(self, tag: str) -> None:
        self.key = ""
        self.name = tag

    def same(self, other: PayloadType) -> bool:
        """Return whether ``other`` is this object."""
        return self is other

    def to_json(self) -> dict[str, Any]:
        """Return its name, which is all it has."""
        return {"key": "", "name": self.name}

    def values(self, payload: Payload) -> dict[str, Any]:
        """Return the fields of a Document."""
        return {"tag": self.name, "xml": payload.xml.decode()}

    def write(self, payload: Payload, form: Form) -> str:
        """Return the element for a caller from outside; in JSON with its name."""
        if form == "json":
            return json.dumps(self.values(payload), ensure_ascii=False)
        return payload.xml.decode()

    def adopt(self, element: Element) -> Payload:
        """Return the element as it is."""
        return Payload(self, element)

    def pack(self, value: Any | Mapping[str, Any], **_: Any) -> Payload:
        """Raise PayloadFault: there is no class to check the value with."""
        raise PayloadFault(f"{self.name} has no class")

    def __repr__(self) -> str:
        return f"Loose({self.name})"


def untyped(element: Element) -> Payload:
    """Return a payload of an element that was parsed safely."""
    return Payload(UntypedPayload(etree.QName(element).localname), element)
