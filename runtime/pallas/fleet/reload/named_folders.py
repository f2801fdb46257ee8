"""Folders of cards and of skills that an agent names: a file that appears in one is a part of the agent."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pallas.config import AgentConfig, Project
from pallas.config.agent_code import read_agents
from pallas.config.cards import SUFFIXES, card_files
from pallas.config.files import is_folder
from pallas.config.skill_folders import OPTIONAL, SKILL, skill_files


@dataclass(frozen=True, slots=True)
class NamedFolder:
    """A folder, which may not be there yet, and what is in it."""

    path: Path
    contents: Literal["cards", "skills"]

    def holds(self, path: Path) -> bool:
        """Whether a file of that name is a part of the agent."""
        if self.contents == "cards":
            return path.parent == self.path and path.suffix.casefold() in SUFFIXES
        return path.name == SKILL and path.parent.parent == self.path

    def files(self) -> tuple[Path, ...]:
        """The files that are there. Blocks."""
        return card_files(self.path) if self.contents == "cards" else skill_files(self.path)

    def among(self, path: Path) -> Iterator[Path]:
        """Yield the files that a change of ``path``, a file or a new folder, may concern. Blocks."""
        if self.holds(path):
            yield path
        elif self.path.is_relative_to(path) or path.parent == self.path:
            yield from (each for each in self.files() if each.is_relative_to(path))


def folders_of_agent(project: Project, config: AgentConfig) -> frozenset[NamedFolder]:
    """The folders that an agent names, or that fast-agent looks into by itself. Blocks: files are read."""
    if config.kind != "llm" or config.definition is not None:
        return frozenset()
    found = {NamedFolder(project.root / name, "skills") for name in _skills(project, config)}
    if config.card is not None and (is_folder(config.card) or config.card.suffix.casefold() not in SUFFIXES):
        found.add(NamedFolder(config.card, "cards"))
    return frozenset(found)


def watched(folders: Iterable[NamedFolder], root: Path) -> frozenset[Path]:
    """The folders, and those above them in the project, where they may appear."""
    return frozenset(
        each
        for folder in folders
        for each in (folder.path, *folder.path.parents)
        if each == folder.path or each.is_relative_to(root)
    )


_NONE: Final[Mapping[str, object]] = {}


def _skills(project: Project, config: AgentConfig) -> Iterator[str]:
    skills = project.settings.get("skills")
    given = (skills if isinstance(skills, Mapping) else _NONE).get("directories")
    listed = [each for each in given if isinstance(each, str)] if isinstance(given, list | tuple) else []
    yield from listed or OPTIONAL
    for agent in read_agents(project.root, config):
        yield from (name.text for name in agent.skills)
