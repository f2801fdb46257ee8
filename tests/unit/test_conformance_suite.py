"""Reading what the official conformance suite prints, its baselines, and what is made of both."""

import json
from pathlib import Path

import pytest
from conformance.baseline import Entry, read_baseline
from conformance.report import Outcome, ScenarioRun, read_report, read_scenario, summary
from conformance.suite import BASELINES, EXTENSION, VERSIONS

PRINTED = """\
Running all suite (5 scenarios) against http://127.0.0.1:1/mcp

=== Running scenario: ping ===
Running client scenario 'ping' against server: http://127.0.0.1:1/mcp


=== SUMMARY ===
✓ ping: 2 passed, 0 failed
✗ tools-call-image: 1 passed, 1 failed
✓ caching: 4 passed, 0 failed
✗ tools-list: 0 passed, 1 failed
✗ server-initialize: 0 passed, 1 failed

Total: 7 passed, 3 failed

\x1b[33mExpected failures (in baseline):\x1b[0m
  ~ tools-call-image:tools-call-image

\x1b[31mStale baseline entries (now passing - remove from baseline):\x1b[0m
  ✓ caching

\x1b[31mUnexpected failures (not in baseline):\x1b[0m
  ✗ tools-list
  ✗ server-initialize:one-check

\x1b[31mBaseline is stale: update your expected-failures file to remove passing entries.\x1b[0m
"""


BASELINE = (
    Entry("tools-call-image", "tools-call-image", "has no pictures"),
    Entry("caching", "", "lists nothing"),
)


def _results(folder: Path, scenario: str, *checks: tuple[str, str, str | None]) -> None:
    place = folder / f"server-{scenario}-2026-11-21T13-28-46-785Z"
    place.mkdir()
    told = [
        {"id": name, "status": status} | ({"errorMessage": words} if words else {})
        for name, status, words in checks
    ]
    (place / "checks.json").write_text(json.dumps(told))


def _read(folder: Path, printed: str = PRINTED) -> tuple[ScenarioRun, ...]:
    return read_report(printed, folder, agent="a", version="2026-07-28", baseline=BASELINE)


def test_every_scenario_is_told_with_its_outcome(tmp_path: Path) -> None:
    _results(tmp_path, "tools-call-image", ("tools-call-image", "FAILURE", "no picture"))
    _results(tmp_path, "tools-list", ("fine", "SUCCESS", None), ("order", "WARNING", "it moves"))
    runs = {run.scenario: run for run in _read(tmp_path)}
    assert {name: run.outcome for name, run in runs.items()} == {
        "ping": Outcome.PASSED,
        "tools-call-image": Outcome.EXPECTED,
        "caching": Outcome.STALE,
        "tools-list": Outcome.FAILED,
        "server-initialize": Outcome.FAILED,
    }
    assert runs["ping"].checks == 2
    assert runs["tools-call-image"].note == "has no pictures"
    assert runs["tools-list"].note == "order: it moves"
    assert runs["server-initialize"].note == "it gave no result"
    assert str(runs["ping"]) == "pass      2026-07-28  a           ping"


def test_an_entry_whose_check_does_not_fail_is_stale(tmp_path: Path) -> None:
    for status in ("SUCCESS", "SKIPPED"):
        folder = tmp_path / status
        folder.mkdir()
        _results(folder, "tools-call-image", ("tools-call-image", status, None))
        (run,) = (run for run in _read(folder) if run.scenario == "tools-call-image")
        assert run.outcome is Outcome.STALE
        assert run.note == "tools-call-image does not fail; take it out of the baseline"


def test_a_baseline_for_scenarios_that_are_not_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not run: caching"):
        _read(tmp_path, PRINTED.replace("✓ caching", "✓ other"))


@pytest.mark.parametrize(
    "printed",
    [
        "",
        "Server test error: fetch failed\n",
        PRINTED.replace("(5 scenarios)", "(6 scenarios)"),
        PRINTED.replace("✓ ping: 2 passed, 0 failed\n", ""),
        "Running all suite (0 scenarios) against x\n",
    ],
)
def test_output_that_is_not_whole_is_no_result(tmp_path: Path, printed: str) -> None:
    with pytest.raises(ValueError, match="scenarios"):
        _read(tmp_path, printed)


def _one(folder: Path, *baseline: Entry) -> ScenarioRun:
    return read_scenario(folder, agent="f", version="2026-07-28", scenario="tasks-x", baseline=baseline)


def test_a_scenario_that_was_run_by_its_name_is_judged_as_the_others(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="tasks-x gave no result"):
        _one(tmp_path)
    _results(tmp_path, "tasks-x", ("a", "SUCCESS", None), ("b", "FAILURE", "no b"), ("c", "WARNING", "no c"))
    b, c = Entry("tasks-x", "b", "has no b"), Entry("tasks-x", "c", "has no c")
    run = _one(tmp_path, Entry("other", "a", "of another"), b)
    assert (run.outcome, run.note, run.checks) == (Outcome.FAILED, "c: no c", 1)
    run = _one(tmp_path, b, c)
    assert (run.outcome, run.note) == (Outcome.EXPECTED, "has no b; has no c")
    run = _one(tmp_path, b, c, Entry("tasks-x", "a", "has no a"))
    assert (run.outcome, run.note) == (Outcome.STALE, "a does not fail; take it out of the baseline")
    assert _one(tmp_path, Entry("tasks-x", "", "has nothing")).outcome is Outcome.EXPECTED


def test_a_scenario_in_which_nothing_is_checked_does_not_count_as_passed(tmp_path: Path) -> None:
    _results(tmp_path, "tasks-x", ("a", "SKIPPED", "to be rewritten"))
    run = _one(tmp_path)
    assert (run.outcome, run.note) == (Outcome.SKIPPED, "to be rewritten")
    assert summary([run], least={}) == (
        ["f           0 of 1 passed, 0 cannot apply, 1 skipped by the suite"],
        True,
    )
    assert not summary([run], least={"f": 1})[1]
    fine = tmp_path / "fine"
    fine.mkdir()
    _results(fine, "tasks-x", ("a", "SKIPPED", "to be rewritten"), ("b", "SUCCESS", None))
    assert _one(fine).outcome is Outcome.PASSED
    assert _one(fine, Entry("tasks-x", "", "has nothing")).outcome is Outcome.STALE


def _runs(agent: str, **counts: int) -> list[ScenarioRun]:
    return [
        ScenarioRun(agent, "2026-07-28", f"s{index}", Outcome[name], 1)
        for name, count in counts.items()
        for index in range(count)
    ]


def test_the_summary_counts_each_agent() -> None:
    lines, good = summary([*_runs("a", PASSED=2, EXPECTED=1), *_runs("f", PASSED=3)], least={"f": 3})
    assert good
    assert lines == [
        "a           2 of 3 passed, 1 cannot apply",
        "f           3 of 3 passed, 0 cannot apply",
    ]


@pytest.mark.parametrize(
    ("runs", "least", "said"),
    [
        (_runs("a", PASSED=2, FAILED=1), {}, "1 failed, 0 stale"),
        (_runs("a", PASSED=2, STALE=1), {}, "0 failed, 1 stale"),
        (_runs("a", PASSED=2, EXPECTED=9), {"a": 3}, "at least 3 must pass"),
        (_runs("a", PASSED=2), {"f": 1}, "f           0 of 0 passed, 0 cannot apply; at least 1 must pass"),
    ],
)
def test_what_failed_is_stale_or_missing_is_not_good(
    runs: list[ScenarioRun], least: dict[str, int], said: str
) -> None:
    lines, good = summary(runs, least=least)
    assert not good
    assert any(said in line for line in lines)


def test_nothing_run_is_not_good() -> None:
    assert summary([], least={}) == ([], False)


def test_a_baseline_is_read_with_its_reasons(tmp_path: Path) -> None:
    file = tmp_path / "b.yaml"
    file.write_text("# Why\nserver:\n\n  - ping # never asked\n  - caching:ttl-1  # no lists\n")
    assert read_baseline(file) == (
        Entry("ping", "", "never asked"),
        Entry("caching", "ttl-1", "no lists"),
    )
    file.write_text("server: []\n")
    assert read_baseline(file) == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("server:\n  - ping\n", r"b\.yaml:2: ping has no reason"),
        ("server:\n  - ping #\n", r"b\.yaml:2: "),
        ("server:\n  - ping # a\n  - ping # b\n", r"b\.yaml:3: ping  stands there twice"),
        ("server:\n  - ping: check # a\n", r"b\.yaml:2: is no entry"),
        ("client:\n", r"b\.yaml:1: is no entry"),
    ],
)
def test_a_baseline_that_says_no_reason_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "b.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=said):
        read_baseline(file)


def test_the_committed_baselines_name_single_checks_and_leave_enough() -> None:
    for version, runs in zip(VERSIONS, (33, 40), strict=True):
        agent, fixture = (
            read_baseline(BASELINES / f"{name}-{version}.yaml") for name in ("agent", "fixture")
        )
        assert all(entry.check for entry in (*agent, *fixture))
        assert len({entry.scenario for entry in agent}) < runs
        # Whatever the fixture cannot do, an agent cannot either.
        assert {(each.scenario, each.check) for each in fixture} <= {
            (each.scenario, each.check) for each in agent
        }
        # Of the extension nothing is excused.
        assert read_baseline(BASELINES / "fixture-tasks.yaml") == ()
        assert len(set(EXTENSION)) == 10
        # What needs no fixture is never excused as a whole, and mostly not at all.
        generic = {"ping", "tools-list", "prompts-list", "resources-list", "caching", "server-initialize"}
        generic |= {"dns-rebinding-protection", "http-header-validation", "server-session-lifecycle"}
        generic |= {"logging-set-level", "completion-complete", "sep-2164-resource-not-found"}
        assert not generic & {entry.scenario for entry in agent}
