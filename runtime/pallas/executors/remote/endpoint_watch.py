"""Checks from time to time that the other side is up, also while there are no runs."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from pallas.config.models import DownstreamConfig
from pallas.deadlines import cancel_and_wait
from pallas.health.probe.server_probe import Eras, look, probe_client
from pallas.model import ProbeResult

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WatchIntervals:
    """The intervals of a watch, in seconds.

    ``every`` is between checks while all is well, ``again`` after a failed one; ``look`` is the deadline of
    a check, ``connect`` that of a connection. After ``failures`` in a row the other side counts as gone.
    """

    every: float = 10.0
    again: float = 1.0
    look: float = 3.0
    connect: float = 10.0
    failures: int = 2


PACE = WatchIntervals()


class EndpointWatch:
    """Checks until it is stopped; ``gone`` is called once, with the reason, if the other side is gone.

    Calls no tool and no model. ``busy`` returns whether a run is in progress, which needs no
    check. Between two checks ``tidy`` is called.
    """

    def __init__(
        self,
        config: DownstreamConfig,
        *,
        pace: WatchIntervals,
        busy: Callable[[], bool],
        gone: Callable[[str], None],
        tidy: Callable[[], None],
    ) -> None:
        self._config = config
        self._pace = pace
        self._busy, self._gone, self._tidy = busy, gone, tidy
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.well = True
        """The result of the last check."""

    def start(self, verify: ssl.SSLContext | bool) -> None:
        """Start checking."""
        self.well = True
        self._task = asyncio.create_task(self._run(verify), name=f"look at {self._config.name}")

    def soon(self) -> None:
        """Check now: something went wrong."""
        self._wake.set()

    async def stop(self) -> None:
        """Stop checking."""
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            await cancel_and_wait(task, seconds=2.0)

    async def _run(self, verify: ssl.SSLContext | bool) -> None:
        eras: Eras = {}
        failed = 0
        async with probe_client(verify) as client:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._pace.again if failed else self._pace.every):
                        await self._wake.wait()
                self._wake.clear()
                self._tidy()
                if self._busy():
                    failed = 0
                    continue
                finding = await look(self._config, client, eras, self._pace.look)
                self.well = finding.downstream.reach is ProbeResult.OK
                # An endpoint that requires a credential is up: callers without one get its error.
                failed = failed + 1 if finding.downstream.reach is ProbeResult.UNREACHABLE else 0
                if failed >= self._pace.failures:
                    self._gone(f"{finding.downstream.target} does not answer: {finding.downstream.detail}")
                    return
