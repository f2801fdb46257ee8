"""Read a message that a person, a client or a model wrote: JSON, XML, or plain text.

Only this module fixes input, and only without loss: it removes a byte order mark and a fence around the text,
and escapes ``&`` and ``<`` that were meant as characters. It never completes a truncated text, and does not
use a recovering parser, which would drop what it does not understand.
"""

import json
import re
from typing import Any, Final
from xml.parsers import expat

from pallas.safe_text import one_line

from .payload import Form, Payload, PayloadType
from .payload_faults import NotXml, PayloadFault, shown
from .payload_limits import MAX_BYTES

_FENCED: Final = re.compile(r"```[A-Za-z]{0,10}[ \t]*\r?\n(.*)\n[ \t]*```", re.DOTALL).fullmatch
_AMPERSAND: Final = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#[0-9]{1,7}|#x[0-9A-Fa-f]{1,6});)")
_ANGLE: Final = re.compile(r"<(?![A-Za-z_/!?])")
_PROLOG: Final = re.compile(r"\A(?:<\?xml[^>]*\?>|<!--.*?-->|\s)+", re.DOTALL)
_LITERAL: Final = re.compile(r"<!\[CDATA\[|<!--")
_CLOSING: Final = {"<![CDATA[": "]]>", "<!--": "-->"}
_EXAMPLE: Final = 160


def read_text(kind: PayloadType, text: str, *, limit: int = MAX_BYTES) -> tuple[Payload, Form]:
    """Read a caller's message: a JSON object, XML, or plain text if ``kind`` has a ``text_field``.

    Raises PayloadFault that explains the expected form with an example.
    """
    if len(text) > limit:
        raise PayloadFault(f"{kind.name} has {len(text)} characters; at most {limit}")
    bare = text.removeprefix("\ufeff").strip()  # Some editors begin a file with it.
    fenced = _FENCED(bare)
    if fenced:
        bare = fenced[1].strip()
    why = ""
    if bare.startswith("{"):
        try:
            values = json.loads(bare, object_pairs_hook=_once, parse_constant=_no_constant)
        except _Refused as error:
            raise PayloadFault(f"{kind.name} {error}; expected JSON such as {_example(kind)}") from None
        except (ValueError, RecursionError) as error:
            why = f"is not JSON: {one_line(str(error), 80)}"
        else:
            return kind.pack(values, limit=limit), "json"
    elif bare.startswith("<"):
        if kind.text_field is None or _is_for(kind, bare):
            return _xml(kind, bare, limit), "xml"
        _refuse_other(kind, bare)
    if kind.text_field is not None:
        return kind.pack({kind.text_field: text}, limit=limit), "text"
    why = why or f"is not plain text: {shown(text.strip())}"
    raise PayloadFault(f"{kind.name} {why}; expected JSON such as {_example(kind)}, or the same as XML")


def _example(kind: PayloadType) -> str:
    """Return the smallest valid message, in one line."""
    values = kind.example_json
    least = {field.name: values[field.name] for field in kind.shape.fields if field.required} or values
    text = json.dumps(least, ensure_ascii=False)
    return text if len(text) <= _EXAMPLE else text[: _EXAMPLE - 1] + "…"


class _Refused(Exception):
    """Ambiguous JSON."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise _Refused("has a field twice")
    return values


def _no_constant(name: str) -> Any:
    raise _Refused(f"has {name}, which is not a JSON number")


def _is_for(kind: PayloadType, text: str) -> bool:
    """Return whether its first element has the name of the class."""
    text = _PROLOG.sub("", text, count=1)
    name = re.match(r"<(?:[^\s<>/:]+:)?([^\s<>/:]+)", text)
    return bool(name) and kind.names(name[1]) if name else False


def _refuse_other(kind: PayloadType, text: str) -> None:
    """Raise PayloadFault for XML with a DOCTYPE, and for a message of another class.

    A message is one element, with a possible class name, that contains elements and no text between them.
    """
    as_text = f"expected <{kind.name}>, or for a text {json.dumps({kind.text_field: '...'})}"
    try:
        name = _message_in(text) or _message_in(_with_escapes(text))
    except _Doctype:
        raise PayloadFault(
            f"{kind.name} has a DOCTYPE, which is refused: entities and DTDs are never read; {as_text}"
        ) from None
    if name:
        raise PayloadFault(f"{kind.name} is asked for, and the element is {shown(name)}; {as_text}")


class _Doctype(Exception):
    """XML with a document type."""


def _message_in(text: str) -> str:
    """Return the name of the class that the XML is a message of; empty if it is no message, or no XML.

    Raises _Doctype before any declaration is read.
    """
    names: list[str] = []
    depth, has_text = 0, False

    def start(tag: str, _attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth == 1:
            names.append(tag.rpartition(":")[2].rpartition(".")[2])

    def end(_tag: str) -> None:
        nonlocal depth
        depth -= 1

    def characters(data: str) -> None:
        nonlocal has_text
        has_text = has_text or (depth == 1 and bool(data.strip()))

    def doctype(*_: object) -> None:
        raise _Doctype

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = doctype
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = characters
    try:
        parser.Parse(text, True)
    except (expat.ExpatError, ValueError):
        return ""
    return names[0] if names and names[0].isidentifier() and not has_text else ""


def _xml(kind: PayloadType, text: str, limit: int) -> Payload:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise PayloadFault(f"{kind.name} has a character that XML cannot carry") from None
    try:
        return kind.parse(data, limit=limit)
    except NotXml as fault:
        escaped = _with_escapes(text).encode()
        if escaped == data:
            raise
        try:
            return kind.parse(escaped, limit=limit)
        except NotXml:
            raise fault from None


def _with_escapes(text: str) -> str:
    """Escape ``&`` and ``<`` that begin no markup, outside of CDATA and comments."""
    done: list[str] = []
    at = 0
    for opened in _LITERAL.finditer(text):
        if opened.start() < at:
            continue
        end = text.find(_CLOSING[opened[0]], opened.end())
        if end < 0:
            # Later ones of its kind have no end either, and the text is not XML: do not search again.
            break
        done += (_escaped(text[at : opened.start()]), text[opened.start() : end])
        at = end
    return "".join((*done, _escaped(text[at:])))


def _escaped(text: str) -> str:
    return _ANGLE.sub("&lt;", _AMPERSAND.sub("&amp;", text))
