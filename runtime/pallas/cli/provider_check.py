"""Ask the providers of a project's models, as the fleet does when it starts."""

import asyncio
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pallas.config import AgentConfig, Mistake, Project, Where
from pallas.config.agent_code import read_agents
from pallas.config.envfile import read_env
from pallas.config.notes import Notes
from pallas.health.cloud_account import ALWAYS
from pallas.health.provider_endpoint import PROVIDERS

if TYPE_CHECKING:
    from pallas.health.preflight import ProviderReport

_CHECKED = PROVIDERS.keys() | ALWAYS


def provider_warnings(project: Project, told: Collection[Mistake]) -> tuple[Mistake, ...]:
    """Return a warning for each provider or model that cannot answer, within 5 s; models are asked nothing.

    Only providers that an agent needs are reported. What ``told`` says of missing keys is not repeated. A
    model that an agent's code computes is not known.
    """
    default, models = _named(project)
    project = replace(project, provider=default[0], model=default[1])
    if project.provider not in _CHECKED and not models and not project.llm.backends:
        return ()
    from pallas.health.preflight import backend_label, own_hosts, preflight  # an HTTP client

    environ = {**read_env(project.root, os.environ, Notes()), **os.environ}
    reports = asyncio.run(
        preflight(project, list(models), environ=environ, advice="", skip=own_hosts(project))
    )
    used = {project.provider, *(spec.partition(".")[0] for spec in models)}
    reports = tuple(_with_stored_key(each, used, project, environ) for each in reports)
    places = {mistake.key for mistake in told}
    backends = {backend_label(each): (each.where, "llm.backends") for each in project.llm.backends}
    notes = Notes()
    for report in reports:
        if report.ok or not report.needed or f"{report.provider}.api_key" in places:
            continue
        users = [used for spec, used in models.items() if _is_about(report.provider, spec)]
        where, key = backends.get(report.provider, (project.model_where, "default_model"))
        if users and not report.active:
            where, key = users[0]
        notes.warn(where, key, report.message)
    return notes.sorted([])


def _with_stored_key(
    report: "ProviderReport", used: Collection[str], project: Project, environ: Mapping[str, str]
) -> "ProviderReport":
    """Return the report, or that the key is missing: fast-agent also finds one that a tool has stored."""
    api = PROVIDERS.get(report.provider)
    if report.provider not in used or api is None or api.needs_key or not api.url.startswith("https:"):
        return report
    from pallas.executors.fastagent.model_registry import has_key

    if environ.get(api.variable) or has_key(report.provider, project):
        return report
    message = f"{report.provider}: {api.variable} is not set. Put it into .env."
    return replace(report, ok=False, needed=True, message=message)


def _named(project: Project) -> tuple[tuple[str, str], dict[str, tuple[Where, str]]]:
    """Return provider and model of the default, and the models of agents with place and key of the first.

    Each is named as fast-agent resolves it. What it refuses has been reported and is left out.
    """
    named = [
        (spec, agent.name, where) for agent in project.agents.values() for spec, where in _of(project, agent)
    ]
    if not named and not project.model:
        return ("", ""), {}
    from pallas.executors.fastagent.model_registry import specs_of

    found: dict[str, tuple[Where, str]] = {}
    for spec, agent_name, where in named:
        for model in specs_of([spec], project) or ():
            if model.partition(".")[0] in _CHECKED:
                found.setdefault(model, (where, f"agents.{agent_name}.model"))
    provider, _, model = "".join(specs_of([""], project) or ()).partition(".")
    return (provider, model), found


def _of(project: Project, agent: AgentConfig) -> Iterator[tuple[str, Where]]:
    for found in read_agents(project.root, agent):
        if found.model is not None:
            yield found.model.text, found.model.where
    for provider in agent.providers:
        yield from ((spec, agent.where) for spec in provider.models)


def _is_about(report: str, spec: str) -> bool:
    return report in (spec, spec.partition(".")[0])
