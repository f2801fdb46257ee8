"""One replica: its process, and when each of its processes began and ended."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, time
from typing import IO, Final

import httpx2

from .project import Place

READY_SECONDS: Final = 90.0


@dataclass(slots=True)
class Span:
    """A process of a replica. Times are Unix seconds; ``how`` is what ended it."""

    pid: int
    began: float
    ended: float = float("inf")
    how: str = ""
    stops: list[tuple[float, float]] = field(default_factory=list)


class Replica:
    """A fleet that is started again whenever it has ended."""

    def __init__(self, number: int, place: Place, http: httpx2.AsyncClient) -> None:
        self.number = number
        self.place = place
        self.spans: list[Span] = []
        self.ready = False
        self.starting = False
        self.stopped = False
        self.unexpected: list[str] = []
        self._http = http
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] = (place.root / "output").open("ab")

    @property
    def usable(self) -> bool:
        """Whether it answers, as far as is known."""
        return self.ready and not self.stopped

    async def start(self) -> None:
        """Start it and wait until it takes runs."""
        self.ready, self.starting = False, True
        try:
            await self._start()
        finally:
            self.starting = False

    async def _start(self) -> None:
        began = monotonic()
        self._spawn()
        while monotonic() - began < READY_SECONDS:
            with suppress(httpx2.HTTPError):
                if (await self._http.get(f"http://127.0.0.1:{self.place.port}/readyz")).status_code == 200:
                    self.ready = True
                    return
            assert self._process is not None
            if self._process.poll() is not None:
                self.unexpected.append(f"ended with {self._process.returncode} while it started")
                self.spans[-1].ended, self.spans[-1].how = time(), "by itself"
                self._spawn()
            await asyncio.sleep(0.1)
        self.unexpected.append(f"was not ready within {READY_SECONDS:g} s")

    async def kill(self) -> None:
        """Kill it; its ports are free when this returns."""
        await self._end(signal.SIGKILL, "killed")

    async def stop(self, seconds: float) -> None:
        """Stop it for a while, as if its machine slept."""
        process, span = self._process, self.spans[-1]
        assert process is not None
        self.stopped = True
        began = time()
        os.kill(process.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
            span.stops.append((began, time()))
            self.stopped = False

    async def update(self) -> None:
        """Ask it to end, as a rolling update does, and start it again."""
        await self._end(signal.SIGTERM, "updated")
        await self.start()

    async def close(self) -> None:
        """End it for good."""
        if self._process is not None and self._process.poll() is None:
            await self._end(signal.SIGTERM, "closed")
        self._output.close()

    @property
    def died(self) -> bool:
        """Whether it has ended by itself since the last look, which is noted."""
        if self._process is None or self._process.poll() is None or not self.ready:
            return False
        self.ready = False
        self.unexpected.append(f"ended by itself with {self._process.returncode}")
        self.spans[-1].ended, self.spans[-1].how = time(), "by itself"
        return True

    def _spawn(self) -> None:
        environment = {
            **os.environ,
            "PALLAS_LOG_FILE": str(self.place.log),
            "PYTHONUNBUFFERED": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pallas.server", "--serve", "--project", str(self.place.root)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.spans.append(Span(self._process.pid, time()))

    async def _end(self, number: signal.Signals, how: str) -> None:
        process, span = self._process, self.spans[-1]
        assert process is not None
        at = time()
        with suppress(ProcessLookupError):
            process.send_signal(number)
        self.ready = False
        try:
            status = await asyncio.to_thread(process.wait, 40)
            if how != "killed" and status not in (0, 3):
                self.unexpected.append(f"ended with {status} when it was {how}")
        except subprocess.TimeoutExpired:
            self.unexpected.append(f"did not end within 40 s when it was {how}")
            process.kill()
            await asyncio.to_thread(process.wait)
        # A process that is killed ends at once; one that drains works on for a while.
        span.ended, span.how = (at if how == "killed" else time()), how
