"""What the suite printed, read; and what is made of it."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from .baseline import Entry

_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_COUNT: Final = re.compile(r"^Running .* \((\d+) scenarios\)", re.MULTILINE)
_SCENARIO: Final = re.compile(
    r"^[✓✗] (?P<name>[a-z0-9-]+): (?P<passed>\d+) passed, \d+ failed$", re.MULTILINE
)
_FOLDER: Final = re.compile(r"server-(?P<name>[a-z0-9-]+?)-\d{4}-\d\d-\d\dT.*")
# The suite's own verdicts, each a headline over a list. A warning counts as a failure to it.
_VERDICTS: Final = re.compile(
    r"^(?P<kind>Expected failures|Stale baseline entries|Unexpected failures) \(.*\):\n"
    r"(?P<list>(?:  .*\n?)+)",
    re.MULTILINE,
)


class Outcome(StrEnum):
    """How a scenario ended, told against the baseline."""

    PASSED = "pass"
    EXPECTED = "expected"
    SKIPPED = "skip"
    STALE = "STALE"
    FAILED = "FAIL"


@dataclass(frozen=True, slots=True)
class ScenarioRun:
    """One scenario in one protocol version against one agent; ``checks`` of it passed."""

    agent: str
    version: str
    scenario: str
    outcome: Outcome
    checks: int
    note: str = ""

    def __str__(self) -> str:
        what = f"{self.outcome:<8}  {self.version}  {self.agent:<10}  {self.scenario}"
        return f"{what}: {self.note}" if self.note else what


def read_report(
    printed: str, results: Path, *, agent: str, version: str, baseline: Sequence[Entry]
) -> tuple[ScenarioRun, ...]:
    """The runs of one start of the suite, from its output and the folder of its results.

    ``baseline`` is what the suite judged by. Raises ValueError when the output is not whole, or when the
    baseline names a scenario that the suite did not run.
    """
    text = _COLOURS.sub("", printed)
    announced = _COUNT.search(text)
    found = list(_SCENARIO.finditer(text))
    if announced is None or int(announced[1]) != len(found) or not found:
        raise ValueError(f"the suite told of {len(found)} scenarios, not of the {announced and announced[1]}")
    if unknown := {entry.scenario for entry in baseline} - {scenario["name"] for scenario in found}:
        raise ValueError(f"the baseline names scenarios that are not run: {', '.join(sorted(unknown))}")
    verdicts = dict(_verdicts(text))
    problems = _problems(results)
    runs = []
    for scenario in found:
        name = scenario["name"]
        wrong = problems.get(name, {})
        # The suite lets an entry pass whose check it never came to. Here it has to be needed.
        idle = [each for each in baseline if each.scenario == name and each.check and each.check not in wrong]
        note = ""
        if name in verdicts.get("Unexpected failures", ()):
            told = (f"{check}: {words}" for check, words in wrong.items())
            outcome, note = Outcome.FAILED, "; ".join(told) or "it gave no result"
        elif idle or name in verdicts.get("Stale baseline entries", ()):
            which = ", ".join(entry.check for entry in idle) or "it"
            outcome, note = Outcome.STALE, f"{which} does not fail; take it out of the baseline"
        elif name in verdicts.get("Expected failures", ()):
            reasons = dict.fromkeys(each.reason for each in baseline if each.scenario == name)
            outcome, note = Outcome.EXPECTED, "; ".join(reasons)
        else:
            outcome = Outcome.PASSED
        runs.append(ScenarioRun(agent, version, name, outcome, int(scenario["passed"]), note))
    return tuple(runs)


def read_scenario(
    results: Path, *, agent: str, version: str, scenario: str, baseline: Sequence[Entry]
) -> ScenarioRun:
    """The run of a scenario that was started by its name, from the folder of its results.

    The suite judges only whole suites against a baseline: here the same is done for one. A scenario in which
    the suite made no check is skipped. Raises ValueError when there is no result.
    """
    checks = _checks(results).get(scenario)
    if not checks:
        raise ValueError(f"{scenario} gave no result")
    wrong = _wrong(checks)
    entries = [entry for entry in baseline if entry.scenario == scenario]
    told = [f"{check}: {words}" for check, words in wrong.items() if not _expects(entries, check)]
    idle = [entry for entry in entries if not (entry.check in wrong if entry.check else wrong)]
    passed = sum(check["status"] == "SUCCESS" for check in checks)
    if told:
        outcome, note = Outcome.FAILED, "; ".join(told)
    elif idle:
        which = ", ".join(entry.check or "it" for entry in idle)
        outcome, note = Outcome.STALE, f"{which} does not fail; take it out of the baseline"
    elif wrong:
        outcome, note = Outcome.EXPECTED, "; ".join(dict.fromkeys(entry.reason for entry in entries))
    elif not passed:
        outcome, note = Outcome.SKIPPED, checks[0].get("errorMessage") or "the suite makes no check in it"
    else:
        outcome, note = Outcome.PASSED, ""
    return ScenarioRun(agent, version, scenario, outcome, passed, note)


def summary(runs: Sequence[ScenarioRun], *, least: dict[str, int]) -> tuple[list[str], bool]:
    """Lines to print, and whether all is as it should be: nothing failed, nothing stale, enough passed.

    ``least`` says for an agent how many of its runs must pass. No run at all is not good.
    """
    lines, good = [], bool(runs)
    for agent in dict.fromkeys([*(run.agent for run in runs), *least]):
        counts = dict.fromkeys(Outcome, 0)
        for run in runs:
            if run.agent == agent:
                counts[run.outcome] += 1
        total, passed = sum(counts.values()), counts[Outcome.PASSED]
        line = f"{agent:<10}  {passed} of {total} passed, {counts[Outcome.EXPECTED]} cannot apply"
        if counts[Outcome.SKIPPED]:
            line += f", {counts[Outcome.SKIPPED]} skipped by the suite"
        wrong = counts[Outcome.FAILED] + counts[Outcome.STALE]
        if wrong:
            line += f", {counts[Outcome.FAILED]} failed, {counts[Outcome.STALE]} stale"
        if passed < least.get(agent, 0):
            line += f"; at least {least[agent]} must pass"
        good = good and not wrong and passed >= least.get(agent, 0)
        lines.append(line)
    return lines, good


def _verdicts(text: str) -> Iterable[tuple[str, frozenset[str]]]:
    for found in _VERDICTS.finditer(text):
        # `  ~ scenario` or `  ~ scenario:check`
        names = (line.split()[-1].partition(":")[0] for line in found["list"].splitlines())
        yield found["kind"], frozenset(names)


def _problems(results: Path) -> dict[str, dict[str, str]]:
    """By scenario, the checks that failed in it, with the suite's words."""
    return {name: _wrong(checks) for name, checks in _checks(results).items()}


def _checks(results: Path) -> dict[str, list[dict[str, Any]]]:
    """By scenario, all that was checked in it."""
    told: dict[str, list[dict[str, Any]]] = {}
    for file in sorted(results.glob("server-*/checks.json")):
        folder = _FOLDER.fullmatch(file.parent.name)
        if folder is not None:
            told[folder["name"]] = json.loads(file.read_text("utf-8"))
    return told


def _wrong(checks: Sequence[dict[str, Any]]) -> dict[str, str]:
    return {
        check["id"]: check.get("errorMessage") or "?"
        for check in checks
        if check["status"] in ("FAILURE", "WARNING")
    }


def _expects(entries: Sequence[Entry], check: str) -> bool:
    return any(entry.check in ("", check) for entry in entries)
