"""An agent with a gate before it, served on a real port in both protocol eras."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from pallas.config.auth import AuthConfig
from pallas.model import Health, HealthStatus
from pallas.runs.kernel import Kernel
from pallas.surfaces.agent_mcp import agent_app, endpoint
from pallas.surfaces.auth.auth_gate import AuthGate, GateScope
from pallas.surfaces.auth.inbound_auth import Inbound
from pallas.surfaces.auth.static_tokens import sha256_of
from pallas.surfaces.host_guard import LOCAL_NAMES
from pallas.surfaces.listener import Listener, bind
from pallas.surfaces.server_cards import CARD_PATH
from pallas.surfaces.token_attempts import Attempts
from pallas.telemetry.event_hub import EventHub

from .executors import FakeAgent, FakeExecutor

CI, OPS, GUEST = "pal_" + "C" * 43, "pal_" + "P" * 43, "pal_" + "G" * 43
META = "io.modelcontextprotocol"
MODERN = "2026-07-28"


def token(name: str, value: str, *scopes: str, expires: float | None = None) -> dict[str, Any]:
    """The configuration of a token, by its name."""
    from pallas.config.auth import TokenConfig

    return {name: TokenConfig(name, sha256_of(value), scopes, expires)}


TOKENS = token("ci", CI, "run") | token("ops", OPS, "run", "read") | token("guest", GUEST)


class Guarded:
    """The served agent; ``auth`` may be changed while it serves."""

    def __init__(self, auth: AuthConfig | None, inbound: Inbound) -> None:
        self.executor = FakeExecutor()
        self.hub = EventHub()
        self.kernel = Kernel(self.hub)
        self.inbound = inbound
        self.port = 0
        self.asks(auth)

    def asks(self, auth: AuthConfig | None) -> None:
        """This is asked from now on."""
        self.inbound.introduce("echo", auth)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def http(self, bearer: str | None = None, **headers: str) -> httpx2.AsyncClient:
        """A plain HTTP client of the agent's port."""
        given = {"authorization": f"Bearer {bearer}"} if bearer is not None else {}
        return httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{self.port}", headers=given | headers, trust_env=False, timeout=60
        )

    @asynccontextmanager
    async def client(self, era: str, bearer: str | None = None) -> AsyncIterator[Client]:
        """The SDK's client."""
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        async with (
            create_mcp_http_client(headers=headers) as http,
            Client(streamable_http_client(self.url, http_client=http), mode=era) as connected,
        ):
            yield connected


@asynccontextmanager
async def guarded(
    auth: AuthConfig | None, *, attempts: Attempts | None = None, dev: bool = False, gate: bool = True
) -> AsyncIterator[Guarded]:
    """An agent named ``echo`` behind a gate, as the fleet puts them together."""
    inbound = Inbound(dev=dev, loopback=True, attempts=attempts)
    served = Guarded(auth, inbound)
    served.kernel.attach(FakeAgent(served.executor))

    async def ok() -> Health:
        return Health(HealthStatus.OK)

    check = partial(inbound.authorize, "echo")
    server = agent_app(served.kernel, "echo", description="says it again", health=ok, authorize=check)
    asking = GateScope("echo", inbound, lambda port: f"http://127.0.0.1:{port}/mcp", (CARD_PATH,))
    card = {"name": "a card"}
    app = endpoint(
        server, LOCAL_NAMES, card=lambda: card, gate=lambda inner: AuthGate(inner, asking) if gate else inner
    )
    listener = Listener(app, bind("127.0.0.1", 0, "test"))
    await listener.start()
    served.port = listener.port
    try:
        yield served
    finally:
        inbound.close()
        await listener.stop()


def call(method: str, params: Mapping[str, Any] | None = None, era: str = MODERN) -> dict[str, Any]:
    """A JSON-RPC request."""
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": method}
    given = dict(params or {})
    if era == MODERN:
        given["_meta"] = {
            f"{META}/protocolVersion": era,
            f"{META}/clientInfo": {"name": "raw", "version": "1"},
            f"{META}/clientCapabilities": {},
        }
    return body | ({"params": given} if given else {})


def headers(method: str, name: str = "", era: str = MODERN, **more: str) -> dict[str, str]:
    """The headers that go with it."""
    lines = {"accept": "application/json, text/event-stream", "content-type": "application/json", **more}
    if era != MODERN:
        return lines
    named = {"mcp-name": name} if name else {}
    return {"mcp-protocol-version": era, "mcp-method": method, **named, **lines}
