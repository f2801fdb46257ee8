"""Read XML by a shape: compares the input with a plan while parsing, and builds a clean copy.

The result is what ``xml_writer`` would have made: no namespaces, no comments, nothing outside the shape. So
no name from a hostile message enters lxml's dictionary of names, which only grows.
"""

from dataclasses import dataclass
from typing import Any, Final
from xml.parsers import expat

from lxml import etree

from pallas.payloads.xml_element import Element

from .field_shape import PayloadField, PayloadShape
from .payload_faults import Malformed, Misfit, shown
from .payload_limits import MAX_ELEMENTS
from .scalars import SPACE, Scalar
from .xml_writer import NIL, XSI

NONE: Final = "NoneType"
"""The element that stands for None."""


def folded(element: str) -> str:
    """Normalize a field's name and the element name that ``@xmlify`` makes of it to the same text."""
    return element.replace("_", "").replace("-", "").casefold()


def item_name(field: PayloadField) -> str:
    """Return the element name for one value of a list, or for an optional value: the name of its type."""
    name = field.type.name
    if isinstance(field.type, PayloadShape):
        parts = [part for part in name.split("_") if part]
        return "".join(part[:1].upper() + part[1:] for part in parts)
    return name[:1].upper() + name[1:]


_NIL: Final = f"{XSI}}}nil"


@dataclass(frozen=True, slots=True)
class _Level:
    """One dataclass in the plan; ``by_element`` maps to a field's position, the field and its level.

    ``by_folded`` does the same by xml-pipeline's spelling of names, where that identifies one field.
    """

    shape: PayloadShape
    by_element: dict[str, "tuple[int, PayloadField, _Level | None]"]
    by_folded: dict[str, "tuple[int, PayloadField, _Level | None]"]


def _level(shape: PayloadShape) -> _Level:
    by_element = {
        field.element: (at, field, _level(field.type) if isinstance(field.type, PayloadShape) else None)
        for at, field in enumerate(shape.fields)
    }
    names = [folded(element) for element in by_element]
    by_folded = {
        folded(element): found for element, found in by_element.items() if names.count(folded(element)) == 1
    }
    return _Level(shape, by_element, by_folded)


class XmlReader:
    """Reads messages of one shape. Reusable, and safe for concurrent use."""

    def __init__(self, shape: PayloadShape) -> None:
        self.shape = shape
        self.root = _level(shape)
        self._name = shape.name.lower()
        self._suffix = "." + self._name

    def names(self, tag: str) -> bool:
        """Return whether a root element of that local name is of this class."""
        lower = tag.lower()
        return lower == self._name or lower.endswith(self._suffix)

    def of_bytes(self, data: bytes) -> Element:
        """Read one XML document. Raises Misfit."""
        if b"\x00" in data:
            # The parser would read it as UTF-16 whatever encoding it was given.
            raise Malformed("has null bytes", "XML in UTF-8")
        reader = _Reader(self)
        parser = expat.ParserCreate("utf-8", "}")
        parser.buffer_text = True
        parser.StartElementHandler = reader.start
        parser.EndElementHandler = reader.end
        parser.CharacterDataHandler = reader.text
        parser.StartDoctypeDeclHandler = _no_doctype
        parser.ProcessingInstructionHandler = _no_instruction
        parser.XmlDeclHandler = _declared
        try:
            parser.Parse(data, True)
        except expat.ExpatError as error:
            raise Malformed(f"is not XML: {expat.ErrorString(error.code)} in line {error.lineno}") from None
        return reader.element()

    def of_element(self, element: Element) -> Element:
        """Read an element that was parsed before. Raises Misfit."""
        reader = _Reader(self)
        _walk(reader, element)
        return reader.element()


def _walk(reader: "_Reader", element: Element) -> None:
    # The recursion is shallow: the reader refuses elements outside the shape.
    tag: Any = element.tag
    if not isinstance(tag, str):
        if tag is etree.Comment:
            return
        raise Misfit("has a processing instruction or an entity", "elements and text only")
    attributes = {name.removeprefix("{"): value for name, value in element.items()}
    reader.start(tag.removeprefix("{"), attributes)
    if element.text:
        reader.text(element.text)
    for child in element:
        _walk(reader, child)
        if child.tail:
            reader.text(child.tail)
    reader.end(tag)


def _no_doctype(*_: object) -> None:
    raise Misfit("has a DOCTYPE, which is refused: entities and DTDs are never read", "elements only")


def _no_instruction(*_: object) -> None:
    raise Misfit("has a processing instruction", "elements and text only")


def _declared(_version: str, encoding: str | None, _standalone: int) -> None:
    if encoding and encoding.lower() not in ("utf-8", "utf8", "us-ascii", "ascii"):
        raise Misfit(f"is declared as {shown(encoding)}", "UTF-8")


class _Frame:
    """A dataclass being read: its last field, and how many values of it."""

    __slots__ = ("at", "count", "element", "level", "name", "nil")

    def __init__(self, level: _Level, element: Element, name: str) -> None:
        self.level = level
        self.element = element
        self.name = name
        self.at = -1
        self.count = 0
        self.nil = False


class _Wrapper:
    """An element in ``@xmlify`` form, for a list or an optional value: the value is an element in it.

    ``parts`` is the text directly in it, which may be the value itself.
    """

    __slots__ = ("count", "field", "level", "parts")

    def __init__(self, field: PayloadField, level: _Level | None) -> None:
        self.field = field
        self.level = level
        self.parts: list[str] = []
        self.count = 0


class _Reader:
    """Receives parser events. Every refusal names its place."""

    def __init__(self, plan: XmlReader) -> None:
        self._plan = plan
        self._stack: list[_Frame] = []
        self._field: PayloadField | None = None  # The plain value being read
        self._wrapper: _Wrapper | None = None  # The innermost one, below the frame at the top
        self._wrappers: list[_Wrapper | None] = []  # Those of the frames below that
        self._nil = False
        self._none = False  # In the element that says that there is no value
        self._parts: list[str] = []
        self._namespace = ""
        self._root: Element | None = None
        self._left = MAX_ELEMENTS + 1  # and the root

    def element(self) -> Element:
        """The finished element."""
        if self._root is None or self._stack:
            raise Misfit("is not XML: no element in it")
        return self._root

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        namespace, _, local = tag.rpartition("}")
        self._left -= 1
        if self._left < 0:
            raise self._misfit(f"has more than {MAX_ELEMENTS} elements")
        if not self._stack:
            self._begin(namespace, local, attributes)
            return
        frame = self._stack[-1]
        if self._field is not None:
            raise self._misfit(f"has the element {shown(local)} in it", _words(self._field))
        if self._wrapper is not None and self._unwrap(frame, self._wrapper, local, attributes):
            return
        frame = self._stack[-1]
        by_element = frame.level.by_element if namespace == self._namespace else {}
        found = by_element.get(local)
        if found is None and by_element and (local[:1].isupper() or "-" in local):
            found = frame.level.by_folded.get(folded(local))
            if found is not None and (found[1].many or found[1].optional):
                self._wrap(frame, *found, attributes)
                return
        if found is None:
            raise self._misfit(f"has no element {shown(local)}", _order(frame.level.shape))
        at, field, level = found
        self._advance(frame, at, field)
        self._open(frame, field, level, nil=self._nothing(attributes, field))

    def _open(self, frame: _Frame, field: PayloadField, level: _Level | None, *, nil: bool = False) -> None:
        element = etree.SubElement(frame.element, field.element)
        if nil:
            element.set(NIL, "true")
        if level is None or nil:
            self._field, self._nil = field, nil
            self._parts.clear()
        else:
            self._stack.append(_Frame(level, element, self._place(frame)))
            self._wrappers.append(self._wrapper)
            self._wrapper = None

    def _wrap(
        self, frame: _Frame, at: int, field: PayloadField, level: _Level | None, attributes: dict[str, str]
    ) -> None:
        self._advance(frame, at, field)
        if self._nothing(attributes, field):
            self._open(frame, field, level, nil=True)
        else:
            self._wrapper = _Wrapper(field, level)

    def _unwrap(self, frame: _Frame, wrapper: _Wrapper, local: str, attributes: dict[str, str]) -> bool:
        """Return whether the element is a value in the wrapper, and not the first one of the value."""
        field = wrapper.field
        if local == item_name(field) or local == NONE:
            self._bare(attributes)
        if local == NONE and field.optional and not wrapper.count:
            wrapper.count = -1
        elif local == item_name(field) and wrapper.count >= 0 and (field.many or not wrapper.count):
            if wrapper.count:
                frame.count += 1
            wrapper.count += 1
            self._open(frame, field, wrapper.level)
            return True
        elif wrapper.count or wrapper.level is None:
            raise self._misfit(f"has the element {shown(local)} in it", f"<{item_name(field)}>", field.name)
        else:
            self._wrapper = None
            self._open(frame, field, wrapper.level)
            return False
        self._none = True
        return True

    def _bare(self, attributes: dict[str, str]) -> None:
        for name in attributes:
            raise self._misfit(f"has the attribute {shown(name.rpartition('}')[2])}", "elements only")

    def text(self, text: str) -> None:
        if self._field is not None:
            if self._nil:
                raise self._misfit("is nil, and has a value")
            self._parts.append(text)
        elif self._wrapper is not None and not self._none:
            self._wrapper.parts.append(text)
        elif text.strip(SPACE):
            raise self._misfit(
                f"has the text {shown(text.strip())} where elements are expected", self._expected()
            )

    def end(self, _tag: str) -> None:
        field = self._field
        if self._none:
            self._none = False
        elif field is not None:
            if not self._nil:
                self._put(field, self._stack[-1].element[-1], "".join(self._parts))
            self._field = None
        elif self._wrapper is not None:
            self._close(self._stack[-1], self._wrapper)
            self._wrapper = None
        else:
            frame = self._stack[-1]
            self._complete(frame, len(frame.level.shape.fields))
            self._stack.pop()
            self._wrapper = self._wrappers.pop() if self._wrappers else None

    def _put(self, field: PayloadField, element: Element, text: str) -> None:
        assert isinstance(field.type, Scalar)
        try:
            field.type.to_json(text)
            # The parser accepted it, so XML can carry it; only lxml refuses two more characters.
            element.text = text
        except Misfit as error:
            raise self._misfit(error.what, error.expected) from None
        except ValueError:
            raise self._misfit("has a character that XML cannot carry") from None

    def _close(self, frame: _Frame, wrapper: _Wrapper) -> None:
        """Finish a wrapper: its values were read, or its text is the value, or it is empty."""
        field, text = wrapper.field, "".join(wrapper.parts)
        if wrapper.count:
            if text.strip(SPACE):
                what = f"has the text {shown(text.strip())} where elements are expected"
                raise self._misfit(what, f"<{item_name(field)}>", field.name)
            if wrapper.count > 0:
                return
        elif wrapper.level is None and not (field.many and not text.strip(SPACE)):
            self._field = field  # For the place in a refusal
            self._put(field, etree.SubElement(frame.element, field.element), text)
            self._field = None
            return
        elif text.strip(SPACE):
            what = f"has the text {shown(text.strip())} where elements are expected"
            raise self._misfit(what, self._expected(), field.name)
        if field.nil:
            etree.SubElement(frame.element, field.element).set(NIL, "true")

    def _begin(self, namespace: str, local: str, attributes: dict[str, str]) -> None:
        shape = self._plan.shape
        if self._root is not None:
            raise Misfit("has a second root element", f"one <{shape.name}>")
        if not self._plan.names(local):
            raise Misfit(f"is asked for, and the element is {shown(local)}", f"<{shape.name}>")
        for name in attributes:
            raise Misfit(f"has the attribute {shown(name.rpartition('}')[2])}", "elements only")
        self._namespace = namespace
        self._root = etree.Element(shape.name)
        self._stack.append(_Frame(self._plan.root, self._root, ""))

    def _advance(self, frame: _Frame, at: int, field: PayloadField) -> None:
        if at == frame.at:
            frame.count += 1
            if not field.many:
                raise self._misfit("is there twice", "one", field.name)
            if frame.nil:
                raise self._misfit("is nil, and has items", "", field.name)
            return
        if at < frame.at:
            raise self._misfit(f"has {shown(field.element)} in the wrong place", _order(frame.level.shape))
        self._complete(frame, at)
        frame.at, frame.count, frame.nil = at, 0, False

    def _complete(self, frame: _Frame, until: int) -> None:
        """Check that no required field is missing between the last one and ``until``."""
        for field in frame.level.shape.fields[frame.at + 1 : until]:
            if field.required:
                raise self._misfit("is missing", f"<{field.element}> with {_words(field)}", field.name)

    def _nothing(self, attributes: dict[str, str], field: PayloadField) -> bool:
        nil = False
        for name, value in attributes.items():
            if name != _NIL or not field.nil or value.strip(SPACE) not in ("true", "1", "false", "0"):
                what = f"has the attribute {shown(name.rpartition('}')[2])}"
                raise self._misfit(what, "elements only", field.name)
            nil = value.strip(SPACE) in ("true", "1")
        frame = self._stack[-1]
        if nil and field.many and frame.count:
            raise self._misfit("is nil, and has items", "", field.name)
        frame.nil = nil
        return nil

    def _place(self, frame: _Frame) -> str:
        field = frame.level.shape.fields[frame.at]
        return f"{field.name}[{frame.count}]" if field.many else field.name

    def _expected(self) -> str:
        return _order(self._stack[-1].level.shape) if self._stack else "one element"

    def _misfit(self, what: str, expected: str = "", place: str = "") -> Misfit:
        error = Misfit(what, expected)
        error.path = [frame.name for frame in self._stack if frame.name]
        if place or self._field is not None:
            error.path.append(place or self._place(self._stack[-1]))
        return error


def _words(field: PayloadField) -> str:
    kind: Any = field.type
    return kind.words if isinstance(kind, Scalar) else _order(kind)


def _order(shape: PayloadShape) -> str:
    names = [field.element for field in shape.fields]
    return (
        (", ".join(names[:10]) + (", …" if names[10:] else "") + ", in this order")
        if names
        else "nothing in it"
    )
