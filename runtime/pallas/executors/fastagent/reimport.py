"""Imports a project's modules again, while the agents that use the old ones go on with them."""

import importlib
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from importlib.util import cache_from_source
from pathlib import Path
from types import ModuleType
from typing import Final

from ..project_importer import file_of, modules_of
from .read_files import unnoted

_PASSES: Final = 10
# The state of the agents' files when they were last loaded.
_held: Final[dict[str, bytes]] = {}


def note(files: Iterable[Path]) -> None:
    """Record the files of an agent that was loaded."""
    _held.update((str(file), _digest(str(file))) for file in files)


def unnote(root: Path) -> None:
    """Forget the project at ``root``, which is no longer served."""
    for file in [file for file in _held if file.startswith(f"{root}/")]:
        del _held[file]


def invalidate_import_caches() -> None:
    """Have every finder look at its folders again.

    Python forgets unused finders in the same pass, and fails where another thread has done so in between.
    """
    for _ in range(_PASSES):
        with suppress(KeyError):
            importlib.invalidate_caches()
            return


@contextmanager
def reimported(root: Path) -> Iterator[None]:
    """Read each project module that is imported in this block from its file again.

    Modules that were imported before and not in the block are restored afterwards, for code that imports
    them late, except those whose file changed since it was noted. If the block fails, all are restored.
    """
    before = modules_of(root)
    for name, module in before.items():
        del sys.modules[name]
        _without_bytecode(module)
    invalidate_import_caches()
    try:
        yield
    except BaseException:
        for name in modules_of(root):
            del sys.modules[name]
        sys.modules.update(before)
        raise
    for name, module in before.items():
        if name not in sys.modules and not _is_outdated(module):
            _put_back(name, module)


def _is_outdated(module: ModuleType) -> bool:
    held = _held.get(file := file_of(module))
    return held is not None and held != _digest(file)


def _digest(file: str) -> bytes:
    try:
        with unnoted():
            return blake2b(Path(file).read_bytes(), digest_size=16).digest()
    except (OSError, ValueError):
        return b""


def _put_back(name: str, module: ModuleType) -> None:
    sys.modules[name] = module
    package, _, last = name.rpartition(".")
    if package in sys.modules and not hasattr(sys.modules[package], last):
        setattr(sys.modules[package], last, module)


def _without_bytecode(module: ModuleType) -> None:
    """Delete the compiled file, whose check compares whole seconds and size: it misses an edit within a
    second."""
    if file := getattr(module, "__file__", None):
        with suppress(OSError, NotImplementedError, ValueError):
            Path(cache_from_source(file)).unlink(missing_ok=True)
