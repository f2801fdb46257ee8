"""From ``module:attribute`` to the handler that it names, and where in the project that is."""

import inspect
from pathlib import Path
from typing import Any

from pallas.config import AgentConfig, Project
from pallas.config.notes import did_you_mean
from pallas.config.project_imports import find_imports
from pallas.executors.fastagent.reimport import note
from pallas.executors.project_imports import LOADING, ground, import_fault, module_of
from pallas.model import Fault, FaultType
from pallas.model.safe_text import one_line
from pallas.telemetry.log import reapply_logging


def load(project: Project, agent: AgentConfig, path: str, *, fresh: bool) -> Any:
    """The handler that ``path`` names: an object, one of a class that needs no arguments, a function.

    Blocks for as long as the code takes to import. Raises Fault (CONFIG) with file and line.
    """
    module = path.partition(":")[0]
    with LOADING:
        try:
            with ground(project, agent.name, fresh=fresh):
                found = find(project, agent, path)
                if inspect.isclass(found):
                    found = found()
        except Fault:
            raise
        except BaseException as error:  # a user's module may raise anything, and it is only that
            raise import_fault(project, module, error) from error
        finally:
            reapply_logging()  # the user's code may have set up anything
        note(find_imports(project.root, module).files)
        return found


def find(project: Project, agent: AgentConfig, path: str, key: str = "handler") -> Any:
    """What ``path`` (``module:attribute``) names in the project's code, which is imported if it is not yet.

    Whoever calls it is in ``ground``. Raises Fault (CONFIG) where there is no such thing, and what the import
    raises; ``key`` is where the agent's configuration has the path.
    """
    module, _, attribute = path.partition(":")
    imported: Any = module_of(project.root, module)
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
    """The names there that could have been meant, for a payload those of classes."""
    there = dict(getattr(module, "__dict__", {}))
    named = [(name, each) for name, each in there.items() if isinstance(name, str) and name[:1] != "_"]
    return [name for name, each in named if key != "payload" or inspect.isclass(each)]


def place_of(project: Project, handler: Any) -> str:
    """``file:line`` where a handler's code is, relative to the project; empty where nobody can tell."""
    code = handler if inspect.isroutine(handler) else type(handler)
    try:
        file = inspect.getsourcefile(inspect.unwrap(code)) or ""
        line = inspect.getsourcelines(inspect.unwrap(code))[1]
    except (OSError, TypeError):
        return ""
    return one_line(f"{shown_file(project, file)}:{line}")


def shown_file(project: Project, file: str) -> str:
    """A file as its author would write it."""
    path = Path(file)
    return str(path.relative_to(project.root)) if path.is_relative_to(project.root) else path.name
