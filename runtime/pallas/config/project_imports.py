"""The files and libraries that a project's code imports, as its text says; nothing is imported."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import resolve_name
from pathlib import Path
from typing import Final

from pallas.model.module_name import plain_name

from .files import module_file

# Files of a project that are looked at.
_MAX_FILES: Final = 500
# Files whose imports are remembered.
_MAX_KEPT: Final = 4_096


def sought(root: Path, error: ImportError) -> tuple[Path, ...]:
    """The files whose absence made an import of the project fail."""
    name = plain_name(error.name or "")
    if not isinstance(error, ModuleNotFoundError) and error.name_from:
        name = f"{name}.{error.name_from}"
    if not all(part.isidentifier() for part in name.split(".")):
        return ()
    base = root.joinpath(*name.split("."))
    return (base.with_suffix(".py"), base / "__init__.py")


@dataclass(frozen=True, slots=True)
class ProjectImports:
    """What a module imports, however deep."""

    files: tuple[Path, ...]
    """Files of the project, also those that functions import when they are called."""
    libraries: tuple[str, ...]
    """Modules of other packages that are imported with it."""


def find_imports(root: Path, module: str) -> ProjectImports:
    """Follow the imports of a module of the project at ``root``. Blocks; never raises."""
    wanted, seen = list(_with_packages(module)), set(_with_packages(module))
    files: list[Path] = []
    libraries: dict[str, None] = {}
    ours: dict[str, bool] = {}
    while wanted and len(files) < _MAX_FILES:
        name = wanted.pop()
        path = module_file(root, name)
        if path is None:
            continue
        files.append(path)
        for found, at_once in _imports(name, path):
            top = found.partition(".")[0]
            if top not in ours:
                ours[top] = (root / top).is_dir() or module_file(root, top) is not None
            if not ours[top]:
                if at_once:
                    libraries[found] = None
                continue
            new = [each for each in _with_packages(found) if each not in seen]
            seen.update(new)
            wanted += new
    return ProjectImports(tuple(files), tuple(libraries))


def _with_packages(module: str) -> Iterator[str]:
    """The module and the packages it is in: importing ``a.b`` imports ``a``."""
    while module:
        yield module
        module = module.rpartition(".")[0]


def _imports(name: str, path: Path) -> tuple[tuple[str, bool], ...]:
    """Names of the modules that the file imports, and whether it does so when it is imported itself."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return _imports_of(name, path, (found.st_ino, found.st_mtime_ns, found.st_size))


@lru_cache(_MAX_KEPT)
def _imports_of(name: str, path: Path, version: tuple[int, ...]) -> tuple[tuple[str, bool], ...]:
    """The same, read once for each ``version`` of the file: agents share what they import."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return ()
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    top = set(map(id, tree.body))
    named: dict[tuple[str, bool], None] = {}
    for statement in ast.walk(tree):
        if isinstance(statement, ast.Import):
            named.update(((alias.name, id(statement) in top), None) for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            try:
                source = resolve_name("." * statement.level + (statement.module or ""), package)
            except ImportError:
                continue
            named[source, id(statement) in top] = None
            for alias in statement.names:  # `from agents import shared` names modules too
                named[f"{source}.{alias.name}", False] = None
    return tuple(named)
