"""Warm instances of one agent, leased a run at a time."""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from pallas.model import Fault, FaultType

log = logging.getLogger(__name__)

# How long a run waits for an instance, and how long making one may take, in seconds.
LEASE_TIMEOUT = 300.0
MAKE_TIMEOUT = 60.0
# Instances beyond the first that nobody used for this long are let go.
IDLE_SECONDS = 300.0


class Instance(Protocol):
    """What the pool owns; its maker knows more."""

    @property
    def key(self) -> str: ...


class Pool[T: Instance]:
    """At most ``limit`` instances, made when runs ask for more than are idle.

    A run that ends well, or with a Fault of its own, hands its instance back; one that broke or was
    cancelled gives it up, since nobody knows what state it is in, and another is made when one is wanted.
    With ``pinned`` an instance belongs to the conversation that leased it until it is the longest unused.

    ``make(number)`` builds an instance (raises Fault), ``drop(instance)`` ends one. Both run in tasks
    of the pool: a caller that goes away never interrupts them half-way.
    """

    def __init__(
        self,
        make: Callable[[int], Awaitable[T]],
        drop: Callable[[T], Awaitable[None]],
        *,
        limit: int,
        pinned: bool = False,
    ) -> None:
        self._make = make
        self._drop = drop
        self._limit = limit
        self._pinned = pinned
        self._idle: OrderedDict[str, T] = OrderedDict()
        self._owners: dict[str, str | None] = {}
        self._since: dict[str, float] = {}
        self._waiting: deque[tuple[str | None, asyncio.Future[T]]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._size = 0
        self._made = 0
        self._closed = False

    @property
    def size(self) -> int:
        """Instances alive or being made."""
        return self._size

    @property
    def waiting(self) -> int:
        """Runs that wait for an instance."""
        return sum(1 for _, waiter in self._waiting if not waiter.done())

    async def warm(self) -> None:
        """Have one instance ready. Raises Fault when it cannot be made."""
        async with self.lease(None):
            pass

    @asynccontextmanager
    async def lease(self, conversation: str | None) -> AsyncIterator[T]:
        """An instance for one run. Raises Fault (UPSTREAM, TRANSPORT, TIMEOUT)."""
        instance = await self._acquire(conversation)
        try:
            yield instance
        except Fault:
            self._hand_back(instance, conversation)
            raise
        except BaseException:
            self._give_up(instance)
            raise
        self._hand_back(instance, conversation)

    async def trim(self, older_than: float = IDLE_SECONDS) -> None:
        """Let go of idle instances beyond the first that were not used for ``older_than`` seconds."""
        now = asyncio.get_running_loop().time()
        for key, instance in list(self._idle.items()):
            if len(self._idle) > 1 and now - self._since[key] >= older_than:
                del self._idle[key]
                self._end(instance)

    async def close(self) -> None:
        """End every instance. Runs in flight must be over: theirs are ended as they come back."""
        self._closed = True
        for _, waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(Fault(FaultType.TRANSPORT, "the agent is stopping"))
        for instance in list(self._idle.values()):
            self._end(instance)
        self._idle.clear()
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def _acquire(self, conversation: str | None) -> T:
        if self._closed:
            raise Fault(FaultType.TRANSPORT, "the agent is stopping")
        if (ready := self._take_idle(conversation)) is not None:
            return ready
        waiter: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((conversation, waiter))
        self._grow()
        try:
            async with asyncio.timeout(LEASE_TIMEOUT):
                return await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._settle(waiter.result())  # it came in the very moment the caller left
            waiter.cancel()
            if isinstance(error, TimeoutError):
                raise Fault(
                    FaultType.TIMEOUT,
                    f"no instance became free within {LEASE_TIMEOUT:.0f} s; raise max_instances or try later",
                ) from None
            raise

    def _take_idle(self, conversation: str | None) -> T | None:
        if not self._pinned:
            # The one used last: its connections and caches are warm, the others may be trimmed.
            return self._idle.popitem()[1] if self._idle else None
        for key, instance in self._idle.items():
            if self._owners.get(key) == conversation and conversation is not None:
                del self._idle[key]
                return instance
        for key, instance in self._idle.items():
            if self._owners.get(key) is None:
                del self._idle[key]
                self._owners[key] = conversation
                return instance
        return None

    def _grow(self) -> None:
        if self._size >= self._limit:
            if not (self._pinned and self._idle):
                return
            # Every instance belongs to a conversation: the longest unused one makes room.
            _, oldest = self._idle.popitem(last=False)
            self._end(oldest)
            return
        self._size += 1
        self._made += 1
        self._own(self._create(self._made))

    async def _create(self, number: int) -> None:
        try:
            async with asyncio.timeout(MAKE_TIMEOUT):
                instance = await self._make(number)
        except BaseException as error:
            self._size -= 1
            if isinstance(error, asyncio.CancelledError):
                raise
            fault = error if isinstance(error, Fault) else _unmade(error)
            if not isinstance(error, Fault):
                log.exception("an instance could not be made")
            while self._waiting:
                _, waiter = self._waiting.popleft()
                if not waiter.done():
                    waiter.set_exception(fault)
                    break
            return
        self._settle(instance)

    def _hand_back(self, instance: T, conversation: str | None) -> None:
        if self._pinned and conversation is None:
            self._give_up(instance)  # a throw-away conversation leaves its downstreams' state behind
        else:
            self._settle(instance)

    def _settle(self, instance: T) -> None:
        if self._closed:
            self._end(instance)
            return
        owner = self._owners.get(instance.key)
        for index, (conversation, waiter) in enumerate(self._waiting):
            if waiter.done():
                continue
            if self._pinned and owner is not None and owner != conversation:
                continue
            del self._waiting[index]
            self._owners[instance.key] = conversation if self._pinned else None
            waiter.set_result(instance)
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

    def _own(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _unmade(error: BaseException) -> Fault:
    if isinstance(error, TimeoutError):
        return Fault(FaultType.TIMEOUT, f"the agent's downstreams did not answer in {MAKE_TIMEOUT:.0f} s")
    return Fault(FaultType.UPSTREAM, "the agent could not be made ready; the log has the details")
