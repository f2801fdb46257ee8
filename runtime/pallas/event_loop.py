"""The event loop a fleet runs on."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


def run[T](main: Coroutine[Any, Any, T]) -> T:
    """Run ``main`` on uvloop where it is installed, else on asyncio's own loop; any thread may."""
    with new_runner() as runner:
        return runner.run(main)


def new_runner() -> asyncio.Runner:
    """A runner of such a loop, for callers that handle the result before the loop is closed."""
    return asyncio.Runner(loop_factory=_factory())


def _factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # there is none for Windows
        return None
    return uvloop.new_event_loop
