"""The envelope around a message: written for the record, read when a handler wrote one."""

from typing import Final
from xml.sax.saxutils import escape

from pallas.payloads.xml_element import Element
from pallas.safe_text import one_line

from .payload import Payload
from .payload_faults import PayloadFault, shown

NAMESPACE: Final = "https://xml-pipeline.org/ns/envelope/v1"
_OPEN: Final = f'<message xmlns="{NAMESPACE}"><meta><from>'.encode()
_INSIDE: Final = f"{{{NAMESPACE}}}"
_MESSAGE, _META, _FROM, _TO, _THREAD = (
    _INSIDE + name for name in ("message", "meta", "from", "to", "thread")
)
_LONG: Final = 200


def envelope(sender: str, to: str | None, thread: str, payload: Payload) -> bytes:
    """Return the enveloped message. Names may be any text that a handler returned."""
    target = "" if to is None else f"<to>{_text(to)}</to>"
    meta = f"{_text(sender)}</from>{target}<thread>{_text(thread)}</thread>"
    return _OPEN + meta.encode() + b"</meta>" + _inside(payload.xml) + b"</message>"


def _inside(xml: bytes) -> bytes:
    """Return the payload, moved out of the envelope's namespace unless it declares its own."""
    head = xml[: xml.index(b">")]
    if b" xmlns=" in head:
        return xml
    name = head.split(maxsplit=1)[0].rstrip(b"/")
    return name + b' xmlns=""' + xml[len(name) :]


def is_envelope(element: Element) -> bool:
    """Return whether an element is an envelope's, to be read with ``target_and_payload``."""
    return isinstance(element.tag, str) and element.tag.startswith(_INSIDE)


def target_and_payload(element: Element) -> tuple[str | None, Element]:
    """Return an envelope's target and the one element in it. Raises PayloadFault.

    It has to name its sender (``<from>``) and its thread. Both are ignored, since a handler could forge
    them (HC-11).
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
    """Return the target, None if there is none. Raises PayloadFault for an incomplete ``meta``."""
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
