"""Pictures of a chat message: found by path, checked by content, bounded in size."""

import base64
import binascii
import os
import re
import shlex
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from pallas.bounds.images import MAX_IMAGES, kind_of
from pallas.model import Fault, FaultType, Image
from pallas.safe_text import one_line

from ..text import UNICODE, Glyphs
from .cells import measure

MAX_BYTES: Final = 3_000_000
"""Raw bytes of all pictures of one message: as base64, with the message around it, they fit in 4 MiB."""

MAX_RECEIVED: Final = 16_000_000
"""Raw bytes of all pictures of one answer that are kept."""
MAX_PICTURE_BYTES: Final = 48_000_000
"""Characters of base64 that one conversation keeps of its pictures."""

SUFFIXES: Final = {"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp"}
"""The file name suffix of each kind."""

_SUFFIXES: Final = frozenset({*SUFFIXES.values(), ".jpeg"})
_MAX_PASTE: Final = 8_192
_HEAD: Final = 64
_WINDOWS: Final = re.compile(r"[A-Za-z]:[\\/]")


@dataclass(frozen=True, slots=True)
class ChatPicture:
    """A picture that was read or received. ``name`` is sanitised; ``size`` counts the raw bytes.

    ``path`` is None for one that did not come from a file; ``data`` is empty once it is no longer kept.
    ``mime_type`` is empty where the bytes are no picture.
    """

    path: Path | None
    name: str
    mime_type: str
    size: int
    data: str = field(repr=False)
    pixels: tuple[int, int] = (0, 0)
    """Width and height from the picture's header; (0, 0) where it cannot be read."""

    @property
    def image(self) -> Image:
        """Return the picture as it is sent. Raises Fault(CONFIG) when it is no longer kept."""
        if not self.data:
            raise _refused(f"{self.name} is no longer kept: attach it again")
        return Image(self.data, self.mime_type)

    @property
    def raw(self) -> bytes:
        """Return the bytes of the file; empty where it is no longer kept or not base64."""
        try:
            return base64.b64decode(self.data, validate=True)
        except (binascii.Error, ValueError):
            return b""


def read_image(path: Path, taken: int = 0, count: int = 0) -> ChatPicture:
    """Read the picture at ``path``; ``count`` others already have ``taken`` bytes. Blocks: call in a thread.

    Raises Fault(CONFIG) saying why it cannot be sent: not there, not a file, not readable, empty, not a PNG,
    JPEG, GIF or WebP by its content, or too big.
    """
    name = one_line(path.name, 60) or str(path)
    if count >= MAX_IMAGES:
        raise _refused(f"{name}: a message takes at most {MAX_IMAGES} images; remove one first")
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            what = "a folder" if stat.S_ISDIR(status.st_mode) else "not a plain file"
            raise _refused(f"{name} is {what}; give the path of a PNG, JPEG, GIF or WebP file")
        _check_size(name, status.st_size, taken)
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise _refused(f"There is no file {one_line(str(path), 120)}; check the path") from None
    except (OSError, ValueError) as error:
        reason = one_line(getattr(error, "strerror", None) or str(error))
        raise _refused(f"{name} cannot be read: {reason}") from None
    return replace(image_of(data, name, taken, count), path=path)


def image_of(data: bytes, name: str, taken: int = 0, count: int = 0) -> ChatPicture:
    """Return the picture in ``data``, which is no file; ``count`` others already have ``taken`` bytes.

    Raises Fault(CONFIG) as ``read_image``.
    """
    if count >= MAX_IMAGES:
        raise _refused(f"{name}: a message takes at most {MAX_IMAGES} images; remove one first")
    _check_size(name, len(data), taken)
    kind = kind_of(data)
    if kind is None:
        raise _refused(f"{name} is not a PNG, JPEG, GIF or WebP picture (its content decides, not its name)")
    return ChatPicture(None, name, kind, len(data), base64.b64encode(data).decode("ascii"), measure(data))


def received(pictures: Iterable[tuple[str, str]]) -> tuple[ChatPicture, ...]:
    """Return the pictures of an answer, each as base64 and MIME type: named, bounded, their kind by content.

    Data that is not a picture stays, without a kind, so that it can be reported; beyond 20 pictures or 16 MB
    the data is left out. Blocks while the headers are read: call in a thread.
    """
    result: list[ChatPicture] = []
    room = MAX_RECEIVED
    for number, (data, mime_type) in enumerate(pictures, 1):
        size = len(data) * 3 // 4 - data[-2:].count("=")
        head = b""
        with suppress(binascii.Error, ValueError):
            head = base64.b64decode(data[:_HEAD], validate=True)
        kind = kind_of(head)
        claimed_type = one_line(mime_type, 40) or "of no kind"
        name = f"image {number}{SUFFIXES[kind]}" if kind else f"image {number} ({claimed_type})"
        room -= size
        fits = room >= 0 and number <= MAX_IMAGES
        picture = ChatPicture(None, name, kind or "", size, data if fits and kind else "")
        result.append(replace(picture, pixels=measure(picture.raw)) if picture.data else picture)
        if number == 2 * MAX_IMAGES:
            break
    return tuple(result)


def forgotten(attachments: tuple[ChatPicture, ...]) -> tuple[ChatPicture, ...]:
    """Return the same pictures without their data."""
    return tuple(replace(one, data="") for one in attachments)


def save_image(attachment: ChatPicture, path: Path, *, overwrite: bool = False) -> None:
    """Write the picture to ``path``. Blocks: call in a thread.

    Raises FileExistsError when the file exists and ``overwrite`` is off, Fault(CONFIG) naming the
    problem with the path, or saying that the picture is no longer kept.
    """
    if not (data := attachment.raw):
        raise _refused(f"{attachment.name} is no longer kept: there is nothing to save")
    if path.is_dir():
        raise _refused(f"{one_line(str(path), 120)} is a folder; give the name of a file in it")
    try:
        with path.open("wb" if overwrite else "xb") as file:
            file.write(data)
    except FileExistsError:
        raise
    except FileNotFoundError:
        raise _refused(f"There is no folder {one_line(str(path.parent), 120)}; make it first") from None
    except (OSError, ValueError) as error:
        reason = one_line(getattr(error, "strerror", None) or str(error))
        raise _refused(f"{one_line(str(path), 120)} cannot be written: {reason}") from None


def pasted_images(text: str) -> tuple[Path, ...]:
    """Return the image files that a pasted or dropped ``text`` names; none if it has anything else. Blocks.

    Accepts the forms in which terminals and desktops paste a dropped file: a bare path, one in quotes, one
    with escaped spaces, a ``file://`` URL, a path of Windows within WSL, or several of these, also one a
    line.
    """
    text = text.strip()
    if not names_images(text):
        return ()
    if "\n" not in text and (path := _image_file(text)):
        return (path,)
    lines = [path for line in text.splitlines() if line.strip() for path in (_image_file(line.strip()),)]
    if lines and all(lines):
        return tuple(path for path in lines if path)
    try:
        words = shlex.split(text)
    except ValueError:
        return ()
    paths = [_image_file(word) for word in words]
    return tuple(path for path in paths if path) if all(paths) else ()


def names_images(text: str) -> bool:
    """Return whether ``text`` may be the paths of images: cheap, without disk access."""
    if not text or len(text) > _MAX_PASTE or "\0" in text:
        return False
    folded = text.lower()
    return any(suffix in folded for suffix in _SUFFIXES)


def user_path(text: str, base: Path | None = None) -> Path:
    """Return the path that the user wrote: ``~``, quotes, ``file://`` and relative paths are understood."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1]
    if text.startswith("file://"):
        text = unquote(urlsplit(text).path)
    elif _WINDOWS.match(text) and Path("/mnt").is_dir():
        text = f"/mnt/{text[0].lower()}/" + text[3:].replace("\\", "/")
    path = Path(os.path.expanduser(text))  # noqa: PTH111 - expanduser of Path raises where there is no home
    return path if path.is_absolute() or base is None else base / path


def complete_path(text: str, base: Path | None = None, limit: int = 2_000) -> str | None:
    """Return ``text`` completed with the images and folders there, None when nothing fits. Blocks.

    Reads at most ``limit`` entries of the folder.
    """
    head, _, stem = text.rpartition("/")
    folder = user_path(f"{head}/" if "/" in text else ".", base)
    names: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry, _ in zip(entries, range(limit), strict=False):
                if entry.name.startswith(stem) and (stem.startswith(".") or not entry.name.startswith(".")):
                    if entry.is_dir():
                        names.append(f"{entry.name}/")
                    elif Path(entry.name).suffix.lower() in _SUFFIXES:
                        names.append(entry.name)
    except (OSError, ValueError):
        return None
    if not names:
        return None
    best = min(names)
    return f"{head}/{best}" if "/" in text else best


def is_image_name(name: str) -> bool:
    """Return whether the file name is that of an image."""
    return Path(name).suffix.lower() in _SUFFIXES


def size_text(size: int) -> str:
    """Return ``size`` bytes as text: ``84 KB``, ``2.9 MB``."""
    if size < 1_000:
        return f"{size} B"
    if size < 1_000_000:
        return f"{size / 1_000:.0f} KB"
    return f"{size / 1_000_000:.1f} MB"


def _image_file(text: str) -> Path | None:
    try:
        path = user_path(text)
        if not path.is_absolute() or path.suffix.lower() not in _SUFFIXES or not path.is_file():
            return None
    except (OSError, ValueError):
        return None
    return path


def _check_size(name: str, size: int, taken: int) -> None:
    if size == 0:
        raise _refused(f"{name} is empty")
    if size > MAX_BYTES:
        raise _refused(
            f"{name} has {size_text(size)}; at most {size_text(MAX_BYTES)} can be sent: make it smaller"
        )
    if size + taken > MAX_BYTES:
        raise _refused(
            f"{name} has {size_text(size)}, which with the {size_text(taken)} already attached is more than "
            f"the {size_text(MAX_BYTES)} of one message: send it in the next one"
        )


def _refused(problem: str) -> Fault:
    return Fault(FaultType.CONFIG, problem)


def picture_facts(picture: ChatPicture, glyphs: Glyphs = UNICODE) -> str:
    """Return name, size and pixels: ``invoice.png 84 KB 800x600``."""
    width, height = picture.pixels
    cross = "×" if glyphs is UNICODE else "x"
    pixels = f" {width}{cross}{height}" if width and height else ""
    return f"{picture.name} {size_text(picture.size)}{pixels}"
