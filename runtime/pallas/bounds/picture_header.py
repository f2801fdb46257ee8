"""Read the kind and size of a picture from its first bytes."""

import base64
import binascii
import struct
from dataclasses import dataclass
from typing import Final

_DATA: Final = "data:"
_PNG: Final = b"\x89PNG\r\n\x1a\n"
# Start-of-frame markers of JPEG; c4, c8 and cc lie between them and are something else.
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_BARE: Final = frozenset({0x01, *range(0xD0, 0xDA)})


@dataclass(frozen=True, slots=True)
class PictureHeader:
    """``kind`` is PNG, JPEG, GIF, WebP or unknown; width and height in pixels, 0 when not found.

    ``bytes`` is the size of the file, 0 when only its address was sent.
    """

    kind: str = "unknown"
    width: int = 0
    height: int = 0
    bytes: int = 0


def picture_of(url: str) -> PictureHeader:
    """The picture in a data URL. An address elsewhere is never fetched: it is an unknown picture."""
    head, comma, payload = url.partition(",")
    if not comma or not head.startswith(_DATA) or not head.endswith(";base64"):
        return PictureHeader()
    try:
        data = base64.b64decode(payload)
    except (binascii.Error, ValueError):
        return PictureHeader()
    kind, (width, height) = _read(data)
    return PictureHeader(kind, width, height, len(data))


def _read(data: bytes) -> tuple[str, tuple[int, int]]:
    try:
        if data.startswith(_PNG):
            return "PNG", struct.unpack_from(">II", data, 16)
        if data.startswith((b"GIF87a", b"GIF89a")):
            return "GIF", struct.unpack_from("<HH", data, 6)
        if data.startswith(b"\xff\xd8\xff"):
            return "JPEG", _jpeg(data)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return "WebP", _webp(data)
    except (struct.error, IndexError):
        pass  # Truncated: its kind was not found.
    return "unknown", (0, 0)


def _jpeg(data: bytes) -> tuple[int, int]:
    """Walk the segments to the frame header, which may follow a long preview."""
    at = 2
    while True:
        if data[at] != 0xFF:
            raise IndexError(at)
        marker = data[at + 1]
        if marker == 0xFF:  # padding
            at += 1
        elif marker in _BARE:
            at += 2
        elif marker in _FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        else:
            at += 2 + struct.unpack_from(">H", data, at + 2)[0]


def _webp(data: bytes) -> tuple[int, int]:
    chunk = data[12:16]
    if chunk == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if chunk == b"VP8L":
        bits = struct.unpack_from("<I", data, 21)[0]
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    width, height = struct.unpack_from("<HH", data, 26)
    return width & 0x3FFF, height & 0x3FFF
