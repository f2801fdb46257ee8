"""A project served from two worker processes against the same project served from one, in the same run. 16
callers on kept-alive connections ask turns of durable conversations, in slices of a second and a half that
alternate; a ratio is the median over the rounds. The callers share the machine with the servers: their own
processor time is what two cores cannot give to the second worker."""

import asyncio
import gc
import secrets
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter, process_time

import psutil

from pallas.processes.event_loop import run

from .caller import HANDSHAKE, MODERN, Caller
from .programs import fleet
from .report import Figure

CALLERS = 16
ROUNDS = 8
SLICE = 1.5
RATE_AIM = 1.6


@dataclass(slots=True)
class _Slice:
    """The turns of one slice and what they took, in seconds of time and of processor time."""

    turns: int = 0
    failed: int = 0
    seconds: float = 0.0
    server: float = 0.0
    callers: float = 0.0
    busiest: float = 0.0
    """The share of the busiest worker in the workers' processor time."""

    @property
    def rate(self) -> float:
        return self.turns / self.seconds

    @property
    def cost(self) -> float:
        return self.server / self.turns

    @property
    def cores(self) -> float:
        """How many cores the servers and we had."""
        return (self.server + self.callers) / self.seconds


@dataclass(slots=True)
class _Side:
    """One of the two fleets and what was measured of it."""

    url: str
    processes: list[psutil.Process]
    slices: list[_Slice] = field(default_factory=list)

    async def slice(self, era: str, *, kept: bool = True) -> None:
        """Let all callers ask for a while, each again as soon as it is answered."""
        measured = _Slice()
        async with asyncio.timeout(120), AsyncExitStack() as stack:
            ready = [await stack.enter_async_context(Caller(self.url, era)) for _ in range(CALLERS)]
            for caller in ready:
                await caller.open_session()
                await _turn(caller, measured, secrets.token_urlsafe(18))
            measured.turns = 0
            before = self._processor()
            began, mine = perf_counter(), process_time()
            await asyncio.gather(*(_turns(each, measured, began + SLICE) for each in ready))
            measured.seconds = perf_counter() - began
            measured.callers = process_time() - mine
            spent = [after - earlier for after, earlier in zip(self._processor(), before, strict=True)]
            measured.server = sum(spent)
            measured.busiest = max(spent) / measured.server
            for caller in ready:
                await caller.end_session()
        if kept:
            self.slices.append(measured)

    def _processor(self) -> list[float]:
        return [times.user + times.system for times in (each.cpu_times() for each in self.processes)]


async def _turns(caller: Caller, measured: _Slice, until: float) -> None:
    while perf_counter() < until:
        handle = secrets.token_urlsafe(18)
        for _ in range(4):
            await _turn(caller, measured, handle)


async def _turn(caller: Caller, measured: _Slice, handle: str) -> None:
    try:
        measured.failed += (
            await caller.call("send_message", message="hello", conversation_id=handle) != "hello"
        )
    except RuntimeError:
        measured.failed += 1
    measured.turns += 1


async def _in_turn(one: _Side, two: _Side, era: str) -> None:
    gc.collect()
    gc.disable()
    try:
        for side in (one, two):
            await side.slice(era, kept=False)
        for number in range(ROUNDS):
            for side in (one, two) if number % 2 else (two, one):
                await side.slice(era)
                gc.collect()
    finally:
        gc.enable()


def measure() -> Iterator[Figure]:
    """Turns a second, processor time of a turn, and turns that failed, in both protocol versions."""
    with (
        fleet(1) as (urls_of_one, one, _),
        fleet(1, "--workers", "2") as (urls_of_two, two, _),
    ):
        for era in (MODERN, HANDSHAKE):
            sides = (
                _Side(urls_of_one[0], [psutil.Process(one.pid)]),
                _Side(urls_of_two[0], psutil.Process(two.pid).children()),
            )
            run(_in_turn(*sides, era))
            yield from _figures(*sides, "" if era == MODERN else ", handshake")


def _figures(one: _Side, two: _Side, name: str) -> Iterator[Figure]:
    rounds = list(zip(two.slices, one.slices, strict=True))
    cores = median(each.cores for each in two.slices)
    yield Figure(
        f"turns a second of 2 workers against 1{name}",
        median(b.rate / a.rate for b, a in rounds),
        RATE_AIM,
        least=True,
        detail=f"{median(b.rate for b, _ in rounds):.0f} against {median(a.rate for _, a in rounds):.0f}; "
        f"{cores:.1f} cores, {median(b.callers / b.seconds for b in two.slices):.2f} of them ours",
    )
    yield Figure(
        f"processor time of a turn{name}",
        median(b.cost / a.cost for b, a in rounds),
        1.15,
        detail=f"{median(b.cost for b, _ in rounds) * 1e3:.2f} ms against "
        f"{median(a.cost for _, a in rounds) * 1e3:.2f} ms; the busier worker did "
        f"{median(b.busiest for b in two.slices):.0%}",
    )
    failed = sum(each.failed for each in (*one.slices, *two.slices))
    yield Figure(
        f"turns that failed{name}", failed, 0, "", f"of {sum(b.turns + a.turns for b, a in rounds):,}"
    )
