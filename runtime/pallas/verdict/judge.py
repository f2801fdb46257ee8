"""Judges recorded runs by replaying them with the files as they are. No model and no tool is asked."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from time import perf_counter

from pallas.agent_tests.expectations import failures, timeless
from pallas.agent_tests.recording_groups import RecordingGroup, RecordingGroups
from pallas.client.own_fleet import needed_by_all
from pallas.config import Project
from pallas.executors.replay.replay import ReplayPlan
from pallas.fleet.reload.verdict_judge import JudgeRequest
from pallas.fleet.replay_fleet import ReplayFleet, ReplayOutcome
from pallas.model import Fault, ModelCalls, Recording, RunVerdict
from pallas.model.host_places import HostPlaces
from pallas.recordings.replay_check import ReplayDifference

from .affected_units import running_in, steps_in_order, units_of, without_answered
from .asked_cache import ASKED
from .judged_runs import JudgedRun, JudgedTurn, judged_runs
from .live_cost import estimate_of
from .unchanged_code import lacks_code, unchanged_agents
from .undecided import changed_server, lacking, not_asked, undecidable
from .verdict_words import SAME, Judgement, digest_of, failed_request, judgement_of, shown_verdict


@dataclass(frozen=True, slots=True)
class _Unit:
    recording: Recording
    of: JudgedTurn


class Judge:
    """Judges runs of a project, in the running event loop."""

    def __init__(self, project: Project, request: JudgeRequest) -> None:
        self._project = project
        self._request = request
        self._affected = request.affected
        self._places = HostPlaces.of(project.root)

    async def verdicts(self) -> AsyncGenerator[RunVerdict]:
        """What becomes of each run, as soon as it is known: those that need no replay first.

        Raises ConfigError with every mistake in the files of the tests.
        """
        runs = await asyncio.to_thread(lambda: list(judged_runs(self._project, self._request)))
        groups, waiting = RecordingGroups(), list[tuple[JudgedRun, list[_Unit], RecordingGroup]]()
        for run in runs:
            units = list(self._units(run))
            if (known := self._without_replay(run, units)) is not None:
                yield self._verdict(run, known)
            else:
                waiting.append((run, units, groups.add(*(unit.recording for unit in units))))
        for group in groups.all:
            async for verdict in self._of_group(
                group, [(run, units) for run, units, its in waiting if its is group]
            ):
                yield verdict

    def _units(self, run: JudgedRun) -> Iterator[_Unit]:
        for turn in run.turns:
            for unit in units_of(turn.recording, self._affected):
                yield _Unit(unit, turn)

    def _without_replay(self, run: JudgedRun, units: Iterable[_Unit]) -> Judgement | None:
        """The word for a run that needs no replay; None for one that does."""
        if run.problem:
            return Judgement("not decided", what=f"recording: {run.problem}")
        gone = sorted(each for each in run.agents & self._affected if each not in self._project.agents)
        if gone:
            return Judgement("fails", gone[0], "it is no longer an agent of the project")
        same = unchanged_agents(run, self._request.behaviour)
        if why := undecidable(run, self._project, self._affected - same):
            return Judgement("not decided", what=why + lacks_code(run, self._request.behaviour))
        if run.agents & self._affected <= same:
            return self._by_expectations(run)
        return None if any(True for _ in units) else self._by_expectations(run)

    async def _of_group(
        self, group: RecordingGroup, runs: list[tuple[JudgedRun, list[_Unit]]]
    ) -> AsyncGenerator[RunVerdict]:
        """The verdicts of runs that one fleet answers."""
        plan = ReplayPlan(group.whole)
        names = {run.agent for run in plan.recording.runs if run.agent in self._affected}
        project = needed_by_all(self._project, names)
        plan = replace(plan, answered=frozenset(project.agents.keys() - self._affected))
        try:
            async with ReplayFleet.started(project, plan, ASKED) as fleet:
                for run, units in runs:
                    began = perf_counter()
                    found, estimate = await self._of_units(fleet, run, units)
                    verdict = self._verdict(run, found, perf_counter() - began)
                    yield replace(verdict, estimate=estimate)
        except Fault as fault:  # the fleet itself could not be started
            for run, _ in runs:
                yield self._verdict(run, Judgement("not decided", what=fault.message))

    async def _of_units(
        self, fleet: ReplayFleet, run: JudgedRun, units: list[_Unit]
    ) -> tuple[Judgement, ModelCalls | None]:
        """The word for a run: that of its first unit that is not the same. With what asking models would
        take, if that decides anything.
        """
        for unit in units:
            found, outcome = await self._of_unit(fleet, unit)
            if found.word == "same":
                continue
            if found.request is None or outcome is None or self._project.verdict.live == "never":
                return found, None
            if why := self._not_asked(run):
                return replace(found, what=f"{found.what} (models are not asked: {why})"), None
            return found, await self._estimate(fleet, run, unit, found.request, outcome)
        return self._by_expectations(run), None

    def _not_asked(self, run: JudgedRun) -> str:
        recordings = [turn.recording for turn in run.turns]
        running = frozenset[str]().union(*(running_in(each, self._affected) for each in recordings))
        return not_asked(recordings, self._project, running)

    async def _estimate(
        self,
        fleet: ReplayFleet,
        run: JudgedRun,
        unit: _Unit,
        difference: ReplayDifference,
        outcome: ReplayOutcome,
    ) -> ModelCalls:
        """What the recorded requests to models from the first difference on cost today."""
        agent, prices = difference.agent, fleet.prices
        failed = failed_request(outcome.recording, agent)
        now = {agent: failed.step} if failed is not None else {}
        since, found = (difference.run, difference.step), list[ModelCalls]()
        turns = run.turns[run.turns.index(unit.of) :]
        for turn in turns:
            running = running_in(turn.recording, self._affected)
            found.append(await estimate_of(turn.recording, since, running, now, prices))
            since = (
                _first_of(turns[len(found)].recording, self._affected) if len(found) < len(turns) else since
            )
        return ModelCalls.sum(found) or ModelCalls()

    async def _of_unit(self, fleet: ReplayFleet, unit: _Unit) -> tuple[Judgement, ReplayOutcome | None]:
        """The word for a unit, and its replay if there was one."""
        for agent in dict.fromkeys(run.agent for run in unit.recording.runs):
            if agent in self._affected and (trouble := fleet.trouble_of(agent)):
                return Judgement("fails", agent, trouble), None
        try:
            outcome = await fleet.replay(unit.recording, unit.of.faults)
        except Fault as fault:
            return Judgement("fails", unit.recording.first.agent, fault.message), None
        return await self._of_outcome(fleet, unit, outcome), outcome

    async def _of_outcome(self, fleet: ReplayFleet, unit: _Unit, outcome: ReplayOutcome) -> Judgement:
        recorded, replayed = (
            without_answered(each, self._affected) for each in (unit.recording, outcome.recording)
        )
        found = judgement_of(recorded, replace(outcome, recording=replayed), fleet.templates)
        if found == SAME and (
            why := await asyncio.to_thread(
                changed_server,
                unit.recording,
                self._request.servers,
                lambda server: digest_of(self._project, server),
            )
        ):
            return Judgement("not decided", what=why)
        why = lacking(unit.recording, self._affected)
        if found.word in ("same", "costs more", "fails") or not why:
            return found
        return Judgement("not decided", found.where, why)

    def _by_expectations(self, run: JudgedRun) -> Judgement:
        """A run that goes as it was recorded: a test may expect something else of it."""
        for each in run.turns:
            here = self._places.all_placed(each.recording)
            if each.turn is not None and (unmet := failures(here, timeless(each.turn.expect))):
                return Judgement("fails", run.agent, f"expected: {unmet[0]}")
        return SAME

    def _verdict(self, run: JudgedRun, found: Judgement, seconds: float = 0.0) -> RunVerdict:
        return shown_verdict(run, found, self._affected, seconds)


def _first_of(recording: Recording, affected: Collection[str]) -> tuple[str, int]:
    """The first step of an affected agent, as the id of its run and its number."""
    steps = ((run.id, each.step.number) for run, each in steps_in_order(recording) if run.agent in affected)
    return next(steps, ("", 0))
