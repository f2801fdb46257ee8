"""The control API of a fleet: all of it, for the holder of its token, on the port of its registry."""

from typing import Final

BASE: Final = "/api/v1/fleet"
"""The path of the control API; the rest of ``/api/v1`` is the REST API."""
