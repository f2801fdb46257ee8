"""What a reload asks of the tests of a project. Who makes a fleet provides it: the tests use fleets."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from pallas.config import Project
from pallas.model import HoldingTest


class RecordedTests(Protocol):
    """The tests of a project that run from recordings."""

    async def leading_to(self, project: Project, agents: Collection[str]) -> Mapping[str, frozenset[str]]:
        """Return the tests that lead to any of these agents, by name, each with those it leads to.

        Raises ConfigError with every mistake in their files.
        """
        ...

    async def failing(self, root: Path, names: Collection[str], timeout: float) -> Sequence[HoldingTest]:
        """Return those of these tests that do not pass with the files as they are.

        Raises Fault if they could not be run within ``timeout`` seconds. Cancelling it ends them.
        """
        ...
