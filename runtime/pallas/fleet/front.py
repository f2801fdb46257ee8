"""What stands before a fleet's agents: who there is, sessions, long work, and the one door to all of it."""

from typing import TYPE_CHECKING

from starlette.types import ASGIApp

if TYPE_CHECKING:
    from .fleet import Fleet


class Front:
    """The parts that look at the fleet as a whole. Made with the fleet, begun and ended with it."""

    def __init__(self, fleet: "Fleet") -> None:
        self._fleet = fleet

    def before(self, app: ASGIApp) -> ASGIApp:
        """The application of the fleet's port, with the bridge at ``/mcp`` before it."""
        return app

    async def start(self) -> None:
        """The ledger is open and the agents are known, none of them started yet."""

    async def close(self) -> None:
        """The runs are over; within two seconds."""
