"""Payloads without a class: what a handler said in bytes, where nobody knows a class for it (HC-21)."""

import json
from collections.abc import Mapping
from typing import Any

from lxml import etree

from pallas.payloads import Form, Payload, PayloadFault, PayloadType
from pallas.payloads.xml_element import Element


class UntypedPayload(PayloadType):
    """The type of an element that has none: its key is empty, its name the element's.

    Who receives it gets a ``pallas.contract.Document``; a class of a typed handler adopts it.
    """

    _said = ""  # looks like no other

    def __init__(self, tag: str) -> None:
        self.key = ""
        self.name = tag

    def same(self, other: PayloadType) -> bool:
        """Only itself."""
        return self is other

    def to_json(self) -> dict[str, Any]:
        """Its name: there is no more to it."""
        return {"key": "", "name": self.name}

    def values(self, payload: Payload) -> dict[str, Any]:
        """As a Document has it."""
        return {"tag": self.name, "xml": payload.xml.decode()}

    def write(self, payload: Payload, form: Form) -> str:
        """For a caller from outside: the element itself, in JSON with its name."""
        if form == "json":
            return json.dumps(self.values(payload), ensure_ascii=False)
        return payload.xml.decode()

    def adopt(self, element: Element) -> Payload:
        """As it is."""
        return Payload(self, element)

    def pack(self, value: Any | Mapping[str, Any], **_: Any) -> Payload:
        """There is nothing to check it by."""
        raise PayloadFault(f"{self.name} has no class")

    def __repr__(self) -> str:
        return f"Loose({self.name})"


def untyped(element: Element) -> Payload:
    """An element that was read safely, as it is."""
    return Payload(UntypedPayload(etree.QName(element).localname), element)
