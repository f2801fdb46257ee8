"""What stands around a message (SPEC 5.1): written for the record, read where a handler wrote one."""

from typing import Final
from xml.sax.saxutils import escape

from pallas.model.safe_text import one_line
from pallas.payloads.xml_element import Element

from .payload import Payload
from .payload_faults import PayloadFault, shown

NAMESPACE: Final = "https://xml-pipeline.org/ns/envelope/v1"
ENVELOPE_XSD: Final = f"""\
<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="{NAMESPACE}"
    elementFormDefault="qualified">
  <xs:element name="message">
    <xs:complexType>
      <xs:sequence>
        <xs:element name="meta">
          <xs:complexType>
            <xs:sequence>
              <xs:element name="from" type="xs:string"/>
              <xs:element name="to" type="xs:string" minOccurs="0"/>
              <xs:element name="thread" type="xs:string"/>
            </xs:sequence>
          </xs:complexType>
        </xs:element>
        <xs:any namespace="##any" processContents="skip"/>
      </xs:sequence>
    </xs:complexType>
  </xs:element>
</xs:schema>
"""
"""What ``envelope`` makes fits this."""
_OPEN: Final = f'<message xmlns="{NAMESPACE}"><meta><from>'.encode()
_INSIDE: Final = f"{{{NAMESPACE}}}"
_MESSAGE, _META, _FROM, _TO, _THREAD = (
    _INSIDE + name for name in ("message", "meta", "from", "to", "thread")
)
_LONG: Final = 200


def envelope(sender: str, to: str | None, thread: str, payload: Payload) -> bytes:
    """The message as it is written down. Names may be anything that a handler said."""
    target = "" if to is None else f"<to>{_text(to)}</to>"
    meta = f"{_text(sender)}</from>{target}<thread>{_text(thread)}</thread>"
    return _OPEN + meta.encode() + b"</meta>" + _inside(payload.xml) + b"</message>"


def _inside(xml: bytes) -> bytes:
    """The payload, taken out of the envelope's namespace unless it says itself which one it is in."""
    head = xml[: xml.index(b">")]
    if b" xmlns=" in head:
        return xml
    name = head.split(maxsplit=1)[0].rstrip(b"/")
    return name + b' xmlns=""' + xml[len(name) :]


def is_envelope(element: Element) -> bool:
    """Whether an element is in the envelope's namespace, so that ``opened`` is to read it."""
    return isinstance(element.tag, str) and element.tag.startswith(_INSIDE)


def opened(element: Element) -> tuple[str | None, Element]:
    """Whom an envelope is for and the one element in it. Raises PayloadFault.

    It has to say who sent it and in which thread, and neither is believed (HC-11).
    """
    if element.tag != _MESSAGE:
        raise PayloadFault(f"the envelope's element is {shown(_local(element))}; expected <message>")
    _bare(element)
    children = list(element)
    if not children or children[0].tag != _META:
        raise PayloadFault("the envelope has no <meta>; expected <meta> with <from> and <thread> first")
    to = _target(children.pop(0))
    if any(child.tag == _META for child in children):
        raise PayloadFault("the envelope's <meta> comes first, and once")
    if not children:
        raise PayloadFault("the envelope has no payload; expected <meta> and then an element")
    if len(children) > 1:
        raise PayloadFault(
            f"the envelope has {len(children)} payloads; expected one, and an envelope for each message"
        )
    return to, children[0]


def _target(meta: Element) -> str | None:
    """Whom the envelope is for, None where it does not say so. Raises PayloadFault for an incomplete one."""
    _bare(meta)
    for tag, name in ((_FROM, "from"), (_THREAD, "thread")):
        if not (meta.findtext(tag) or "").strip():
            raise PayloadFault(f"the envelope's <meta> has no <{name}>; expected <from>, <to> and <thread>")
    targets = [child for child in meta if child.tag == _TO]
    if len(targets) > 1 or any(len(child) for child in targets):
        raise PayloadFault("the envelope has more than one <to>; send one message for each target")
    to = (targets[0].text or "").strip() if targets else ""
    if len(to) > _LONG:
        raise PayloadFault(f"the envelope's <to> has {len(to)} characters; at most {_LONG}")
    return to or None


def _bare(element: Element) -> None:
    for text in (element.text, *(child.tail for child in element)):
        if text and text.strip():
            raise PayloadFault(f"the envelope has the text {shown(text.strip())} beside its elements")


def _local(element: Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _text(text: str) -> str:
    return escape(one_line(text, _LONG).replace("\ufffe", "?").replace("\uffff", "?"))
