"""Judges recorded runs by replaying them with the files as they are. No model and no tool is asked."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Final

from pallas.agent_tests.expectations import failures, timeless
from pallas.agent_tests.recording_groups import RecordingGroup, RecordingGroups
from pallas.client.own_fleet import needed_by_all
from pallas.config import Project
from pallas.executors.replay.replay import ReplayPlan
from pallas.fleet.reload.server_digest import server_digest
from pallas.fleet.reload.verdict_judge import JudgeRequest
from pallas.fleet.replay_fleet import ReplayFleet
from pallas.model import Fault, Recording, RunVerdict
from pallas.model.redaction import redact_head, redact_text
from pallas.safe_text import one_line, sanitize

from .affected_units import units_of, without_answered
from .asked_cache import ASKED
from .judged_runs import JudgedRun, JudgedTurn, judged_runs
from .undecided import changed_server, lacking, undecidable
from .verdict_words import SAME, Judgement, judgement_of

_MOST: Final = 300
_MAX_TEXT: Final = 4_000
"""Characters of a value that differs."""
_MAX_READ: Final = 100_000
"""Characters of it in which the difference is looked for."""


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
            return Judgement("fails", gone[0], "it is no agent of the project any more")
        if why := undecidable(run, self._project, self._affected):
            return Judgement("not decided", what=why)
        return None if any(True for _ in units) else _by_expectations(run)

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
                    found = await self._of_units(fleet, run, units)
                    yield self._verdict(run, found, perf_counter() - began)
        except Fault as fault:  # the fleet itself could not be started
            for run, _ in runs:
                yield self._verdict(run, Judgement("not decided", what=_shown(fault.message)))

    async def _of_units(self, fleet: ReplayFleet, run: JudgedRun, units: list[_Unit]) -> Judgement:
        """The word for a run: that of its first unit that is not the same."""
        for unit in units:
            found = await self._of_unit(fleet, unit)
            if found.word != "same":
                return found
        return _by_expectations(run)

    async def _of_unit(self, fleet: ReplayFleet, unit: _Unit) -> Judgement:
        for agent in dict.fromkeys(run.agent for run in unit.recording.runs):
            if agent in self._affected and (trouble := fleet.trouble_of(agent)):
                return Judgement("fails", agent, _shown(trouble))
        try:
            outcome = await fleet.replay(unit.recording, unit.of.faults)
        except Fault as fault:
            return Judgement("fails", unit.recording.first.agent, _shown(fault.message))
        recorded, replayed = (
            without_answered(each, self._affected) for each in (unit.recording, outcome.recording)
        )
        found = judgement_of(recorded, replace(outcome, recording=replayed), fleet.templates)
        if found == SAME and (
            why := await asyncio.to_thread(
                changed_server, unit.recording, self._request.servers, self._digest_of
            )
        ):
            return Judgement("not decided", what=why)
        if found.word in ("same", "costs more", "fails") or not (why := lacking(unit.recording)):
            return found
        return Judgement("not decided", found.where, why)

    def _digest_of(self, server: str) -> str:
        """What a server is made of here; empty for one behind a URL, whose program is elsewhere."""
        downstream = self._project.downstreams.get(server)
        return "" if downstream is None or downstream.url else server_digest(self._project, server)

    def _verdict(self, run: JudgedRun, found: Judgement, seconds: float = 0.0) -> RunVerdict:
        return RunVerdict(
            one_line(run.name, 100),
            run.source,
            one_line(run.agent, 80),
            found.word,
            _shown(found.where),
            _shown(found.what),
            _shown(found.before),
            _shown(found.after),
            tuple(sorted(run.agents & self._affected)),
            seconds,
            *(found.field.texts(_MAX_TEXT, _masked) if found.field is not None else ()),
        )


def _by_expectations(run: JudgedRun) -> Judgement:
    """A run that goes as it was recorded: a test may expect something else of it."""
    for each in run.turns:
        if each.turn is not None and (unmet := failures(each.recording, timeless(each.turn.expect))):
            return Judgement("fails", run.agent, f"expected: {unmet[0]}")
    return SAME


def _masked(text: str) -> str:
    return sanitize(redact_head(text, _MAX_READ))


def _shown(text: str) -> str:
    return one_line(redact_text(text), _MOST)
