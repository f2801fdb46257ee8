"""Handlers that ask a model without naming one, in a project that has no default model."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from pallas.model import Fault, FaultType

from .called_names import EVERYTHING, WITH_MODEL, ModuleCalls, names_model, read_calls
from .code import module_of
from .files import module_file, shown
from .models import AgentConfig, ConfigError, Mistake, Project, Where
from .notes import Notes
from .project_imports import find_imports

_COMPLETE: Final[Mapping[str, bool]] = {
    "pallas.llm.complete": True,
    **{
        f"{root}.{module}": is_model
        for root in ("xml_pipeline", "agentserver")
        for module, is_model in {
            "llm.complete": True,
            "llm.router.complete": True,
            "platform.complete": False,
            "platform.platform_complete": False,
            "platform.llm_api.complete": False,
            "platform.llm_api.platform_complete": False,
        }.items()
    },
}
"""The functions that ask a model, and whether the first argument of each is a model."""

_MAX_NAMES: Final = 100
"""Names that the name of one call is followed through, from module to module."""


def refuse_unnamed_models(project: Project) -> None:
    """Raise ConfigError if a handler asks a model and none is named: it would fail with each message."""
    if mistakes := unnamed_models(project):
        raise ConfigError(mistakes)


def refuse_unnamed_model(project: Project, agent: AgentConfig) -> None:
    """Raise Fault (CONFIG) if that agent's code asks a model and none is named."""
    if mistakes := unnamed_models(project, (agent,)):
        raise Fault(FaultType.CONFIG, str(mistakes[0]), data={"place": str(mistakes[0].where)})


def unnamed_models(project: Project, agents: Iterable[AgentConfig] | None = None) -> tuple[Mistake, ...]:
    """Return a mistake for each call of ``complete`` without a model, if there is no default model either.

    Only the code of ``agents`` is looked at, where they are given.
    """
    notes, seen = Notes(), set[tuple[Path, int]]()
    reader = _Reader(project.root)
    agents = project.agents.values() if agents is None else agents
    for agent in agents if not project.model else ():
        module = module_of(agent) if agent.handler is not None else None
        for path in find_imports(project.root, module).files if module else ():
            for line in reader.unnamed_calls(path):
                if (path, line) not in seen:
                    notes.error(
                        Where(shown(project.root, path), line),
                        f"agents.{agent.name}.handler",
                        "complete() names no model, and default_model is not set",
                        f"name a model there, or write default_model: into {project.model_where.file}",
                    )
                seen.add((path, line))
    return notes.sorted([])


class _Reader:
    """Reads modules of the project at ``root``, each once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._read: dict[Path, ModuleCalls] = {}

    def unnamed_calls(self, path: Path) -> Iterator[int]:
        """Yield the lines on which a module asks a model without naming one."""
        for call, names in self._calls_of(path).calls:
            asked = self._takes_model(names)
            if asked and (False in asked or not names_model(call.args, call.keywords)):
                yield call.lineno

    def _takes_model(self, names: frozenset[str]) -> set[bool]:
        """Return the values of ``_COMPLETE`` that names stand for, also through modules of the project.

        Functions whose model ``partial`` has named are left out.
        """
        wanted, seen = list(names), set(names)
        while wanted and len(seen) < _MAX_NAMES:
            new = self._imported_as(wanted.pop()) - seen
            seen |= new
            wanted += new
        return {
            takes
            for each in seen
            if (takes := _COMPLETE.get(each.removesuffix(f".{WITH_MODEL}"))) is not None
            and not (takes and each.endswith(WITH_MODEL))
        }

    def _imported_as(self, name: str) -> set[str]:
        """Return what a dotted name is in the project's module that it begins with; empty if in none."""
        module, _, rest = name.rpartition(".")
        while module and not (path := module_file(self._root, module)):
            module, _, part = module.rpartition(".")
            rest = f"{part}.{rest}"
        if not module or path is None:
            return set()
        own, dot, more = rest.partition(".")
        names = self._calls_of(path).names
        everything = (f"{each}.{own}" for each in names.get(EVERYTHING, ()))
        return {f"{target}{dot}{more}" for target in names.get(own, everything)}

    def _calls_of(self, path: Path) -> ModuleCalls:
        if path not in self._read:
            try:
                tree = ast.parse(path.read_bytes())
                self._read[path] = read_calls(tree, ".".join(path.relative_to(self._root).parts[:-1]))
            except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):  # reported elsewhere
                self._read[path] = ModuleCalls((), {})
        return self._read[path]
