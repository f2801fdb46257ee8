"""A port on which Prometheus scrapes the health of attached agents, where the user asks for one (PI-16)."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pallas.model import Fault
from pallas.safe_text import one_line

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from pallas.surfaces.listener import Listener
    from pallas.surfaces.metrics import ClientHealth

VARIABLE: Final = "PALLAS_WORKBENCH_METRICS_PORT"
_HOST: Final = "127.0.0.1"
_PATH: Final = "/metrics"


def metrics_port(environment: Mapping[str, str]) -> tuple[int | None, str]:
    """Return the port in ``PALLAS_WORKBENCH_METRICS_PORT``, or None, and the mistake in its value."""
    text = environment.get(VARIABLE, "").strip()
    if not text:
        return None, ""
    if text.isascii() and text.isdigit() and 1 <= int(text[:6]) <= 65_535:
        return int(text), ""
    problem = f"must be a port from 1 to 65535, not {one_line(text, 40)!r}; no metrics are served"
    return None, f"environment variable {VARIABLE}: {problem}"


class HealthMetrics:
    """The gauge ``daedalus_agent_health`` of one workbench, and the port that serves it, if there is one.

    Belongs to one event loop. Importing what it needs takes a while, so that is done in a thread.
    """

    def __init__(self, port: int | None = None) -> None:
        self._port = port
        self._registry: CollectorRegistry | None = None
        self._gauge: ClientHealth | None = None
        self._listener: Listener | None = None

    async def gauge(self) -> "ClientHealth":
        """The gauge, made at the first call."""
        if self._gauge is None:
            registry, gauge = await asyncio.to_thread(_made)
            if self._gauge is None:  # another call may have made it by now
                self._registry, self._gauge = registry, gauge
        return self._gauge

    async def serve(self) -> None:
        """Serve the gauge at ``/metrics`` on loopback, where a port was given. Raises Fault (CONFIG)."""
        if self._port is None or self._listener is not None:
            return
        await self.gauge()
        assert self._registry is not None
        try:
            self._listener = await asyncio.to_thread(_listener, self._registry, self._port)
        except Fault as fault:
            raise Fault(fault.type, f"{fault.message}; no metrics are served") from None
        await self._listener.start()

    async def close(self) -> None:
        """Close the port. Safe to call twice."""
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.stop(0)


def _made() -> "tuple[CollectorRegistry, ClientHealth]":
    from prometheus_client import CollectorRegistry

    from pallas.surfaces.metrics import ClientHealth

    registry = CollectorRegistry()
    return registry, ClientHealth(registry)


def _listener(registry: "CollectorRegistry", port: int) -> "Listener":
    from prometheus_client import generate_latest
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from pallas.surfaces.host_guard import HostOriginGuard
    from pallas.surfaces.listener import Listener, bind
    from pallas.surfaces.metrics import CONTENT_TYPE

    async def scrape(_: Request) -> Response:
        return Response(generate_latest(registry), headers={"content-type": CONTENT_TYPE})

    app = Starlette(routes=[Route(_PATH, scrape)])
    return Listener(HostOriginGuard(app, ()), bind(_HOST, port, VARIABLE), lifespan=False)
