"""How a fleet ends: its runs first, then callers before those they call, everything within its time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final

from pallas.runs.in_flight import InFlight
from pallas.runs.kernel import Kernel
from pallas.runs.run import ActiveRun
from pallas.surfaces.listener import Listener

from .agent import FleetAgent
from .programs import Program

if TYPE_CHECKING:
    from pallas.surfaces.control.control_api import ServedControlApi

log = logging.getLogger(__name__)

STOP_TIMEOUT: Final = 4.2
STOP_WITHIN: Final = 4.9
LEAST: Final = 0.4
"""Seconds that a fleet has to stop, its ledger included, and what that one has of them at least."""
CUT_TIMEOUT: Final = 0.5
"""Seconds after which callers of cancelled runs get their error, even if the work has not ended."""
HELPERS_TIMEOUT: Final = 1.7
LAST_TIMEOUT: Final = 0.9
CANCEL_TIMEOUT: Final = 0.3
"""Of the time to stop: what the helpers have, what ports and programs have at least, and, beyond it, what is
cancelled."""
AFTER: Final = 1.0
"""Seconds that ports stay open behind the last answer of a drain: MCP clients list the tools after their
first call, and one that finds no server loses the answer that it has."""
TELL_EVERY: Final = 5.0
"""Seconds between two log lines about the runs still awaited."""
_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class ShutdownParts:
    """The parts of a fleet to end, as they are when the end begins.

    ``helpers`` cancel operations requested by hand; ``layers`` are the agents, each layer needing only those
    before it; ``pages`` are ended with the listeners that serve them.
    """

    tasks: Collection[asyncio.Task[None]]
    helpers: Sequence[Callable[[], Awaitable[None]]]
    layers: Sequence[Sequence[FleetAgent]]
    programs: Sequence[Program]
    listeners: Sequence[Listener]
    control_api: "ServedControlApi | None" = None
    pages: Sequence[Callable[[], Awaitable[None]]] = ()


@dataclass(frozen=True, slots=True)
class Drained:
    """The outcome of a drain: runs that finished, that were cut short, that were handed over; and seconds."""

    finished: int = 0
    cut: int = 0
    seconds: float = 0.0
    handed_over: int = 0

    def __str__(self) -> str:
        if not self.finished and not self.cut and not self.handed_over:
            return "no run was in flight"
        if self.handed_over:
            cut = f", {self.cut} cut short" if self.cut else ""
            return f"{_runs(self.handed_over)} handed over{cut}, {self.finished} finished before"
        if not self.cut:
            return f"{_runs(self.finished)} finished in {self.seconds:.1f} s"
        return f"{_runs(self.cut)} cut short after {self.seconds:.1f} s, {self.finished} finished before"


async def drain(
    kernel: Kernel, seconds: float, tell: Callable[[str], None], *, hand_over: bool = False
) -> Drained:
    """Take no new runs, wait ``seconds`` at most for those in flight, then cut them short.

    With ``hand_over`` durable runs are left to another fleet, after their current step if it ends in time.

    A run in flight may still ask another agent, and that is waited for as well. The last caller has ``AFTER``
    seconds for what it asks next, as far as ``seconds`` allow. ``tell`` gets a line now and then with what is
    waited for.
    """
    kernel.refuse(hand_over=hand_over)
    runs, began = kernel.in_flight, monotonic()
    seen: dict[str, ActiveRun] = {}
    while runs:
        left = began + seconds - monotonic()
        seen |= {run.id: run for run in runs}
        if left <= 0:
            break
        tell(_waited_for(runs, left))
        await runs.wait_ended(min(left, TELL_EVERY))
    late = tuple(runs)
    limit = f"{round(seconds, 1):g} s"
    end = runs.hand_over if hand_over else runs.cut
    await end(late, f"the fleet is stopping, and it was not done within {limit}", CUT_TIMEOUT)
    took = monotonic() - began
    if seen and not late:
        await asyncio.sleep(max(0.0, min(AFTER, seconds - took)))
    handed_over = sum(run.goes_on_elsewhere for run in seen.values())
    cut = sum(not run.goes_on_elsewhere for run in late)
    return Drained(len(seen) - cut - handed_over, cut, took, handed_over)


def _waited_for(runs: InFlight, left: float) -> str:
    named = [
        f"{run.agent} {run.id} ({run.seconds:.0f} s)" for run, _ in zip(runs, range(_NAMED), strict=False)
    ]
    more = f" and {len(runs) - len(named)} more" if len(runs) > len(named) else ""
    return f"{_runs(len(runs))} in flight, {left:.0f} s at most: {', '.join(named)}{more}"


def _runs(count: int) -> str:
    return f"{count} run" + ("" if count == 1 else "s")


async def end(kernel: Kernel, parts: ShutdownParts) -> None:
    """End everything within ``STOP_TIMEOUT``; then cancel the rest. Never raises for a part.

    A slow part does not delay another.
    """
    ending = _Ending(kernel, parts)
    try:
        await ending.end()
    finally:
        if late := await ending.cut():
            log.warning("the fleet did not stop in %.1f s; %d parts are cancelled", STOP_TIMEOUT, late)
            await quietly(program.stop() for program in parts.programs)
        if parts.control_api is not None:
            parts.control_api.close()


class _Ending:
    """One shutdown. It owns the tasks that it begins until ``cut``."""

    def __init__(self, kernel: Kernel, parts: ShutdownParts) -> None:
        self._kernel = kernel
        self._parts = parts
        self._until = monotonic() + STOP_TIMEOUT
        self._begun: set[asyncio.Task[None]] = set()

    async def end(self) -> None:
        """All of it, one after the other as far as there is time."""
        parts = self._parts
        for task in parts.tasks:
            task.cancel()
        await self._wait(HELPERS_TIMEOUT, self._begin(close() for close in parts.helpers))
        if cut := await self._kernel.close(timeout_s=0.5, grace_s=CUT_TIMEOUT):
            log.warning("%s cut short by the end of the fleet", _runs(cut))
        # Callers before those they call: leaving a connection whose other end is gone takes seconds. Each has
        # its share of the time for that, and goes on with its end while the next one begins.
        closing = []
        for number in range(len(parts.layers), 0, -1):
            closing.append(self._begin([_close(parts.layers[number - 1])]))
            await self._wait((self._left - LAST_TIMEOUT) / number, closing[-1])
        await self._wait(self._left - LAST_TIMEOUT, *closing)
        if parts.control_api is not None:  # who follows the fleet hears of all this, and holds up nothing
            parts.control_api.close()
        self._begin(
            [
                *(program.stop() for program in parts.programs),
                *(close() for close in parts.pages),
                *(each.stop() for each in parts.listeners),
            ]
        )
        await self._wait(self._left, *self._begun)

    async def cut(self) -> int:
        """Cancel the unfinished tasks, and return their number."""
        late = {task for task in self._begun if not task.done()}
        for task in late:
            task.cancel()
        await self._wait(CANCEL_TIMEOUT, *late)
        return len(late)

    @property
    def _left(self) -> float:
        return self._until - monotonic()

    def _begin(self, work: Iterable[Awaitable[None]]) -> asyncio.Task[None]:
        task = asyncio.create_task(quietly(work), name="end of the fleet")
        self._begun.add(task)
        return task

    async def _wait(self, seconds: float, *tasks: asyncio.Task[None]) -> None:
        if tasks:
            await asyncio.wait(tasks, timeout=max(0.0, seconds))


async def _close(layer: Sequence[FleetAgent]) -> None:
    await quietly(agent.close_port() for agent in layer)
    await quietly(agent.close() for agent in layer)


async def quietly(work: Iterable[Awaitable[None]]) -> None:
    """Do all of it at once; what goes wrong with one part is logged and keeps no other from its end."""
    for outcome in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(outcome, Exception):
            log.error("while stopping: %s", outcome, exc_info=outcome)
