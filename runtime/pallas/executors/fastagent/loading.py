"""From a module or a card to a FastAgent object."""

import importlib
import sys
import threading
import traceback
from contextlib import nullcontext
from pathlib import Path

from fast_agent import FastAgent

from pallas.config import AgentConfig, Project
from pallas.config.files import module_file
from pallas.log import reapply_logging, redact_text
from pallas.model import Fault, FaultType
from pallas.text import one_line

from . import (
    auth_seam,
    beside,
    filter_seam,
    forward_trace,
    hooks,
    lean_seam,
    log_hook,
    oauth_off,
    quick_connect,
    stderr_seam,
    trace_seam,
    transport_seam,
    wire_seam,
)
from .defined import define
from .fresh import anew, file_of, modules_of, note, unnote
from .preload import files_of
from .seam import introduce, plain_argv, silence
from .surroundings import kept

# ``sys.argv``, ``sys.path`` and fast-agent's last-one-wins settings are the process's: one at a time.
_LOADING = threading.Lock()


def load(project: Project, agent: AgentConfig, *, fresh: bool = False) -> FastAgent:
    """The agent's FastAgent, silenced. Blocks for as long as the user's code takes to import.

    ``fresh`` imports the agent's module anew, and what of the project that imports; the other agents go on
    with what they have, and so does this one when it fails. Raises Fault (CONFIG): the module does not
    import, has no ``fast``, or the card is not one. The message names the file and line inside the project;
    the traceback is the fault's cause.
    """
    with _LOADING, plain_argv():
        for each in (
            log_hook,
            filter_seam,
            forward_trace,
            trace_seam,
            wire_seam,
            stderr_seam,
            oauth_off,
            transport_seam,
            quick_connect,
            lean_seam,
        ):
            each.install()
        hooks.install(auth_seam.PREPARE)
        hooks.install(beside.SETTINGS)
        hooks.tell()
        root = str(project.root)
        if root not in sys.path:
            sys.path.insert(0, root)
        try:
            anew_too = fresh and agent.definition is None  # which is nobody's code
            with kept(agent.name), anew(project.root) if anew_too else nullcontext():
                fast = _made(project, agent)
        except Fault:
            raise
        except SystemExit as exit_:
            raise _fault(project, agent, exit_, f"it called exit({exit_.code})") from exit_
        except BaseException as error:  # a user's module may raise anything, and it is only that
            raise _fault(project, agent, error, f"{type(error).__name__}: {error}") from error
        finally:
            reapply_logging()  # the user's code may have set up anything
        note(files_of(project, agent))
        silence(fast)
        introduce(fast)
        return fast


def forget(root: Path) -> None:
    """Drop the project's modules, so that another project in this process imports its own."""
    for name in modules_of(root):
        del sys.modules[name]
    unnote(root)
    if str(root) in sys.path:
        sys.path.remove(str(root))
    importlib.invalidate_caches()


def defined_at(project: Project, agent: AgentConfig, source: tuple[str, int]) -> str:
    """Where an agent is defined, relative to the project; its card or module if ``source`` is elsewhere."""
    if agent.definition is not None:
        return str(agent.where)
    file, line = source
    path = Path(file) if file else agent.card
    if path is None or not path.is_absolute() or not path.is_relative_to(project.root):
        path = agent.card or module_file(project.root, agent.module or "")
        line = 0
    if path is None:
        return one_line(agent.module or "")
    shown = path.relative_to(project.root) if path.is_relative_to(project.root) else path
    return one_line(f"{shown}:{line}" if line else f"{shown}")


def _evict(package: str, root: Path) -> None:
    """Make room for the project's own package where another project's of that name was imported."""
    found = sys.modules.get(package)
    ours = (root / package).is_dir() or (root / f"{package}.py").is_file()
    if found is not None and ours and not file_of(found).startswith(f"{root}/"):
        for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
            del sys.modules[name]


def _module(project: Project, agent: AgentConfig) -> FastAgent:
    assert agent.module
    _evict(agent.module.partition(".")[0], project.root)
    importlib.invalidate_caches()
    module = importlib.import_module(agent.module)
    fast = getattr(module, "fast", None)
    if not isinstance(fast, FastAgent):
        found = "no `fast`" if fast is None else f"`fast` is {type(fast).__name__}"
        raise Fault(
            FaultType.CONFIG,
            f"{agent.module} has {found}; write `fast = FastAgent(...)` at its top level",
        )
    return fast


def _made(project: Project, agent: AgentConfig) -> FastAgent:
    if agent.definition is not None:
        return define(project, agent)
    return _card(project, agent) if agent.card else _module(project, agent)


def _card(project: Project, agent: AgentConfig) -> FastAgent:
    assert agent.card
    fast = FastAgent(agent.name, parse_cli_args=False, quiet=True)
    if not fast.load_agents(agent.card):
        raise Fault(FaultType.CONFIG, f"{agent.card.name} defines no agent; see docs/configuration.md, cards")
    return fast


def _fault(project: Project, agent: AgentConfig, error: BaseException, reason: str) -> Fault:
    place = str(agent.card.name if agent.card else agent.module or agent.where)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(project.root):
            place = f"{path.relative_to(project.root)}:{frame.lineno}"
            break
    if isinstance(error, SyntaxError) and error.filename:
        path = Path(error.filename)
        name = path.relative_to(project.root) if path.is_relative_to(project.root) else path.name
        place = f"{name}:{error.lineno}"
    text = f"{place}: {one_line(redact_text(reason), 300)}"
    return Fault(FaultType.CONFIG, text, data={"place": one_line(place)})
