"""Real pictures, and some that are not."""

import struct
import zlib
from functools import cache
from io import BytesIO

from PIL import Image

from pallas_tui.widgets.chat.thumbnails import Thumbnail


def is_drawn(thumbnail: Thumbnail) -> bool:
    """Whether it shows the final content: the picture, or why not."""
    return bool(thumbnail._strips) or bool(thumbnail.problem) or not thumbnail._wanted


def picture(kind: str = "PNG", size: tuple[int, int] = (64, 48), frames: int = 1) -> bytes:
    """A picture, its left half red, its right half blue; of several frames the later ones are green."""
    image = Image.new("RGB", size, (220, 30, 30))
    image.paste((30, 30, 220), (size[0] // 2, 0, size[0], size[1]))
    later = [Image.new("RGB", size, (30, 200 - 20 * number, 30)) for number in range(1, frames)]
    buffer = BytesIO()
    more = {"save_all": True, "append_images": later, "duration": 100} if later else {}
    image.save(buffer, kind, **more)
    return buffer.getvalue()


def chunk(name: bytes, data: bytes) -> bytes:
    """One chunk of a PNG file."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def bomb(width: int, height: int) -> bytes:
    """A small PNG that claims to be that large, one bit a pixel."""
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    body = zlib.compress(b"\0" * ((width // 8 + 1) * min(height, 64)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


@cache
def hostile() -> dict[str, bytes]:
    """Files that a picture library stumbles over, by what is wrong with them."""
    png, gif = picture(), picture("GIF")
    text = chunk(b"zTXt", b"a\0\0" + zlib.compress(b"x" * 80_000_000, 1))
    return {
        "empty": b"",
        "signature only": png[:8],
        "cut": png[: len(png) // 2],
        "noise": png[:33] + bytes(range(256)) * 40,
        "zeros": b"\x89PNG\r\n\x1a\n" + b"\0" * 1000,
        "bomb": bomb(30_000, 30_000),
        "bomb beyond the library's own bound": bomb(60_000, 60_000),
        "text that unpacks to 80 MB": png[:33] + text + png[33:],
        "gif without its end": gif[:-20],
        "gif of no size": gif[:6] + b"\0\0\0\0" + gif[10:],
        "webp of nothing": b"RIFF\x10\0\0\0WEBPVP8 " + b"\0" * 8,
        "jpeg of nothing": b"\xff\xd8\xff\xe0" + b"\0" * 64,
    }
