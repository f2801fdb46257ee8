"""Media types of content, and the size of content in base64."""

from typing import Final

_TEXT_TYPES: Final = frozenset(
    "application/" + name
    for name in (
        "json", "ld+json", "x-ndjson", "jsonl", "xml", "yaml", "x-yaml", "toml", "csv", "sql", "javascript",
        "x-javascript", "typescript", "x-sh", "x-python", "graphql", "rtf", "x-www-form-urlencoded",
    )
)  # fmt: skip
# How pictures begin in base64.
_PICTURES: Final = (
    ("iVBORw0KGgo", "image/png"),
    ("/9j/", "image/jpeg"),
    ("R0lGOD", "image/gif"),
    ("Qk", "image/bmp"),
    ("JVBERi", "application/pdf"),
    ("AAAAGGZ0eXBoZWlj", "image/heic"),
)
_TEXT_ENDINGS: Final = ("+json", "+xml", "+yaml")


def plain_media_type(media_type: str | None) -> str:
    """Return the type without its parameters; that of unknown bytes if there is none."""
    return (media_type or "application/octet-stream").partition(";")[0].strip().lower()


def is_text_type(media_type: str) -> bool:
    """Return whether content of a plain media type is text."""
    return media_type.startswith("text/") or media_type in _TEXT_TYPES or media_type.endswith(_TEXT_ENDINGS)


def picture_of(media_type: str, data: str) -> tuple[str, str]:
    """Return the type and the data of a picture: its first bytes know better than what a server says."""
    head, comma, rest = data.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        data = rest
    known = (kind for start, kind in _PICTURES if data.startswith(start))
    plain = plain_media_type(media_type)
    return next(known, "image/jpeg" if plain == "image/jpg" else plain), data


def size_of_base64(data: str) -> int:
    """Return how many bytes the data has."""
    return len(data) * 3 // 4 - data[-2:].count("=")
