"""Warm instances of one agent, leased to one run at a time."""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from pallas.access.bearer_lease import BearerLease
from pallas.model import Fault, FaultType
from pallas.telemetry.trace_context import outside_of_runs

log = logging.getLogger(__name__)

# Seconds that a run waits for an instance, and seconds that making one may take.
LEASE_TIMEOUT = 300.0
MAKE_TIMEOUT = 60.0
# Instances beyond the first that were unused for this long are ended.
IDLE_SECONDS = 300.0


class PooledInstance(Protocol):
    """An instance as the pool sees it; its maker knows more."""

    @property
    def key(self) -> str: ...


class Make[T](Protocol):
    """Builds instance ``number`` for the run that needs it. Raises Fault."""

    def __call__(self, number: int, lease: BearerLease | None, /) -> Coroutine[Any, Any, T]: ...


class Drop[T](Protocol):
    """Ends an instance."""

    def __call__(self, instance: T, /) -> Coroutine[Any, Any, None]: ...


@dataclass(slots=True, eq=False)
class _Waiter[T]:
    owner: str | None
    lease: BearerLease | None
    future: asyncio.Future[T]


class InstancePool[T: PooledInstance]:
    """At most ``limit`` instances, made when runs need more than are idle.

    A run that ends well, or with an ordinary Fault, returns its instance. One that broke or was cancelled
    drops it, since its state is unknown, and another is made when it is needed. With ``pinned`` an instance
    belongs to the owner it was made for (a conversation, a principal) and is lent to no other; the longest
    unused one makes room. A run without an owner gets one that ends with it.

    ``make`` and ``drop`` run in tasks of the pool, in an empty context: a caller that disconnects never
    interrupts them, and no state of its request stays with a connection that others use.
    """

    def __init__(self, make: Make[T], drop: Drop[T], *, limit: int, pinned: bool = False) -> None:
        self._make = make
        self._drop = drop
        self._limit = limit
        self._pinned = pinned
        self._idle: OrderedDict[str, T] = OrderedDict()
        self._owners: dict[str, str | None] = {}
        self._since: dict[str, float] = {}
        self._waiting: list[_Waiter[T]] = []
        self._making: Counter[str | None] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._size = 0
        self._made = 0
        self._closed = False

    @property
    def size(self) -> int:
        """The number of instances alive or being made."""
        return self._size

    @property
    def waiting(self) -> int:
        """The number of runs that wait for an instance."""
        return sum(not waiter.future.done() for waiter in self._waiting)

    async def warm(self, owner: str | None = None) -> None:
        """Make one instance ready. Raises Fault if that fails."""
        async with self.lease(owner):
            pass

    @asynccontextmanager
    async def lease(self, owner: str | None, lease: BearerLease | None = None) -> AsyncIterator[T]:
        """Lease an instance for one run; ``lease`` is the run's bearer lease, for an instance that has to
        be made.

        Raises Fault (UPSTREAM, TRANSPORT, TIMEOUT).
        """
        instance = await self._acquire(owner, lease)
        try:
            yield instance
        except Fault:
            self._hand_back(instance, owner)
            raise
        except BaseException:
            self._give_up(instance)
            raise
        self._hand_back(instance, owner)

    async def trim(self, older_than: float = IDLE_SECONDS) -> None:
        """End idle instances beyond the first that were not used for ``older_than`` seconds."""
        now = asyncio.get_running_loop().time()
        for key, instance in list(self._idle.items()):
            if len(self._idle) > 1 and now - self._since[key] >= older_than:
                del self._idle[key]
                self._end(instance)

    def release(self, owner: str) -> None:
        """End the idle instances of an owner that is gone; one with a run in it stays."""
        for key, instance in list(self._idle.items()):
            if self._owners.get(key) == owner:
                del self._idle[key]
                self._end(instance)

    async def close(self) -> None:
        """End every instance. No runs may start; instances in use end when their runs return them."""
        self._closed = True
        for waiter in self._waiting:
            if not waiter.future.done():
                waiter.future.set_exception(Fault(FaultType.TRANSPORT, "the agent is stopping"))
        for instance in list(self._idle.values()):
            self._end(instance)
        self._idle.clear()
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def _acquire(self, owner: str | None, lease: BearerLease | None) -> T:
        if self._closed:
            raise Fault(FaultType.TRANSPORT, "the agent is stopping")
        if (ready := self._take_idle(owner)) is not None:
            return ready
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(owner, lease, future)
        self._waiting.append(waiter)
        self._grow()
        try:
            async with asyncio.timeout(LEASE_TIMEOUT):
                return await future
        except BaseException as error:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._settle(future.result())  # it arrived in the moment in which the caller left
            future.cancel()
            if isinstance(error, TimeoutError):
                raise Fault(
                    FaultType.TIMEOUT,
                    f"no instance became free within {LEASE_TIMEOUT:.0f} s; raise max_instances or try later",
                ) from None
            raise
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)

    def _take_idle(self, owner: str | None) -> T | None:
        if not self._pinned:
            # Prefer the one used last: its connections and caches are warm, the others may be trimmed.
            return self._idle.popitem()[1] if self._idle else None
        for key, instance in self._idle.items():
            if self._owners.get(key) == owner and owner is not None:
                del self._idle[key]
                return instance
        return None

    def _grow(self) -> None:
        """Make an instance for the first waiting run without one in the making."""
        coming = Counter(self._making)
        for waiter in self._waiting:
            if waiter.future.done():
                continue
            owner = waiter.owner if self._pinned else None
            if coming[owner] > 0:
                coming[owner] -= 1
                continue
            break
        else:
            return
        if self._size >= self._limit:
            if self._pinned and self._idle:
                # Every instance has another owner: the longest unused one makes room.
                _, oldest = self._idle.popitem(last=False)
                self._end(oldest)
            return
        self._size += 1
        self._made += 1
        self._making[owner] += 1
        self._own(self._create(self._made, owner, waiter.lease))

    async def _create(self, number: int, owner: str | None, lease: BearerLease | None) -> None:
        try:
            async with asyncio.timeout(MAKE_TIMEOUT):
                instance = await self._make(number, lease)
        except BaseException as error:
            self._size -= 1
            self._making[owner] -= 1
            if isinstance(error, asyncio.CancelledError):
                raise
            fault = error if isinstance(error, Fault) else _unmade(error)
            if not isinstance(error, Fault):
                log.exception("an instance could not be made")
            if (waiter := self._first_waiting(owner)) is not None:
                waiter.future.set_exception(fault)
            self._grow()
            return
        self._making[owner] -= 1
        self._owners[instance.key] = owner
        self._settle(instance)

    def _hand_back(self, instance: T, owner: str | None) -> None:
        if self._pinned and owner is None:
            self._give_up(instance)  # an unpinned conversation leaves state in its downstreams
        else:
            self._settle(instance)

    def _first_waiting(self, owner: str | None) -> _Waiter[T] | None:
        for waiter in self._waiting:
            if not waiter.future.done() and (not self._pinned or waiter.owner == owner):
                return waiter
        return None

    def _settle(self, instance: T) -> None:
        if self._closed:
            self._end(instance)
            return
        owner = self._owners.get(instance.key)
        if (waiter := self._first_waiting(owner)) is not None:
            waiter.future.set_result(instance)
            return
        if self._pinned and owner is None:
            self._end(instance)  # made for a run that has ended
            return
        self._since[instance.key] = asyncio.get_running_loop().time()
        self._idle[instance.key] = instance
        if self._pinned and self.waiting:
            self._grow()

    def _give_up(self, instance: T) -> None:
        self._end(instance)

    def _end(self, instance: T) -> None:
        self._owners.pop(instance.key, None)
        self._since.pop(instance.key, None)
        self._own(self._finish(instance))

    async def _finish(self, instance: T) -> None:
        try:
            async with asyncio.timeout(MAKE_TIMEOUT):
                await self._drop(instance)
        except Exception:
            log.exception("an instance did not end cleanly")
        finally:
            self._size -= 1
        if self.waiting and not self._closed:
            self._grow()

    def _own(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, context=outside_of_runs())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _unmade(error: BaseException) -> Fault:
    if isinstance(error, TimeoutError):
        return Fault(FaultType.TIMEOUT, f"the agent's downstreams did not answer in {MAKE_TIMEOUT:.0f} s")
    return Fault(FaultType.UPSTREAM, "the agent could not be made ready; the log has the details")
