"""Check the models that a project names with the tables of the installed fast-agent."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from pallas.config import Mistake, Project
from pallas.config.agent_code import read_agents, uses_default_model
from pallas.config.code import module_of
from pallas.config.files import shown
from pallas.config.notes import Notes
from pallas.config.project_imports import find_imports
from pallas.config.where import Where

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


def model_mistakes(project: Project) -> tuple[Mistake, ...]:
    """Return a mistake for each model name that fast-agent refuses.

    For a default that no agent uses it is a warning. Imports fast-agent if the project names a model. If code
    adds models of its own to fast-agent's, only its import can tell which names are right.
    """
    texts = [found for agent in project.agents.values() for found in read_agents(project.root, agent)]
    named = list(_named(project))
    if not named or any(found.adds_models for found in texts):
        return ()
    from pallas.executors.fastagent import model_registry

    notes = Notes()
    is_used = any(uses_default_model(project, agent) for agent in project.agents.values())
    for spec, where, key in named:
        if (found := model_registry.refusal(spec, project)) is not None:
            note = notes.error if is_used or key != "default_model" else notes.warn
            note(where, key, *found)
    return notes.sorted([])


def unnamed_models(project: Project) -> tuple[Mistake, ...]:
    """Return a mistake for each call of ``complete`` without a model, if there is no default model either."""
    notes, seen = Notes(), set[tuple[Path, int]]()
    for agent in project.agents.values() if not project.model else ():
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


def _named(project: Project) -> Iterator[tuple[str, Where, str]]:
    """The model names of the project's files, each with its place and key."""
    default = project.settings.get("default_model")
    if isinstance(default, str) and default.strip():
        yield default.strip(), project.model_where, "default_model"
    for name, agent in project.agents.items():
        for found in read_agents(project.root, agent):
            if found.model is not None:
                yield found.model.text, found.model.where, f"agents.{name}.model"
        for provider in agent.providers:
            yield from ((spec, agent.where, f"agents.{name}.providers") for spec in provider.models)
    for name, model in _sampling(project):
        yield model, project.downstreams[name].where, f"mcp.servers.{name}.sampling.model"


def _sampling(project: Project) -> Iterator[tuple[str, str]]:
    """The models that answer the questions of MCP servers, by server."""
    mcp = project.settings.get("mcp")
    servers = mcp.get("servers") if isinstance(mcp, Mapping) else None
    for name, server in servers.items() if isinstance(servers, Mapping) else ():
        sampling = server.get("sampling") if isinstance(server, Mapping) else None
        model = sampling.get("model") if isinstance(sampling, Mapping) else None
        if isinstance(model, str) and model and name in project.downstreams:
            yield name, model
