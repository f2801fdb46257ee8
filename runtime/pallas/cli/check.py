"""`pallas check`: report every mistake of a project without starting anything."""

import json
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pallas.config import AgentConfig, ConfigError, Mistake, Project, ScriptedConfig, Where, read_project
from pallas.config.agent_code import agents_without_model, choice_of, read_agents
from pallas.config.code_environment import says_unset, set_by_code, without_names
from pallas.config.envfile import environ_of
from pallas.config.environment_settings import has_settings
from pallas.config.files import is_file, shown
from pallas.config.notes import Notes
from pallas.config.textfile import read_text
from pallas.safe_text import one_line

from .program_check import program_mistakes


def check(project: Path, as_json: bool = False, do_import: bool = False, ask: bool = False) -> int:
    """Print the project's mistakes and return the exit status: 2 on mistakes, 0 otherwise.

    Mistakes and warnings go to stderr, one per line, and a summary to stdout. With ``as_json`` one JSON
    object goes to stdout and nothing to stderr. The agents' code is parsed; with ``do_import`` it is also
    imported, in one process per agent. fast-agent is imported if the project has a
    configuration of it, or names a model. With ``ask`` the models' providers are asked whether they can
    answer.
    """
    found, mistakes = read_project(project)
    if found is not None:
        mistakes = _found_mistakes(found, mistakes, do_import, ask)
    ok = found is not None and all(mistake.level == "warning" for mistake in mistakes)
    if as_json:
        body = {
            "ok": ok,
            "mistakes": [_mistake(mistake) for mistake in mistakes],
            "agents": _agents(found) if found else [],
        }
        print(json.dumps(body, indent=2))
        return 0 if ok else 2
    for mistake in mistakes:
        print(_line(mistake), file=sys.stderr)
    if ok and found is not None:
        print(_summary(found, mistakes))
    return 0 if ok else 2


def _found_mistakes(
    project: Project, mistakes: tuple[Mistake, ...], do_import: bool, ask: bool
) -> tuple[Mistake, ...]:
    """Return the mistakes that were read with those that a project without errors in its files still has."""
    from pallas.config.unnamed_models import unnamed_models

    from .model_check import model_mistakes
    from .plugin_checks import plugin_mistakes

    if project.scripted is not None:
        mistakes += _script_mistakes(project.scripted)
    mistakes += (
        *program_mistakes(project),
        *_schema_warnings(project),
        *_settings_mistakes(project),
        *_code_mistakes(project, do_import),
        *model_mistakes(project),
        *agents_without_model(project),
        *unnamed_models(project),
    )
    if ask:
        from .provider_check import provider_warnings
        from .url_check import url_warnings

        mistakes += (*provider_warnings(project, mistakes), *url_warnings(project))
    if says_unset(mistakes):
        mistakes = without_names(mistakes, set_by_code(project.root, project.agents.values()))
    return (*mistakes, *plugin_mistakes(project, do_import))


def _script_mistakes(scripted: ScriptedConfig) -> tuple[Mistake, ...]:
    from pallas.scripted.script_file import load_script

    try:
        load_script(scripted.script)
    except ConfigError as error:
        return error.mistakes
    return ()


def _settings_mistakes(project: Project) -> tuple[Mistake, ...]:
    """Return what fast-agent refuses of its configuration. Imports it if an agent is one of its agents."""
    if all(agent.kind != "llm" for agent in project.agents.values()):
        return ()
    if project.config_file is None and not has_settings(environ_of(project.root)):
        return ()
    from pallas.executors.fastagent.settings_refusals import settings_mistakes

    return settings_mistakes(project.root, project.config_file)


def _code_mistakes(project: Project, do_import: bool) -> tuple[Mistake, ...]:
    """Return mistakes that parsing the code shows, and those that importing it shows, without duplicates."""
    from .code_check import read_code

    if not do_import:
        return read_code(project)
    from .import_check import probe

    tells = probe(project)
    reported_places = {mistake.where for mistake in tells}
    shows = read_code(project, {name for name in project.agents if _told(tells, name)})
    return (*tells, *(mistake for mistake in shows if mistake.where not in reported_places))


def _told(mistakes: Iterable[Mistake], agent: str) -> bool:
    return any(mistake.key.startswith(f"agents.{agent}.") for mistake in mistakes)


def _schema_warnings(project: Project) -> tuple[Mistake, ...]:
    """The schema that editors read, where another version of Pallas wrote it."""
    path = project.root / ".pallas" / "agents.schema.json"
    if not is_file(path):
        return ()
    from pallas.config.json_schema import SCHEMA_FILE, is_stale

    notes = Notes()
    text = read_text(path, SCHEMA_FILE, notes)
    if text is not None and is_stale(text):
        problem = "was written by another version of Pallas: editors may report correct keys as wrong"
        notes.warn(Where(SCHEMA_FILE), "", problem, f"run pallas schema > {SCHEMA_FILE}")
    return notes.sorted([])


def _line(mistake: Mistake) -> str:
    if mistake.level == "error":
        return str(mistake)
    return str(mistake).replace(f"{mistake.where}: ", f"{mistake.where}: warning: ", 1)


def _summary(project: Project, warnings: tuple[Mistake, ...]) -> str:
    agents = list(project.agents.values())
    ports = ", ".join(f"{agent.name} {agent.port}" for agent in agents if agent.port)
    own = f"ports {ports}" if ports else ""
    fleet = f"port {project.port} for everything" if project.port else f"registry {project.registry_port}"
    parts = [
        f"{len(agents)} agent{'s' * (len(agents) != 1)}",
        ", ".join(part for part in ((fleet, own) if project.port else (own, fleet)) if part),
    ]
    if serves := _serves(project):
        parts.append(", ".join(serves))
    if project.provider or project.model:
        parts.append("model " + ".".join(part for part in (project.provider, project.model) if part))
    if kinds := Counter(agent.kind for agent in agents if agent.kind != "llm"):
        parts.append(", ".join(f"{count} {kind}{'s' * (count != 1)}" for kind, count in kinds.items()))
    if found := [agent for agent in agents if _is_listener(agent, project)]:
        parts.append(f"{len(found)} of {shown(project.root, project.organism_file or project.agents_file)}")
    if warnings:
        parts.append(f"{len(warnings)} warning{'s' * (len(warnings) != 1)}")
    return f"ok: {'; '.join(parts)}"


def _serves(project: Project) -> list[str]:
    """What the entries serve that could serve several agents, or one of another name."""
    found = []
    for agent in project.agents.values():
        choice = choice_of(project.root, agent)
        if choice is None or not choice[0].name:
            continue
        several = sum(each.is_own and each.name is not None for each in read_agents(project.root, agent)) > 1
        if several or choice[0].name != agent.name:
            found.append(f"{agent.name} serves {one_line(choice[0].name)} ({choice[1]})")
    return found


def _is_listener(agent: AgentConfig, project: Project) -> bool:
    file = project.organism_file
    return file is not None and agent.where.file == shown(project.root, file)


def _mistake(mistake: Mistake) -> dict[str, Any]:
    return {
        "file": mistake.where.file,
        "line": mistake.where.line,
        "key": mistake.key,
        "problem": mistake.problem,
        "hint": mistake.hint,
        "level": mistake.level,
    }


def _model(agent: AgentConfig) -> dict[str, Any] | None:
    """Return what the agent's model can do; None for kinds without a model."""
    found = agent.model_capabilities if agent.kind == "llm" else None
    return asdict(found) if found is not None else None


def _agents(project: Project) -> list[dict[str, Any]]:
    return [
        {
            "name": agent.name,
            "kind": agent.kind,
            "port": agent.port or None,
            "title": agent.title,
            "description": agent.description,
            "module": agent.module,
            "card": str(agent.card) if agent.card else None,
            "serves": choice[0].name or None if (choice := choice_of(project.root, agent)) else None,
            "handler": agent.handler.path if agent.handler else None,
            "payload": agent.typed.payload if agent.typed else None,
            "peers": list(agent.peers),
            "declared": str(agent.where),
            "routes_to": list(agent.router.agents) if agent.router else None,
            "capabilities": list(agent.capabilities),
            "depends_on": list(agent.depends_on),
            "instance_scope": agent.instance_scope,
            "model_capabilities": _model(agent),
        }
        for agent in project.agents.values()
    ]
