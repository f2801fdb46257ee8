"""Ask the providers of a project's models, as the fleet does when it starts."""

import asyncio
import os
from collections.abc import Collection, Iterator
from urllib.parse import urlsplit

from pallas.config import AgentConfig, Mistake, Project, Where
from pallas.config.agent_code import read_agents, referred_model
from pallas.config.envfile import read_env
from pallas.config.notes import Notes
from pallas.health.cloud_account import ALWAYS
from pallas.health.provider_endpoint import PROVIDERS

_CHECKED = PROVIDERS.keys() | ALWAYS


def provider_warnings(project: Project, told: Collection[Mistake]) -> tuple[Mistake, ...]:
    """Return a warning for each provider or model that cannot answer, within 5 s; models are asked nothing.

    What ``told`` says of missing keys is not repeated. A model that an agent's code computes is not known.
    """
    models = dict(_models(project))
    if project.provider not in _CHECKED and not models and not project.llm.backends:
        return ()
    from pallas.health.preflight import backend_label, preflight  # an HTTP client

    environ = {**read_env(project.root, os.environ, Notes()), **os.environ}
    reports = asyncio.run(
        preflight(project, list(models), environ=environ, advice="", skip=_own_hosts(project))
    )
    places = {mistake.key for mistake in told}
    backends = {backend_label(each): (each.where, "llm.backends") for each in project.llm.backends}
    notes = Notes()
    for report in reports:
        if report.ok or f"{report.provider}.api_key" in places:
            continue
        users = [used for spec, used in models.items() if _is_about(report.provider, spec)]
        default = backends.get(report.provider, (project.model_where, "default_model"))
        where, key = default if report.active or not users else users[0]
        notes.warn(where, key, report.message)
    return notes.sorted([])


def _models(project: Project) -> Iterator[tuple[str, tuple[Where, str]]]:
    """The models that agents name, with the place and the key of the first of each."""
    seen: set[str] = set()
    for agent in project.agents.values():
        for spec, where in _models_of(project, agent):
            if spec.partition(".")[0] in _CHECKED and spec not in seen:
                seen.add(spec)
                yield spec, (where, f"agents.{agent.name}.model")


def _models_of(project: Project, agent: AgentConfig) -> Iterator[tuple[str, Where]]:
    for found in read_agents(project.root, agent):
        if found.model is not None:
            yield referred_model(found.model.text, project).partition("?")[0], found.model.where
    for provider in agent.providers:
        yield from ((spec.partition("?")[0], agent.where) for spec in provider.models)


def _own_hosts(project: Project) -> frozenset[str]:
    """Where the fleet itself starts servers: these do not answer before it runs."""
    ports = [urlsplit(server.url).port for server in project.servers.values()]
    ports += [project.scripted.port] if project.scripted is not None else []
    return frozenset(f"{host}:{port}" for port in ports for host in ("127.0.0.1", "localhost", "[::1]"))


def _is_about(report: str, spec: str) -> bool:
    return report in (spec, spec.partition(".")[0])
