"""One backend: its limits, and its recent health (HC-27 to HC-29)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from pallas.config.kinds import BackendConfig
from pallas.model import Fault, FaultType

MINUTE: Final = 60.0

FAILING_SECONDS: Final = 30.0
"""Seconds for which a backend that failed is asked after the others."""
MAX_WAITING: Final = 1_000
"""Questions that may wait for one backend."""

Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]


class TokenBucket:
    """``capacity`` tokens, refilled within a minute; 0 for no limit. ``clock`` counts seconds."""

    def __init__(self, capacity: int, clock: Callable[[], float]) -> None:
        self.capacity = capacity
        self._clock = clock
        self._level = float(capacity)
        self._filled = clock()

    @property
    def level(self) -> float:
        """Tokens available now; below 0 when tokens are already promised."""
        self._fill()
        return self._level

    def holds(self, amount: int) -> bool:
        """Return whether so many tokens could ever be taken."""
        return not self.capacity or amount <= self.capacity

    def wait_for(self, amount: int) -> float:
        """Return the seconds until so many may be used, after all earlier promises."""
        if not self.capacity:
            return 0.0
        return max(0.0, amount - self.level) * MINUTE / self.capacity

    def take(self, amount: int) -> float:
        """Take so many, now or as they are refilled; returns the seconds to wait before using them."""
        wait = self.wait_for(amount)
        if self.capacity:
            self._level -= amount
        return wait

    def settle(self, taken: int, used: int) -> None:
        """Correct to the ``used`` amount: returns the rest, or owes an excess of up to one minute."""
        if not self.capacity:
            return
        self._fill()
        more = used - taken
        if more > 0:
            # Those that wait were promised their time: an excess of one answer delays only later questions.
            self._level = max(self._level - more, min(self._level, -float(self.capacity)))
        else:
            self._level = min(float(self.capacity), self._level - more)

    def _fill(self) -> None:
        now = self._clock()
        gained = (now - self._filled) * self.capacity / MINUTE
        self._level = min(float(self.capacity), self._level + gained)
        self._filled = now


class Busy(Fault):
    """A backend has no room for this question in time. It was not asked, and nothing failed."""


@dataclass(slots=True)
class BackendTurn:
    """A question's turn at a backend, after ``waited`` seconds, with ``taken`` tokens of its bucket."""

    waited: float
    taken: int
    used: int | None = None


class Backend:
    """The state of a backend in this process. ``clock`` and ``sleep`` count seconds."""

    def __init__(self, config: BackendConfig, *, clock: Clock, sleep: Sleep) -> None:
        self.config = config
        self.bucket = TokenBucket(config.rate_limit_tpm, clock)
        self.active = 0
        self.waiting = 0
        self.why = ""
        self._clock = clock
        self._sleep = sleep
        self._slots = asyncio.Semaphore(max(1, config.max_concurrent))
        self._failing_until = 0.0
        self._closed_until = 0.0

    @property
    def id(self) -> str:
        """The id in the configuration."""
        return self.config.id

    @property
    def load(self) -> float:
        """The share of its concurrency in use, waiting questions included; 1.0 is full."""
        return (self.active + self.waiting) / max(1, self.config.max_concurrent)

    @property
    def failing(self) -> bool:
        """Whether it failed recently."""
        return self._failing_until > self._clock()

    @property
    def closed_for(self) -> float:
        """Seconds for which it asked not to be called (``Retry-After``)."""
        return max(0.0, self._closed_until - self._clock())

    def failed(self, why: str, retry_after: float = 0.0) -> None:
        """Record a failure; the backend is not called for ``retry_after`` seconds."""
        now = self._clock()
        self.why = why
        self._failing_until = now + max(FAILING_SECONDS, retry_after)
        self._closed_until = max(self._closed_until, now + retry_after)

    def answered(self) -> None:
        """Record a success."""
        self.why, self._failing_until = "", 0.0

    @asynccontextmanager
    async def turn(self, tokens: int, within: float) -> AsyncIterator[BackendTurn]:
        """Wait for a turn, ``within`` seconds at most; the turn lasts as long as the block.

        Raises Busy at once if it would come later. The tokens that the block sets as ``used`` of the turn are
        finally charged to the bucket.
        """
        if self.waiting >= MAX_WAITING:
            raise self._busy(f"{MAX_WAITING} questions wait for it already")
        began = self._clock()
        self.waiting += 1
        try:
            try:
                async with asyncio.timeout(within):
                    await self._slots.acquire()
            except TimeoutError:
                raise self._busy(f"it answers {self.config.max_concurrent} at a time") from None
            try:
                await self._tokens(tokens, within - (self._clock() - began))
            except BaseException:
                self._slots.release()
                raise
        finally:
            self.waiting -= 1
        turn = BackendTurn(self._clock() - began, tokens)
        self.active += 1
        try:
            yield turn
        finally:
            self.active -= 1
            self._slots.release()
            self.bucket.settle(tokens, tokens if turn.used is None else turn.used)

    async def _tokens(self, tokens: int, within: float) -> None:
        wait = self.bucket.wait_for(tokens)
        if wait > within:
            raise self._busy(f"it has room for about {tokens:,} tokens in {wait:.0f} s only")
        wait = self.bucket.take(tokens)
        if not wait:
            return
        try:
            await self._sleep(wait)
        except BaseException:
            self.bucket.settle(tokens, 0)
            raise

    def _busy(self, why: str) -> Busy:
        return Busy(
            FaultType.TRANSPORT,
            f"backend {self.id} is busy: {why}; try again later, or raise its limits under llm.backends",
            data={"providerId": self.id},
        )
