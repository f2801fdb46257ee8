"""How large the pieces of a request to a model are: their prose, their structure, their pictures.

Names and values of schemas and of calls take other numbers of tokens for their bytes than prose does. What
only holds a message together (its role, its type, its ids) is not counted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pallas.bounds.picture_header import picture_of
from pallas.model.long_strings import LEFT_OUT

MESSAGE: Final = 12
"""Bytes of prose that a message takes beside what it says."""
_SYNTAX: Final = 4
"""Bytes of quotes, colon and comma around the name of a value."""
_MEDIA: Final = frozenset({"data", "file_data"})
"""Names of values that hold a file in base64."""
# fmt: off
_FRAME: Final = frozenset({
    "id", "call_id", "tool_call_id", "tool_use_id", "role", "type", "status", "cache_control",
    "thoughtSignature", "signature", "encrypted_content",
})
"""Names in a message whose values are no text for the model."""
_HOLDERS: Final = frozenset({
    "content", "text", "parts", "output", "image_url", "source", "inlineData", "inline_data",
})
"""Names in a message that are not shown to the model themselves."""
# fmt: on
_PROSE: Final = frozenset({"description", "title"})
"""Names in a schema whose values are prose."""
_SENTENCE: Final = 40
"""Characters from which another value with blanks is prose, too."""
_HEADER: Final = 256 * 1024
"""Characters of a picture in base64 among which its size is looked for."""
_HEAD: Final = "data:image/png;base64,"
_MAX_DEPTH: Final = 60


@dataclass(frozen=True, slots=True)
class PictureSize:
    """A picture in pixels, 0 if that is not known. ``is_low``: it is sent with little detail (OpenAI)."""

    width: int = 0
    height: int = 0
    is_low: bool = False


@dataclass(frozen=True, slots=True)
class PartSize:
    """Bytes of prose, and of names and values, in UTF-8; the pictures."""

    prose: int = 0
    structure: int = 0
    pictures: tuple[PictureSize, ...] = ()

    def __add__(self, other: "PartSize") -> "PartSize":
        pictures = self.pictures + other.pictures if other.pictures else self.pictures
        return PartSize(self.prose + other.prose, self.structure + other.structure, pictures)


NO_SIZE: Final = PartSize()


@dataclass(slots=True)
class _Scale:
    """Adds up what it finds."""

    prose: int = 0
    structure: int = 0
    pictures: list[PictureSize] = field(default_factory=list)

    @property
    def size(self) -> PartSize:
        return PartSize(self.prose, self.structure, tuple(self.pictures))

    def schema(self, value: Any, name: str = "", depth: int = 0) -> None:
        """A value of a schema or of a call: all names count."""
        if depth > _MAX_DEPTH:
            return
        if isinstance(value, Mapping):
            for key, each in value.items():
                self.structure += len(key) + _SYNTAX
                self.schema(each, key, depth + 1)
        elif isinstance(value, list):
            for each in value:
                self.schema(each, name, depth + 1)
        elif not isinstance(value, str):
            self.structure += len(str(value))
        elif name in _PROSE or (len(value) >= _SENTENCE and " " in value):
            self.text(value)
        else:
            self.structure += _bytes(value)

    def message(self, value: Any, name: str = "", depth: int = 0) -> None:
        """A message or a piece of one."""
        if depth > _MAX_DEPTH or name in _FRAME:
            return
        if isinstance(value, Mapping):
            if name not in _HOLDERS and name:
                self.schema(value, name, depth)
            elif (picture := _picture(value)) is not None:
                self.pictures.append(picture)
            else:
                for key, each in value.items():
                    self.message(each, key, depth + 1)
        elif isinstance(value, list):
            for each in value:
                self.message(each, "content", depth + 1)
        elif isinstance(value, str):
            self.text(value)

    def text(self, value: str) -> None:
        """A text that the model reads: prose, unless it is JSON."""
        if value.lstrip()[:1] in ("{", "[") and LEFT_OUT.match(value) is None:
            self.structure += _bytes(value)
        else:
            self.prose += _bytes(value)


def size_of_message(value: Any) -> PartSize:
    """The size of a message, in the form of any provider."""
    scale = _Scale(prose=MESSAGE)
    scale.message(value)
    return scale.size


def pictures_in(value: Any) -> tuple[PictureSize, ...]:
    """The pictures and other files of a message, in order."""
    return size_of_message(value).pictures


def size_of_tool(value: Any) -> PartSize:
    """The size of a tool with its description and schema, in the form of any provider."""
    scale = _Scale()
    scale.schema(value)
    return scale.size


def size_of_text(text: str) -> PartSize:
    """The size of a text."""
    scale = _Scale()
    scale.text(text)
    return scale.size


def _bytes(text: str) -> int:
    """Its bytes in UTF-8; those of a long text that was left out count too."""
    own = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    if "[" not in text:
        return own
    return own + sum(int(found[0][1:].split(" ", 1)[0]) for found in LEFT_OUT.finditer(text))


def _picture(block: Mapping[str, Any]) -> PictureSize | None:
    """The picture, or another file, that a block of a message holds; None for another block."""
    for name in _MEDIA:
        if isinstance(data := block.get(name), str):
            return _size_of(data if data.startswith("data:") else f"{_HEAD}{data}")
    url = block.get("image_url", block.get("url"))
    if isinstance(url, str):
        return _size_of(url, is_low=block.get("detail") == "low")
    return None


def _size_of(url: str, *, is_low: bool = False) -> PictureSize:
    head, comma, payload = url.partition(",")
    header = picture_of(f"{head}{comma}{payload[:_HEADER]}")
    return PictureSize(header.width, header.height, is_low)
