"""Keeps Python's garbage collector from stopping a fleet.

A collection over a whole fleet takes a quarter of a second, in which no thread goes on. So what the start
made is frozen: the collector leaves it out. A version of an agent that was frozen and is replaced would stay
for ever, so now and then, when no run is in flight, everything is collected once. During a start there is
hardly any garbage, and collections are rare.
"""

import asyncio
import gc
import logging
from time import perf_counter
from typing import Final

from pallas.model import Event, Reloaded
from pallas.runs.in_flight import InFlight
from pallas.telemetry.event_hub import EventHub

log = logging.getLogger(__name__)

# Seconds from the first new version until old ones are looked for.
EVERY: Final = 600.0
# Objects made until garbage is looked for during a start. One agent makes half of them, of which 6,000 are
# garbage. With Python's own 2,000 it is looked for hundreds of times, for a tenth of all that a start costs,
# and with 200,000 twice, for a twentieth.
_SELDOM: Final = 1_000_000
_USUAL: Final = gc.get_threshold()


def begin() -> None:
    """A fleet is going to be made: until ``settle`` look for garbage seldom."""
    gc.set_threshold(_SELDOM, *_USUAL[1:])


def settle() -> None:
    """Freeze all objects that there are now."""
    if gc.get_threshold()[0] == _SELDOM:  # else a project's code has a will of its own
        gc.set_threshold(*_USUAL)
    gc.freeze()


async def tend(hub: EventHub, runs: InFlight, *, interval_s: float = EVERY) -> None:
    """Free frozen objects that were replaced, at most every ``interval_s`` seconds and never during ``runs``.

    Runs until it is cancelled. Does nothing where no object was frozen, or no agent got a new version.
    """
    loop = asyncio.get_running_loop()
    replaced = asyncio.Event()

    def hear(event: Event) -> None:
        if isinstance(event, Reloaded) and event.outcome == "live" and not loop.is_closed():
            loop.call_soon_threadsafe(replaced.set)

    unlisten = hub.listen(hear)
    try:
        while True:
            await replaced.wait()
            await asyncio.sleep(interval_s)
            while len(runs):
                await runs.wait_ended(interval_s)
            replaced.clear()
            if gc.get_freeze_count():
                free()
    finally:
        unlisten()


def free() -> None:
    """Look through everything once, in a quarter of a second or so, and leave out again what stays."""
    began = perf_counter()
    gc.unfreeze()
    found = gc.collect()
    gc.freeze()
    log.debug("%d objects of earlier versions freed in %.0f ms", found, 1e3 * (perf_counter() - began))
