"""The bridge's endpoint: ``/mcp`` of the fleet's port, matched before all other pages."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from starlette.types import ASGIApp, Receive, Scope, Send

from pallas.config.models import Project
from pallas.surfaces.auth.auth_gate import AuthGate, GateScope
from pallas.surfaces.auth.inbound_auth import FLEET, Inbound
from pallas.surfaces.auth.resource_metadata import METADATA_PATH
from pallas.surfaces.on_demand_server import OnDemand
from pallas.surfaces.published_agent import base_url
from pallas.telemetry.wire_record import WireRecord

if TYPE_CHECKING:
    from .bridge_tools import BridgeParts

PATH: Final = "/mcp"


class BridgePlace:
    """The bridge behind the fleet's gate; the port has the host guard.

    ``parts`` is called once, with the first request: until then none of it is imported.
    """

    def __init__(
        self,
        parts: Callable[[], "BridgeParts"],
        *,
        project: Callable[[], Project],
        inbound: Inbound,
        wire: WireRecord | None = None,
    ) -> None:
        self._parts = parts
        self._project = project
        self._inbound = inbound
        self._wire = wire
        self._offer: Callable[[], None] = lambda: None
        self._served = OnDemand("bridge", self._make, needs="pallas.surfaces.bridge.bridge_server")

    def before(self, rest: ASGIApp) -> ASGIApp:
        """Return the application of the fleet's port: the bridge, and ``rest`` for all other paths."""
        place = self._served.place

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            mine = scope["type"] == "http" and scope["path"] in (PATH, f"{PATH}/", METADATA_PATH)
            if mine:
                self._offer()
            await (place if mine else rest)(scope, receive, send)

        return app

    async def close(self) -> None:
        """Refuse new requests; those in progress have two seconds."""
        await self._served.close()

    def _make(self) -> tuple[None, ASGIApp]:
        from ..agent_mcp import endpoint
        from .bridge_server import make_bridge

        asking = GateScope(FLEET, self._inbound, lambda _: base_url(self._project()) + PATH)
        server, self._offer = make_bridge(self._parts())
        seal = self._inbound.session_seal
        return None, endpoint(
            server, None, wire=self._wire, gate=lambda inner: AuthGate(inner, asking), seal=seal
        )
