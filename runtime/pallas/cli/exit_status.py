"""How `pallas` ends a fleet, as its exit status; importing this costs a command nothing."""

from typing import Final

CLEAN: Final = 0
"""Every run in flight finished."""
BLOCKED: Final = 1
"""An agent's code kept the fleet from stopping; the process was killed."""
UNUSABLE: Final = 2
"""The project or one of its ports cannot be used."""
CUT: Final = 3
"""Runs were cut short because ``drain_timeout`` was over."""
SECOND_SIGNAL: Final = 128
"""Plus the number of the second signal, which ended the process at once: 130 for SIGINT, 143 for SIGTERM."""
