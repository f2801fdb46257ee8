"""What the exit status of a served fleet says."""

from typing import Final

CLEAN: Final = 0
"""Everything that was in flight has finished."""
BLOCKED: Final = 1
"""An agent's code kept the fleet from stopping; it was ended by force."""
UNUSABLE: Final = 2
"""The project cannot be used, or a port of it."""
CUT: Final = 3
"""Runs were cut short because ``drain_timeout`` was over."""
SECOND_SIGNAL: Final = 128
"""Plus the number of the second signal: 130 for SIGINT, 143 for SIGTERM. It ended at once."""
