"""Checks the pictures that a caller sends."""

import base64
import binascii
from typing import Final

from pallas.model import Fault, FaultType, Image
from pallas.safe_text import one_line

MAX_IMAGES: Final = 20
# A request may have 4 MiB, and base64 makes four characters of three bytes.
MAX_IMAGE_BYTES: Final = 3_000_000

_SIGNATURES: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def kind_of(data: bytes) -> str | None:
    """The MIME type by the first bytes: PNG, JPEG, GIF or WebP, else None."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _SIGNATURES.items() if data.startswith(start)), None)


def check_images(images: tuple[Image, ...], *, vision: bool, model: str, agent: str = "") -> None:
    """Refuse images that the model could not see or read. Raises Fault (PR-17).

    ``model`` is empty for an agent without one, which takes no pictures.
    """
    if not images:
        return
    if not vision and not model:
        raise Fault(
            FaultType.CONFIG, f"{agent or 'this agent'} takes no pictures; send the message without images"
        )
    if not vision:
        raise Fault(
            FaultType.CONFIG,
            f"the model {model} has no vision; send the message without images, or declare "
            "model_capabilities.vision: true for a model that has it",
        )
    if len(images) > MAX_IMAGES:
        raise Fault(
            FaultType.PROTOCOL,
            f"{len(images)} images; at most {MAX_IMAGES} go with one message: send the rest in another one",
        )
    for number, image in enumerate(images, 1):
        _check_one(number, image)


def _check_one(number: int, image: Image) -> None:
    where = f"images[{number - 1}]"
    try:
        data = base64.b64decode(image.data, validate=True)
    except (binascii.Error, ValueError):
        raise Fault(
            FaultType.PROTOCOL,
            f"{where}.data is not base64; send the bytes encoded in one line, without a data: prefix",
        ) from None
    if len(data) > MAX_IMAGE_BYTES:
        raise Fault(
            FaultType.PROTOCOL, f"{where} has {len(data)} bytes; at most {MAX_IMAGE_BYTES}: make it smaller"
        )
    kind = kind_of(data)
    if kind is None:
        raise Fault(
            FaultType.PROTOCOL, f"{where} is not a PNG, JPEG, GIF or WebP picture; convert it to one of these"
        )
    if kind != image.mime_type:
        raise Fault(
            FaultType.PROTOCOL,
            f"{where}.mime_type is {one_line(image.mime_type, 60)!r}, but its bytes are "
            f"{kind}: send that as mime_type",
        )
