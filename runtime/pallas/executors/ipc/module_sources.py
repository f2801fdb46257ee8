"""Compiles a project's modules from their sources, and keeps the sources for a later process.

Python takes a compiled file as current if the source has the same size and second, so a process that is
started for an edit would miss one that was made within a second.
"""

import sys
from collections.abc import Callable, Mapping
from importlib.abc import PathEntryFinder
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from pathlib import Path
from types import CodeType
from typing import Final

_OTHERS: Final = frozenset({"site-packages", "dist-packages"})


MAX_SIZE: Final = 4 * 1024 * 1024
"""Bytes of sources that are kept; for a project with more, none are."""


class ModuleSources:
    """The sources of the project's modules that were imported; ``given`` ones replace those in the files."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given
        self._read: dict[str, str] = {}
        self._size = 0

    @property
    def read(self) -> dict[str, str]:
        """The sources read so far, by path, as Latin-1 text; empty if they are too large."""
        return dict(self._read) if self._size <= MAX_SIZE else {}

    def of(self, path: str, read: Callable[[str], bytes]) -> bytes:
        """Return the bytes to compile for the module at ``path``."""
        known = self._given.get(path)
        data = known.encode("latin-1") if known is not None else read(path)
        if path not in self._read and self._size <= MAX_SIZE:
            self._size += len(data)
            self._read[path] = data.decode("latin-1")
        return data


def read_sources(root: Path, given: Mapping[str, str]) -> ModuleSources:
    """Compile modules below ``root`` when they are imported, from now on and in the whole process."""
    sources = ModuleSources(given)

    class FromSource(SourceFileLoader):
        def get_code(self, fullname: str) -> CodeType | None:
            path = self.get_filename(fullname)
            return self.source_to_code(self.get_data(path), path)

        def get_data(self, path: str) -> bytes:
            return sources.of(path, super().get_data)

    finder = FileFinder.path_hook(
        (ExtensionFileLoader, EXTENSION_SUFFIXES),
        (FromSource, SOURCE_SUFFIXES),
        (SourcelessFileLoader, BYTECODE_SUFFIXES),
    )

    def ours(entry: str) -> PathEntryFinder:
        path = Path(entry)
        if not path.is_relative_to(root) or not _OTHERS.isdisjoint(path.parts):
            raise ImportError(f"{entry} is not the project's")
        return finder(entry)

    sys.path_hooks.insert(0, ours)
    for entry in [entry for entry in sys.path_importer_cache if entry.startswith(str(root))]:
        del sys.path_importer_cache[entry]
    return sources
