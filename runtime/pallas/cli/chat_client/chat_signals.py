"""SIGINT and SIGTERM while `pallas chat` runs."""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Final

from .chat_terminal import ChatTerminal
from .exit_status import SIGNALLED

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Ending:
    """Handles SIGINT and SIGTERM: the first calls the current listener, the second exits at once.

    The handlers are Python's own and not the loop's: a write that is not read blocks the loop. From the first
    signal on it does so no longer than half a second.
    """

    def __init__(self, terminal: ChatTerminal) -> None:
        self._terminal = terminal
        self._heard = 0
        self._action: Callable[[], object] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.signal = 0

    def __enter__(self) -> "Ending":
        self._earlier = {number: signal.signal(number, self._hear) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._earlier.items():
            signal.signal(number, handler)

    def listen(self, action: Callable[[], object]) -> None:
        """Call ``action`` in the running loop on the first signal from now on."""
        self._heard, self.signal = 0, 0
        self._terminal.stay()
        self._action, self._loop = action, asyncio.get_running_loop()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self._heard += 1
        self.signal = number
        self._terminal.leave()
        if self._heard > 1 or self._action is None or self._loop is None:
            self._leave(number)
            return
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._action)

    def _leave(self, number: int) -> None:
        from pallas.fleet.child_processes import end_children

        with suppress(OSError):
            self._terminal.settle()
        end_children()
        os._exit(SIGNALLED + number)
