"""The contents of a folder, for choosing a picture."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pallas.safe_text import one_line

from .images import is_image_name

LIMIT: Final = 5_000
"""Entries of a folder that are read."""


@dataclass(frozen=True, slots=True)
class Item:
    """An entry; ``shown`` is its name, sanitised. ``problem`` says why it cannot be used."""

    path: Path
    shown: str
    is_folder: bool
    size: int = 0
    changed: float = 0.0
    problem: str = ""

    @property
    def is_image(self) -> bool:
        """Whether its name is that of an image; its content is checked later."""
        return not self.is_folder and is_image_name(self.path.name)


@dataclass(frozen=True, slots=True)
class FolderListing:
    """A folder with links resolved, its entries (folders first, by name), and its ``problem``."""

    folder: Path
    items: tuple[Item, ...]
    problem: str = ""


def list_folder(folder: Path, *, hidden: bool = False, every: bool = False) -> FolderListing:
    """Return the folders and images in ``folder``, with ``every`` all files. Blocks: call in a thread.

    Never raises: ``problem`` says what cannot be read. Links are resolved, so a circle of them never makes
    the path longer.
    """
    folder = Path(os.path.realpath(folder))
    items: list[Item] = []
    try:
        with os.scandir(folder) as entries:
            looked = 0
            for entry in entries:
                looked += 1
                if looked > LIMIT:
                    break
                if hidden or not entry.name.startswith("."):
                    item = _item(entry)
                    if every or item.is_folder or item.is_image:
                        items.append(item)
    except (OSError, ValueError) as error:
        reason = one_line(getattr(error, "strerror", None) or str(error))
        return FolderListing(folder, (), f"{one_line(str(folder), 120)} cannot be read: {reason}")
    items.sort(key=lambda item: (not item.is_folder, item.path.name.lower(), item.path.name))
    more = f"Only the first {LIMIT:,} entries of this folder are shown: give the path (ctrl+o)."
    return FolderListing(folder, tuple(items), more if looked > LIMIT else "")


def _item(entry: os.DirEntry[str]) -> Item:
    path, shown = Path(entry.path), one_line(entry.name, 200) or "?"
    try:
        status = entry.stat()
    except OSError as error:  # a link that leads nowhere or in a circle, or no permission
        return Item(path, shown, False, problem=one_line(error.strerror or str(error), 60).lower())
    if stat.S_ISDIR(status.st_mode):
        return Item(path, shown, True, changed=status.st_mtime)
    problem = "" if stat.S_ISREG(status.st_mode) else "not a plain file"
    return Item(path, shown, False, status.st_size, status.st_mtime, problem)
