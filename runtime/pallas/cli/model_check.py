"""Check the models that a project names with the tables of the installed fast-agent."""

from collections.abc import Iterator, Mapping

from pallas.config import Mistake, Project
from pallas.config.agent_code import read_agents, uses_default_model
from pallas.config.notes import Notes
from pallas.config.where import Where


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
