"""The control API over a fleet that does what a test says, on a real port."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from starlette.applications import Starlette
from starlette.routing import Mount

from pallas.surfaces.control import BASE
from pallas.surfaces.control.control_api import ControlApi
from pallas.surfaces.control.control_tokens import ControlTokens
from pallas.surfaces.host_guard import HostOriginGuard
from pallas.surfaces.listener import Listener, bind

from .fake_fleet import FakeFleet
from .ports import free_ports

FULL = "full-token-of-the-tests"
READ = "read-token-of-the-tests"


class Served:
    """A control API on ``url``, and the fleet behind it."""

    def __init__(self, fleet: FakeFleet, port: int, api: ControlApi, listener: Listener) -> None:
        self.fleet = fleet
        self._listener = listener
        self.port = port
        self.api = api
        self.url = f"http://127.0.0.1:{port}"

    async def stop(self) -> None:
        """End the streams and the listener. Safe to call twice."""
        self.api.close()
        await self._listener.stop()

    def client(self, token: str | None = FULL, **headers: str) -> httpx2.AsyncClient:
        """A plain HTTP client that sends the token."""
        given = {"authorization": f"Bearer {token}"} if token is not None else {}
        return httpx2.AsyncClient(
            base_url=self.url + BASE, headers=given | headers, trust_env=False, timeout=60
        )


@asynccontextmanager
async def serving(
    fleet: FakeFleet | None = None, log: Path = Path("/nonexistent/pallas.log"), *, port: int = 0, **more: Any
) -> AsyncIterator[Served]:
    """A control API over ``fleet``; ``more`` as for ``ControlApi``."""
    fleet = fleet if fleet is not None else FakeFleet()
    port = port or free_ports(1)[0]
    api = ControlApi(fleet, ControlTokens(FULL, READ), log, **more)
    app = HostOriginGuard(Starlette(routes=[Mount(BASE, api.app)]), ())
    listener = Listener(app, bind("127.0.0.1", port, "test"))
    await listener.start()
    served = Served(fleet, port, api, listener)
    try:
        yield served
    finally:
        await served.stop()


async def messages(answer: httpx2.Response) -> AsyncIterator[tuple[str, str, Any]]:
    """Kind, id and document of each message of a stream."""
    async for message in httpx2.EventSource(answer):
        yield message.event, message.id, message.json()
