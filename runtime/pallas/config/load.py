"""A project's files, read, checked and put together."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from .agent_code import uses_default_model
from .agents import Draft, capabilities_of
from .auth_section import auth_of
from .code_environment import set_by_code, without_names
from .delegation import warn_of_delegation
from .downstreams import endpoint
from .envfile import ENV_FILE, read_env, real_environ
from .fastagent import (
    CONFIG_NAMES,
    SECRETS_NAMES,
    ConfigurationSources,
    FastAgentFiles,
    read_fast_agent,
    sources_beside,
    usual_sources,
)
from .files import absolute, is_folder, is_there, lost_link, shown
from .models import ConfigError, DownstreamConfig, Mistake, Project, ServerConfig, TlsConfig, Where
from .named_configuration import named_configuration
from .notes import Notes, allowed, did_you_mean
from .organism import ORGANISM_FILE, Organism, is_organism, read_organism
from .permissions import warn_if_shared, warn_of_code
from .topology import Topology, read_topology
from .tree import Table, handed_over
from .yamlfile import read_table

AGENTS_FILE: Final = "agents.yaml"
_NEW_PROJECT: Final = "run `pallas init DIR` for a new project, or pass --project DIR"
AGENTS_VARIABLE: Final = "PALLAS_AGENTS_CONFIG"
CERTFILE_VARIABLE: Final = "PALLAS_SSL_CERTFILE"
KEYFILE_VARIABLE: Final = "PALLAS_SSL_KEYFILE"


def check_required(agents: Mapping[str, Draft], files: FastAgentFiles, notes: Notes) -> None:
    """Every server that an agent requires is one of ``mcp.servers``, and one that can be used."""
    known = tuple(files.downstreams)
    for agent in agents.values():
        for name, where in agent.required:
            key = f"{agent.path}.servers.{name}"
            if reason := files.unusable_servers.get(name):
                notes.error(where, key, f"this server {reason}", "correct its entry, or leave it out here")
            elif name not in known:
                notes.error(
                    where,
                    key,
                    f"there is no server {name} under mcp.servers",
                    allowed(known) if known else "add it to the fast-agent configuration",
                    did_you_mean(name, known),
                )


def required_of(
    agent: Draft, programs: Mapping[str, ServerConfig], downstreams: Mapping[str, DownstreamConfig]
) -> tuple[str, ...]:
    """The servers that the agent requires, by their names under ``mcp.servers``, each once.

    A program that is required is one for every agent that calls it, by its name or at its URL.
    """
    needed = [program for program in programs.values() if program.required]
    urls = {endpoint(program.url) for program in needed}
    names = {program.name for program in needed}
    found = [name for name, _ in agent.required]
    found += [each.name for each in downstreams.values() if each.name in names or each.url in urls]
    return tuple(dict.fromkeys(found))


def load_project(root: Path, environ: Mapping[str, str] | None = None) -> Project:
    """The project in ``root``, complete and checked (PR-1 to PR-3, PR-10 to PR-14).

    ``environ`` (when None the process's own, without what ``export_env`` put there) is laid over ``.env`` for
    ``${VAR}``; neither is changed.
    Raises ConfigError with every mistake, in the order of files and lines.
    """
    project, found = read_project(root, environ)
    if project is None:
        raise ConfigError(tuple(mistake for mistake in found if mistake.level == "error"))
    return project


def read_project(
    root: Path, environ: Mapping[str, str] | None = None
) -> tuple[Project | None, tuple[Mistake, ...]]:
    """The project, None when it has mistakes, and all mistakes and warnings in order."""
    notes = Notes()
    root = absolute(root)
    if not is_folder(root):
        problem = "is not a folder" if is_there(root) else "there is no such folder"
        notes.error(
            Where(str(root)), "", problem, "pass --project DIR, or run `pallas init DIR` for a new one"
        )
        return None, notes.sorted([])
    own = real_environ(root) if environ is None else environ
    variables = {**read_env(root, own, notes), **own}
    agents_path = root / (variables.get(AGENTS_VARIABLE) or AGENTS_FILE)
    agents_path, organism_path = _files(root, agents_path, variables)
    agents_file = shown(root, agents_path)
    topology, organism = _topology(root, agents_path, organism_path, variables, notes)
    files = read_fast_agent(root, variables, notes, _sources(root, topology, variables, notes))
    warn_of_code(root, topology.agents if topology else {}, notes)
    if topology is not None:
        warn_of_delegation(topology, files.downstreams, notes)
        check_required(topology.agents, files, notes)
    order = [agents_file, ORGANISM_FILE, *CONFIG_NAMES, *SECRETS_NAMES, ENV_FILE]
    found = notes.sorted(order)
    if topology is None or any(mistake.level == "error" for mistake in found):
        return None, found
    project = _project(topology, files)
    _warn_of_missing_key(project, notes)
    found = notes.sorted(order)
    if project.unset:
        names = set_by_code(root, project.agents.values())
        project, found = _without_unset(project, names), without_names(found, names)
    project = replace(
        project,
        organism_file=root / organism.file if organism else None,
        tls=_tls(root, variables) or (organism.tls if organism else None),
        warnings=found,
    )
    return project, found


def _sources(
    root: Path, topology: Topology | None, variables: Mapping[str, str], notes: Notes
) -> ConfigurationSources:
    """The files of fast-agent's configuration: those that the agents' code names, else the usual ones."""
    apart = Notes()
    usual = usual_sources(root, variables, apart)
    agents = topology.agents.values() if topology is not None else ()
    named = named_configuration(root, usual.config, (each.config for each in agents), notes)
    if named.missing:
        return ConfigurationSources()
    if named.file is None or named.file == usual.config:
        usual = usual_sources(root, variables, notes)
        return sources_beside(root, usual.config, notes, named.others) if usual.config else usual
    return sources_beside(root, named.file, notes, named.others)


def _without_unset(project: Project, names: Collection[str]) -> Project:
    """The project without the variables that its code sets among those that are not set."""

    def left(unset: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(each for each in unset if each not in names)

    downstreams = {name: replace(each, unset=left(each.unset)) for name, each in project.downstreams.items()}
    return replace(project, unset=left(project.unset), downstreams=downstreams)


def _warn_of_missing_key(project: Project, notes: Notes) -> None:
    """The key of the provider that answers refers to nothing: better reported before the first call."""
    key = project.keys.get(project.provider)
    if key is None or key.is_set:
        return
    if any(uses_default_model(project, agent) for agent in project.agents.values()):
        notes.warn(
            key.where,
            f"{project.provider}.api_key",
            f"{key.variable} is not set, and default_model uses {project.provider}",
            f"set {key.variable} in the environment or in .env",
        )


def _files(root: Path, agents: Path, variables: Mapping[str, str]) -> tuple[Path, Path | None]:
    """The file that the project is read from, and the ``organism.yaml`` next to it if there is one."""
    organism = root / ORGANISM_FILE
    if agents == organism or not is_there(organism):
        return agents, None
    if not variables.get(AGENTS_VARIABLE) and not is_there(agents):
        return organism, None
    return agents, organism


def _tls(root: Path, variables: Mapping[str, str]) -> TlsConfig | None:
    """The certificate that the environment names; whether it is any good is seen when it is loaded."""
    certfile, keyfile = variables.get(CERTFILE_VARIABLE, ""), variables.get(KEYFILE_VARIABLE, "")
    if not certfile and not keyfile:
        return None
    return TlsConfig(root / (certfile or keyfile), root / (keyfile or certfile))


def _topology(
    root: Path, path: Path, agents_file: Path | None, variables: Mapping[str, str], notes: Notes
) -> tuple[Topology | None, Organism | None]:
    """What the project's file says, with the organism ``agents_file``; it may be an organism itself."""
    file = shown(root, path)
    if words := lost_link(path):
        notes.error(Where(file), "", words, "put the file there, or correct the link")
        return None, None
    if not is_there(path):
        near = next((each.name for each in (path.with_suffix(".yml"),) if is_there(each)), "")
        hint = f"rename {near} to {path.name}" if near else _NEW_PROJECT
        if variables.get(AGENTS_VARIABLE):
            hint = f"{AGENTS_VARIABLE} names it; paths start at the project's folder"
        notes.error(Where(file), "", "there is no such file", hint)
        return None, None
    table = _table(path, file, variables, notes)
    organism = None
    handed = [] if table is None else [*handed_over(table, variables)]
    if table is not None and is_organism(table):
        if agents_file is not None:
            notes.error(
                Where(shown(root, agents_file)),
                "",
                f"is an organism, and {file} is one too",
                "keep one of them",
            )
        organism = read_organism(table, file, root, notes, variables)
        table = organism.table
    elif agents_file is not None:
        found = _table(agents_file, shown(root, agents_file), variables, notes)
        if found is None:
            return None, None
        handed += handed_over(found, variables)
        organism = read_organism(found, shown(root, agents_file), root, notes, variables)
    if table is None:
        return None, organism
    topology = read_topology(table, path, root, notes, variables, organism)
    project = replace(topology.project, handed_over=tuple(handed))
    return replace(topology, project=project), organism


def _table(path: Path, file: str, variables: Mapping[str, str], notes: Notes) -> Table | None:
    warn_if_shared(path, file, notes)
    return read_table(path, file, notes, variables)


def _project(topology: Topology, files: FastAgentFiles) -> Project:
    """The project with its agents, and with what the files of fast-agent say."""
    project = topology.project
    return replace(
        project,
        agents={
            name: replace(
                draft.config,
                model_capabilities=capabilities_of(files.capabilities, draft.own),
                auth=auth_of(project.auth, draft.auth),
                required=required_of(draft, project.servers, files.downstreams),
            )
            for name, draft in topology.agents.items()
        },
        config_file=files.config_file,
        provider=files.provider,
        model=files.model,
        capabilities=capabilities_of(files.capabilities),
        downstreams=files.downstreams,
        unusable_servers=files.unusable_servers,
        log_level=files.log_level,
        settings=files.settings,
        handed_over=(*project.handed_over, *files.handed_over),
        unset=files.unset,
        keys=files.keys,
        model_where=files.model_where,
    )
