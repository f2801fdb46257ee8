"""The versions of one agent: the one that answers, earlier ones with runs, and one to go back to."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Final

from pallas.config import AgentConfig, Project
from pallas.deadlines import cancel_and_wait
from pallas.executors import Executor, ExecutorInfo
from pallas.model import Fault, FaultType
from pallas.runs.kernel import Kernel
from pallas.telemetry.trace_context import working_as

from .agent_factory import MakeExecutor
from .reload.agent_version import AgentVersion

log = logging.getLogger(__name__)

# How many earlier versions may still have runs in flight, and how many others may be closing.
MAX_PREDECESSORS: Final = 4
# Seconds an executor has to end while the fleet goes on (an instance that is being made is finished first),
# and when the fleet ends.
_PATIENCE: Final = 65.0
_HURRY: Final = 3.0
# Seconds until a failed version is reported, even if its executor has not ended yet.
_GRACE: Final = 1.0


@dataclass(eq=False, slots=True)
class _Leaving:
    """A version that finishes its runs: ``ending`` once none is left, ``recalled`` if it answers again."""

    task: asyncio.Task[None]
    ending: bool = False
    recalled: bool = False


class AgentVersions:
    """Makes, switches, parks and ends the versions of the agent ``name``. Belongs to one event loop.

    It ends all that it made, in tasks of its own: a caller that is cancelled leaves nothing behind.
    ``version`` answers; ``spare`` is the one before it, parked as soon as its runs are over. One that is the
    same byte for byte is no other version. While none answers, ``rested`` is the last that did; ``broken`` is
    the last that failed by itself.
    """

    def __init__(self, name: str, kernel: Kernel, make: MakeExecutor) -> None:
        self._name = name
        self._kernel = kernel
        self._make_executor = make
        self._alive: dict[int, Executor] = {}
        self._closing: dict[int, Executor] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._leaving: dict[AgentVersion, _Leaving] = {}
        self._count = 0
        self._is_closed = False
        self.version: AgentVersion | None = None
        self.spare: AgentVersion | None = None
        self.rested: AgentVersion | None = None
        self.broken: AgentVersion | None = None
        self.attempted: ExecutorInfo | None = None

    @property
    def current(self) -> Executor | None:
        """The executor that answers now."""
        return self.version.executor if self.version is not None else None

    @property
    def before(self) -> AgentVersion | None:
        """The version to go back to; never the one that broke, which is why an operator goes back."""
        if self.rested is not None and self.rested is self.broken:
            return self.spare
        return self.rested or self.spare

    @property
    def predecessors(self) -> int:
        """Versions that were exchanged and still have runs in flight."""
        return sum(not leaving.ending for leaving in self._leaving.values())

    def forgive(self) -> None:
        """Forget which version broke: it may be started again, or gone back to."""
        self.broken = None

    def break_current(self) -> None:
        """Note that the version that answers has failed by itself."""
        self.broken = self.version

    def forget_attempt(self) -> None:
        """Forget the attempt that failed: the files are as they were before it."""
        self.attempted = None

    async def make(
        self,
        project: Project,
        config: AgentConfig,
        *,
        fresh: bool,
        loaded: Callable[[Executor], Awaitable[None]] | None = None,
        also: Collection[Path] = (),
    ) -> AgentVersion:
        """Make a new version, ready to answer. ``loaded`` is called before it connects.

        ``also`` are further files that affect it. Waits while many others are just being
        closed. Raises what its ``load`` and ``start`` raise; a version that did not get ready is closed, and
        ``attempted`` describes it, None after a success.
        """
        while len(self._ending) >= MAX_PREDECESSORS:
            await asyncio.wait(self._ending, return_when=asyncio.FIRST_COMPLETED)
        since = time()
        executor = await self._make_executor(project, config)
        self._alive[id(executor)] = executor
        version = AgentVersion(project, config, executor)
        try:
            with working_as(self._name):
                await executor.load(fresh=fresh)
                if loaded is not None:
                    await loaded(executor)
                await executor.start()
            await asyncio.to_thread(version.look, since, also)
        except BaseException:
            self.attempted = executor.info
            await self._ended(executor, _GRACE)
            raise
        self.attempted = None
        return version

    async def give_up(self, version: AgentVersion) -> None:
        """End a version that was made and is not to answer; ``attempted`` describes it."""
        self.attempted = version.executor.info
        await self._ended(version.executor, _GRACE)

    async def returning(self, version: AgentVersion | None = None) -> AgentVersion:
        """That version, else the one before, ready to answer once more; ``switch_to`` it at once.

        Raises Fault (CONFIG) where there is none, and what its ``start`` raises: it stays parked then.
        """
        version = version or self.before
        if version is None:
            raise Fault(FaultType.CONFIG, "there is no earlier version to go back to")
        try:
            leaving = self._leaving.get(version)
            if leaving is not None and not leaving.ending:  # it still answers: it need not be started
                leaving.recalled = True
                leaving.task.cancel()
                await asyncio.wait({leaving.task})
                self._leaving.pop(version, None)  # it may not even have begun
                return version
            if leaving is not None:
                await asyncio.wait({leaving.task})
            with working_as(self._name):
                await version.executor.start()
        except BaseException:
            if version not in self._leaving:
                self._send_off(version, 0.0)
            raise
        return version

    def switch_to(self, successor: AgentVersion, seconds: float) -> None:
        """From now on ``successor`` answers; who did has ``seconds`` for its runs, then it is parked."""
        left, self.version = self.version, successor
        before, self.rested = left or self.rested, None
        older = self.spare
        if before is None or before is successor:
            self.spare = None if older is successor else older
        elif not successor.number and successor.is_as_before(before):
            successor.number = before.number
        else:
            self.spare = before
        if not successor.number:
            self._count += 1
            successor.number = self._count
        if left is not None:
            self._send_off(left, seconds)
        for each in (older, before):
            if each not in (None, successor, self.spare) and each not in self._leaving:
                self._send_off(each, 0.0)

    async def end(self) -> None:
        """End the version that answers; returns when what it ran is gone. Its runs must be over."""
        before, self.version = self.version, None
        if before is not None:
            self.rested = before
            await asyncio.wait({self._send_off(before, 0.0)})  # who waits may be cancelled, this may not

    async def all_ended(self) -> None:
        """Wait until abandoned executors have ended what they ran; the caller bounds it."""
        while self._ending:
            await asyncio.wait(self._ending)

    async def close(self) -> None:
        """End all of them, within seconds; runs in flight must be over."""
        self._is_closed = True
        everyone = {**self._alive, **self._closing}
        self._alive.clear()
        self.version = self.spare = self.rested = None
        await asyncio.gather(*(self._close(executor, _HURRY) for executor in everyone.values()))
        if left := {*self._ending, *(leaving.task for leaving in self._leaving.values())}:
            await cancel_and_wait(*left, seconds=1.0)

    def _send_off(self, version: AgentVersion, seconds: float) -> asyncio.Task[None]:
        task = asyncio.create_task(self._leave(version, seconds), name=f"{self._name}: leaving")
        self._leaving[version] = _Leaving(task)
        return task

    async def _leave(self, version: AgentVersion, seconds: float) -> None:
        """Finish the runs, then park the version while it may be gone back to, else end it."""
        leaving = self._leaving[version]
        try:
            if seconds:
                why = "its agent was reloaded long ago"
                await self._kernel.drain(self._name, seconds, why, on=version.executor)
            leaving.ending = True
            if self._is_wanted(version):
                try:
                    await version.executor.park(_PATIENCE)
                except Exception:
                    log.exception("%s: an executor cannot be kept", self._name)
                    self.spare = None if self.spare is version else self.spare
                    self.rested = None if self.rested is version else self.rested
            if not self._is_wanted(version) and not self._is_closed:
                await self._ended(version.executor)
        except asyncio.CancelledError:
            if not leaving.recalled and not self._is_closed:
                raise
        finally:
            self._leaving.pop(version, None)

    def _is_wanted(self, version: AgentVersion) -> bool:
        return version in (self.spare, self.rested)

    async def _ended(self, executor: Executor, wait_s: float | None = None) -> None:
        if self._alive.pop(id(executor), None) is None:
            return
        self._closing[id(executor)] = executor
        task = asyncio.create_task(self._close(executor, _PATIENCE), name=f"{self._name}: close executor")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        await asyncio.wait({task}, timeout=wait_s)  # who waits may be cancelled, the closing may not

    async def _close(self, executor: Executor, seconds: float) -> None:
        try:
            await executor.close(seconds)
        except Exception:
            log.exception("%s: an executor did not close cleanly", self._name)
        finally:
            self._closing.pop(id(executor), None)
