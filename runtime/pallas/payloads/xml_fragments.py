"""Several XML elements in one value, from handlers that return bytes (HC-21)."""

import re
import threading
from typing import Final

from lxml import etree

from pallas.payloads.xml_element import Element
from pallas.safe_text import one_line

from .payload_faults import PayloadFault, shown
from .payload_limits import MAX_ATTRIBUTES, MAX_BYTES, MAX_DEPTH, MAX_ELEMENTS, MAX_ROOTS

_DECLARATION: Final = re.compile(rb"\s*<\?xml(?=\s)[^>]{0,200}\?>")
_ENCODING: Final = re.compile(rb"encoding\s*=\s*[\"']([A-Za-z0-9._-]{1,40})[\"']")
_BOM: Final = b"\xef\xbb\xbf"
_SECONDS: Final = 20.0


def elements_of(data: bytes, limit: int = MAX_BYTES) -> list[Element]:
    """Return the elements at the root, in order, at least one. Raises PayloadFault.

    They are parsed without DTD, entities or network. Use them to read, to serialize and to adopt, not to
    change or to copy.
    """
    if len(data) > limit:
        raise PayloadFault(f"the reply has {len(data)} bytes; at most {limit}")
    found: list[list[Element]] = []
    failed: list[PayloadFault] = []

    def read() -> None:
        try:
            found.append(_read(data))
        except PayloadFault as fault:
            failed.append(fault)
        except Exception as error:
            failed.append(PayloadFault(f"the reply cannot be read as XML: {one_line(str(error), 120)}"))

    # lxml keeps every name that it ever parsed, per thread. If outsiders choose the names, this grows without
    # a bound, so parse on a thread of its own: the names are freed with it.
    thread = threading.Thread(target=read, name="payload-xml", daemon=True)
    thread.start()
    thread.join(_SECONDS)
    if failed:
        raise failed[0]
    if not found:
        raise PayloadFault("the reply takes too long to read as XML")
    return found[0]


def _read(data: bytes) -> list[Element]:
    data = data.removeprefix(_BOM)
    if declared := _DECLARATION.match(data):
        encoding = _ENCODING.search(declared[0])
        if encoding and encoding[1].lower() not in (b"utf-8", b"utf8", b"us-ascii", b"ascii"):
            raise PayloadFault(f"the reply is declared as {shown(encoding[1].decode())}; expected UTF-8")
        data = data[declared.end() :]
    # A parser of this thread: that of another would keep the names in the other's dictionary. Below a
    # root there can be no DOCTYPE, so no entities can be declared.
    parser = etree.XMLParser(
        encoding="utf-8",
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        huge_tree=False,
        remove_comments=True,
        collect_ids=False,
    )
    try:
        around = etree.fromstring(b"<_>" + data + b"</_>", parser)
    except etree.XMLSyntaxError as error:
        raise PayloadFault(f"the reply is not XML: {one_line(error.msg or '', 120)}") from None
    roots = list(around)
    if not roots or len(roots) > MAX_ROOTS:
        raise PayloadFault(f"the reply has {len(roots)} elements at its root; expected 1 to {MAX_ROOTS}")
    _check(around)
    for text in (around.text, *(root.tail for root in roots)):
        if text and text.strip():
            raise PayloadFault(f"the reply has the text {shown(text.strip())} beside its elements")
    for root in roots:
        root.tail = None
    return roots


def _check(around: Element) -> None:
    count, depth = 0, 0
    for event, element in etree.iterwalk(around, events=("start", "end", "pi", "comment")):
        if event == "end":
            depth -= 1
            continue
        if event != "start" or not isinstance(element.tag, str):
            raise PayloadFault("the reply has a processing instruction; expected elements and text only")
        depth += 1
        count += 1
        if depth > MAX_DEPTH + 1:
            raise PayloadFault(f"the reply has more than {MAX_DEPTH} elements inside one another")
        if len(element.keys()) > MAX_ATTRIBUTES:
            raise PayloadFault(f"the reply has an element with more than {MAX_ATTRIBUTES} attributes")
    if count > MAX_ELEMENTS + 1:
        raise PayloadFault(f"the reply has more than {MAX_ELEMENTS} elements")
