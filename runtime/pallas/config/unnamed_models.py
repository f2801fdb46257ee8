"""Handlers that ask a model without naming one, in a project that has no default model."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from pallas.model import Fault, FaultType

from .code import module_of
from .files import shown
from .models import AgentConfig, ConfigError, Mistake, Project, Where
from .notes import Notes
from .project_imports import find_imports

_COMPLETE: Final[Mapping[str, bool]] = {
    "pallas.llm": True,
    "xml_pipeline.llm": True,
    "agentserver.llm": True,
    **{
        f"{root}.platform{more}": False
        for root in ("xml_pipeline", "agentserver")
        for more in ("", ".llm_api")
    },
}
"""The modules that offer ``complete``, and whether its first argument is a model."""


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
    agents = project.agents.values() if agents is None else agents
    for agent in agents if not project.model else ():
        module = module_of(agent) if agent.handler is not None else None
        for path in find_imports(project.root, module).files if module else ():
            for line in _unnamed_calls(path):
                if (path, line) not in seen:
                    notes.error(
                        Where(shown(project.root, path), line),
                        f"agents.{agent.name}.handler",
                        "complete() names no model, and default_model is not set",
                        f"name a model there, or write default_model: into {project.model_where.file}",
                    )
                seen.add((path, line))
    return notes.sorted([])


def _unnamed_calls(path: Path) -> Iterator[int]:
    """Yield the lines on which a module calls ``complete`` without a model."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return  # reported elsewhere
    names = {
        name.asname or name.name: _COMPLETE[node.module or ""]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in _COMPLETE
        for name in node.names
        if name.name in ("complete", "platform_complete")
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            given = {each.arg: each.value for each in node.keywords}
            model = given.get("model", node.args[0] if node.args else None)
            is_empty = model is None or (isinstance(model, ast.Constant) and not model.value)
            if not names[node.func.id] or (is_empty and None not in given):
                yield node.lineno
