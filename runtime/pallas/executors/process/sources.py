"""A project's modules, always compiled from their sources.

A compiled file counts as current when the source has the same size and second, so an edit within a second
would go unseen by a process that was started for it.
"""

import sys
from collections.abc import Buffer
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


class _FromSource(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        data: Buffer = self.get_data(path)
        return self.source_to_code(data, path)


def read_sources(root: Path) -> None:
    """From now on, and for the whole process, modules below ``root`` are compiled when they are imported."""
    finder = FileFinder.path_hook(
        (ExtensionFileLoader, EXTENSION_SUFFIXES),
        (_FromSource, SOURCE_SUFFIXES),
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
