"""Waiting with a deadline: what tests do instead of sleeping or of asking without a pause.

Two tests that ask without a pause take both cores from the fleets that they wait for.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import Any, Protocol

from textual.pilot import WaitForScreenTimeout

PAUSE_S = 0.01
"""Between two looks."""


class Paused(Protocol):
    """The part of a Textual ``Pilot`` that lets the application do its pending work."""

    def pause(self, delay: float | None = None) -> Awaitable[None]:
        """Wait until the message queues are empty."""
        ...


async def until(condition: Callable[[], Any], pilot: Paused | None = None, timeout: float = 90) -> Any:
    """The first true value of ``condition()``, looked at again and again for ``timeout`` seconds.

    What a condition returns may be awaitable. With ``pilot`` the application under test runs between two
    looks. An exception in the condition counts as "not yet" and is the cause of the failure if it stays.
    """
    deadline = monotonic() + timeout
    while True:
        last: Exception | None = None
        try:
            value = condition()
            if inspect.isawaitable(value):
                async with asyncio.timeout(max(deadline - monotonic(), 1)):
                    value = await value
            if value:
                return value
        except Exception as error:  # the thing looked for may not exist yet
            last = error
        if monotonic() > deadline:
            raise AssertionError(f"not true within {timeout:g} s: {condition}") from last
        if pilot is None:
            await asyncio.sleep(PAUSE_S)
            continue
        with suppress(WaitForScreenTimeout):  # a widget that goes meanwhile answers it never: look again
            await pilot.pause()  # sleeps as well


async def poll[T](
    ask: Callable[[], Awaitable[T]], accepts: Callable[[T], object] = bool, timeout: float = 60
) -> T:
    """The first answer of ``ask()`` that is accepted, asked again and again for ``timeout`` seconds.

    Unlike ``until`` it raises what ``ask`` and ``accepts`` raise at once: no answer on the way may be wrong.
    """
    answer: T | None = None
    try:
        async with asyncio.timeout(timeout) as deadline:
            while True:  # nothing tells when it changes
                answer = await ask()
                if accepts(answer):
                    return answer
                await asyncio.sleep(PAUSE_S)
    except TimeoutError as error:
        if not deadline.expired():
            raise
        raise AssertionError(f"not so within {timeout:g} s; the last answer: {answer!r}") from error
