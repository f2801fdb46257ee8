"""Which files a fleet uses, and for what: only a change of one of these is worth a look."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from pallas.config import AgentConfig, Project
from pallas.config.cards import read_cards
from pallas.config.code import module_of, payload_module
from pallas.config.envfile import ENV_FILE
from pallas.config.fastagent import CONFIG_NAMES, HOME, SECRETS_NAMES
from pallas.config.load import AGENTS_FILE
from pallas.config.organism import ORGANISM_FILE

from .affected_agents import AgentFacts
from .import_scan import command_files, module_paths, sources
from .named_folders import NamedFolder, folders_of_agent, watched
from .server_digest import server_files

# Files of which more than their name is looked at when a folder is a link.
_MAX_LINKS: Final = 1_000


@dataclass(frozen=True, slots=True)
class FileUsage:
    """``agents`` with all that concerns them, ``programs`` with the files they run, the project's ``config``.

    ``links`` are files of these that are reached through a link, by where they really are; ``folders`` where
    all of them lie, ``named`` those in which new ones may appear.
    """

    agents: tuple[AgentFacts, ...] = ()
    programs: Mapping[str, frozenset[Path]] = field(default_factory=dict)
    config: frozenset[Path] = frozenset()
    files: frozenset[Path] = frozenset()
    links: Mapping[Path, frozenset[Path]] = field(default_factory=dict)
    folders: frozenset[Path] = frozenset()
    above: frozenset[Path] = frozenset()
    named: frozenset[NamedFolder] = frozenset()

    def among(self, paths: Iterable[Path]) -> frozenset[Path]:
        """Those of the used files that ``paths`` are, lie above, or lead to. Blocks a little with links."""
        found: set[Path] = set()
        for path in paths:
            if path in self.files:
                found.add(path)
            elif path in self.above:
                found |= {each for each in self.files if each.is_relative_to(path)}
            for folder in self.named:
                found.update(folder.among(path))
            if self.links and (real := _real(path.parent) / path.name) in self.links:
                found |= self.links[real]
        return frozenset(found)


def usage_of(project: Project, agents: Sequence[AgentFacts], *, only: bool = False) -> FileUsage:
    """What a fleet of ``project`` with these agents uses. Blocks: files are read."""
    known = tuple(_complete(each) for each in agents)
    programs = (
        {}
        if only
        else {
            name: command_files(server.command, server.cwd, project.root)
            for name, server in project.servers.items()
        }
    )
    issuers = project.auth.issuers.values() if project.auth is not None else ()
    folders = {project.root, project.root / HOME}
    if project.config_file is not None:
        folders.add(project.config_file.parent)
    config = frozenset(
        {
            project.agents_file,
            # Either of them may appear, next to the other or instead of it.
            *(project.root / name for name in (AGENTS_FILE, ORGANISM_FILE)),
            project.root / ENV_FILE,
            *(folder / name for folder in folders for name in (*CONFIG_NAMES, *SECRETS_NAMES)),
            *((project.config_file,) if project.config_file is not None else ()),
            *(each.public_key for each in issuers if each.public_key is not None),
        }
    )
    files = set(config)
    if project.scripted is not None:
        files.add(project.scripted.script)
    for each in known:
        files |= each.files.union(*each.scripts.values())
    files = files.union(*programs.values())
    links = _links(files)
    named = frozenset(folder for each in known for folder in each.folders)
    return FileUsage(
        agents=known,
        programs=programs,
        config=config,
        files=frozenset(files),
        links=links,
        folders=frozenset(path.parent for path in (*files, *links)) | watched(named, project.root),
        above=frozenset(parent for path in files for parent in path.parents),
        named=named,
    )


def _complete(known: AgentFacts) -> AgentFacts:
    """The same with the files that it is made of, or would be."""
    root, config = known.project.root, known.config
    own = _own(root, config)
    folders = folders_of_agent(known.project, config)
    files = known.files.union(own, *(each.files() for each in folders))
    if (known.failed or known.owed) and own:  # the next version may use more than the one that answers
        files |= sources(own, [root])
    names = known.project.downstreams if known.servers is None else known.servers
    scripts = {name: server_files(known.project, name) for name in names}
    return replace(known, files=files, folders=folders, scripts=scripts)


def _own(root: Path, config: AgentConfig) -> frozenset[Path]:
    """The files that an agent is made of, or would be: some of these may not be there."""
    if config.worker is not None:
        return command_files(config.worker.command, config.worker.cwd, root)
    if module := module_of(config):
        named = (module, *([payload] if (payload := payload_module(config)) else []))
        return frozenset(path for each in named for path in module_paths(root, each))
    return frozenset(read_cards(root, config.card).files if config.card is not None else ())


def _links(files: Iterable[Path]) -> dict[Path, frozenset[Path]]:
    found: dict[Path, frozenset[Path]] = {}
    for path in files:
        if len(found) < _MAX_LINKS and (real := _real(path)) != path:
            found[real] = found.get(real, frozenset()) | {path}
    return found


def _real(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path
