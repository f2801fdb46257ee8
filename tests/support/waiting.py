"""Waiting for a condition with a deadline: what tests do instead of sleeping."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import Any, Protocol

from textual.pilot import WaitForScreenTimeout


class Paused(Protocol):
    """The part of a Textual ``Pilot`` that lets the application do its pending work."""

    def pause(self, delay: float | None = None) -> Awaitable[None]:
        """Wait until the message queues are empty."""
        ...


async def until(condition: Callable[[], Any], pilot: Paused | None = None, timeout: float = 30) -> Any:
    """The first true value of ``condition()``, looked at again and again for ``timeout`` seconds.

    With ``pilot`` the application under test runs between two looks. An exception in the condition
    counts as "not yet" and is the cause of the failure if it stays.
    """
    deadline = monotonic() + timeout
    while True:
        last: Exception | None = None
        try:
            if value := condition():
                return value
        except Exception as error:  # the thing looked for may not exist yet
            last = error
        if monotonic() > deadline:
            raise AssertionError(f"not true within {timeout:g} s: {condition}") from last
        if pilot is None:
            await asyncio.sleep(0.01)
            continue
        with suppress(WaitForScreenTimeout):  # a widget that goes meanwhile answers it never: look again
            await pilot.pause()  # sleeps as well
