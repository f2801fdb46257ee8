"""Runs tests in fleets of this process, which keep nothing and disturb no other: from recordings, or live."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

from pallas.client import connect
from pallas.client.fleet_address import FleetAddress
from pallas.client.own_fleet import needed_by_all
from pallas.config import Project
from pallas.executors.replay.replay import ReplayPlan
from pallas.fleet.asked_servers import AskedServers
from pallas.fleet.replay_fleet import ReplayFleet, ReplayOutcome
from pallas.model import Fault, RecordedRun, Recording
from pallas.model.fault_rules import AGENT
from pallas.model.host_places import HostPlaces
from pallas.recordings.recording_folder import BadRecording, read
from pallas.safe_text import one_line

from .agent_test import AgentTest, Trial, TurnTest
from .expectations import Unmet, failures, timeless
from .live_bench import LiveBench
from .recording_groups import RecordingGroups
from .scorers import Scorers

_NOTHING: Final = RecordedRun("", "", "")
_OF_AGENTS: Final = Unmet("faults", "workers and remote agents get them live only: add --live --own")
_NONE: Final = Unmet(
    "recording", "it has none: run it with --live, or keep a run as a test with `pallas keep RUN`"
)


class RecordedBench:
    """Runs tests of a project in fleets that answer from the recordings. One event loop only."""

    def __init__(self, project: Project, scorers: Scorers, stack: AsyncExitStack) -> None:
        self._project = project
        self._scorers = scorers
        self._stack = stack
        self._places = HostPlaces.of(project.root)
        self._fleet: ReplayFleet | None = None
        self._answered: list[Recording] = []
        """The recordings that the fleet answers from."""
        self._users = 0
        self._changed = asyncio.Condition()
        self._agents: set[str] = set()
        self._recordings: dict[Path, Recording | str] = {}
        self._groups = RecordingGroups()
        self._servers = AskedServers()

    @classmethod
    @asynccontextmanager
    async def opened(
        cls, project: Project, tests: Iterable[AgentTest], scorers: Scorers
    ) -> AsyncIterator[Self]:
        """Read the recordings of these tests; a fleet is started when a test needs it, and stopped here."""
        bench = cls(project, scorers, AsyncExitStack())
        await asyncio.to_thread(bench.read, tests)
        try:
            yield bench
        finally:
            await bench.close()

    async def close(self) -> None:
        """Stop the fleet."""
        await self._stack.aclose()

    def read(self, tests: Iterable[AgentTest]) -> None:
        """Read the recordings of these tests. Blocks."""
        tests = list(tests)
        self._agents = {test.agent for test in tests}
        for path in (turn.recording for test in tests for turn in test.turns):
            if path is None or path in self._recordings:
                continue
            try:
                self._recordings[path] = found = read(path)
            except (BadRecording, OSError) as error:
                self._recordings[path] = one_line(str(error), 300)
                continue
            self._groups.add(found)

    async def replay(self, path: Path) -> ReplayOutcome:
        """Replay a recording, also one that no test has. Raises BadRecording, OSError, Fault."""
        recording = self._recordings.get(path)
        if recording is None:
            self._recordings[path] = recording = await asyncio.to_thread(read, path)
            self._groups.add(recording)
        if isinstance(recording, str):
            raise BadRecording(recording)
        async with self._fleet_of(recording) as fleet:
            return await fleet.replay(recording)

    async def run(self, test: AgentTest) -> Trial:
        """Run a test once, its turns one after the other, up to the first that fails."""
        trial = Trial("passed")
        for turn in test.turns:
            if turn.recording is None:
                trial = replace(trial, verdict="skipped", failures=(_NONE,))
                break
            if turn.faults is not None and any(rule.to.startswith(AGENT) for rule in turn.faults.rules):
                trial = replace(trial, verdict="skipped", failures=(_OF_AGENTS,))
                break
            trial = await self._turn(test, turn, trial)
            if trial.verdict != "passed":
                break
        return trial.ended_in(turn, test)

    async def _turn(self, test: AgentTest, turn: TurnTest, trial: Trial) -> Trial:
        assert turn.recording is not None
        recording = self._recordings[turn.recording]
        if isinstance(recording, str):
            return replace(trial, verdict="error", failures=(Unmet("recording", recording),))
        first = replace(recording.first, agent=test.agent, question=turn.ask, images=turn.images)
        try:
            async with self._fleet_of(recording) as fleet:
                asked = replace(recording, runs=(first, *recording.runs[1:]))
                outcome = await fleet.replay(asked, turn.faults)
        except Fault as fault:
            return replace(trial, verdict="error", failures=(Unmet("replay", one_line(fault.message, 500)),))
        recordings = (*trial.recordings, outcome.recording)
        if outcome.is_miss:
            met = [Unmet("recording", one_line(outcome.fault, 500))]
        else:
            here = self._places.all_placed(outcome.recording)
            met = [*failures(here, timeless(turn.expect)), *_unused(outcome, turn)]
            if not met and turn is test.turns[-1]:
                met = await self._scorers.failures(test, here)
        return replace(
            trial,
            verdict="failed" if met else "passed",
            failures=tuple(met),
            recordings=recordings,
            seconds=trial.seconds + outcome.seconds,
        )

    @asynccontextmanager
    async def _fleet_of(self, recording: Recording) -> AsyncIterator[ReplayFleet]:
        """The fleet that answers from this recording. Raises Fault.

        There is one at a time, since a replay belongs to its event loop: another one is started when no test
        uses this one.
        """
        group = self._groups.of(recording)
        async with self._changed:
            await self._changed.wait_for(lambda: self._answers(recording) or not self._users)
            if not self._answers(recording) or self._fleet is None:
                self._answered, self._fleet = [], None
                await self._stack.aclose()
                answered = list(group.recordings)
                self._fleet = await self._stack.enter_async_context(self._started(group.whole))
                self._answered = answered
            fleet = self._fleet
            self._users += 1
        try:
            yield fleet
        finally:
            async with self._changed:
                self._users -= 1
                self._changed.notify_all()

    def _answers(self, recording: Recording) -> bool:
        """Whether the fleet that runs answers from this recording."""
        return recording in self._answered

    def _started(self, recording: Recording) -> AbstractAsyncContextManager[ReplayFleet]:
        names = (*(run.agent for run in recording.runs), *self._agents)
        project = needed_by_all(self._project, names)
        return ReplayFleet.started(project, ReplayPlan(recording), self._servers)


@asynccontextmanager
async def own_bench(project: Project, agents: Iterable[str], scorers: Scorers) -> AsyncIterator[LiveBench]:
    """Start these agents, and those that they reach, with a ledger in memory, at a free port of loopback.

    Models and tools are asked for real. Raises Fault.
    """
    needed = needed_by_all(project, agents)
    plan = ReplayPlan(Recording(project.name, (_NOTHING,)), live_models=True, live_tools=True)
    async with ReplayFleet.started(needed, plan) as fleet:
        place = FleetAddress(f"http://127.0.0.1:{fleet.port}", project.root)
        async with connect(place) as api:
            yield LiveBench(api, scorers, fleet.inject)


def _unused(outcome: ReplayOutcome, turn: TurnTest) -> Iterator[Unmet]:
    """What the replay did not need of the recording. A fault that ended the run leaves the rest unused."""
    ended_by_fault = turn.faults is not None and outcome.recording.first.status != "ok"
    if outcome.unused is not None and not ended_by_fault:
        yield Unmet("recording", one_line(f"not all of the recording was used: {outcome.unused}", 500))
