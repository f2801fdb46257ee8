"""What the ledger reads of an executor's own form of a message: its pictures, and nothing else."""

from collections.abc import Iterator
from typing import Any, Final

from pallas.model import Image
from pallas.model.codec import Undecodable, loads

_MAX_DEPTH: Final = 12


def images_in(native: str) -> tuple[Image, ...]:
    """The pictures among the content blocks of a message, in order; none where it cannot be read."""
    try:
        return tuple(_images(loads(native), _MAX_DEPTH))
    except Undecodable:
        return ()


def _images(value: Any, depth: int) -> Iterator[Image]:
    if depth == 0:
        return
    if isinstance(value, list):
        for each in value:
            yield from _images(each, depth - 1)
    elif isinstance(value, dict):
        if value.get("type") == "image" and isinstance(value.get("data"), str):
            kind = value.get("mimeType", value.get("mime_type"))
            yield Image(value["data"], kind if isinstance(kind, str) else "image/png")
        else:
            for each in value.values():
                yield from _images(each, depth - 1)
