"""What a change concerns: exactly which agents and programs, and in which order. Nothing is read here."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from pallas.config import AgentConfig, Project
from pallas.config.change_effects import changed_fields, effects_of, needs_new_version
from pallas.config.files import shown
from pallas.config.upstream import PROVIDERS

from .named_folders import NamedFolder

# Parts of the fast-agent configuration that say nothing about how an agent answers.
_NOT_USED: Final = frozenset({"logger", "mcp", "default_model", "model_capabilities"})
# Providers that look into the blocks of others as well.
_FALLS_BACK: Final[Mapping[str, tuple[str, ...]]] = {
    "responses": ("openai",),
    "googleoai": ("google",),
    "anthropic-vertex": ("anthropic",),
}
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """One agent as it is: what it was made of, and what it uses.

    ``files`` are those of the version that answers and of the last attempt at another; ``folders`` those
    whose new files belong to it, too; ``scripts`` are what its stdio servers run, by server. ``servers`` are
    the downstreams it declares and ``providers`` those that it asks, None if that is not known;
    ``names_models``: it never asks the project's ``default_model``.
    ``failed``: it does not answer, or its last version could not be made. ``idle``: it is stopped, and reads
    everything when it is started. ``owed``: an earlier change affected it and it was not reloaded.
    """

    name: str
    project: Project
    config: AgentConfig
    url: str = ""
    files: frozenset[Path] = frozenset()
    folders: frozenset[NamedFolder] = frozenset()
    scripts: Mapping[str, frozenset[Path]] = field(default_factory=dict)
    servers: tuple[str, ...] | None = None
    providers: tuple[str, ...] | None = None
    names_models: bool = False
    failed: bool = False
    idle: bool = False
    owed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """Changed ``files`` (absolute) and ``variables`` of ``.env``; ``reread`` if the project was read again.

    ``mentions`` tells whether a file contains a word; it is asked about variables alone.
    """

    files: frozenset[Path] = frozenset()
    variables: frozenset[str] = frozenset()
    reread: bool = False
    mentions: Callable[[Path, str], bool] = lambda _, __: False


@dataclass(frozen=True, slots=True)
class ReloadPlan:
    """What a reload does. Names are of agents or programs; ``reload`` and ``restart`` give the reasons.

    ``layers`` are the agents to reload and to add: each layer after those before it. ``needs`` are, for each
    agent, those it calls or waits for. ``at_start`` are keys that only another start takes over.
    """

    remove: tuple[str, ...] = ()
    add: tuple[str, ...] = ()
    move: tuple[str, ...] = ()
    reload: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    layers: tuple[tuple[str, ...], ...] = ()
    needs: Mapping[str, frozenset[str]] = field(default_factory=dict)
    stop: tuple[str, ...] = ()
    restart: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    script: bool = False
    providers: bool = False
    at_start: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    reread: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do beyond taking over what the project says."""
        return not (
            self.remove or self.add or self.move or self.reload or self.stop or self.restart or self.script
        )


def plan_reload(
    changed: ChangeSet,
    old: Project,
    new: Project,
    agents: Sequence[AgentFacts],
    programs: Mapping[str, frozenset[Path]],
    *,
    down: Collection[str] = (),
    only: str | None = None,
) -> ReloadPlan:
    """What ``changed`` concerns. ``old`` is what the fleet goes by, ``new`` what its files say now.

    ``programs`` are the files that each program under ``servers:`` runs; ``down`` are those that do not run
    and are not started again by themselves. With ``only`` one agent is served, and nothing else.
    """
    alive = {each.name: each for each in agents}
    wanted = {name: config for name, config in new.agents.items() if only in (None, name)}
    stop, restart = ({}, {}) if only else _programs(changed, old, new, programs, down)
    reload = {
        name: why
        for name, known in alive.items()
        if name in wanted and not known.idle and (why := _reasons(changed, known, wanted[name], new, agents))
    }
    for name, program in old.servers.items():
        if name in restart or name in stop:
            for user in _users(program.url, alive.values()):
                if user in wanted and not alive[user].idle:
                    because = restart.get(name) or (shown(new.root, new.agents_file),)
                    reload[user] = (*reload.get(user, ()), *because)
    for name in wanted.keys() & alive.keys():
        if alive[name].config.description != wanted[name].description:
            for user in _users(alive[name].url, alive.values()) - {name}:
                if user in wanted and not alive[user].idle:
                    reload[user] = (*reload.get(user, ()), shown(new.root, new.agents_file))
    needs = {name: _needs(config, alive.get(name), alive) & wanted.keys() for name, config in wanted.items()}
    add = tuple(name for name in wanted if name not in alive and changed.reread)
    return ReloadPlan(
        remove=tuple(name for name in alive if name not in wanted and changed.reread),
        add=add,
        move=tuple(
            name
            for name, config in wanted.items()
            if name in alive and alive[name].config.port != config.port
        ),
        reload={name: tuple(dict.fromkeys(why)) for name, why in reload.items()},
        layers=_layers(needs, {*reload, *add}),
        needs=needs,
        stop=tuple(stop),
        restart=restart,
        script=not only_scripted_moved(old, new) and new.scripted is not None and _script(changed, old, new),
        providers=changed.reread and (bool(changed.variables) or _providers(old) != _providers(new)),
        at_start=_at_start(old, new) if changed.reread else (),
        keys=changed_fields(old, new, "at once") if changed.reread else (),
        reread=changed.reread,
    )


def with_settings(plan: ReloadPlan, agents: Collection[str], new: Project) -> ReloadPlan:
    """The plan with another version of each of ``agents`` too, for the sake of its entry in agents.yaml."""
    more = {name: (file_of(new.agents[name], new),) for name in agents if name in plan.needs}
    reload = {**more, **plan.reload}
    return replace(plan, reload=reload, layers=_layers(plan.needs, {*reload, *plan.add}))


def only_scripted_moved(old: Project, new: Project) -> bool:
    """Whether the offline model came, went or moved: that needs another start."""
    return (old.scripted.port if old.scripted else None) != (new.scripted.port if new.scripted else None)


def used_by(url: str, others: Iterable[AgentFacts]) -> frozenset[str]:
    """The agents that declare a downstream at ``url``."""
    return frozenset(_users(url, others))


def _reasons(
    changed: ChangeSet, known: AgentFacts, config: AgentConfig, new: Project, agents: Sequence[AgentFacts]
) -> tuple[str, ...]:
    """Because of what an agent needs another version; empty when it does not."""
    scripts = frozenset[Path]().union(*known.scripts.values())
    own = changed.files & (known.files | scripts)
    own |= {path for path in changed.files for folder in known.folders if folder.holds(path)}
    why = [shown(new.root, path) for path in sorted(own)]
    why += sorted(known.owed)
    if changed.reread:
        if needs_new_version(config, known.config, config):
            why.append(file_of(config, new))
        elif config.kind == "llm" and config.peers and not known.config.peers:
            why.append(file_of(config, new))  # a model without peers was made with no place for their tools
        if needs_new_version(config, known.project, new):
            file = new.config_file if known.project.log_level != new.log_level else None
            why.append(shown(new.root, file or new.agents_file))
        why += _settings(known, new)
        if known.failed and not why and changed.files & _config_files(new):
            why += sorted(shown(new.root, path) for path in changed.files & _config_files(new))
    files = known.files | scripts
    named = {name for name in changed.variables if any(changed.mentions(path, name) for path in files)}
    if named or any(_is_anybodys(changed, name, agents, new) for name in changed.variables):
        why.append(".env")
    return tuple(dict.fromkeys(why))


def file_of(config: AgentConfig, project: Project) -> str:
    """The file that declares an agent, as it is shown: ``agents.yaml``, or an ``organism.yaml``."""
    return config.where.file if config.where.line else shown(project.root, project.agents_file)


def _config_files(project: Project) -> frozenset[Path]:
    files = (project.agents_file, project.organism_file, project.config_file)
    return frozenset(path for path in files if path is not None)


def _settings(known: AgentFacts, new: Project) -> list[str]:
    """The fast-agent configuration, where something in it that an agent uses is different now."""
    before, after = known.project.settings, new.settings
    mcp = _table(before, "mcp"), _table(after, "mcp")
    servers = _table(mcp[0], "servers"), _table(mcp[1], "servers")
    declared = servers[0].keys() | servers[1].keys() if known.servers is None else known.servers
    found = [
        *(key for key in ("default_model",) if not known.names_models and before.get(key) != after.get(key)),
        *(key for key in _differing(before, after, _NOT_USED) if _concerns(known, key)),
        *(f"mcp.{key}" for key in _differing(*mcp, frozenset({"servers"}))),
        *(
            f"mcp.servers.{name}"
            for name in declared
            if servers[0].get(name) != servers[1].get(name)
            or _forwards(known.project, name) != _forwards(new, name)
        ),
    ]
    return [shown(new.root, new.config_file or new.agents_file)] if found else []


def _concerns(known: AgentFacts, key: str) -> bool:
    """Whether a key at the top of the configuration concerns an agent: a provider's only who uses that."""
    if key not in PROVIDERS or known.providers is None:
        return True
    return any(key in (provider, *_FALLS_BACK.get(provider, ())) for provider in known.providers)


def _differing(before: Mapping[str, Any], after: Mapping[str, Any], but: frozenset[str]) -> list[str]:
    keys = (before.keys() | after.keys()) - but
    return sorted(key for key in keys if before.get(key) != after.get(key))


def _forwards(project: Project, server: str) -> bool:
    found = project.downstreams.get(server)
    return found is not None and found.forward_inbound_auth


def _is_anybodys(changed: ChangeSet, name: str, agents: Sequence[AgentFacts], new: Project) -> bool:
    """Whether a variable is one that nothing of the project names: then a library may read it anywhere."""
    files = set(_config_files(new))
    for each in agents:
        files |= each.files.union(*each.scripts.values())
    return not any(changed.mentions(path, name) for path in files)


def _programs(
    changed: ChangeSet,
    old: Project,
    new: Project,
    programs: Mapping[str, frozenset[Path]],
    down: Collection[str],
) -> tuple[dict[str, None], dict[str, tuple[str, ...]]]:
    """Programs to stop, and those to start: new, other ones under the same name, and the same once more."""
    stop = {name: None for name in old.servers if name not in new.servers}
    restart: dict[str, tuple[str, ...]] = {}
    for name, server in new.servers.items():
        before = old.servers.get(name)
        files = programs.get(name, frozenset())
        why = [shown(new.root, path) for path in sorted(changed.files & files)]
        other = before is None or changed_fields(before, server, "new version")
        if other or (name in down and changed.reread):
            why.append(shown(new.root, new.agents_file))
        if any(changed.mentions(path, variable) for variable in changed.variables for path in files):
            why.append(".env")
        if why:
            restart[name] = tuple(why)
    return stop, restart


def _needs(config: AgentConfig, known: AgentFacts | None, alive: Mapping[str, AgentFacts]) -> frozenset[str]:
    """The agents that one waits for or calls."""
    called = {
        other.name
        for other in alive.values()
        if known is not None and known.name in _users(other.url, [known])
    }
    return frozenset({*config.depends_on, *called}) - {config.name}


def _users(url: str, others: Iterable[AgentFacts]) -> set[str]:
    return {
        each.name
        for each in others
        for name in each.servers or ()
        if (downstream := each.project.downstreams.get(name)) is not None
        and downstream.url
        and same_place(downstream.url, url)
    }


def same_place(one: str, other: str) -> bool:
    """Whether two URLs lead to the same path of the same port."""
    first, second = urlsplit(one), urlsplit(other)
    if first.port is None or first.port != second.port or not url_is_local(one) or not url_is_local(other):
        return one == other
    return first.path.rstrip("/") == second.path.rstrip("/")


def url_is_local(url: str) -> bool:
    """Whether a URL names this machine by one of its local names."""
    return (urlsplit(url).hostname or "") in _LOCAL


def _layers(needs: Mapping[str, frozenset[str]], chosen: set[str]) -> tuple[tuple[str, ...], ...]:
    sorter = TopologicalSorter(needs)
    try:
        sorter.prepare()
    except CycleError:  # agents that call one another may do so; they only may not wait for one another
        return (tuple(name for name in needs if name in chosen),) if chosen else ()
    layers = []
    while sorter.is_active():
        ready = sorter.get_ready()
        sorter.done(*ready)
        if layer := tuple(name for name in needs if name in ready and name in chosen):
            layers.append(layer)
    return tuple(layers)


def _script(changed: ChangeSet, old: Project, new: Project) -> bool:
    if old.scripted is None or new.scripted is None:
        return False
    return old.scripted.script != new.scripted.script or new.scripted.script in changed.files


def _providers(project: Project) -> tuple[Any, ...]:
    blocks = {key: project.settings.get(key) for key in PROVIDERS if key in project.settings}
    asked = {spec for agent in project.agents.values() for each in agent.providers for spec in each.models}
    return project.provider, project.model, blocks, asked, project.llm.backends


def _at_start(old: Project, new: Project) -> tuple[str, ...]:
    """Keys that changed and are read only when a fleet starts."""

    def value(project: Project, key: str) -> Any:
        if key == "scripted":
            return project.scripted.port if project.scripted else None
        if key == "registry_port" and project.port is not None:
            return None
        return getattr(project, key)

    found = (key for key, effect in effects_of(Project).items() if effect.word == "at start")
    return tuple(key for key in found if value(old, key) != value(new, key))


def _table(settings: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = settings.get(key)
    return found if isinstance(found, Mapping) else {}
