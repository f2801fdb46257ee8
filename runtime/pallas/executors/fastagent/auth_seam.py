"""The credential of each request to a downstream.

The MCP SDK sends each message in the context of its caller, so the ``httpx2.Auth`` here finds the bearer
lease of the right run without any table. ``tests/contract`` checks that. No server starts an OAuth flow: no
person sits at a server process, and the other side chooses the address that would be opened.
"""

from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any, Final

import httpx2
from fast_agent import FastAgent
from fast_agent.config import MCPServerAuthSettings

from pallas.access.bearer_lease import current_lease, current_slot
from pallas.access.sent_credential import SentCredential, configured_credential
from pallas.downstreams.http_requests import is_answer
from pallas.model import Fault
from pallas.telemetry import wire_http

from . import send_gate
from .seam import settings_of

_KEY: Final = "pallas_forward"
_VARIABLE: Final = "pallas_variable"


def forward_to(fast: FastAgent, opted_in: Iterable[str], variables: Mapping[str, str] | None = None) -> None:
    """Forward the caller's bearer to the named servers and to no other.

    The choice is written into each server's own settings, which fast-agent passes along. No server may
    start an OAuth flow, and a server that opted in is not pinged: a ping belongs to no caller. ``variables``
    are those that the credentials of servers were read from.
    """
    chosen = frozenset(opted_in)
    settings = settings_of(fast)
    for name, server in settings.mcp.servers.items() if settings.mcp else ():
        given = server.auth.model_dump() if server.auth is not None else {}
        own = {"oauth": False, _KEY: name in chosen, _VARIABLE: (variables or {}).get(name, "")}
        server.auth = MCPServerAuthSettings(**(given | own))
        if name in chosen:
            server.ping_interval_seconds = 0


def downstream_auth(name: str, entry: Any, headers: Mapping[str, str]) -> "DownstreamAuth":
    """Return the credential of a server's requests, by the settings that ``forward_to`` has written."""
    extra = (entry.auth.model_extra if entry.auth is not None else None) or {}
    return DownstreamAuth(
        entry.name or name,
        entry.url,
        forward=extra.get(_KEY) is True,
        configured=configured_credential(headers),
        variable=str(extra.get(_VARIABLE) or ""),
    )


class DownstreamAuth(httpx2.Auth):
    """Adds the run's bearer to a request if the server opted in (``SentCredential``), and reports what came."""

    def __init__(self, name: str, url: str, *, forward: bool, configured: str, variable: str = "") -> None:
        self._name = name
        self._rule = SentCredential(url, configured, forward=forward)
        self._variable = variable

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send one request, report its outcome, and put it on the wire record.

        Raises WriteError for a call of a run that another fleet has.
        """
        if send_gate.is_due() and wire_http.call_in(request)[0] == "tools/call":
            try:
                await send_gate.check()
            except Fault as fault:
                raise httpx2.WriteError(fault.message, request=request) from fault
        lease = current_lease()
        credential, source = self._rule.put(request, lease)
        status = None
        exchange = wire_http.sent(self._name, request)
        try:
            response = yield request
            if is_answer(response):
                status = response.status_code
                if exchange is not None:
                    wire_http.answered(exchange, response)
        finally:
            if exchange is not None and status is None:
                exchange.close()
            if status in (401, 403) and (slot := current_slot()) is not None:
                slot.refused[self._name] = (status, source)
            if lease is not None:
                method, tool = wire_http.call_in(request)
                lease.report(self._name, source, credential, status, method, tool, self._variable)
