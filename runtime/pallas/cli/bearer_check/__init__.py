"""The leak test of `pallas check bearer`.

``check`` runs the project's agents with canary tokens, ``echo`` is the recording MCP server behind each of
their downstreams, and ``verdict`` compares what an echo received with what the rules allow.
"""

from .check import check_bearer
from .verdict import BearerVerdict

__all__ = ["BearerVerdict", "check_bearer"]
