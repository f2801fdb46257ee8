"""The exit statuses of `pallas chat`."""

from typing import Final

OK: Final = 0
FAILED: Final = 1
"""The run failed, or the fleet refused it."""
USAGE: Final = 2
"""Wrong usage, or a project that cannot be used."""
ABSENT: Final = 3
"""There is no fleet, no such agent, or no such conversation with it."""
SIGNALLED: Final = 128
"""Plus the signal's number: 130 for SIGINT, 143 for SIGTERM, 141 when the reader of stdout is gone."""


class ChatExit(Exception):
    """Ends the command with a status; the message goes to stderr."""

    def __init__(self, status: int, message: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
