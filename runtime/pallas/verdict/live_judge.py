"""Judges recorded runs whose requests to models differ: models are asked for real from there on.

All that the recording has answers as before. Tools, functions and agents that are not above the changed ones
answer from it only: a call that was never recorded is not made, and ends the run.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Final

from pallas.agent_tests.agent_test import AgentTest, TurnTest
from pallas.agent_tests.expectations import failures, timeless
from pallas.agent_tests.recording_groups import RecordingGroup, RecordingGroups
from pallas.agent_tests.scorers import Scorers
from pallas.client.own_fleet import needed_by_all
from pallas.config import Project
from pallas.executors.replay.replay import ReplayPlan
from pallas.fleet.reload.verdict_judge import JudgeRequest, LiveRequest
from pallas.fleet.replay_fleet import ReplayFleet, ReplayOutcome
from pallas.model import Cost, Fault, ModelCalls, Recording, RunVerdict
from pallas.model.host_places import HostPlaces
from pallas.prices.price_book import PriceBook

from .affected_units import running_in
from .asked_cache import ASKED
from .judged_runs import JudgedRun, JudgedTurn, judged_runs
from .live_cost import LiveBudget
from .live_words import live_judgement, with_answered
from .undecided import changed_server, not_asked, undecidable
from .verdict_words import SAME, Judgement, digest_of, shown_verdict

SCORER_S: Final = 10.0
"""Seconds that a scorer has in a verdict."""


@dataclass(frozen=True, slots=True)
class _Judged:
    """A run with its word; ``passes`` as in ``RunVerdict``, ``live`` what scorers judge."""

    judgement: Judgement
    asked: ModelCalls = field(default_factory=ModelCalls)
    passes: bool | None = None
    live: Recording | None = None


class LiveJudge:
    """Asks models what becomes of runs of a project, in the running event loop. No tool is called.

    ``request`` has the runs that models are to be asked for, and what that may cost.
    """

    def __init__(self, project: Project, request: JudgeRequest) -> None:
        self._project = project
        self._request = request
        self._affected = request.affected
        self._places = HostPlaces.of(project.root)
        self._live = request.live or LiveRequest(max_cost=0, concurrency=1)
        self._prices = PriceBook(project.prices, project.offline_port)
        self._scorers = Scorers(project.root, SCORER_S)
        self.recordings: dict[str, tuple[Recording, ...]] = {}
        """Those of the runs that came to their end, one of each turn, by name."""

    async def verdicts(self) -> AsyncGenerator[RunVerdict]:
        """What becomes of each run, as soon as it is known. Raises ConfigError as ``Judge`` does."""
        runs = await asyncio.to_thread(lambda: list(judged_runs(self._project, self._request)))
        groups, waiting = RecordingGroups(), list[tuple[JudgedRun, RecordingGroup]]()
        for run in runs:
            if why := run.problem or self._not_asked(run):
                yield self._verdict(run, _Judged(Judgement("not decided", what=why)))
            else:
                waiting.append((run, groups.add(*(turn.recording for turn in run.turns))))
        budget = LiveBudget(
            self._prices, self._live.max_cost, (turn.recording for run, _ in waiting for turn in run.turns)
        )
        for group in groups.all:
            async for verdict in self._of_group(group, [run for run, its in waiting if its is group], budget):
                yield verdict

    def _not_asked(self, run: JudgedRun) -> str:
        recordings = [turn.recording for turn in run.turns]
        running = frozenset[str]().union(*(running_in(each, self._affected) for each in recordings))
        return undecidable(run, self._project, self._affected) or not_asked(
            recordings, self._project, running
        )

    async def _of_group(
        self, group: RecordingGroup, runs: list[JudgedRun], budget: LiveBudget
    ) -> AsyncGenerator[RunVerdict]:
        """The verdicts of runs that one fleet answers, several at a time."""
        running = frozenset[str]().union(*(running_in(each, self._affected) for each in group.recordings))
        project = needed_by_all(self._project, running)
        answered = frozenset(project.agents.keys() - running)
        plan = ReplayPlan(group.whole, goes_on=True, answered=answered)
        limit = asyncio.Semaphore(self._live.concurrency)
        try:
            async with ReplayFleet.started(project, plan, ASKED, budget.admit) as fleet:
                unlisten = fleet.hub.listen(budget.hear)
                tasks = [asyncio.create_task(self._of_run(fleet, run, budget, limit)) for run in runs]
                try:
                    for each in asyncio.as_completed(tasks):
                        yield await each
                finally:
                    unlisten()
                    for task in tasks:
                        task.cancel()
        except Fault as fault:  # the fleet itself could not be started
            for run in runs:
                yield self._verdict(run, _Judged(Judgement("not decided", what=fault.message)))

    async def _of_run(
        self, fleet: ReplayFleet, run: JudgedRun, budget: LiveBudget, limit: asyncio.Semaphore
    ) -> RunVerdict:
        async with limit:
            began = perf_counter()
            with budget.begun(self._live.estimates.get(run.name, 0)) as why:
                if why:
                    words = f"it was not asked: {why}"
                    return self._verdict(run, _Judged(Judgement("not decided", what=words)))
                found = await self._of_turns(fleet, run)
                budget.ended(found.asked.cost or 0)
            return self._verdict(run, found, perf_counter() - began)

    async def _of_turns(self, fleet: ReplayFleet, run: JudgedRun) -> _Judged:
        """The first turn that is not the same, or the first for which nothing more can be said."""
        found = _Judged(SAME, passes=True if run.source == "test" else None)
        ended = list[Recording]()
        for turn in run.turns:
            judged = await self._of_turn(fleet, turn)
            ended += [judged.live] if judged.live is not None else []
            counts = ModelCalls.sum((found.asked, judged.asked)) or ModelCalls()
            first = judged.judgement if found.judgement == SAME or judged.passes is False else found.judgement
            found = _Judged(first, counts, found.passes and judged.passes, judged.live)
            if first.word in ("fails", "not decided"):
                break
        if len(ended) == len(run.turns):
            self.recordings[run.name] = tuple(map(self._places.all_marked, ended))
        if run.scored is not None and found.passes and found.live is not None:
            found = await self._scored(run.scored, found, found.live)
        return found if found.judgement.word != "not decided" else replace(found, passes=None)

    async def _scored(self, test: AgentTest, found: _Judged, live: Recording) -> _Judged:
        """What the scorers of a test say of a run that meets its expectations."""
        asking = await self._scorers.asking(test)
        others = replace(test, scorers=tuple(each for each in test.scorers if each not in asking))
        if unmet := await self._scorers.failures(others, live):
            judgement = Judgement("fails", live.first.agent, f"expected: {unmet[0]}")
            return replace(found, judgement=judgement, passes=False)
        if asking:
            what = f"{found.judgement.what} (its scorer {asking[0]} asks a model, and is not run)".lstrip()
            return replace(found, judgement=replace(found.judgement, what=what), passes=None)
        return found

    async def _of_turn(self, fleet: ReplayFleet, turn: JudgedTurn) -> _Judged:
        recorded = self._places.all_placed(turn.recording)
        running = running_in(recorded, self._affected)
        if not running:
            return _by_test(turn.turn, SAME, recorded)
        for agent in sorted(running):
            if trouble := fleet.trouble_of(agent):
                return _Judged(Judgement("not decided", agent, trouble))
        try:
            outcome = await fleet.replay(recorded, turn.faults)
        except Fault as fault:
            return _Judged(Judgement("fails", recorded.first.agent, fault.message))
        paid = Cost.sum(outcome.asked)
        asked = ModelCalls(len(outcome.asked), paid.cost, paid.unpriced)
        outcome = replace(outcome, recording=self._places.all_placed(outcome.recording))
        return replace(await self._said(turn.turn, recorded, outcome, running), asked=asked)

    async def _said(
        self, test: TurnTest | None, recorded: Recording, outcome: ReplayOutcome, running: frozenset[str]
    ) -> _Judged:
        live = with_answered(recorded, outcome.recording, running)
        found = live_judgement(recorded, outcome, live)
        if found.word == "not decided" or outcome.missed:
            return _Judged(found)
        if found == SAME and (why := await asyncio.to_thread(self._changed_server, recorded)):
            return _Judged(Judgement("not decided", what=why))
        return _by_test(test, found, live)

    def _changed_server(self, recorded: Recording) -> str:
        servers = self._request.servers
        return changed_server(recorded, servers, lambda server: digest_of(self._project, server))

    def _verdict(self, run: JudgedRun, found: _Judged, seconds: float = 0.0) -> RunVerdict:
        verdict = shown_verdict(run, found.judgement, self._affected, seconds)
        return replace(verdict, asked=found.asked, passes=found.passes)


def _by_test(turn: TurnTest | None, found: Judgement, live: Recording) -> _Judged:
    """A run that came to its end: what its test expects is the judge of other words and calls."""
    if turn is None:
        return _Judged(found)
    unmet = next(_unmet(turn, live), "")
    if not unmet:
        return _Judged(found, passes=True, live=live)
    return _Judged(Judgement("fails", live.first.agent, f"expected: {unmet}"), passes=False, live=live)


def _unmet(turn: TurnTest, live: Recording) -> Iterator[str]:
    return (str(each) for each in failures(live, timeless(turn.expect)))
