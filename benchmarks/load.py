"""Many callers at once, against the same tools on a bare FastMCP server. Callers are raw HTTP/1.1 connections
(benchmarks/caller.py), all in this one process, apart from the servers; both servers are asked in turn,
a slice of a second each, and a ratio is the median over the rounds. Processor time is the steadiest figure
where the machine has other work."""

import asyncio
import gc
import secrets
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from statistics import median, quantiles
from time import perf_counter, process_time

import psutil

from pallas.processes.event_loop import run

from .caller import HANDSHAKE, MODERN, Caller
from .programs import bare, fleet
from .report import Figure

ROUNDS = 8
SLICE = 0.8
# The era that is new has every level, the other the highest one.
CASES = [(MODERN, tool, callers) for tool in ("get_health", "send_message") for callers in (1, 16, 64)] + [
    (HANDSHAKE, tool, 64) for tool in ("get_health", "send_message")
]
P50_AIM = 1.6
P50_AIMS = {("send_message", 1): 1.5, ("send_message", 16): 2.0}
"""Those that differ, by tool and number of callers."""
RATE_AIM = 0.7
RATE_AIM_AT = (16, 64)


@dataclass(slots=True)
class Slice:
    """Latencies of the calls in one slice, its length, and what processor time it took, in seconds."""

    latencies: list[float] = field(default_factory=list)
    seconds: float = 0.0
    server: float = 0.0
    callers: float = 0.0

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds

    @property
    def cost(self) -> float:
        """The server's processor time of one call."""
        return self.server / len(self.latencies)

    @property
    def own(self) -> float:
        """Our own processor time of one call: well below the server's, or we would be what is measured."""
        return self.callers / len(self.latencies)

    def percentile(self, percent: int) -> float:
        return quantiles(self.latencies, n=100, method="inclusive")[percent - 1]


class _Side:
    """One of the two servers and what was measured of it."""

    def __init__(self, url: str, pid: int) -> None:
        self._url = url
        self._process = psutil.Process(pid)
        self.slices: list[Slice] = []

    async def slice(self, era: str, tool: str, callers: int, *, kept: bool = True) -> None:
        """Let ``callers`` call for a while, each again as soon as it is answered."""
        measured = Slice()
        async with asyncio.timeout(60), AsyncExitStack() as stack:
            ready = [await stack.enter_async_context(Caller(self._url, era)) for _ in range(callers)]
            for caller in ready:
                await caller.open_session()
                await _call(caller, tool)
            before = self._processor()
            began, mine = perf_counter(), process_time()
            await asyncio.gather(*(_again(each, tool, began + SLICE, measured.latencies) for each in ready))
            measured.seconds = perf_counter() - began
            measured.callers = process_time() - mine
            measured.server = self._processor() - before
            for caller in ready:
                await caller.end_session()
        if kept:
            self.slices.append(measured)

    def _processor(self) -> float:
        times = self._process.cpu_times()
        return times.user + times.system

    def total(self) -> Slice:
        """All slices as one."""
        whole = Slice()
        for each in self.slices:
            whole.latencies += each.latencies
            whole.seconds += each.seconds
            whole.server += each.server
            whole.callers += each.callers
        return whole


async def _again(caller: Caller, tool: str, until: float, latencies: list[float]) -> None:
    while (began := perf_counter()) < until:
        await _call(caller, tool)
        latencies.append(perf_counter() - began)


async def _call(caller: Caller, tool: str) -> None:
    if tool == "send_message":
        # Each in a conversation of its own, whatever the era.
        text = await caller.call(tool, message="hello", conversation_id=secrets.token_urlsafe(18))
        right = text == "hello"
    else:
        right = '"ok"' in await caller.call(tool)
    if not right:
        raise RuntimeError(f"{tool} gave a wrong answer")


async def _in_turn(ours: _Side, theirs: _Side, era: str, tool: str, callers: int, rounds: int) -> None:
    """Slices in turn, the first one of each round changing, so that the machine's noise hits both."""
    gc.collect()
    gc.disable()
    try:
        for side in (ours, theirs):
            await side.slice(era, tool, callers, kept=False)
        for number in range(rounds):
            for side in (ours, theirs) if number % 2 else (theirs, ours):
                await side.slice(era, tool, callers)
                gc.collect()
    finally:
        gc.enable()


def _figures(ours: _Side, theirs: _Side, name: str, tool: str, callers: int) -> Iterator[Figure]:
    rounds = list(zip(ours.slices, theirs.slices, strict=True))
    one, two = ours.total(), theirs.total()
    for percent, aim in ((50, P50_AIMS.get((tool, callers), P50_AIM)), (99, None)):
        mine, bare_one = one.percentile(percent) * 1e3, two.percentile(percent) * 1e3
        yield Figure(
            f"{name}: p{percent}",
            median(a.percentile(percent) / b.percentile(percent) for a, b in rounds),
            aim,
            detail=f"{mine:.2f} ms against {bare_one:.2f} ms bare",
        )
    yield Figure(
        f"{name}: calls a second",
        median(a.rate / b.rate for a, b in rounds),
        RATE_AIM if callers in RATE_AIM_AT else None,
        least=True,
        detail=f"{one.rate:.0f} against {two.rate:.0f} bare; a call takes {one.own * 1e3:.2f} ms here",
    )
    yield Figure(
        f"{name}: server's processor time",
        median(a.cost / b.cost for a, b in rounds),
        None,
        detail=f"{one.cost * 1e3:.2f} ms a call against {two.cost * 1e3:.2f} ms bare",
    )


def cost(callers: int, rounds: int) -> float:
    """The processor time of ``send_message`` in a new stored conversation, against the bare server's."""
    with fleet(1) as (urls, running, _), bare() as (url, peer):
        ours, theirs = _Side(urls[0], running.pid), _Side(url, peer.pid)
        run(_in_turn(ours, theirs, MODERN, "send_message", callers, rounds))
        return median(a.cost / b.cost for a, b in zip(ours.slices, theirs.slices, strict=True))


def measure() -> Iterator[Figure]:
    """p50, p99, calls a second and the server's processor time of both tools, for each number of callers."""
    with fleet(1) as (urls, running, _), bare() as (url, peer):
        for era, tool, callers in CASES:
            ours, theirs = _Side(urls[0], running.pid), _Side(url, peer.pid)
            run(_in_turn(ours, theirs, era, tool, callers, ROUNDS))
            name = f"{tool}, {callers} caller{'s' * (callers > 1)}{', handshake' * (era == HANDSHAKE)}"
            yield from _figures(ours, theirs, name, tool, callers)
