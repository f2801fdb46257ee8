"""What a project's code imports of others, imported beforehand in a thread.

The agent's own module is imported in the fleet's loop (see ``executor``), where every other agent waits for
it. Nearly all of that time goes into libraries, and those may be imported anywhere.
"""

import ast
import importlib
import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import resolve_name
from pathlib import Path
from typing import Final

from pallas.config import AgentConfig, Project
from pallas.config.files import module_file

log = logging.getLogger(__name__)

# Files of a project that are looked at.
_MAX_FILES: Final = 500


def preload(project: Project, agent: AgentConfig) -> None:
    """Import the libraries that the agent's module, and what it imports of the project, name at their top.

    Blocks; call in a thread. Never raises: what does not import is told when the module itself is.
    """
    for name in survey(project.root, agent.module).libraries if agent.module else ():
        if name not in sys.modules:
            try:
                importlib.import_module(name)
            except BaseException as error:  # a library may even exit
                log.debug("%s cannot be imported beforehand (%s)", name, type(error).__name__)


def files_of(project: Project, agent: AgentConfig) -> tuple[Path, ...]:
    """The files that the agent is made of, as far as their text tells. Blocks; never raises."""
    if agent.module:
        return survey(project.root, agent.module).files
    return (agent.card,) if agent.card else ()


def sought(root: Path, error: ImportError) -> tuple[Path, ...]:
    """The files that would mend an import of the project that found nothing."""
    name = error.name or ""
    if not isinstance(error, ModuleNotFoundError) and error.name_from:
        name = f"{name}.{error.name_from}"
    if not all(part.isidentifier() for part in name.split(".")):
        return ()
    base = root.joinpath(*name.split("."))
    return (base.with_suffix(".py"), base / "__init__.py")


@dataclass(frozen=True, slots=True)
class Survey:
    """What a module needs as its text says, however deep: the project's own files, and libraries.

    ``files`` are also those that functions import when they are called; ``libraries`` are not.
    """

    files: tuple[Path, ...]
    libraries: tuple[str, ...]


def survey(root: Path, module: str) -> Survey:
    """Look through the module at ``root`` and what it imports of the project. Blocks; never raises."""
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
    return Survey(tuple(files), tuple(libraries))


def _with_packages(module: str) -> Iterator[str]:
    """The module and the packages it is in: importing ``a.b`` imports ``a``."""
    while module:
        yield module
        module = module.rpartition(".")[0]


def _imports(name: str, path: Path) -> Iterator[tuple[str, bool]]:
    """Names of the modules that the file imports, and whether it does so when it is imported itself."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    top = set(map(id, tree.body))
    for statement in ast.walk(tree):
        if isinstance(statement, ast.Import):
            yield from ((alias.name, id(statement) in top) for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            try:
                source = resolve_name("." * statement.level + (statement.module or ""), package)
            except ImportError:
                continue
            yield source, id(statement) in top
            for alias in statement.names:  # `from agents import shared` names modules too
                yield f"{source}.{alias.name}", False
