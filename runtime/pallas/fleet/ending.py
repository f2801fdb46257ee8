"""How a fleet ends: callers before those they call, everything within its time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pallas.kernel import Kernel
from pallas.surfaces.listener import Listener

from .agent import FleetAgent
from .programs import Program

if TYPE_CHECKING:
    from pallas.surfaces.control.opening import OpenControl

log = logging.getLogger(__name__)

STOP_TIMEOUT: Final = 4.5


@dataclass(frozen=True, slots=True)
class Parts:
    """What of a fleet is to be ended, as it is when the end begins.

    ``helpers`` cancel what somebody asked for by hand; ``layers`` are the agents, each layer needing only
    those before it.
    """

    tasks: Collection[asyncio.Task[None]]
    helpers: Sequence[Callable[[], Awaitable[None]]]
    layers: Sequence[Sequence[FleetAgent]]
    programs: Sequence[Program]
    listeners: Sequence[Listener]
    control_api: "OpenControl | None" = None


async def end(kernel: Kernel, parts: Parts) -> None:
    """End everything within ``STOP_TIMEOUT``; what is left then is cancelled. Never raises for a part."""
    try:
        async with asyncio.timeout(STOP_TIMEOUT):
            await _end(kernel, parts)
    except TimeoutError:
        log.warning("the fleet did not stop in %.1f s; what is left is cancelled", STOP_TIMEOUT)
        await quietly(program.stop() for program in parts.programs)
    if parts.control_api is not None:
        parts.control_api.close()


async def _end(kernel: Kernel, parts: Parts) -> None:
    for task in parts.tasks:
        task.cancel()
    await asyncio.gather(*(close() for close in parts.helpers))
    await kernel.close(timeout=0.5)
    # Callers before those they call: leaving a connection whose other end is gone takes seconds.
    for layer in reversed(parts.layers):
        await quietly(agent.close_port() for agent in layer)
        await quietly(agent.close() for agent in layer)
    if parts.control_api is not None:  # who follows the fleet hears of all this, and holds up nothing
        parts.control_api.close()
    await quietly(
        [*(program.stop() for program in parts.programs), *(each.stop() for each in parts.listeners)]
    )


async def quietly(work: Iterable[Awaitable[None]]) -> None:
    """Do all of it at once; what goes wrong with one part is logged and keeps no other from its end."""
    for outcome in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(outcome, Exception):
            log.error("while stopping: %s", outcome, exc_info=outcome)
