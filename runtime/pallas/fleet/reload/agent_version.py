"""One version of an agent."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

from pallas.config import AgentConfig, Project
from pallas.config.files import shown
from pallas.executors import Executor
from pallas.model import Change, RunVersion

from .agent_digest import AgentDigest, digest_of, instruction_digest, tools_digest
from .behaviour_digest import code_digest, settings_digest
from .server_digest import server_digest
from .source_files import SourceFiles
from .version_diff import bounded, changes, file_changes


@dataclass(eq=False, slots=True)
class AgentVersion:
    """What answers, or did, and what it was made of. ``number`` is 0 until it is live."""

    project: Project
    config: AgentConfig
    executor: Executor
    sources: SourceFiles = field(default_factory=SourceFiles)
    face: AgentDigest = field(default_factory=AgentDigest)
    number: int = 0
    _made_of: RunVersion = field(default_factory=lambda: RunVersion(0))
    _adopted: tuple[Project, AgentConfig] | None = None

    @property
    def of_run(self) -> RunVersion:
        """What a run that it answers keeps of it."""
        return replace(self._made_of, number=self.number)

    @property
    def files(self) -> frozenset[Path]:
        """The project's files it was made of, absolute, as far as they are known."""
        return frozenset(self.project.root / name for name in self.executor.info.files)

    def look(self, since: float, also: Collection[Path] = ()) -> None:
        """Note its digest and the texts of its files; texts written after ``since`` are not certain.

        Blocks; may be called again when more is known.
        """
        self.sources = self.sources.with_more({*self.files, *also}, since)
        face = self.face = digest_of(self.executor.info, self.project, self.config)
        self._made_of = replace(
            self._behaviour(self.sources, self.project, self.config),
            files=self.sources.digest_of(self.files, self.project.root),
            instruction=instruction_digest(face),
            tools=tools_digest(face),
        )

    async def adopt(self, project: Project, config: AgentConfig) -> None:
        """Answer with this configuration; runs that begin before this returns keep no digest of it."""
        adopted = self._adopted = project, config
        self._made_of = replace(self._made_of, settings="")
        settings = await asyncio.to_thread(settings_digest, project, config, self.executor.info.servers)
        if self._adopted is adopted:
            self._made_of = replace(self._made_of, settings=settings)

    def behaviour_now(
        self, project: Project, config: AgentConfig, because: Collection[str]
    ) -> RunVersion | None:
        """What a version of the same files, as they are now, and this configuration would do.

        None if ``because``, the files that changed, has others, too. Blocks.
        """
        if not {shown(project.root, path) for path in self.files}.issuperset(because):
            return None
        sources = SourceFiles().with_more(self.files, since=float("inf"))
        return self._behaviour(sources, project, config)

    def _behaviour(self, sources: SourceFiles, project: Project, config: AgentConfig) -> RunVersion:
        servers = {name: server_digest(project, name) for name in self.executor.info.servers}
        return RunVersion(
            0,
            servers={name: digest for name, digest in servers.items() if digest},
            code=code_digest(sources, self.files, project.root),
            settings=settings_digest(project, config, self.executor.info.servers),
        )

    def is_as_before(self, other: "AgentVersion") -> bool:
        """Whether both are known to be made of the same, byte for byte."""
        return (
            same_settings(self.project, self.config, other.project, other.config)
            and other.sources.certain
            and self.sources.digests == other.sources.digests
        )


def same_settings(project: Project, config: AgentConfig, other: Project, its: AgentConfig) -> bool:
    """Whether an agent is made of the same configuration; where in a file that stands makes no difference."""
    return (
        replace(config, where=its.where) == its
        and project.settings == other.settings
        and project.capabilities == other.capabilities
        and project.model == other.model
    )


def differences(before: AgentVersion, after: AgentVersion, files: tuple[Path, ...]) -> tuple[Change, ...]:
    """List what differs outside; also the files, if that is nothing or more than one file changed.

    Blocks.
    """
    outside = changes(before.face, after.face)
    if outside and len(files) < 2:
        return outside
    inside = file_changes(before.project.root, files, before.sources, after.sources)
    return bounded((*outside, *inside))
