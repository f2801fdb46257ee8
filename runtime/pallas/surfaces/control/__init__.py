"""The control API: a fleet as a whole, for whoever holds its token; beside the registry, on its port."""

from typing import Final

BASE: Final = "/api/v1/fleet"
"""Below this everything stands; the rest of ``/api/v1`` is for agents and threads."""
