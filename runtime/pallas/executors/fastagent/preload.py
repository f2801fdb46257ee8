"""What a project's code imports of others, imported beforehand in a thread.

The agent's own module is imported in the fleet's loop (see ``executor``), where every other agent waits for
it. Nearly all of that time goes into libraries, and those may be imported anywhere.
"""

import ast
import importlib
import logging
import sys
from collections.abc import Iterator
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
    for name in _libraries(project.root, agent.module) if agent.module else ():
        if name not in sys.modules:
            try:
                importlib.import_module(name)
            except BaseException as error:  # a library may even exit
                log.debug("%s cannot be imported beforehand (%s)", name, type(error).__name__)


def _libraries(root: Path, module: str) -> list[str]:
    wanted, seen = [module], {module}
    libraries: list[str] = []
    while wanted and len(seen) <= _MAX_FILES:
        name = wanted.pop()
        path = module_file(root, name)
        for found in _imports(name, path) if path is not None else ():
            if found not in seen:
                seen.add(found)
                (wanted if _is_ours(root, found) else libraries).append(found)
    return libraries


def _is_ours(root: Path, module: str) -> bool:
    top = module.partition(".")[0]
    return (root / top).is_dir() or module_file(root, top) is not None


def _imports(name: str, path: Path) -> Iterator[str]:
    """Names of the modules that the file imports when it is imported."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            try:
                source = resolve_name("." * statement.level + (statement.module or ""), package)
            except ImportError:
                continue
            yield source
            if statement.level:  # `from . import shared` names modules too
                yield from (f"{source}.{alias.name}" for alias in statement.names)
