"""Which files an isolated handler is kept from, and which of the project's it needs."""

import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from pathlib import Path
from typing import Final

from .landlock import hide

MAX_MODULES: Final = 5_000
"""Files of code of the project that can be imported."""
_CODE: Final = (*SOURCE_SUFFIXES, *EXTENSION_SUFFIXES)
_NO_CODE: Final = frozenset({"node_modules", "__pycache__"})


def keep_files_from(root: Path, hidden: Sequence[str], own: Sequence[str]) -> bool:
    """Keep the project's files and those in ``hidden`` from this process, but for code and ``own``.

    Returns whether the system can do that.
    """
    return hide(
        (root, *map(Path, hidden)),
        readable=(*_packages(), *_modules(root)),
        own=map(Path, own),
    )


def _packages() -> Iterator[Path]:
    """Where Python and what is installed are, which may be in the project's folder."""
    yield from {Path(os.path.realpath(each)) for each in (sys.prefix, sys.base_prefix, sys.exec_prefix)}
    yield from (Path(each) for each in sys.path if "site-packages" in each)
    yield Path(__file__).parents[2]


def _modules(root: Path) -> Iterator[Path]:
    """The project's code, for imports that a handler does when it is called."""
    count = 0
    for folder, folders, files in os.walk(root):
        folders[:] = [each for each in folders if not each.startswith(".") and each not in _NO_CODE]
        if "pyvenv.cfg" in files:
            folders.clear()
            continue
        for name in files:
            path = Path(folder, name)
            if name.endswith(_CODE) and path.resolve().name.endswith(_CODE):
                count += 1
                if count > MAX_MODULES:
                    return
                yield path
