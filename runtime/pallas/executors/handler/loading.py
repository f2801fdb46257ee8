"""From ``module:attribute`` to the handler that it names, and where in the project that is."""

import inspect
from pathlib import Path
from typing import Any

from pallas.config import AgentConfig, Project
from pallas.log import reapply_logging
from pallas.model import Fault, FaultType
from pallas.text import one_line

from ..fastagent.fresh import note
from ..fastagent.preload import survey
from ..importing import LOADING, ground, import_fault, module_of


def load(project: Project, agent: AgentConfig, path: str, *, fresh: bool) -> Any:
    """The handler that ``path`` names: an object, one of a class that needs no arguments, a function.

    Blocks for as long as the code takes to import. Raises Fault (CONFIG) with file and line.
    """
    module, _, attribute = path.partition(":")
    with LOADING:
        try:
            with ground(project, agent.name, fresh=fresh):
                found = _found(project, agent, module, attribute)
        except Fault:
            raise
        except BaseException as error:  # a user's module may raise anything, and it is only that
            raise import_fault(project, module, error) from error
        finally:
            reapply_logging()  # the user's code may have set up anything
        note(survey(project.root, module).files)
        return found


def _found(project: Project, agent: AgentConfig, module: str, attribute: str) -> Any:
    imported: Any = module_of(project.root, module)
    found = imported
    for part in attribute.split("."):
        if not hasattr(found, part):
            file = shown_file(project, getattr(imported, "__file__", "") or module)
            raise Fault(
                FaultType.CONFIG,
                f"{file}: there is no {one_line(attribute, 100)} in {module}, which {agent.where} names; "
                f"write it there, or correct `handler:`",
                data={"place": file},
            )
        found = getattr(found, part)
    return found() if inspect.isclass(found) else found


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
