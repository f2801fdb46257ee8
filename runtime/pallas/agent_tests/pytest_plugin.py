"""A plugin of pytest: with ``--pallas`` it runs ``tests/agents/*.yaml``, each test from its recording.

pytest loads it wherever Pallas is installed, so it imports nothing of Pallas before it is used.
"""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from .agent_test import AgentTest, Trial
    from .recorded_bench import RecordedBench

_FOLDER: Final = ("tests", "agents")
_BENCHES: Final = pytest.StashKey["_Benches"]()
_DEADLINE_S: Final = 300.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--pallas``."""
    parser.getgroup("pallas").addoption(
        "--pallas",
        action="store_true",
        help="Run tests/agents/*.yaml of Pallas projects.",
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a file of tests of agents."""
    if not parent.config.getoption("--pallas", default=False) or file_path.suffix != ".yaml":
        return None
    root = _root_of(file_path)
    if root is None or any((above / "recording.yaml").exists() for above in file_path.parents):
        return None
    return AgentTestFile.from_parent(parent, path=file_path)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stop the fleets."""
    if (benches := session.config.stash.get(_BENCHES, None)) is not None:
        benches.close()


class AgentTestFile(pytest.File):
    """A file of tests."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield its tests. Raises CollectError with the mistakes in it."""
        from pallas.agent_tests.agent_test_file import tests_in
        from pallas.config import ConfigError

        root = _root_of(self.path)
        assert root is not None
        stash = self.config.stash
        benches = stash.setdefault(_BENCHES, _Benches())
        try:
            found = list(tests_in(benches.project(root), [self.path]))
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
        """Run it. Raises NotAsExpected, and skips a test without a recording."""
        try:
            trial = self.config.stash[_BENCHES].run(self.root, self.test)
        except TimeoutError:
            raise NotAsExpected(f"there was no result within {_DEADLINE_S:.0f} s") from None
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


class _Benches:
    """The fleets of this session, one set for each project, in a thread of their own."""

    def __init__(self) -> None:
        self._projects: dict[Path, Any] = {}
        self._benches: dict[Path, RecordedBench] = {}
        self._stack = AsyncExitStack()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def project(self, root: Path) -> Any:
        """The project in a folder, with its ``.env`` in the environment. Raises ConfigError."""
        from pallas.config import export_env, load_project

        if root not in self._projects:
            export_env(root)
            self._projects[root] = load_project(root)
        return self._projects[root]

    def run(self, root: Path, test: "AgentTest") -> "Trial":
        """Run a test in the fleets of its project."""
        return self._wait(self._run(root, test))

    async def _run(self, root: Path, test: "AgentTest") -> "Trial":
        from pallas.agent_tests.agent_test_file import find_tests
        from pallas.agent_tests.recorded_bench import RecordedBench
        from pallas.agent_tests.scorers import Scorers

        bench = self._benches.get(root)
        if bench is None:
            project = self.project(root)
            opened = RecordedBench.opened(project, find_tests(project), Scorers(root))
            bench = self._benches[root] = await self._stack.enter_async_context(opened)
        return await bench.run(test)

    def close(self) -> None:
        """Stop all of them."""
        if self._loop is None or self._thread is None:
            return
        self._wait(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_DEADLINE_S)

    def _wait[T](self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="pallas tests", daemon=True)
            self._thread.start()
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(_DEADLINE_S)
        except BaseException:
            future.cancel()
            raise


def _root_of(path: Path) -> Path | None:
    """The folder of the project whose tests this file is among; None if it is among none."""
    for folder in path.parents:
        if folder.parts[-2:] == _FOLDER and (folder.parents[1] / "agents.yaml").is_file():
            return folder.parents[1]
    return None
