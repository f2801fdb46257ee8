"""The runs that are judged: kept tests, and runs of the ledger. Their recordings are read here."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from pallas.agent_tests.agent_test import AgentTest, TurnTest
from pallas.agent_tests.agent_test_file import find_tests
from pallas.config import Project
from pallas.fleet.reload.verdict_judge import JudgeRequest, RecentRun
from pallas.model import Recording, RunSource
from pallas.model.fault_rules import FaultPlan
from pallas.model.host_places import HostPlaces
from pallas.recordings.recording_folder import BadRecording
from pallas.safe_text import one_line

from .recording_cache import read_cached


@dataclass(frozen=True, slots=True)
class JudgedTurn:
    """A recording, with the test that has it, if one does."""

    recording: Recording
    turn: TurnTest | None = None
    is_as_recorded: bool = True
    """Whether the test asks what was asked then, and injects no faults."""

    @property
    def faults(self) -> FaultPlan | None:
        """What is injected into its calls."""
        return self.turn.faults if self.turn is not None else None


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """A test or a run; ``problem`` is why it cannot be judged.

    ``scored`` is a test with scorers, all of whose turns are recorded.
    """

    name: str
    source: RunSource
    agent: str
    turns: tuple[JudgedTurn, ...] = ()
    problem: str = ""
    scored: AgentTest | None = None

    @property
    def agents(self) -> frozenset[str]:
        """All agents that ran in it."""
        return frozenset(run.agent for each in self.turns for run in each.recording.runs)


def judged_runs(project: Project, request: JudgeRequest) -> Iterator[JudgedRun]:
    """What is judged, the tests first. Blocks. Raises ConfigError with every mistake in the tests' files."""
    places = HostPlaces.of(project.root)
    for test in tests_named(project, request.tests):
        yield _of_test(test, places)
    for run in request.runs:
        yield _of_run(run)


def tests_named(project: Project, names: Collection[str]) -> Sequence[AgentTest]:
    """The tests with a recording that have these names. Raises ConfigError."""
    if not names:
        return ()
    return [each for each in find_tests(project, tuple(names), exact=True) if _is_recorded(each)]


def _is_recorded(test: AgentTest) -> bool:
    return any(turn.recording for turn in test.turns)


def _of_test(test: AgentTest, places: HostPlaces) -> JudgedRun:
    turns = []
    for turn in test.turns:
        if turn.recording is None:
            break  # as `pallas test` does: what comes after it cannot be replayed
        try:
            recording = read_cached(turn.recording)
        except (BadRecording, OSError) as error:
            return JudgedRun(test.name, "test", test.agent, problem=one_line(str(error), 300))
        first = recording.first
        asked = replace(first, agent=test.agent, question=turn.ask, images=turn.images)
        is_as_recorded = turn.faults is None and asked == replace(
            first, question=places.placed(first.question)
        )
        runs = asked, *recording.runs[1:]
        turns.append(JudgedTurn(replace(recording, runs=runs), turn, is_as_recorded))
    scored = test if test.scorers and len(turns) == len(test.turns) else None
    return JudgedRun(test.name, "test", test.agent, tuple(turns), scored=scored)


def _of_run(run: RecentRun) -> JudgedRun:
    try:
        recording = read_cached(run.file)
    except (BadRecording, OSError) as error:
        return JudgedRun(run.id, "run", run.agent, problem=one_line(str(error), 300))
    return JudgedRun(run.id, "run", run.agent, (JudgedTurn(recording),))
