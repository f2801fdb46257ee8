"""Pictures that go with a chat message: found by path, checked by content, bounded in size."""

import base64
import os
import shlex
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from pallas.images import MAX_IMAGES, kind_of
from pallas.model import Fault, FaultType, Image
from pallas.text import one_line

MAX_BYTES: Final = 3_000_000
"""Raw bytes of all pictures of one message: as base64, with the message around it, they fit in 4 MiB."""

_SUFFIXES: Final = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp"})
_MAX_PASTE: Final = 8_192


@dataclass(frozen=True, slots=True)
class Attachment:
    """A picture that was read. ``name`` is sanitised; ``size`` counts the raw bytes."""

    path: Path
    name: str
    mime_type: str
    size: int
    data: str = field(repr=False)

    @property
    def image(self) -> Image:
        """The picture as it travels."""
        return Image(self.data, self.mime_type)


def read_image(path: Path, taken: int = 0, count: int = 0) -> Attachment:
    """The picture at ``path``, beside ``count`` others that have ``taken`` bytes. Blocks: call in a thread.

    Raises Fault(CONFIG) saying why it cannot be sent: not there, not a file, not readable, empty, not a
    PNG, JPEG, GIF or WebP by its content, or too big.
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
    _check_size(name, len(data), taken)
    kind = kind_of(data)
    if kind is None:
        raise _refused(f"{name} is not a PNG, JPEG, GIF or WebP picture (its content decides, not its name)")
    return Attachment(path, name, kind, len(data), base64.b64encode(data).decode("ascii"))


def pasted_images(text: str) -> tuple[Path, ...]:
    """The image files that a pasted or dropped ``text`` names and nothing else, else none.

    Takes what terminals and desktops make of a dropped file: a bare path, one in quotes, one with
    escaped spaces, a ``file://`` URL, or several of these.
    """
    text = text.strip()
    if not text or len(text) > _MAX_PASTE or "\0" in text:
        return ()
    if "\n" not in text and (path := _image_file(text)):
        return (path,)
    try:
        words = shlex.split(text)
    except ValueError:
        return ()
    paths = [_image_file(word) for word in words]
    return tuple(path for path in paths if path) if all(paths) else ()


def user_path(text: str, base: Path | None = None) -> Path:
    """The path that a person wrote: ``~``, quotes, ``file://`` and relative paths are understood."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1]
    if text.startswith("file://"):
        text = unquote(urlsplit(text).path)
    path = Path(os.path.expanduser(text))  # noqa: PTH111 - expanduser of Path raises where there is no home
    return path if path.is_absolute() or base is None else base / path


def complete_path(text: str, base: Path | None = None, limit: int = 2_000) -> str | None:
    """``text`` completed as far as the images and folders there allow, None when nothing fits. Blocks.

    Looks at no more than ``limit`` entries of the folder.
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


def size_text(size: int) -> str:
    """``size`` bytes for a person: ``84 KB``, ``2.9 MB``."""
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
