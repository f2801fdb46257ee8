"""A project's modules imported anew, while the agents that use the old ones go on with them."""

import importlib
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from importlib.util import cache_from_source
from pathlib import Path
from types import ModuleType
from typing import Final

from .read_files import unnoted

# Never the project's, even where it is a checkout of ours.
_OURS: Final = frozenset({"pallas", "pallas_tui", "__main__"})


def modules_of(root: Path) -> dict[str, ModuleType]:
    """What is imported of the project at ``root``, by name: its own files alone.

    A virtual environment may stand in the same folder: what counts is what is found from the folder itself.
    """
    found: dict[str, ModuleType] = {}
    below = f"{root}/"
    for name, module in list(sys.modules.items()):
        if (file := file_of(module)).startswith(below):  # nearly all of them are not
            top = name.partition(".")[0]
            if top not in _OURS and file.startswith((f"{below}{top}/", f"{below}{top}.py")):
                found[name] = module
    return found


def file_of(module: ModuleType) -> str:
    """The module's file, or a folder of a package without one; empty for neither."""
    if file := getattr(module, "__file__", None):
        return str(file)
    paths = getattr(module, "__path__", None)
    return str(next(iter(paths), "")) if paths else ""


# What the files of agents held when those were loaded last.
_held: Final[dict[str, bytes]] = {}


def note(files: Iterable[Path]) -> None:
    """An agent was loaded, and these are its files."""
    _held.update((str(file), _digest(str(file))) for file in files)


def unnote(root: Path) -> None:
    """The project at ``root`` is not served any more."""
    for file in [file for file in _held if file.startswith(f"{root}/")]:
        del _held[file]


@contextmanager
def anew(root: Path) -> Iterator[None]:
    """Whatever of the project is imported in this block is read from its files again.

    Modules that were imported before and not in the block are there again afterwards, for those who import
    them late; not those whose file was changed since it was noted. When the block fails, all are as they were
    before.
    """
    before = modules_of(root)
    for name, module in before.items():
        del sys.modules[name]
        _without_bytecode(module)
    importlib.invalidate_caches()
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
    """Compiled files are told apart by whole seconds and size: an edit within a second would go unseen."""
    if file := getattr(module, "__file__", None):
        with suppress(OSError, NotImplementedError, ValueError):
            Path(cache_from_source(file)).unlink(missing_ok=True)
