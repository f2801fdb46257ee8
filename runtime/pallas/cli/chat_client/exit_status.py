"""What the exit status of `pallas chat` says."""

from typing import Final

OK: Final = 0
FAILED: Final = 1
"""The run failed, or the fleet refused it."""
USAGE: Final = 2
"""Wrong use, or a project that cannot be used."""
ABSENT: Final = 3
"""There is no fleet, no such agent, or no such conversation with it."""
SIGNALLED: Final = 128
"""Plus the number of the signal: 130 for SIGINT, 143 for SIGTERM, 141 where nobody reads what is written."""


class ChatExit(Exception):
    """The end, with a status; the message is told on stderr."""

    def __init__(self, status: int, message: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
