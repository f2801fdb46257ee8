"""Media types of content, and the size of content in base64."""

from typing import Final

_TEXT_TYPES: Final = frozenset(
    "application/" + name
    for name in (
        "json", "ld+json", "x-ndjson", "jsonl", "xml", "yaml", "x-yaml", "toml", "csv", "sql", "javascript",
        "x-javascript", "typescript", "x-sh", "x-python", "graphql", "rtf", "x-www-form-urlencoded",
    )
)  # fmt: skip
_TEXT_ENDINGS: Final = ("+json", "+xml", "+yaml")


def plain_media_type(media_type: str | None) -> str:
    """Return the type without its parameters; that of unknown bytes if there is none."""
    return (media_type or "application/octet-stream").partition(";")[0].strip().lower()


def is_text_type(media_type: str) -> bool:
    """Return whether content of a plain media type is text."""
    return media_type.startswith("text/") or media_type in _TEXT_TYPES or media_type.endswith(_TEXT_ENDINGS)


def size_of_base64(data: str) -> int:
    """Return how many bytes the data has."""
    return len(data) * 3 // 4 - data[-2:].count("=")
