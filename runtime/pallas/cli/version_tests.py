"""`pallas test --against`: the same tests through two versions of a project, or on a recording."""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from pallas.agent_tests.agent_test import AgentTest, AgentTestResult, Trial
from pallas.agent_tests.agent_test_file import FOLDER, find_tests
from pallas.agent_tests.expectations import cost_of, failures, tokens_of
from pallas.agent_tests.reports import append_summary, as_json, markdown_table, recordings_of
from pallas.agent_tests.scorers import Scorers
from pallas.config import ConfigError
from pallas.config.files import is_there
from pallas.fleet.parent_death import leashed
from pallas.model import Cost, Recording
from pallas.model.host_places import HostPlaces
from pallas.model.money import cost_in
from pallas.recordings.diff_lines import name_of, place_of
from pallas.recordings.recording_folder import HEAD, BadRecording, read, write
from pallas.recordings.run_diff import diff
from pallas.safe_text import one_line, sanitize

from .project_version import copied_version, ended_by_sigterm
from .quiet_output import quietly
from .record import count_of
from .resources.fleet_requests import OK, REFUSED, USAGE, Wrong, complain, project_at
from .resources.text_tables import table, width_of

_HOW: Final = "pallas test: --against"
_TESTS_S: Final = 6 * 3600.0
"""Seconds for the tests of one version."""
_MAX_SHOWN: Final = 60


@dataclass(frozen=True, slots=True)
class ComparedTests:
    """Which tests are compared, and how they are run and reported.

    ``against`` is a revision of git, a folder with another version of the project, or a recording.
    ``options`` are those of the runs themselves.
    """

    patterns: Sequence[str]
    against: str
    exact: bool = False
    is_live: bool = False
    options: Sequence[str] = ()
    record: Path | None = None
    output: str = "text"
    summary: Path | None = None

    @property
    def title(self) -> str:
        """What the column of the other side is called."""
        return "RECORDING" if self.is_recording else one_line(self.against, 20).upper()

    @property
    def is_recording(self) -> bool:
        """Whether the other side is a recording."""
        path = Path(self.against)
        return is_there(path / HEAD) or path.is_file()


@dataclass(frozen=True, slots=True)
class _Compared:
    """A test on both sides, as `pallas test -o json` reports it. ``difference`` has a line for each."""

    before: Mapping[str, Any] | None
    now: Mapping[str, Any]
    difference: tuple[str, ...] = ()

    @property
    def is_worse(self) -> bool:
        """Whether it passes less often now."""
        return self.before is not None and bool(self.now["passRate"] < self.before["passRate"])


def compare_versions(chosen: ComparedTests, root: Path) -> int:
    """Run tests in the project and in another version of it, or judge a recording by them; print both sides.

    Returns 1 if a test passes less often now, 2 for wrong use.
    """
    try:
        _check(root, chosen.against)
        with ended_by_sigterm(), TemporaryDirectory(prefix="pallas-test-") as scratch:
            return _compare(chosen, root, Path(scratch))
    except (Wrong, ConfigError, BadRecording) as error:
        complain(str(error))
    except (OSError, shutil.Error) as error:
        complain(
            f"pallas test: --against {one_line(chosen.against, _MAX_SHOWN)}: {one_line(str(error), 300)}"
        )
    return USAGE


def _compare(chosen: ComparedTests, root: Path, place: Path) -> int:
    recordings = chosen.record or place / "recordings"
    if chosen.is_recording:
        before = _judged(chosen, root, recordings / "before")
        chosen = replace(chosen, patterns=tuple(before), exact=True)
    else:
        other = copied_version(root, chosen.against, place / "project", _HOW)
        _put_tests(root, other)
        before = _tested(other, chosen, recordings / "before")
    now = _tested(root, chosen, recordings / "now")
    compared = {name: _side_by_side(chosen, before.get(name), each, recordings) for name, each in now.items()}
    _print(chosen, compared)
    if chosen.record is not None and chosen.output == "text":
        print(f"the recordings are in {chosen.record}/before and {chosen.record}/now")
    return REFUSED if any(each.is_worse for each in compared.values()) else OK


def _side_by_side(
    chosen: ComparedTests, before: Mapping[str, Any] | None, now: Mapping[str, Any], recordings: Path
) -> _Compared:
    if before is None:
        return _Compared(before, now)
    lines: list[str] = []
    if not chosen.is_live or chosen.is_recording:
        lines += _other_reasons(chosen, before, now)
    if chosen.is_live or chosen.is_recording:
        lines += _first_difference(before, now, recordings)
    return _Compared(before, now, tuple(lines))


def _print(chosen: ComparedTests, compared: Mapping[str, _Compared]) -> None:
    headers: tuple[str, ...] = ("TEST", chosen.title, "NOW")
    if chosen.is_live:
        headers += ("TOKENS", "COST", "SECONDS")
    rows = [_row(each, chosen.is_live) for each in compared.values()]
    differ = [name for name, each in compared.items() if each.difference]
    said = f"{count_of(len(differ), 'test')} of {len(compared)} differ" if differ else "no test differs"
    if chosen.output == "json":
        document = [
            {"name": name, "before": each.before, "now": each.now, "difference": list(each.difference)}
            for name, each in compared.items()
        ]
        print(json.dumps({"against": chosen.against, "tests": document}, ensure_ascii=False, indent=2))
    else:
        print(table(headers, rows, width_of()))
        for name in differ:
            for line in compared[name].difference:
                print(sanitize(f"{name}: {line}"))
        print(said)
    if chosen.summary is not None:
        text = markdown_table(f"Agent tests against {chosen.title}: {said}", headers, rows)
        if lines := [(name, "; ".join(compared[name].difference)) for name in differ]:
            text += markdown_table("What differs", ("TEST", "DIFFERENCE"), lines)
        append_summary(chosen.summary, text)


def _judged(chosen: ComparedTests, root: Path, record: Path) -> dict[str, Mapping[str, Any]]:
    """What the tests that ask the question of a recording say of it, by name, as if they had been run so.

    Raises Wrong, ConfigError, BadRecording, OSError.
    """
    recorded = read(Path(chosen.against))
    project = project_at(root)
    recording = HostPlaces.of(root).all_placed(recorded)
    first = recording.first
    fitting = [
        test
        for test in find_tests(project, chosen.patterns, exact=chosen.exact)
        if test.agent == first.agent and [each.ask for each in test.turns] == [first.question]
    ]
    if not fitting:
        raise Wrong(
            f"pallas test: --against {one_line(chosen.against, _MAX_SHOWN)}: no test asks {first.agent} what "
            f"was asked there: {one_line(first.question, 100)}"
        )
    with quietly(project):
        scorers = Scorers(root)
        results = [asyncio.run(_judge(test, recording, scorers)) for test in fitting]
    for name, _ in (side for result in results for time in recordings_of(result) for side in time):
        write(recorded, record / name)
    return {each["name"]: each for each in json.loads(as_json(results, 0.0))["tests"]}


async def _judge(test: AgentTest, recording: Recording, scorers: Scorers) -> AgentTestResult:
    met = failures(recording, test.turns[0].expect) or await scorers.failures(test, recording)
    seconds, tokens, cost = recording.first.seconds, tokens_of(recording), cost_of(recording)
    trial = Trial("failed" if met else "passed", tuple(met), (recording,), seconds, tokens, cost)
    return AgentTestResult(test, (trial,))


def _check(root: Path, against: str) -> None:
    """Raise Wrong where nothing can be compared."""
    if not root.is_dir():
        raise Wrong(f"pallas test: there is no folder {root}")
    if not (root / FOLDER).is_dir():
        raise Wrong(
            f"pallas test: there is no folder {FOLDER} in {root}; `pallas keep RUN` makes a test of a run"
        )
    if against.startswith("-"):
        raise Wrong(
            f"pallas test: --against {one_line(against, _MAX_SHOWN)}: name a revision of git, or a folder"
        )


def _put_tests(root: Path, version: Path) -> None:
    """Give a copy of another version of the project the tests of this one. Raises OSError."""
    tests = version / FOLDER
    for place in (tests.parent, tests):
        if place.is_symlink():
            place.unlink()  # of the copy: what it points to is another's
    if tests.exists():
        shutil.rmtree(tests)
    shutil.copytree(root / FOLDER, tests)


def _tested(root: Path, chosen: ComparedTests, record: Path) -> dict[str, Mapping[str, Any]]:
    """The tests of a version by name, run in a process of its own. Raises Wrong."""
    command = [sys.executable, "-P", "-m", "pallas.server", "test", *chosen.options, "-o", "json"]
    command += ["--exact"] if chosen.exact else []
    command += ["--live", "--own"] if chosen.is_live else []
    command += ["--summary", ""]  # this command has one for both sides
    command += ["--record", str(record.absolute()), "--project", str(root.absolute()), "--", *chosen.patterns]
    try:
        done = subprocess.run(leashed(tuple(command)), capture_output=True, check=False, timeout=_TESTS_S)
        if done.returncode in (OK, REFUSED):
            return {each["name"]: each for each in json.loads(done.stdout)["tests"]}
    except subprocess.TimeoutExpired:
        raise Wrong(f"pallas test: the tests did not end in {_TESTS_S / 3600:.0f} hours") from None
    except ValueError:
        raise Wrong(f"pallas test: the tests of {root} gave no result") from None
    said = sanitize(done.stderr.decode("utf-8", "replace")).strip()
    raise Wrong(said or f"pallas test: the tests of {root} ended with {done.returncode}")


def _row(compared: _Compared, is_live: bool) -> tuple[str, ...]:
    before, now = compared.before, compared.now
    passed = now["name"], _passed(before, is_live), _passed(now, is_live)
    if not is_live:
        return passed
    sides = [each for each in (before, now) if each is not None]
    took = [sum(trial["seconds"] for trial in each["trials"]) / each["runs"] for each in sides]
    used = [each["tokens"] // each["runs"] for each in sides]
    return (
        *passed,
        " -> ".join(map(str, used)),
        " -> ".join(_cost(each) for each in sides),
        " -> ".join(f"{each:.2f}" for each in took),
    )


def _cost(test: Mapping[str, Any]) -> str:
    """What a run of a test cost on average."""
    whole = cost_in(test)
    mean = Cost(None if whole.cost is None else whole.cost // test["runs"], whole.unpriced)
    return mean.text or "-"


def _passed(test: Mapping[str, Any] | None, is_live: bool) -> str:
    if test is None:
        return "-"
    return f"{test['passed']}/{test['runs']} {test['verdict']}" if is_live else str(test["verdict"])


def _other_reasons(chosen: ComparedTests, before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Why a recorded test does not go as it was recorded, where that is not the same on both sides."""
    reasons = [
        [f"{each['what']}: {each['why']}" for trial in side["trials"] for each in trial["failures"]]
        for side in (before, now)
    ]
    if (before["verdict"], reasons[0]) != (now["verdict"], reasons[1]):
        for title, side in zip((chosen.title, "now"), reasons, strict=True):
            yield from (f"{title}: {reason}" for reason in side)


def _first_difference(before: Mapping[str, Any], now: Mapping[str, Any], recordings: Path) -> Iterator[str]:
    """Where the first runs of a test part on both sides."""
    names = [next(iter(each["trials"][0]["recordings"]), None) for each in (before, now)]
    try:
        sides = [
            read(recordings / side / name)
            for side, name in zip(("before", "now"), names, strict=True)
            if name
        ]
    except (BadRecording, OSError):
        return
    if len(sides) == len(names) and (found := diff(*sides).first_divergence) is not None:
        yield f"they differ first at {name_of(found)} {place_of(found)}"
