"""Imports a project's own code into this process, for any kind of agent."""

import logging
import os
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import ModuleType
from typing import Final

from pydantic import ValidationError

from pallas.config import Project
from pallas.config.needed_modules import fix_of
from pallas.model import Fault, FaultType
from pallas.model.module_name import plain_name, without_marks
from pallas.model.redaction import redact_text
from pallas.safe_text import one_line

from .fastagent.reimport import invalidate_import_caches, reimported, unnote
from .project_importer import ProjectImporter, current_importer, forget_project, modules_of

# ``sys.argv``, ``sys.path`` and the module table are process-wide: one import at a time.
LOADING: Final = threading.Lock()
# How often each project was forgotten: an import may end after its fleet.
_forgotten: Final[Counter[str]] = Counter()


@contextmanager
def import_context(project: Project, agent: str, *, fresh: bool) -> Iterator[None]:
    """Prepare this block for imports of the project's code; the caller holds ``LOADING``.

    ``fresh`` imports it again, while other agents keep what they have; process-wide changes that would
    affect others are undone. If the project is forgotten meanwhile, nothing of it stays.
    """
    root = str(project.root)
    forgotten = _forgotten[root]

    def is_over() -> bool:
        return _forgotten[root] != forgotten

    importer = ProjectImporter(project.root, agent)
    again = reimported(project.root) if fresh else nullcontext()
    try:
        with restored_environment(agent, is_over), again, importer.loading():
            yield
    finally:
        if is_over():
            _drop(project.root)


def module_of(name: str) -> ModuleType:
    """Import and return the project's module of that dotted name. Call it inside ``import_context``."""
    invalidate_import_caches()
    return current_importer().import_module(name, configured=True)


def forget(root: Path) -> None:
    """Drop the project's modules, so that another project in this process imports its own."""
    _forgotten[str(root)] += 1
    _drop(root)


def _drop(root: Path) -> None:
    for name in modules_of(root):
        sys.modules.pop(name, None)
    unnote(root)
    forget_project(root)
    invalidate_import_caches()


def _words(project: Project, error: BaseException) -> str:
    """Return what an error says; of one of fast-agent's its details too, and files by their place here."""
    if isinstance(error, ValidationError):  # its own words repeat the value
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place, words = ".".join((error.title, *map(str, first["loc"]))), first["msg"]
        return f"{place}: {words[:1].lower()}{words[1:]}"
    message, details = getattr(error, "message", None), getattr(error, "details", None)
    if not isinstance(message, str) or not isinstance(details, str):
        return str(error)
    text = f"{message}: {details}" if details else message
    return " ".join(text.replace(f"{project.root}{os.sep}", "").split())


def import_fault(project: Project, place: str, error: BaseException) -> Fault:
    """Return the Fault (CONFIG) for code that did not import: the line of the project, and the reason.

    ``place`` is used if no line of the project is involved. The caller raises it with the traceback as its
    cause.
    """
    reason = without_marks(f"{type(error).__name__}: {_words(project, error)}")
    if isinstance(error, SystemExit):
        reason = f"it called exit({error.code})"
    line = ""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(project.root):
            place, line = f"{path.relative_to(project.root)}:{frame.lineno}", frame.line or ""
            break
    if isinstance(error, SyntaxError) and error.filename:
        path = Path(error.filename)
        name = path.relative_to(project.root) if path.is_relative_to(project.root) else path.name
        place = f"{name}:{error.lineno}"
    text = f"{place}: {one_line(redact_text(reason), 300)}"
    if isinstance(error, ModuleNotFoundError) and error.name:
        text = "; ".join(filter(None, (text, fix_of(project.root, plain_name(error.name), line))))
    return Fault(FaultType.CONFIG, text, data={"place": one_line(place)})


log = logging.getLogger(__name__)


@contextmanager
def restored_environment(name: str, is_over: Callable[[], bool]) -> Iterator[None]:
    """Guard the import of the agent ``name`` in this block.

    Restores the working directory, the standard streams and the switch that turns logging off. Additions to
    ``sys.path`` and to the environment stay for an agent that was made, each once, and are removed if the
    block fails. If its fleet ``is_over``, the working directory is not its own any more, and is left alone.
    """
    folder, path, environment = Path.cwd(), list(sys.path), dict(os.environ)
    streams, silenced = (sys.stdout, sys.stderr), logging.root.manager.disable
    try:
        yield
    except BaseException:
        sys.path[:] = path
        _restore(environment)
        raise
    else:
        sys.path[:] = dict.fromkeys(sys.path)
    finally:
        with suppress(OSError):  # the directory may be gone
            if not is_over() and Path.cwd() != folder:
                os.chdir(folder)
                log.warning(
                    "%s: its module changes the working directory, which all agents share: restored to %s",
                    name,
                    folder,
                )
        sys.stdout, sys.stderr = streams
        logging.disable(silenced)


def _restore(environment: dict[str, str]) -> None:
    for key in set(os.environ) - set(environment):
        del os.environ[key]
    for key, value in environment.items():
        if os.environ.get(key) != value:
            os.environ[key] = value
