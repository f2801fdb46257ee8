"""The fleets of a session of pytest: those that answer from recordings, and those that ask for real."""

import asyncio
import base64
import threading
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from pallas.bounds.images import kind_of
from pallas.config import Project, export_env, load_project
from pallas.fleet.replay_fleet import ReplayOutcome
from pallas.model import Image, Recording

from .agent_test import AgentTest, Trial, TurnTest
from .agent_test_file import find_tests
from .live_bench import LiveBench
from .recorded_bench import RecordedBench, own_bench
from .scorers import Scorers

DEADLINE_S: Final = 300.0
"""Seconds that a call may take: the start of a fleet, a run, a replay."""


class AskedFleet:
    """A fleet of a project in this process: its models and tools are asked for real.

    Its ledger is in memory. While it runs the working directory is the project's folder, ``root``; ``url`` is
    where its REST API is.
    """

    def __init__(self, root: Path, bench: LiveBench, loop: "LoopThread") -> None:
        self.root = root
        self.url = bench.url
        self._bench = bench
        self._loop = loop
        self._threads: dict[str, str] = {}

    def ask(
        self, agent: str, message: str, *, images: Sequence[Path | str] = (), after: Recording | None = None
    ) -> Recording:
        """Ask an agent and return the recording of the run, also of one that failed.

        ``images`` are files, relative to the project. With the recording of a run that was asked here as
        ``after`` it goes on in that conversation. Raises Fault, OSError, ValueError.
        """
        if after is not None and after.first.id not in self._threads:
            raise ValueError(
                f"run {after.first.id} was not asked in this fleet, so it has no conversation here"
            )
        pictures = tuple(_picture(self.root / path) for path in images)
        thread = "" if after is None else self._threads[after.first.id]
        recording, thread = self._loop.wait(self._bench.ask(agent, TurnTest(message, pictures), thread))
        self._threads[recording.first.id] = thread
        return recording


class PytestFleets:
    """The fleets of each project, in threads of their own: a replay takes all that its event loop asks."""

    def __init__(self) -> None:
        self._projects: dict[Path, Project] = {}
        self._recorded: dict[Path, RecordedBench] = {}
        self._live: dict[Path, tuple[LiveBench, AskedFleet]] = {}
        self._replays, self._asks = LoopThread("pallas replays"), LoopThread("pallas fleets")

    def project(self, root: Path) -> Project:
        """The project in a folder, with its ``.env`` in the environment. Raises ConfigError."""
        if root not in self._projects:
            export_env(root)
            self._projects[root] = load_project(root)
        return self._projects[root]

    def run(self, root: Path, test: AgentTest) -> Trial:
        """Run a test of a project from its recording."""
        return self._replays.wait(self._run(root, test))

    def replay(self, root: Path, recording: Path) -> ReplayOutcome:
        """Replay a recording. Raises BadRecording, OSError, Fault."""
        return self._replays.wait(self._replay(root, recording))

    def run_live(self, root: Path, test: AgentTest) -> Trial:
        """Run a test of a project in its fleet."""
        self.live(root)
        return self._asks.wait(self._live[root][0].run(test))

    def live(self, root: Path) -> AskedFleet:
        """The fleet of a project, which is started when it is first asked for. Raises ConfigError, Fault."""
        if root not in self._live:
            project = self.project(root)
            entered = self._asks.stack.enter_async_context(
                own_bench(project, list(project.agents), Scorers(root))
            )
            bench = self._asks.wait(entered)
            self._live[root] = bench, AskedFleet(root, bench, self._asks)
        return self._live[root][1]

    def close(self) -> None:
        """Stop all of them."""
        self._asks.close()
        self._replays.close()

    async def _run(self, root: Path, test: AgentTest) -> Trial:
        return await (await self._bench(root)).run(test)

    async def _replay(self, root: Path, recording: Path) -> ReplayOutcome:
        return await (await self._bench(root)).replay(recording)

    async def _bench(self, root: Path) -> RecordedBench:
        bench = self._recorded.get(root)
        if bench is None:
            project = self.project(root)
            opened = RecordedBench.opened(project, find_tests(project), Scorers(root))
            bench = self._recorded[root] = await self._replays.stack.enter_async_context(opened)
        return bench


def _picture(path: Path) -> Image:
    data = path.read_bytes()
    if (kind := kind_of(data)) is None:
        raise ValueError(f"{path} is not a picture; allowed: PNG, JPEG, GIF or WebP")
    return Image(base64.b64encode(data).decode(), kind)


class LoopThread:
    """An event loop in a thread, which is begun by the first call. ``stack`` is left in it at the end."""

    def __init__(self, name: str) -> None:
        self.stack = AsyncExitStack()
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def wait[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Run it there, and return its result. Raises TimeoutError."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
            self._thread.start()
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(DEADLINE_S)
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Leave the stack, and end the thread."""
        if self._loop is None or self._thread is None:
            return
        self.wait(self.stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
