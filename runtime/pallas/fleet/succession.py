"""Who answers for an agent: the executor of now, and earlier ones until their runs are over."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from pallas.config import AgentConfig, Project
from pallas.executors import Executor
from pallas.kernel import Kernel

log = logging.getLogger(__name__)

MakeExecutor = Callable[[Project, AgentConfig], Awaitable[Executor]]

# How many earlier executors may still have runs in flight, and how many others may be closing.
MAX_PREDECESSORS: Final = 4
# Seconds an executor has to end while the fleet goes on (an instance that is being made is finished first),
# and when the fleet ends.
_PATIENCE: Final = 65.0
_HURRY: Final = 3.0


class Succession:
    """Makes, exchanges and ends the executors of the agent ``name``. Belongs to one event loop.

    Whatever it made it also ends, in tasks of its own: a caller that is cancelled leaves nothing behind.
    """

    def __init__(self, name: str, kernel: Kernel, make: MakeExecutor) -> None:
        self._name = name
        self._kernel = kernel
        self._make = make
        self._alive: dict[int, Executor] = {}
        self._closing: dict[int, Executor] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._predecessors: set[asyncio.Task[None]] = set()
        self._draining = 0
        self.current: Executor | None = None

    @property
    def predecessors(self) -> int:
        """Executors that were exchanged and still have runs in flight."""
        return self._draining

    async def made(
        self,
        project: Project,
        config: AgentConfig,
        *,
        fresh: bool,
        loaded: Callable[[Executor], Awaitable[None]] | None = None,
    ) -> Executor:
        """A new executor, ready to answer; it is nobody's yet. ``loaded`` is called before it connects.

        Waits while many others are just being closed. Raises what its ``load`` and ``start`` raise; one that
        did not get ready is closed.
        """
        while len(self._ending) >= MAX_PREDECESSORS:
            await asyncio.wait(self._ending, return_when=asyncio.FIRST_COMPLETED)
        executor = await self._make(project, config)
        self._alive[id(executor)] = executor
        try:
            await executor.load(fresh=fresh)
            if loaded is not None:
                await loaded(executor)
            await executor.start()
        except BaseException:
            await self._ended(executor)
            raise
        return executor

    def exchange(self, successor: Executor, seconds: float) -> None:
        """From now on ``successor`` answers; the one before has ``seconds`` for its runs, then it ends."""
        before, self.current = self.current, successor
        if before is not None:
            self._draining += 1
            task = asyncio.create_task(self._retire(before, seconds), name=f"{self._name}: predecessor")
            self._predecessors.add(task)
            task.add_done_callback(self._predecessors.discard)

    async def end(self) -> None:
        """Nobody answers any more; returns when the executor is closed. Its runs must be over."""
        before, self.current = self.current, None
        if before is not None:
            await self._ended(before)

    async def close(self) -> None:
        """End all of them, within seconds; runs in flight must be over."""
        everyone = {**self._alive, **self._closing}
        self._alive.clear()
        self.current = None
        await asyncio.gather(*(self._close(executor, _HURRY) for executor in everyone.values()))
        if left := {*self._ending, *self._predecessors}:
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=1.0)

    async def _retire(self, before: Executor, seconds: float) -> None:
        try:
            await self._kernel.drain(self._name, seconds, "its agent was reloaded long ago", on=before)
        finally:
            self._draining -= 1
            await self._ended(before)

    async def _ended(self, executor: Executor) -> None:
        if self._alive.pop(id(executor), None) is None:
            return
        self._closing[id(executor)] = executor
        task = asyncio.create_task(self._close(executor, _PATIENCE), name=f"{self._name}: close executor")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        await asyncio.wait({task})  # who waits may be cancelled, the closing may not

    async def _close(self, executor: Executor, seconds: float) -> None:
        try:
            await executor.close(seconds)
        except Exception:
            log.exception("%s: an executor did not close cleanly", self._name)
        finally:
            self._closing.pop(id(executor), None)
