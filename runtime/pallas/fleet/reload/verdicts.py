"""Verdicts on the recorded runs of a project: asked of the judge, published, and remembered."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from decimal import Decimal
from time import monotonic
from typing import Final

from pallas.config import ConfigError, Project
from pallas.config.kinds import VerdictConfig, VerdictGate
from pallas.model import (
    Fault,
    LiveState,
    ModelCalls,
    RunVerdict,
    RunVersion,
    VerdictBegun,
    VerdictProgress,
    VerdictReached,
)
from pallas.model.money import USD
from pallas.model.redaction import redact_text
from pallas.model.verdict import counts_after, counts_of, sorted_runs
from pallas.safe_text import one_line

from ..context import FleetContext
from .recent_runs import RecentRuns
from .save_effects import SaveEffects
from .verdict_judge import JudgeRequest, LeadingRun, LiveRequest, RecentRun

log = logging.getLogger(__name__)

_MOST: Final = 350


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """A save that is judged: the project as it was read, its agents with another version or other settings.

    ``because`` are the files for which agents get another version, or ``.env``. ``began`` is when the first
    change was seen (``time.monotonic``).
    """

    project: Project
    affected: frozenset[str]
    effects: SaveEffects
    began: float
    because: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict for which models may be asked, with its save and the files of its runs."""

    save: Save
    files: tuple[RecentRun, ...]
    verdict: VerdictReached


@dataclass(frozen=True, slots=True)
class LeadingRuns:
    """The tests and runs that lead to affected agents, and the files of the runs."""

    all: tuple[LeadingRun, ...] = ()
    files: tuple[RecentRun, ...] = ()

    @property
    def agents(self) -> frozenset[str]:
        """The affected agents that they lead to."""
        return frozenset[str]().union(*(each.agents for each in self.all))


class Verdicts:
    """Asks the judge of a fleet. Belongs to its event loop."""

    def __init__(self, fleet: FleetContext, recent: RecentRuns) -> None:
        self._fleet = fleet
        self._judge = fleet.options.judge
        self._recent = recent
        self.last: VerdictReached | None = None
        """The last one that was reached."""
        self.judged: Judged | None = None
        """The last one, if models may be asked for it and were not."""
        self.uncertain: set[str] = set()
        """Agents that do not behave as their files and settings say: their environment changed."""
        self.progress: VerdictProgress | None = None
        """How far the one is that is under way. May be read from any thread."""

    async def warm(self) -> None:
        """Have the judge ready before the first save. Never raises."""
        project = self._fleet.project
        if self._judge is not None and self.gate_of(project) != "off":
            try:
                await self._recent.of(tuple(project.agents), project.verdict.recent)
                await self._judge.warm(project)
            except Exception:
                log.exception("what judges recorded runs could not be made ready")

    def gate_of(self, project: Project) -> VerdictGate:
        """What a verdict does here. Of several worker processes only the first one warns."""
        gate, worker = project.verdict.gate, self._fleet.options.worker
        if self._judge is None or (gate == "warn" and worker is not None and not worker.is_first):
            return "off"
        return gate

    async def leading_to(self, project: Project, agents: Collection[str]) -> LeadingRuns:
        """The tests and recent runs that lead to these agents. Raises ConfigError."""
        if self._judge is None or not agents:
            return LeadingRuns()
        tests = await self._judge.tests_leading_to(project, agents)
        files = await self._recent.of(tuple(project.agents), project.verdict.recent)
        # Which agents a run has is in its recording; the judge reads that.
        runs = [LeadingRun(each.id, "run", each.agent, frozenset(agents)) for each in files]
        return LeadingRuns((*tests, *runs), files)

    async def reach(self, save: Save, leading: LeadingRuns, *, is_held: bool) -> VerdictReached:
        """Judge all of them, within the time that the project gives, and publish the verdict."""
        runs, first, problem = dict[str, RunVerdict](), 0.0, ""
        mine = self._begin(save, leading, is_held=is_held)
        try:
            async with asyncio.timeout(save.project.verdict.timeout):
                behaviour = await asyncio.to_thread(self._behaviour, save)
                async with aclosing(self._asked(save, leading, behaviour)) as verdicts:
                    async for verdict in verdicts:
                        first = first or monotonic() - save.began
                        runs[verdict.name] = verdict
                        differing = mine.differing + (verdict.word != "same")
                        mine = self.progress = replace(mine, judged=len(runs), differing=differing)
        except TimeoutError:
            pass
        except Exception as error:
            problem = problem_of(error)
        finally:
            if self.progress is mine:  # else another one has begun
                self.progress = None
        if not problem:
            late = f"it was not judged within {save.project.verdict.timeout:g} s"
            for each in leading.all:
                agents = tuple(sorted(each.agents))
                undecided = RunVerdict(
                    each.name, each.source, each.agent, "not decided", what=late, agents=agents
                )
                runs.setdefault(each.name, undecided)
        reached = self._publish(save, list(runs.values()), first, problem, is_held=is_held)
        self.judged = Judged(save, leading.files, reached) if reached.live != "none" else None
        return reached

    async def ask(self, judged: Judged) -> VerdictReached:
        """Ask models what becomes of the runs whose requests differ, and publish what they say."""
        timeout, before = self._fleet.project.verdict.timeout, judged.verdict
        wanted = {each.name: each for each in before.runs if each.estimate is not None}
        runs, began = {each.name: each for each in before.runs}, monotonic()
        why = f"models did not answer within {timeout:g} s"
        self.last, self.judged = replace(before, live="asking"), None
        left = dict(wanted)
        try:
            async with asyncio.timeout(timeout):
                async with aclosing(self._asked_live(judged, wanted)) as verdicts:
                    async for each in verdicts:
                        runs[each.name] = after_asking(left.pop(each.name), each)
        except TimeoutError:
            pass
        except Exception as error:
            why = problem_of(error)
        runs |= {name: after_asking(each, undecided(each, why)) for name, each in left.items()}
        event = self.last = replace(
            before,
            runs=sorted_runs(runs.values()),
            counts=counts_after(before, runs.values()),
            seconds=before.seconds + monotonic() - began,
            live="asked",
            asked=ModelCalls.sum(each.asked for each in runs.values()) or ModelCalls(),
        )
        self._fleet.hub.publish(event)
        return event

    def _begin(self, save: Save, leading: LeadingRuns, *, is_held: bool) -> VerdictProgress:
        """Say that a verdict is under way."""
        agents, runs = tuple(sorted(save.affected)), len(leading.all)
        found = self.progress = VerdictProgress(agents, runs, is_held)
        self._fleet.hub.publish(
            VerdictBegun(agents=agents, files=save.effects.files, is_held=is_held, runs=runs)
        )
        return found

    def refuse(self, save: Save, error: BaseException, *, is_held: bool) -> VerdictReached:
        """Publish that nothing can be judged."""
        return self._publish(save, [], 0.0, problem_of(error), is_held=is_held)

    async def close(self) -> None:
        """End the judge, and forget the recordings."""
        if self._judge is not None:
            await self._judge.close()
        self._recent.close()

    def _behaviour(self, save: Save) -> dict[str, RunVersion]:
        """What agents of a save do now, if only files were saved that their versions are made of. Blocks."""
        found: dict[str, RunVersion] = {}
        for name, because in save.because.items():
            agent = self._fleet.agents.get(name)
            if agent is None or name in self.uncertain | save.effects.applied:
                continue
            if save.effects.servers.keys() & {*agent.servers}:
                continue
            version, config = agent.version_now, save.project.agents.get(name)
            if version is None or config is None:
                continue
            if (now := version.behaviour_now(save.project, config, because)) is not None:
                found[name] = now
        return found

    def _asked(
        self, save: Save, leading: LeadingRuns, behaviour: Mapping[str, RunVersion]
    ) -> AsyncGenerator[RunVerdict]:
        assert self._judge is not None
        request = JudgeRequest(
            root=save.project.root,
            affected=save.affected,
            tests=tuple(each.name for each in leading.all if each.source == "test"),
            runs=leading.files,
            servers=save.effects.servers,
            behaviour=behaviour,
        )
        return self._judge.verdicts(request)

    def _asked_live(self, judged: Judged, wanted: Mapping[str, RunVerdict]) -> AsyncGenerator[RunVerdict]:
        assert self._judge is not None
        save = judged.save
        request = JudgeRequest(
            root=save.project.root,
            affected=save.affected,
            tests=tuple(name for name, each in wanted.items() if each.source == "test"),
            runs=tuple(each for each in judged.files if each.id in wanted),
            servers=save.effects.servers,
            live=live_request(self._fleet.project.verdict, wanted.values()),
        )
        return self._judge.verdicts(request)

    def _live_of(self, save: Save, estimate: ModelCalls | None) -> LiveState:
        """Whether models are asked. Where each of several worker processes judges alone, none does."""
        if estimate is None or save.project.verdict.live == "never":
            return "none"
        if self._fleet.options.worker is not None and self.gate_of(save.project) == "hold":
            return "none"
        return "asking" if save.project.verdict.live == "always" else "can ask"

    def _publish(
        self, save: Save, runs: Sequence[RunVerdict], first: float, problem: str, *, is_held: bool
    ) -> VerdictReached:
        self.judged = None
        estimate = ModelCalls.sum(each.estimate for each in runs)
        event = self.last = VerdictReached(
            agents=tuple(sorted(save.affected)),
            files=save.effects.files,
            is_held=is_held,
            runs=sorted_runs(runs),
            counts=counts_of(runs),
            seconds=monotonic() - save.began,
            first_seconds=first,
            problem=problem,
            live=self._live_of(save, estimate),
            estimate=estimate,
        )
        self._fleet.hub.publish(event)
        return event


def live_request(settings: VerdictConfig, runs: Iterable[RunVerdict]) -> LiveRequest:
    """What asking models for these runs may cost, by the settings of a project."""
    costs = {each.name: each.estimate.cost or 0 for each in runs if each.estimate is not None}
    most = int(Decimal(str(settings.max_cost)) * USD)
    return LiveRequest(max_cost=most, concurrency=settings.concurrency, estimates=costs)


def undecided(run: RunVerdict, why: str) -> RunVerdict:
    """The verdict on a run of which models said nothing."""
    return replace(
        run, word="not decided", where="", what=why, before="", after="", before_text="", after_text=""
    )


def after_asking(before: RunVerdict, after: RunVerdict) -> RunVerdict:
    """The verdict on a run after models were asked, with the request that differs."""
    return replace(after, request=before.why, estimate=before.estimate)


def problem_of(error: BaseException) -> str:
    """Why nothing can be judged, in one line without secrets; what is not known is logged."""
    if isinstance(error, ConfigError):
        reason = str(error.mistakes[0])
    elif isinstance(error, Fault):
        reason = error.message
    else:
        log.error("recorded runs could not be judged", exc_info=error)
        reason = f"{type(error).__name__}; the log has the details"
    return one_line(redact_text(f"recorded runs could not be judged: {reason}"), _MOST)
