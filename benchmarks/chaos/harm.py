"""What happens to the replicas and their database, by chance from a seed."""

import asyncio
import random
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from time import time
from typing import Any, Final

from .cluster import Cluster
from .database import PostgresServer
from .replica import Replica

STOP_SECONDS: Final = 20.0


class Harm:
    """Kills, stops, restarts, promotions and updates, in any order, spread over ``seconds``.

    At least one replica stays ready: with none there is nobody who could take over.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        database: PostgresServer | Cluster | None,
        seed: int,
        *,
        kills: int,
        stops: int,
        restarts: int,
        updates: int,
        promotions: int,
        seconds: float,
    ) -> None:
        self._replicas, self._database = replicas, database
        self._chance = random.Random(seed)
        self._kinds = ["kill"] * kills + ["stop"] * stops + ["restart"] * restarts + ["update"] * updates
        self._kinds += ["promote"] * promotions
        self._chance.shuffle(self._kinds)
        self._seconds = seconds
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop: asyncio.Task[None] | None = None
        self.restarts: list[tuple[float, float]] = []
        self.done: list[tuple[float, str, int]] = []

    async def run(self) -> None:
        """Do all of it, and wait until every replica is ready again."""
        pause = self._seconds / max(1, len(self._kinds))
        for kind in self._kinds:
            await asyncio.sleep(self._chance.uniform(0.5, 1.5) * pause)
            if kind == "kill":
                await self._kill()
            elif kind == "stop":
                await self._stop_one()
            elif kind == "restart":
                await self._restart()
            elif kind == "promote":
                await self._promote()
            else:
                await self._update()
        await asyncio.sleep(pause)
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _kill(self) -> None:
        replica = await self._choose()
        self.done.append((time(), "kill", replica.number))
        await replica.kill()
        self._own(replica.start())

    async def _stop_one(self) -> None:
        if self._stop is not None and not self._stop.done():
            await asyncio.wait({self._stop})
        replica = await self._choose()
        self.done.append((time(), "stop", replica.number))
        self._stop = self._own(replica.stop(STOP_SECONDS))
        await asyncio.sleep(0)

    async def _restart(self) -> None:
        assert self._database is not None
        server = self._database.primary if isinstance(self._database, Cluster) else self._database
        began = time()
        self.done.append((began, "restart", -1))
        is_gentle = self._chance.random() < 0.5
        await asyncio.to_thread(server.stop, "fast" if is_gentle else "immediate")
        await asyncio.sleep(self._chance.uniform(0, 3))
        await asyncio.to_thread(server.start)
        self.restarts.append((began, time()))

    async def _promote(self) -> None:
        assert isinstance(self._database, Cluster)
        began = time()
        self.done.append((began, "promote", -1))
        await self._database.promote()
        self.restarts.append((began, time()))

    async def _update(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)
        self.done.append((time(), "update", -1))
        for replica in self._replicas:
            await replica.update()

    async def _choose(self) -> Replica:
        """One of those that are ready, as soon as another is ready too."""
        while True:
            for each in self._replicas:
                if each.died:
                    self._own(each.start())
            usable = [each for each in self._replicas if each.usable]
            if len(usable) > 1:
                return self._chance.choice(usable)
            await asyncio.sleep(0.05)

    def _own(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """End what is under way; a stopped replica goes on."""
        for task in self._tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*self._tasks, return_exceptions=True)
