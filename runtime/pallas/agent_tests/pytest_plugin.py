"""A plugin of pytest: fixtures for tests of agents in Python, and with ``--pallas`` those in YAML.

pytest loads it wherever Pallas is installed, so it imports nothing of Pallas before it is used.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from pallas.fleet.replay_fleet import ReplayOutcome
    from pallas.model import Recording

    from .agent_test import AgentTest
    from .pytest_fleets import AskedFleet, PytestFleets

_FOLDER: Final = ("tests", "agents")
_FLEETS: Final = pytest.StashKey["PytestFleets"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--pallas`` and ``--pallas-live``."""
    group = parser.getgroup("pallas")
    group.addoption(
        "--pallas",
        action="store_true",
        help="Run tests/agents/*.yaml of Pallas projects, from their recordings.",
    )
    group.addoption(
        "--pallas-live",
        action="store_true",
        help="Run them live: models and tools are asked for real.",
    )


@pytest.fixture
def pallas_fleet(request: pytest.FixtureRequest) -> "AskedFleet":
    """The fleet of the project that the test is in: it asks models and tools for real.

    It is started once for each project and stopped at the end.
    """
    return _fleets(request.config).live(_project_of(request))


@pytest.fixture
def pallas_ask(pallas_fleet: "AskedFleet") -> "Callable[..., Recording]":
    """Ask an agent of that fleet: ``pallas_ask(agent, message)`` returns the recording of the run."""
    return pallas_fleet.ask


@pytest.fixture
def pallas_replay(request: pytest.FixtureRequest) -> "Callable[[str | Path], ReplayOutcome]":
    """Replay a recording, by its path in the project: no model and no tool is asked."""
    fleets, root = _fleets(request.config), _project_of(request)
    return lambda path: fleets.replay(root, root / path)


def _fleets(config: pytest.Config) -> "PytestFleets":
    from .pytest_fleets import PytestFleets

    return config.stash.setdefault(_FLEETS, PytestFleets())


def _project_of(request: pytest.FixtureRequest) -> Path:
    """The folder of the project that a test is in. Ends the test where there is none."""
    for folder in request.path.parents:
        if (folder / "agents.yaml").is_file():
            return folder
    pytest.fail(f"there is no agents.yaml in a folder above {request.path}", pytrace=False)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a file of tests of agents."""
    options = ("--pallas", "--pallas-live")
    if file_path.suffix != ".yaml" or not any(parent.config.getoption(each, False) for each in options):
        return None
    root = _root_of(file_path)
    if root is None or any((above / "recording.yaml").exists() for above in file_path.parents):
        return None
    return AgentTestFile.from_parent(parent, path=file_path)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stop the fleets."""
    if (fleets := session.config.stash.get(_FLEETS, None)) is not None:
        fleets.close()


class AgentTestFile(pytest.File):
    """A file of tests."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield its tests. Raises CollectError with the mistakes in it."""
        from pallas.agent_tests.agent_test_file import tests_in
        from pallas.config import ConfigError

        root = _root_of(self.path)
        assert root is not None
        try:
            found = list(tests_in(_fleets(self.config).project(root), [self.path]))
        except ConfigError as error:
            raise self.CollectError(str(error)) from None
        for test in found:
            item = AgentTestItem.from_parent(self, name=test.name)
            item.test, item.root = test, root
            yield item


class AgentTestItem(pytest.Item):
    """One test."""

    test: "AgentTest"
    root: Path

    def runtest(self) -> None:
        """Run it. Raises NotAsExpected, and skips a test that cannot be run in this way."""
        from .pytest_fleets import DEADLINE_S

        fleets = _fleets(self.config)
        run = fleets.run_live if self.config.getoption("--pallas-live") else fleets.run
        try:
            trial = run(self.root, self.test)
        except TimeoutError:
            raise NotAsExpected(f"there was no result within {DEADLINE_S:.0f} s") from None
        if trial.verdict == "skipped":
            pytest.skip(str(trial.failures[0]))
        if trial.verdict != "passed":
            raise NotAsExpected("\n".join(map(str, trial.failures)))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show what was not as expected, without a traceback."""
        if isinstance(excinfo.value, NotAsExpected):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where it is, for reports."""
        return self.path, 0, self.name


class NotAsExpected(Exception):
    """A run was not as its test expects."""


def _root_of(path: Path) -> Path | None:
    """The folder of the project whose tests this file is among; None if it is among none."""
    for folder in path.parents:
        if folder.parts[-2:] == _FOLDER and (folder.parents[1] / "agents.yaml").is_file():
            return folder.parents[1]
    return None
