"""Swaps the version of one agent for a new one, and back."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Final, Protocol

from pallas.config import AgentConfig, Project
from pallas.config.files import shown
from pallas.executors import Executor
from pallas.model import Change, ContextChange, Fault, FaultType, Reloaded, ReloadOutcome, ServerConnection
from pallas.safe_text import one_line
from pallas.telemetry.event_hub import EventHub

from .agent_context import AgentContext
from .reload.agent_digest import digest_of
from .reload.agent_version import AgentVersion, differences, same_settings
from .reload.failure_report import FailureReport, report_failure
from .reload.server_digest import check_server_scripts, server_files
from .reload.version_diff import changes, file_changes
from .versions import MAX_PREDECESSORS, AgentVersions

log = logging.getLogger(__name__)

# Names of files that one event tells.
_MAX_FILES: Final = 100
# Seconds that a server which is slow to start gets at most, and those of a look at the one that works.
_SLOW_START: Final = 45.0
_LOOK: Final = 5.0


class SwapHost(Protocol):
    """The agent whose versions these are."""

    @property
    def name(self) -> str:
        """The agent's name."""
        ...

    @property
    def project(self) -> Project:
        """The project as the agent knows it."""
        ...

    @property
    def context(self) -> AgentContext:
        """What its versions take of their model's window."""
        ...

    async def take_version(self, version: AgentVersion, detail: str) -> None:
        """``version`` answers from now on."""
        ...


class VersionSwap:
    """Puts new versions of an agent in the place of old ones. The caller holds the agent: one at a time.

    ``seconds`` are those that runs in flight have when another version takes over.
    """

    def __init__(
        self, host: SwapHost, versions: AgentVersions, hub: EventHub, seconds: Callable[[], float]
    ) -> None:
        self._host = host
        self._versions = versions
        self._hub = hub
        self._seconds = seconds

    @property
    def number(self) -> int:
        """The version that answers, or that did last; 0 before there was one."""
        version = self._versions.version or self._versions.rested
        return version.number if version is not None else 0

    @property
    def previous(self) -> int:
        """The version that a rollback goes to, 0 where there is none."""
        before = self._versions.before
        return before.number if before is not None else 0

    @property
    def files(self) -> frozenset[Path]:
        """What the version that answers was made of, and what an attempt that failed since has read."""
        version, attempted = self._versions.version or self._versions.rested, self._versions.attempted
        found = version.files if version is not None else frozenset()
        if attempted is None:
            return found
        return found | {self._host.project.root / name for name in attempted.files}

    async def swap(
        self, project: Project, config: AgentConfig, files: tuple[str, ...], began: float, *, force: bool
    ) -> Reloaded:
        """As ``FleetAgent.swap``."""
        before = self._versions.version
        changed: tuple[Path, ...] = ()
        known = [project.root / name for name in files]
        if before is not None:
            changed = await asyncio.to_thread(before.sources.changed, known)
            same = not changed and same_settings(before.project, before.config, project, config)
            if same and not force:
                self._versions.forget_attempt()
                return self._tell("unchanged", began, files=files, version=before.number)
        if self._versions.predecessors >= MAX_PREDECESSORS:
            error: Exception = Fault(
                FaultType.CONFIG, f"{MAX_PREDECESSORS} earlier versions still answer runs; wait for those"
            )
            return await self._failed(error, began, files, changed, project, config)
        try:
            async with asyncio.timeout(config.start_timeout) as limit:
                await asyncio.to_thread(check_server_scripts, project, known)
                # The caller knows of files that the agent does not read: a server's code.
                version = await self._versions.make(project, config, fresh=True, also=known)
                if before is not None:
                    until = limit.when() or 0.0
                    await self._keep_servers(before, version, known, until)
        except Exception as failed:
            error = failed
            if isinstance(failed, TimeoutError) and limit.expired():
                place = report_failure(failed).place
                error = Fault(
                    FaultType.TIMEOUT,
                    f"it was not ready within {config.start_timeout:g} s"
                    + (f" (it was at {place})" if place else "")
                    + f"; see what it waits for, or raise start_timeout at {config.where}",
                    data={"place": place},
                )
            return await self._failed(error, began, files, changed, project, config)
        self._versions.switch_to(version, self._seconds())
        took = monotonic() - began
        await self._host.take_version(version, f"version {version.number} answers after {took:.1f} s")
        found: tuple[Change, ...] = ()
        if before is not None:
            found = await asyncio.to_thread(differences, before, version, changed)
        return self._tell(
            "live",
            began,
            files=files or _names(project, changed),
            version=version.number,
            changes=found,
            context=self._context(before, version),
            seconds=took,
        )

    def _context(self, before: AgentVersion | None, after: AgentVersion) -> tuple[ContextChange, ...]:
        return self._host.context.changes(before, after) if before is not None else ()

    async def _keep_servers(
        self, before: AgentVersion, version: AgentVersion, saved: list[Path], until: float
    ) -> None:
        """End ``version`` and raise Fault (CONFIG) if it lacks a server that works for the one before it.

        A server that is down for both is no reason to keep the old version. ``saved`` are the files because
        of which there is a new one; ``until``, in the loop's time, is when it has to be ready.
        """
        try:
            lost = await _lost_server(before.executor, version.executor, until)
        except BaseException:
            await self._versions.give_up(version)
            raise
        if lost is None:
            return
        await self._versions.give_up(version)
        project, name = version.project, lost.server
        scripts = sorted(await asyncio.to_thread(server_files, project, name) & {*saved})
        downstream = project.downstreams.get(name)
        place = shown(project.root, scripts[0]) if scripts else str(downstream.where) if downstream else ""
        fix = f"fix {place} and save it" if place else "fix it and save it"
        text = f"server {name} worked and no longer starts: {lost.error}"
        text = f"{place}: {text}" if place else text
        hint = f"{fix}; restart {self._host.name} to continue without that server"
        raise Fault(FaultType.CONFIG, one_line(f"{text}; {hint}", 600), data={"place": place})

    async def unapplied(self) -> tuple[Change, ...]:
        """As ``FleetAgent.unapplied``."""
        before = self._versions.version
        if before is None:
            return ()
        root = self._host.project.root
        changed = await asyncio.to_thread(before.sources.changed)
        return await asyncio.to_thread(file_changes, root, changed, before.sources, None)

    async def rollback(self, began: float) -> Reloaded:
        """As ``FleetAgent.rollback``."""
        before = self._versions.version
        try:
            version = await self._versions.returning()
        except Exception as error:
            failure = report_failure(error)
            self._log(failure.error, error)
            return self._tell("failed", began, rolled_back=True, failure=failure)
        self._versions.switch_to(version, self._seconds())
        took = monotonic() - began
        await self._host.take_version(version, f"version {version.number} answers again after {took:.1f} s")
        found, files = await asyncio.to_thread(_between, before, version)
        return self._tell(
            "live",
            began,
            files=_names(version.project, files),
            version=version.number,
            changes=found,
            context=self._context(before, version),
            rolled_back=True,
            seconds=took,
        )

    async def _failed(
        self,
        error: Exception,
        began: float,
        files: tuple[str, ...],
        changed: tuple[Path, ...],
        project: Project,
        config: AgentConfig,
    ) -> Reloaded:
        failure = report_failure(error)
        self._log(failure.error, error)
        found: tuple[Change, ...] = ()
        before, known = self._versions.version, self._versions.attempted
        if before is not None:
            if known is not None and known.defined:  # it was imported
                found = changes(before.face, digest_of(known, project, config))
            if not found:
                found = await asyncio.to_thread(file_changes, project.root, changed, before.sources, None)
        return self._tell(
            "failed",
            began,
            files=files or _names(project, changed),
            version=before.number if before is not None else 0,
            changes=found,
            failure=failure,
        )

    def _log(self, reason: str, error: Exception) -> None:
        cause = error.__cause__ if isinstance(error, Fault) else error
        log.error(
            "%s: no new version: %s",
            self._host.name,
            reason,
            exc_info=cause,
            extra={"agent": self._host.name},
        )

    def _tell(
        self,
        outcome: ReloadOutcome,
        began: float,
        *,
        files: tuple[str, ...] = (),
        version: int = 0,
        changes: tuple[Change, ...] = (),
        context: tuple[ContextChange, ...] = (),
        seconds: float | None = None,
        rolled_back: bool = False,
        failure: FailureReport | None = None,
    ) -> Reloaded:
        event = Reloaded(
            agent=self._host.name,
            outcome=outcome,
            version=version,
            files=tuple(one_line(name) for name in files[:_MAX_FILES]),
            changes=changes,
            context=context,
            seconds=monotonic() - began if seconds is None else seconds,
            rolled_back=rolled_back,
            place=failure.place if failure is not None else "",
            error=failure.error if failure is not None else "",
            story=failure.story if failure is not None else "",
        )
        self._hub.publish(event)
        return event


async def _lost_server(before: Executor, after: Executor, until: float) -> ServerConnection | None:
    """Return a server that ``after`` cannot connect, though it answers ``before``; None if there is none."""
    works = {each.server for each in before.connections() if each.is_open}
    for name in sorted(each.server for each in _closed(after) if each.server in works):
        left = until - asyncio.get_running_loop().time() - 1.0
        await after.check_connection(name, max(1.0, min(left, _SLOW_START)))
        lost = next((each for each in _closed(after) if each.server == name), None)
        if lost is None:
            continue
        await before.check_connection(name, _LOOK)
        now = next((each for each in before.connections() if each.server == name), None)
        if now is not None and now.is_open and now.checked in ("", "answers"):
            return lost
    return None


def _closed(executor: Executor) -> list[ServerConnection]:
    return [each for each in executor.connections() if not each.is_open and not each.needs_caller]


def _names(project: Project, files: tuple[Path, ...]) -> tuple[str, ...]:
    return tuple(one_line(shown(project.root, path)) for path in files)


def _between(before: AgentVersion | None, after: AgentVersion) -> tuple[tuple[Change, ...], tuple[Path, ...]]:
    """List the changes from one known version to another, and the files that differ."""
    if before is None:
        return (), ()
    old, new = before.sources.digests, after.sources.digests
    files = tuple(path for path in sorted({*old, *new}) if old.get(path) != new.get(path))
    return differences(before, after, files), files
