"""Decides when a failed agent or program is started again, and when no more; no I/O, no task."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from time import monotonic
from typing import Final

from pallas.config.models import RestartConfig

JITTER: Final = 0.1
"""The part of a delay that chance may take off, so that what failed together does not return together."""


class AfterFailure(Enum):
    """What happens to an agent or program that has just failed or ended."""

    RESTART = "restart"
    CRASH_LOOP = "crash-loop"
    STAY_DOWN = "stay down"


@dataclass(frozen=True, slots=True)
class RestartDecision:
    """What follows from a failure."""

    after: AfterFailure
    crashes: int
    """As ``RestartPolicy.crashes``."""
    delay_s: float = 0.0
    """Seconds until the restart, 0 without one."""


class RestartPolicy:
    """Decides on the restarts of one agent or program.

    The delay doubles with each failure since it last was well for ``within`` seconds on end, up to
    ``backoff_max``; the ``crashes``-th failure within the last ``within`` seconds is a crash loop. Values may
    be read in any thread, the rest belongs to one. ``chance`` gives numbers from 0 to 1.
    """

    def __init__(
        self,
        config: RestartConfig,
        *,
        clock: Callable[[], float] = monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.config = config
        self._clock = clock
        self._chance = chance
        self._failures: tuple[float, ...] = ()
        self._streak = 0
        self._well_since: float | None = None

    @property
    def crashes(self) -> int:
        """Failures within the last ``within`` seconds."""
        return len(self._recent(self._clock()))

    def well(self) -> None:
        """It is up from now on."""
        self._well_since = self._clock()

    def failed(self) -> RestartDecision:
        """It failed now."""
        if self.config.policy == "never":
            self._count()
            return RestartDecision(AfterFailure.STAY_DOWN, self.crashes)
        return self._again()

    def ended(self) -> RestartDecision:
        """It ended now, well and by itself: only ``always`` starts that again, and it counts as a failure."""
        if self.config.policy == "always":
            return self._again()
        self._well_since = None
        return RestartDecision(AfterFailure.STAY_DOWN, self.crashes)

    def adopt(self, config: RestartConfig) -> None:
        """Follow this configuration from now on, and forget all failures."""
        self.config = config
        self.reset()

    def reset(self) -> None:
        """Forget all failures."""
        self._failures, self._streak, self._well_since = (), 0, None

    def _again(self) -> RestartDecision:
        self._count()
        if self.crashes >= self.config.crashes:
            return RestartDecision(AfterFailure.CRASH_LOOP, self.crashes)
        # Bounded before it is worked out: a float ends at 2**1024.
        doubled = self.config.backoff * 2.0 ** min(self._streak - 1, 64)
        delay_s = min(doubled, self.config.backoff_max) * (1.0 - JITTER * self._chance())
        return RestartDecision(AfterFailure.RESTART, self.crashes, delay_s)

    def _count(self) -> None:
        now = self._clock()
        self._streak = 1 if self._stable(now) else self._streak + 1
        # The list stays as short as it matters, however often it fails.
        self._failures = (*self._recent(now), now)[-self.config.crashes :]
        self._well_since = None

    def _stable(self, now: float) -> bool:
        return self._well_since is not None and now - self._well_since >= self.config.within

    def _recent(self, now: float) -> tuple[float, ...]:
        return tuple(at for at in self._failures if now - at < self.config.within)
