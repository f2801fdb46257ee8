"""The tests of a project, as a fleet runs them before new versions of its agents answer."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from pallas.config import Project
from pallas.model import Fault, FaultType, HoldingTest

from .test_run import MOST_NAMED, run_recorded


class ReloadTests:
    """As ``RecordedTests`` of the fleet's reloads."""

    async def leading_to(self, project: Project, agents: Collection[str]) -> Mapping[str, frozenset[str]]:
        """Return the tests with a recording that lead to any of these agents. Raises ConfigError."""
        return await asyncio.to_thread(_leading_to, project, agents)

    async def failing(self, root: Path, names: Collection[str], timeout: float) -> Sequence[HoldingTest]:
        """Return those that do not pass. Raises Fault (CONFIG)."""
        ran = await run_recorded(root, sorted(names) if len(names) <= MOST_NAMED else [], timeout)
        missing = set(names) - {each.name for each in ran.tests}
        if problem := ran.problem or (f"{min(missing)} was not run" if missing else ""):
            raise Fault(FaultType.CONFIG, problem)
        return [
            HoldingTest(each.name, each.failures[0] if each.failures else each.verdict, each.seconds)
            for each in ran.tests
            if each.name in names and each.verdict not in ("passed", "skipped")
        ]


def _leading_to(project: Project, agents: Collection[str]) -> Mapping[str, frozenset[str]]:
    # Nothing of this is imported for a fleet without a gate.
    from .affected_tests import affected_tests
    from .agent_test_file import find_tests

    tests = [each for each in find_tests(project) if any(turn.recording for turn in each.turns)]
    return affected_tests(tests, project, agents)
