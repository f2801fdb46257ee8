"""Tests of a project, run from their recordings by a process of their own."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pallas.fleet.parent_death import leashed
from pallas.processes.child_program import run
from pallas.safe_text import sanitize

if TYPE_CHECKING:
    from .agent_test import Verdict

MOST_NAMED: Final = 200
"""Tests that are named on a command line; where more are meant all run."""
MAX_REPORT: Final = 64 * 1024 * 1024
"""Bytes of the report of a process."""
_MAX_WHY: Final = 2_000


@dataclass(frozen=True, slots=True)
class ReportedTest:
    """How a test went, and each reason that it did not pass."""

    name: str
    verdict: "Verdict"
    seconds: float
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """What a process reported, and why it could not run all of them."""

    tests: tuple[ReportedTest, ...] = ()
    problem: str = ""


async def run_recorded(root: Path, names: Sequence[str], timeout: float) -> ReportedRun:
    """Run the tests of these names, all without any, for at most ``timeout`` seconds.

    The process ends with the caller's task, and with this process.
    """
    options = ("--exact", "-o", "json", "--summary", "", "-p", str(root))
    command = leashed((sys.executable, "-P", "-m", "pallas.server", "test", *options, "--", *names))
    ran = await run(command, timeout=timeout, limit=MAX_REPORT, cwd=root, complains=True)
    try:
        tests = tuple(map(_reported, json.loads(ran.output)["tests"]))
    except (ValueError, KeyError, TypeError):
        said = sanitize(ran.complaint.decode("utf-8", "replace"), _MAX_WHY).strip()
        return ReportedRun(problem=said or ran.problem or "pallas test gave no report")
    return ReportedRun(tests, "" if ran.status in (0, 1) else ran.problem)


def _reported(test: Mapping[str, Any]) -> ReportedTest:
    failures = dict.fromkeys(
        sanitize(f"{each['what']}: {each['why']}", _MAX_WHY)
        for trial in test["trials"]
        for each in trial["failures"]
    )
    seconds = sum(float(trial["seconds"]) for trial in test["trials"])
    return ReportedTest(str(test["name"]), test["verdict"], seconds, tuple(failures))
