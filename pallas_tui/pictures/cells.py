"""Pictures as coloured cells: decoded with bounds, off the loop, from untrusted bytes.

Half a cell is one pixel. The picture library is imported for the first picture. ``textual-image`` is not
needed for this and not loaded: on import it sends queries to the terminal, which takes keys away from a
running screen (see ``pixels``).
"""

from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_PIXELS: Final = 40_000_000
"""Most pixels of a picture that is decoded: 160 MB at most, for a moment."""
_FORMATS: Final = ("PNG", "JPEG", "GIF", "WEBP")
_REDUCIBLE: Final = frozenset(("L", "LA", "RGB", "RGBA", "CMYK", "YCbCr"))
"""Modes whose pixels can be averaged as they are; a palette's cannot."""


class Unreadable(ValueError):
    """A picture that cannot be shown; the message says why, in a few words."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A picture as lines of cells; ``moving`` when only the first of several frames is shown."""

    strips: tuple[Strip, ...]
    columns: int
    moving: bool = False


def measure(data: bytes) -> tuple[int, int]:
    """Return width and height in pixels from the header, upright; (0, 0) if it cannot be read. Blocks."""
    try:
        image = _opened(data)
        width, height = image.size
        if image.format == "JPEG" and image.getexif().get(0x0112, 1) in (5, 6, 7, 8):
            width, height = height, width
    except Unreadable:
        return (0, 0)
    except Exception:  # the library may raise any error on broken bytes
        return (0, 0)
    return (width, height)


def fit(pixels: tuple[int, int], columns: int, rows: int) -> tuple[int, int]:
    """Return columns and rows of a picture of ``pixels`` within the given ones; never enlarged."""
    width, height = max(1, pixels[0]), max(1, pixels[1])
    scale = min(columns / width, 2 * rows / height, 1.0)
    return max(1, min(columns, round(width * scale))), max(1, min(rows, -(-round(height * scale) // 2)))


def decode(data: bytes, columns: int, rows: int) -> tuple["Image", bool]:
    """Return the picture scaled to at most that many pixels, upright, as RGBA, and whether it moves. Blocks.

    Raises Unreadable: broken, too many pixels, or an unknown format.
    """
    try:
        image = _opened(data)
        if image.format == "JPEG":
            image.draft("RGB", (columns, rows))  # decodes an eighth of it where that is enough
        moving = bool(getattr(image, "is_animated", False))
        image.seek(0)
        image.load()
        if image.mode not in _REDUCIBLE:
            image = image.convert("RGBA")
        if max(image.size) > 8 * max(columns, rows):
            image = image.reduce(max(1, min(image.width // (4 * columns), image.height // (4 * rows))))
        small = image.convert("RGBA")
        small.thumbnail((columns, rows))
        from PIL.ImageOps import exif_transpose

        small.info = image.info
        return exif_transpose(small), moving
    except Unreadable:
        raise
    except MemoryError:
        raise Unreadable("too large to be shown") from None
    except Exception as error:  # the library may raise any error on broken bytes
        raise Unreadable("broken: it cannot be decoded") from error


def draw(
    data: bytes, columns: int, rows: int, background: tuple[int, int, int], *, ascii_only: bool = False
) -> Drawn:
    """Return the picture in at most ``columns`` by ``rows`` cells over ``background``.

    Blocks: call in a thread.

    With ``ascii_only`` a cell is one pixel, drawn as a coloured space. Raises Unreadable.
    """
    wide, high = fit(measure(data), columns, rows)
    image, moving = decode(data, max(1, wide), max(2, high * 2))
    from PIL import Image as library

    image = image.resize((wide, high if ascii_only else high * 2), library.Resampling.BILINEAR)
    ground = library.new("RGBA", image.size, (*background, 255))
    pixels = library.alpha_composite(ground, image).convert("RGB")
    step = 1 if ascii_only else 2
    return Drawn(
        tuple(_strip(pixels, y * step, step) for y in range(high)),
        wide,
        moving,
    )


def _strip(pixels: "Image", y: int, step: int) -> Strip:
    segments: list[Segment] = []
    last: Any = None
    for x in range(pixels.width):
        pair = tuple(pixels.getpixel((x, y + line)) for line in range(step))
        text = "▀" if step == 2 else " "
        if pair == last:  # equal cells are one segment: a screenshot is mostly plain
            segments[-1] = Segment(segments[-1].text + text, segments[-1].style)
            continue
        last = pair
        top, below = _colour(pair[0]), _colour(pair[-1])
        segments.append(Segment(text, Style(color=top if step == 2 else None, bgcolor=below)))
    return Strip(segments, pixels.width)


def _colour(pixel: Any) -> Color:
    red, green, blue = pixel
    return Color.from_rgb(red, green, blue)


def _opened(data: bytes) -> "Image":
    from PIL import Image as library

    if not data:
        raise Unreadable("no longer kept")
    try:
        image = library.open(BytesIO(data), formats=_FORMATS)
    except library.DecompressionBombError:
        raise Unreadable("too many pixels to be shown") from None
    except Exception as error:
        raise Unreadable("broken: it cannot be decoded") from error
    if image.width * image.height > MOST_PIXELS:
        raise Unreadable(f"too many pixels to be shown: {image.width} x {image.height}")
    return image
