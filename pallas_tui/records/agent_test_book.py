"""The tests of a project as their files are now, and how each went last; nothing of the screen in here."""

import asyncio
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pallas.model import Reloaded, VerdictReached, VerdictWord
from pallas.safe_text import one_line, sanitize

from ..frame import FleetFrame

if TYPE_CHECKING:
    from pallas.agent_tests.agent_test import AgentTest, Verdict

DEADLINE: Final = 1_800.0
"""Seconds that the tests that run together may take."""
MAX_SAVED: Final = 1_000
"""Agents whose saved files are remembered; beyond them all tests count as affected."""
ALL: Final = ""
"""In place of an agent: a file of the whole project was saved."""
_MAX_WHY: Final = 2_000

_OUTCOMES: Final[Mapping[VerdictWord, "Verdict"]] = {
    "same": "passed",
    "other words": "failed",
    "other tool calls": "failed",
    "fails": "failed",
    "costs more": "failed",
    "not decided": "skipped",
}
"""How a test counts after a verdict on a save."""

Stamps = Mapping[str, tuple[int, int]]
"""Time and size of files by path."""


@dataclass(frozen=True, slots=True)
class AgentTestOutcome:
    """How a test went, when that was (Unix seconds), and why it did not pass."""

    verdict: "Verdict"
    seconds: float
    at: float
    failures: tuple[str, ...] = ()


class AgentTestBook:
    """The tests of the project in ``root``; None is a fleet whose project is elsewhere.

    ``run`` has one process at a time run some of them, from their recordings; it ends with the caller's task.
    ``clock`` returns Unix seconds.
    """

    def __init__(self, root: Path | None, clock: Callable[[], float]) -> None:
        self.root = root
        self._clock = clock
        self.listed: Sequence[AgentTest] = ()
        self.outcomes: dict[str, AgentTestOutcome] = {}
        self.running: frozenset[str] = frozenset()
        """The names of those that run now."""
        self.began = 0.0
        self.problem = ""
        """Why the tests cannot be read, line by line."""
        self.is_read = False
        self._saved: set[str] = set()
        self._tests: Stamps = {}
        self._config: Stamps = {}

    def absorb(self, frame: FleetFrame) -> None:
        """Note which agents have a new version of their files, and what was said of tests on a save."""
        for event in frame.events:
            if isinstance(event, VerdictReached):
                self.note_verdict(event)
            if isinstance(event, Reloaded) and event.outcome != "unchanged":
                self.note(event)
                self._saved.add(event.agent if len(self._saved) < MAX_SAVED else ALL)
        if frame.dropped:
            self._saved.add(ALL)

    def note(self, event: Reloaded) -> None:
        """Take over how the tests went that hold a version back, unless they ran here since."""
        for test in event.tests:
            known = self.outcomes.get(test.name)
            if known is None or known.at < event.at:
                self.outcomes[test.name] = AgentTestOutcome("failed", test.seconds, event.at, (test.why,))

    def note_verdict(self, event: VerdictReached) -> None:
        """Take over what a save would do to tests, unless they ran here since."""
        for run in event.runs:
            known = self.outcomes.get(run.name)
            if run.source == "test" and (known is None or known.at < event.at):
                why = () if run.word == "same" else (run.line,)
                self.outcomes[run.name] = AgentTestOutcome(_OUTCOMES[run.word], run.seconds, event.at, why)

    def forget_saved(self) -> None:
        """What was saved so far affects no test."""
        self._saved.clear()

    async def look(self) -> bool:
        """Read the tests again if their files are different; returns whether the tests are."""
        if self.root is None:
            return False
        scorers = {scorer.partition(":")[0] for test in self.listed for scorer in test.scorers}
        tests, config = await asyncio.to_thread(_stamps, self.root, scorers)
        are_others = tests != self._tests
        if are_others or config != self._config or not self.is_read:
            self._tests, self._config = tests, config
            try:
                self.listed, self.problem = await asyncio.to_thread(_found, self.root), ""
            except Exception as error:  # ConfigError, or what the file system says
                self.listed, self.problem = (), sanitize(str(error), _MAX_WHY)
            self.is_read = True
        return are_others

    async def take_affected(self) -> set[str]:
        """The names of the tests that saved files affect, each time once; all where that cannot be told."""
        saved, self._saved = self._saved, set()
        if not saved or self.root is None:
            return set()
        try:
            return await asyncio.to_thread(_affected, self.root, self.listed, saved)
        except Exception:  # the project cannot be read: the tests say so
            return {test.name for test in self.listed}

    async def run(self, names: Collection[str]) -> str:
        """Run these tests; returns why they could not be run, else nothing."""
        assert self.root is not None
        from pallas.agent_tests.test_run import MOST_NAMED, run_recorded

        some = sorted(names) if len(names) <= min(MOST_NAMED, len(self.listed) - 1) else []
        self.running, self.began = frozenset(some or (test.name for test in self.listed)), self._clock()
        try:
            ran = await run_recorded(self.root, some, DEADLINE)
        finally:
            self.running = frozenset()
        now = self._clock()
        self.outcomes |= {
            each.name: AgentTestOutcome(each.verdict, each.seconds, now, each.failures) for each in ran.tests
        }
        return ran.problem


def words_of(test: "AgentTest", outcome: AgentTestOutcome | None) -> str:
    """What a filter looks in."""
    known = f"{outcome.verdict} {' '.join(outcome.failures)}" if outcome is not None else ""
    return f"{test.name} {test.agent} {test.where.file} {known}".lower()


def _found(root: Path) -> "Sequence[AgentTest]":
    """The tests of a project, with the places of their files in it."""
    from pallas.agent_tests.agent_test_file import find_tests
    from pallas.config import load_project
    from pallas.config.files import shown

    def in_project(test: "AgentTest") -> "AgentTest":
        file = shown(root, Path(test.where.file).absolute())
        return replace(test, where=replace(test.where, file=file))

    return [in_project(test) for test in find_tests(load_project(root))]


def _affected(root: Path, tests: "Iterable[AgentTest]", saved: Collection[str]) -> set[str]:
    from pallas.agent_tests.affected_tests import affected_tests
    from pallas.config import load_project

    project = load_project(root)
    if not set(saved) <= project.agents.keys():
        return {test.name for test in tests}
    return set(affected_tests(tests, project, saved))


def _stamps(root: Path, scorers: Iterable[str]) -> tuple[Stamps, Stamps]:
    """The files of the tests with their scorers, and those of the project that they are checked by."""
    from pallas.agent_tests.agent_test_file import FOLDER

    modules = [root.joinpath(*module.split(".")).with_suffix(".py") for module in scorers]
    return _stamps_of([*_files(root / FOLDER), *modules]), _stamps_of([root / "agents.yaml", root / ".env"])


def _files(folder: Path) -> Iterator[Path]:
    """The files below a folder; of a recording, which is written as a whole, its head."""
    from pallas.recordings.recording_folder import HEAD

    for name, below, files in os.walk(folder):
        if HEAD in files:
            below.clear()
            files = [HEAD]
        below[:] = [each for each in below if each != "__pycache__"]
        yield from (Path(name, file) for file in files)


def _stamps_of(paths: Iterable[Path]) -> Stamps:
    found: dict[str, tuple[int, int]] = {}
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            continue
        found[str(path)] = (status.st_mtime_ns, status.st_size)
    return found


def shown_name(test: "AgentTest") -> str:
    """A test's name, safe to show."""
    return one_line(test.name, 100)
