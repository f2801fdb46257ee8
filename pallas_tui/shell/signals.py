"""Signals: every one of them ends the workbench in good order."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What ends the workbench in good order."""


class Leaving:
    """Whether a signal asked to leave, from before the screen stands until it is gone."""

    def __init__(self) -> None:
        self.told = False

    def heed(self) -> None:
        """From now on a signal is noted, and ends nothing.

        Textual changes the terminal before ``on_mount``: a signal in between must not end the process.
        """

        def leave(number: int, frame: object) -> None:
            self.told = True

        for number in SIGNALS:
            signal.signal(number, leave)

    def call(self, leave: Callable[[], None]) -> None:
        """From now on a signal calls ``leave`` on the running loop; at once, if there was one already."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            with suppress(NotImplementedError):
                loop.add_signal_handler(number, leave)
        if self.told:
            leave()
