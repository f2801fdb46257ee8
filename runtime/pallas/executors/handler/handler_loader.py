"""Loads the handler that ``module:attribute`` names, and finds its place in the project."""

import inspect
from pathlib import Path
from typing import Any

from pallas.config import AgentConfig, Project
from pallas.config.notes import did_you_mean
from pallas.config.project_imports import find_imports
from pallas.executors.fastagent.reimport import note
from pallas.executors.project_imports import LOADING, import_context, import_fault, module_of
from pallas.model import Fault, FaultType
from pallas.safe_text import one_line
from pallas.telemetry.log import reapply_logging


def load(project: Project, agent: AgentConfig, path: str, *, fresh: bool) -> Any:
    """Return the handler that ``path`` names: an object, an instance of a class without arguments, or a
    function.

    Blocks while the code is imported. Raises Fault (CONFIG) with file and line.
    """
    module = path.partition(":")[0]
    with LOADING:
        try:
            with import_context(project, agent.name, fresh=fresh):
                found = find(project, agent, path)
                if inspect.isclass(found):
                    found = found()
        except Fault:
            raise
        except BaseException as error:  # a user's module may raise anything
            raise import_fault(project, module, error) from error
        finally:
            reapply_logging()  # the user's code may have changed the logging
        note(find_imports(project.root, module).files)
        return found


def find(project: Project, agent: AgentConfig, path: str, key: str = "handler") -> Any:
    """Return the object that ``path`` (``module:attribute``) names in the project's code, importing it if
    needed.

    Call it inside ``import_context``. Raises Fault (CONFIG) if there is no such object, and the import's
    exceptions; ``key`` is the key of the agent's configuration that has the path.
    """
    module, _, attribute = path.partition(":")
    imported: Any = module_of(module)
    found = imported
    for part in attribute.split("."):
        if not hasattr(found, part):
            file = shown_file(project, getattr(imported, "__file__", "") or module)
            meant = did_you_mean(part, _like_it(found, key))
            raise Fault(
                FaultType.CONFIG,
                f"{file}: there is no {one_line(attribute, 100)} in {module}, which {agent.where} names; "
                f"write it there, or correct `{key}:`{f'; {one_line(meant, 100)}' if meant else ''}",
                data={"place": file},
            )
        found = getattr(found, part)
    return found


def _like_it(module: Any, key: str) -> list[str]:
    """Return similar names in the module, for a payload only classes."""
    there = dict(getattr(module, "__dict__", {}))
    named = [(name, each) for name, each in there.items() if isinstance(name, str) and name[:1] != "_"]
    return [name for name, each in named if key != "payload" or inspect.isclass(each)]


def place_of(project: Project, handler: Any) -> str:
    """Return ``file:line`` of a handler's code, relative to the project; empty if it is unknown."""
    code = handler if inspect.isroutine(handler) else type(handler)
    try:
        file = inspect.getsourcefile(inspect.unwrap(code)) or ""
        line = inspect.getsourcelines(inspect.unwrap(code))[1]
    except (OSError, TypeError):
        return ""
    return one_line(f"{shown_file(project, file)}:{line}")


def shown_file(project: Project, file: str) -> str:
    """Return a file relative to the project."""
    path = Path(file)
    return str(path.relative_to(project.root)) if path.is_relative_to(project.root) else path.name
