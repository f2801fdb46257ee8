"""Looks after the files of a fleet: what changed is applied, one reload after the other."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from time import monotonic, time
from typing import Any, Final, Literal

from pallas.config import ConfigError, Mistake, Project, Where, export_env, fill_unset, load_project
from pallas.config.files import shown
from pallas.config.unnamed_models import refuse_unnamed_models
from pallas.model import (
    FAILED_STATES,
    AgentState,
    Event,
    FleetState,
    FleetVerb,
    Notice,
    Reloaded,
    ReloadOutcome,
    VerdictReached,
    WatchMode,
    WatchSnapshot,
)
from pallas.model.redaction import redact_text
from pallas.safe_text import one_line
from pallas.telemetry.log import redact_project

from .affected_agents import AgentFacts, ChangeSet, ReloadPlan, plan_reload
from .applier import Applier, ReloadContext, config_changes
from .file_state import FileFingerprints, SelfWrites, WordSearch, until_quiet
from .file_usage import FileUsage, usage_of
from .file_watcher import FileWatcher
from .reload_report import more_mistakes, report_line, verdict_line
from .save_effects import SaveEffects, effects_of_save
from .verdict_gate import VerdictGate
from .watched_folders import is_of_tests, may_matter

log = logging.getLogger(__name__)

# Paths that are remembered until they are looked at; with more, everything is.
MAX_HEARD: Final = 5_000
# Names that one event tells.
_MAX_NAMES: Final = 100
# Seconds between two looks whether an agent with many earlier versions may have another one.
_CROWDED: Final = 0.5
_LEVELS: Final = {"failed": logging.ERROR, "held": logging.WARNING}
_DOWN: Final = (AgentState.ERROR, AgentState.CRASH_LOOP)


class Reloader:
    """Applies changed files to a fleet: by itself while it watches, and on request.

    One reload at a time, while the fleet runs; changes during a reload make one more after it. ``take`` makes
    a project that was just read the fleet's and returns it with all that no file declares; ``script`` takes
    the script of the offline model. Belongs to the fleet's event loop; ``snapshot`` may be called from any
    thread.
    """

    def __init__(
        self,
        context: ReloadContext,
        *,
        take: Callable[[Project], Project],
        script: Callable[[Any], None],
    ) -> None:
        self._applier = Applier(context)
        self._fleet = context.fleet
        self._gate = VerdictGate(
            self._applier, context.fleet, context.recent, self._is_outdated, self._plan_again
        )
        self._now = context.now
        self._programs = context.programs
        self._take = take
        self._script = script
        self._only = context.fleet.options.only
        self._contents = FileFingerprints()
        self._restless = SelfWrites()
        self._uses: FileUsage | None = None
        # What the files said when they could be read last; the fleet may lag behind where that failed.
        self._latest: Project | None = None
        self._changed: set[Path] = set()
        self._unknown = False  # something changed that nothing is known of
        self._all = False
        self._requested = False
        self._since: float | None = None
        self._broken: tuple[Mistake, ...] = ()
        self._wake = asyncio.Event()
        # Changes during a reload that affected no agent before it: they may affect the new versions.
        self._aside: set[Path] | None = None
        self._began = time()
        self._looked = False  # nothing is known of the files before
        self._watcher: FileWatcher | None = None
        self._mode: WatchMode = "on"
        self._mode_since = time()
        self._last: Reloaded | None = None
        self._waiting: tuple[str, ...] = ()
        self._outdated: tuple[str, ...] = ()
        self._unlisten = self._fleet.hub.listen(self._note)

    async def watch(self) -> None:
        """Hear of changed files for ever; the owner cancels."""
        root = self._fleet.project.root
        self._watcher = FileWatcher(root, self.note_changes, self._missed, self._tell)
        self._mode_since = time()
        await self._watcher.run()

    async def watching(self) -> None:
        """Until changes are heard of, should that be wanted; a few seconds at most."""
        if self._watcher is not None:
            ready = asyncio.ensure_future(self._watcher.ready.wait())
            await asyncio.wait({ready}, timeout=3.0)
            ready.cancel()

    def note_changes(self, paths: Iterable[Path]) -> None:
        """Note that these paths changed, or files below them. Returns at once."""
        root = self._fleet.project.root
        if self._uses is None:
            found = {path for path in paths if may_matter(path, root)}
        else:
            paths = list(paths)
            found = set(self._uses.among(paths))
            if self._aside is not None:
                self._aside.update(path for path in paths if path not in found and may_matter(path, root))
                if len(self._aside) > MAX_HEARD:
                    self._all = True
                    self._aside.clear()
                    self._wake.set()
            if self._broken and not found:  # what the files named may be there now
                self._unknown = self._unknown or any(may_matter(path, root) for path in paths)
            if self._gate.held:  # the tests may pass now
                self._unknown = self._unknown or any(is_of_tests(path, root) for path in paths)
        if not found and not self._unknown:
            return
        self._since = monotonic() if self._since is None else self._since
        self._changed |= found
        if len(self._changed) > MAX_HEARD:
            self._all = True
            self._changed.clear()
        self._show_waiting()
        self._wake.set()
        self._gate.wake()

    def control(self, verb: FleetVerb) -> None:
        """Do as asked; returns at once, events tell. In the fleet's loop."""
        if verb == "reload":
            self._requested = True
            self._wake.set()
            self._gate.wake()
        elif verb not in ("pause", "resume"):
            self._tell(
                "warning", f"there is no {one_line(str(verb), 40)!r}; a fleet can pause, resume, reload"
            )
        elif self._watcher is None:
            self._tell("warning", f"{verb}: this fleet does not watch its files; start it with --watch")
        else:
            self._mode = "paused" if verb == "pause" else "on"
            if self._since is not None:  # the pause does not count as a delay
                self._since = monotonic()
            self._mode_since = time()
            waiting = f"; {len(self._waiting)} changed" if self._waiting else ""
            self._tell("info", f"watching the files is {'paused' if verb == 'pause' else 'resumed'}{waiting}")
            self._wake.set()

    def snapshot(self) -> WatchSnapshot | None:
        """How the files are looked after; None where they are not."""
        if self._watcher is None:
            return None
        return WatchSnapshot(
            mode=self._mode,
            since=self._mode_since,
            waiting=self._waiting,
            last=self._last,
            reloading=tuple(sorted(self._applier.reloading)),
            outdated=self._outdated,
            testing=self._gate.testing,
            held=self._gate.held,
            judging=self._gate.verdicts.progress,
        )

    async def run(self) -> None:
        """Apply for ever, from the moment that the fleet has started; the owner cancels."""
        await self.watching()
        self._looked = True
        await self._look_around(self._began)
        if self._watcher is not None:
            self._fleet.tasks.start(self._gate.verdicts.warm())
        while True:
            await self._awake()
            if self._fleet.lifecycle.state is not FleetState.RUNNING:
                return
            requested, self._requested = self._requested, False
            if not requested and (self._mode == "paused" or not self._is_due()):
                continue
            try:
                await self._turn(requested)
            except Exception:
                log.exception("changed files could not be applied")
                self._tell("error", "changed files could not be applied; the log has the details")

    @property
    def last_verdict(self) -> VerdictReached | None:
        """The last verdict that was reached on a save."""
        return self._gate.verdicts.last

    def ask_models(self) -> VerdictReached:
        """Begin to ask models for the last verdict, and return it. Raises Fault (CONFIG) if none may be."""
        return self._gate.ask_models()

    async def end_verdicts(self) -> None:
        """End the verdict that is under way, and what judges."""
        await self._gate.close()

    def close(self) -> None:
        """Hear nothing more."""
        self._unlisten()

    async def _awake(self) -> None:
        """Until there may be something to do."""
        while not self._wake.is_set():
            crowded = [name for name in self._applier.owed if self._applier.crowded(name)]
            try:
                async with asyncio.timeout(_CROWDED if crowded else None):
                    await self._wake.wait()
            except TimeoutError:
                if not all(self._applier.crowded(name) for name in crowded):
                    self._unknown = True
                    break
        self._wake.clear()

    def _is_due(self) -> bool:
        return bool(self._changed or self._unknown or self._all)

    async def _is_outdated(self) -> bool:
        """Whether there is more to do since the reload under way began."""
        if self._requested or self._unknown or self._all:
            return True
        if await asyncio.to_thread(self._contents.different, self._changed - self._restless.left):
            return True
        return bool((await self._usage()).among(self._aside)) if self._aside else False

    async def _turn(self, requested: bool) -> None:
        """Reload once: find what changed and what that affects, and apply it."""
        self._aside = set()
        try:
            await self._reload(requested)
        finally:
            aside, self._aside = self._aside, None
            if aside:
                self.note_changes(aside)

    async def _reload(self, requested: bool) -> None:
        await until_quiet(self._fleet.project.root, lambda: len(self._changed), lambda: self._changed)
        began = monotonic() if self._since is None else self._since
        read = time()
        changed_paths, everything, unknown = frozenset(self._changed), self._all or requested, self._unknown
        self._changed.clear()
        self._since, self._all, self._unknown = None, False, False
        uses = self._uses or FileUsage()
        files = await self._different(uses, uses.files if everything else changed_paths, changed_paths)
        if restless := await asyncio.to_thread(self._restless.among, files):
            files -= restless
            names = ", ".join(self._names(restless))
            self._tell("warning", f"{names}: written while it is loaded; not reloaded again")
        if self._gate.held and not (files or everything or unknown or self._gate.was_cut):
            self._show_waiting()
            return  # what the tests said still holds
        config = files & uses.config
        changed = ChangeSet(files=files - config, mentions=WordSearch())
        old, new = self._applier.project_now(), self._now(self._latest or self._fleet.project)
        if config or requested or (self._broken and (unknown or files)):
            found = await self._read(files, began, report_unchanged=bool(config) or requested)
            if found is not None:
                new, variables = found
                self._latest = new
                changed = ChangeSet(files, variables, reread=True, mentions=changed.mentions)
        down = [each.config.name for each in self._programs if each.state in _DOWN]
        known = self._known(uses)
        plan = await asyncio.to_thread(
            plan_reload, changed, old, new, known, uses.programs, down=down, only=self._only
        )
        effects = effects_of_save(changed, old, new, known, plan, self._names(changed.files))
        outcomes = await self._apply(
            plan, changed, effects, _as_started(new, old), old, began, requested=requested
        )
        # When the last of the new versions took over: who saves after that has waited for it.
        live = max((began + each.seconds for each in outcomes), default=began)
        live = monotonic() if self._gate.was_cut else live
        self._restless.finish(read, time() - monotonic() + live)
        self._show_waiting()
        await self._look_around(read)

    async def _different(
        self, uses: FileUsage, candidates: frozenset[Path], changed_paths: frozenset[Path]
    ) -> frozenset[Path]:
        """Return the files whose contents are new, and remember them as acted on."""
        different = await asyncio.to_thread(self._contents.different, candidates)
        # Saving a file of an agent that does not answer means: try it again.
        failed = [each for each in self._known(uses) if each.failed]
        different |= {path for each in failed for path in changed_paths & each.files}
        if self._broken:
            different |= changed_paths & uses.config
        await asyncio.to_thread(self._contents.note, different)
        return different

    async def _read(
        self, files: frozenset[Path], began: float, *, report_unchanged: bool
    ) -> tuple[Project, frozenset[str]] | None:
        """Read the project again, with the changed variables of ``.env``; None if it has mistakes."""
        root = self._fleet.project.root
        try:
            new = await asyncio.to_thread(load_project, root)
            if self._fleet.project.model:  # else each agent's code is checked with its next version
                await asyncio.to_thread(refuse_unnamed_models, new)
            if self._only is not None and self._only not in new.agents:
                where = Where(shown(root, new.agents_file))
                fix = "the agent is served as it was"
                raise ConfigError((Mistake(where, f"agents.{self._only}", "no longer exists", fix),))
            variables = export_env(root)
        except ConfigError as error:
            if report_unchanged or error.mistakes != self._broken:
                self._broken_files(error.mistakes, files, began)
            self._broken = error.mistakes
            return None
        new = self._take(new)
        healed, self._broken = bool(self._broken), ()
        fill_unset(root, new.unset)
        await asyncio.to_thread(redact_project, new)
        if healed:
            self._tell("info", f"{shown(root, new.agents_file)} and the configuration can be used again")
        return new, variables

    async def _apply(
        self,
        plan: ReloadPlan,
        changed: ChangeSet,
        effects: SaveEffects,
        new: Project,
        old: Project,
        began: float,
        *,
        requested: bool,
    ) -> tuple[Reloaded, ...]:
        files = effects.files
        if plan.script and new.scripted is not None:
            await self._read_script(new.scripted.script, began)
        outcomes = await self._gate.apply(plan, new, began, effects, requested=requested)
        reported = {each.agent for each in outcomes}
        found = config_changes(plan, old, self._fleet.project, reported) if changed.reread else ()
        failed = sorted({each.agent for each in outcomes if each.outcome == "failed"})
        live = any(each.outcome == "live" for each in outcomes)
        outcome: ReloadOutcome = "unchanged"
        if found or (requested and live):
            outcome = "live"
        elif requested and failed:
            outcome = "failed"
        if not (found or requested or (changed.reread and plan.is_empty and not outcomes)):
            return outcomes  # the agents have told all that there is to tell
        error = f"not reloaded: {', '.join(failed)}" if failed and outcome == "failed" else ""
        seconds = monotonic() - began
        self._fleet.hub.publish(
            Reloaded(outcome=outcome, files=files, changes=found, seconds=seconds, error=one_line(error, 400))
        )
        return outcomes

    async def _read_script(self, path: Path, began: float) -> None:
        from pallas.scripted.script_file import load_script

        files = self._names([path])
        try:
            self._script(await asyncio.to_thread(load_script, path))
        except ConfigError as error:
            self._broken_files(error.mistakes, frozenset({path}), began)
        else:
            self._fleet.hub.publish(Reloaded(outcome="live", files=files, seconds=monotonic() - began))

    def _broken_files(self, mistakes: tuple[Mistake, ...], files: frozenset[Path], began: float) -> None:
        first = mistakes[0]
        more = f" (and {len(mistakes) - 1} more)" if len(mistakes) > 1 else ""
        self._fleet.hub.publish(
            Reloaded(
                outcome="failed",
                files=self._names(files),
                place=str(first.where),
                error=one_line(redact_text(f"{first}{more}"), 400),
                story=redact_text("\n".join(str(each) for each in mistakes)),
                seconds=monotonic() - began,
            )
        )

    async def _look_around(self, since: float) -> None:
        """Learn which files are used now. ``since`` is when reading them may have begun."""
        uses = await self._usage()
        later = await asyncio.to_thread(self._contents.note_new, uses.files, since)
        await asyncio.to_thread(self._contents.store, uses.files)
        first = self._uses is None
        self._uses = uses
        if self._watcher is not None:
            self._watcher.also(uses.folders, frozenset(each.path for each in uses.named))
        if first:
            self._changed = set(uses.among(self._changed))
            if self._watcher is not None:  # nothing was heard before the watch began
                self._changed |= later
            if not self._is_due():  # changes seen while it started affect no agent
                self._since = None
            elif self._since is None:
                self._since = monotonic()
                self._wake.set()
            self._show_waiting()

    async def _usage(self) -> FileUsage:
        """The files that are used, or would be by versions that are due."""
        return await asyncio.to_thread(
            usage_of, self._fleet.project, self._facts(), only=self._only is not None
        )

    def _facts(self) -> list[AgentFacts]:
        found = []
        for agent in self._fleet.agents.all:
            executor = agent.executor
            found.append(
                AgentFacts(
                    name=agent.name,
                    project=agent.project,
                    config=agent.config,
                    url=agent.url,
                    files=agent.files,
                    servers=executor.info.servers if executor is not None else None,
                    providers=executor.info.providers if executor is not None else None,
                    names_models=executor is not None and executor.info.names_models,
                    failed=agent.state in FAILED_STATES or agent.name in self._applier.failed,
                    idle=agent.state in (AgentState.STOPPED, AgentState.STOPPING),
                    owed=self._applier.owed.get(agent.name, frozenset()),
                )
            )
        return found

    def _known(self, uses: FileUsage) -> list[AgentFacts]:
        """The agents as they are now, with the files that affect them."""
        before = {each.name: each for each in uses.agents}
        return [
            replace(now, files=now.files | was.files, folders=was.folders, scripts=was.scripts)
            if (was := before.get(now.name)) is not None
            else now
            for now in self._facts()
        ]

    def _missed(self) -> None:
        """Anything may have changed; before the first look around, that one sees it."""
        if not self._looked:
            return
        self._all = self._unknown = True
        self._since = monotonic() if self._since is None else self._since
        self._wake.set()

    def _show_waiting(self) -> None:
        self._waiting = self._names(self._changed)
        agents = self._uses.agents if self._uses is not None else ()
        self._outdated = tuple(
            sorted(each.name for each in agents if not each.files.isdisjoint(self._changed))
        )

    def _names(self, paths: Iterable[Path]) -> tuple[str, ...]:
        root = self._fleet.project.root
        return tuple(one_line(shown(root, path)) for path in sorted(paths)[:_MAX_NAMES])

    def _plan_again(self) -> None:
        """Find out what is due, and apply that."""
        self._unknown = True
        self._wake.set()

    def _note(self, event: Event) -> None:
        """Log a line for each attempt."""
        if self._gate.hear(event) and self._gate.held:  # others may have waited for it
            self._plan_again()
        if isinstance(event, VerdictReached):
            level = logging.INFO if event.is_same else logging.WARNING
            log.log(level, "%s", verdict_line(event))
        if not isinstance(event, Reloaded):
            return
        self._last = event
        if event.outcome == "live":
            self._applier.failed.discard(event.agent)
        extra = {"agent": event.agent} if event.agent else {}
        level = _LEVELS.get(event.outcome, logging.INFO)
        log.log(level, "%s", report_line(event), extra=extra)
        for mistake in more_mistakes(event):
            log.log(level, "%s", mistake)

    def _tell(self, level: Literal["info", "warning", "error"], text: str) -> None:
        self._fleet.hub.publish(Notice(level=level, text=one_line(redact_text(text), 500)))


def _as_started(project: Project, fleet: Project) -> Project:
    """``project`` with what only another start of the fleet takes over."""
    return replace(
        project, bind=fleet.bind, registry_port=fleet.registry_port, port=fleet.port, tls=fleet.tls
    )
