"""The credential of each request to a downstream, for which fast-agent has no hook.

``fast_agent.mcp.client_gateway`` makes an HTTP client from the result of ``_prepare_headers_and_auth``,
into which we put our own ``httpx2.Auth``. The MCP SDK sends each message in the context of its caller, so
that object finds the bearer lease of the right run without any table. ``tests/contract`` checks both facts.

No server starts an OAuth flow. fast-agent answers a 401 of a downstream with one: it fetches the address in
the response, registers a client there, and opens a browser. No person sits at a server process, and the other
side chooses that address. The settings of each server say ``oauth: false``; ``NO_OAUTH`` covers servers that
are configured in another way.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import Any, Final

import httpx2
from fast_agent import FastAgent
from fast_agent.config import MCPServerAuthSettings
from fast_agent.mcp import client_gateway, oauth_client

from pallas.access.bearer_lease import current_lease, current_slot
from pallas.bounds.bodies import accept_bounded_encodings, bound
from pallas.mcp_client import library_hooks
from pallas.mcp_client.library_hooks import Hook
from pallas.model import CredentialSource, Fault
from pallas.telemetry import wire_http

from . import send_gate
from .seam import settings_of

_KEY: Final = "pallas_forward"
_VARIABLE: Final = "pallas_variable"
_PROVIDER_PARAMETERS: Final = (
    "server_config",
    "event_handler",
    "emit_console_output",
    "abort_event",
    "allow_paste_fallback",
)

PREPARE: Final = Hook(
    name="bearer",
    owner=client_gateway,
    attribute="_prepare_headers_and_auth",
    parameters=(
        "server_config",
        "trigger_oauth",
        "oauth_mode",
        "oauth_event_handler",
        "emit_oauth_console_output",
        "oauth_abort_event",
        "allow_oauth_paste_fallback",
    ),
    wrap=lambda original: _wrapped(original),
)
# Modules that imported the function by name hold it: the gateway does, modules that are imported later
# (remote agents) take it from where it is made.
NO_OAUTH: Final = tuple(
    Hook(name, owner, "build_oauth_provider", _PROVIDER_PARAMETERS, lambda original: _no_provider(original))
    for name, owner in (("oauth.off.gateway", client_gateway), ("oauth.off", oauth_client))
)


def forward_to(fast: FastAgent, opted_in: Iterable[str], variables: Mapping[str, str] | None = None) -> None:
    """Forward the caller's bearer to the named servers and to no other; installs the hook once.

    The choice is written into each server's own settings, which fast-agent passes along. No server may
    start an OAuth flow, and a server that opted in is not pinged: a ping belongs to no caller. ``variables``
    are those that the credentials of servers were read from. Raises Fault (CONFIG) if fast-agent no longer
    has the expected shape.
    """
    library_hooks.install(PREPARE)
    chosen = frozenset(opted_in)
    settings = settings_of(fast)
    for name, server in settings.mcp.servers.items() if settings.mcp else ():
        given = server.auth.model_dump() if server.auth is not None else {}
        own = {"oauth": False, _KEY: name in chosen, _VARIABLE: (variables or {}).get(name, "")}
        server.auth = MCPServerAuthSettings(**(given | own))
        if name in chosen:
            server.ping_interval_seconds = 0


def _wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
    def prepare(server_config: Any, **options: Any) -> Any:
        prepared = original(server_config, **options)
        extra = (server_config.auth.model_extra if server_config.auth is not None else None) or {}
        auth = DownstreamAuth(
            server_config.name or "downstream",
            server_config.url,
            forward=extra.get(_KEY) is True,
            configured=_authorization(prepared.headers),
            variable=str(extra.get(_VARIABLE) or ""),
        )
        given: Any = auth  # declared as an OAuth provider, used as any httpx2.Auth
        return client_gateway.PreparedHttpAuth(prepared.headers, given, prepared.user_auth_keys)

    return prepare


def _no_provider(original: Callable[..., Any]) -> Callable[..., Any]:
    def build_oauth_provider(
        server_config: Any,
        *,
        event_handler: Any = None,
        emit_console_output: bool = True,
        abort_event: Any = None,
        allow_paste_fallback: bool = True,
    ) -> None:
        """Return no provider: requests go without, and a 401 stays a 401."""

    return build_oauth_provider


def _authorization(headers: Any) -> str:
    """Return the credential that the project's files give this server, empty if none."""
    for name, value in (headers or {}).items():
        if name.strip().lower() in ("authorization", "x-hf-authorization"):
            return str(value).partition(" ")[2].strip() or str(value)
    return ""


class DownstreamAuth(httpx2.Auth):
    """Adds the run's bearer to a request if the server opted in, and reports the outcome.

    An Authorization header from the project's files takes precedence. Adds nothing to a request that leaves
    the origin of the configured URL.
    """

    def __init__(self, name: str, url: str, *, forward: bool, configured: str, variable: str = "") -> None:
        self._name = name
        self._origin = _origin(httpx2.URL(url))
        self._forward = forward and not configured
        self._configured = configured
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
        credential, source = self._credential(request, lease.bearer if lease is not None else None)
        if not self._configured:
            # A redirect repeats the headers of the previous request.
            request.headers.pop("Authorization", None)
        if source == "forwarded":
            request.headers["Authorization"] = f"Bearer {credential}"
        accept_bounded_encodings(request)
        status = None
        exchange = wire_http.sent(self._name, request)
        try:
            response = yield request
            status = response.status_code
            if exchange is not None:
                wire_http.answered(exchange, response)
            bound(response)
        finally:
            if exchange is not None and status is None:
                exchange.close()
            if status in (401, 403) and (slot := current_slot()) is not None:
                slot.refused[self._name] = (status, source)
            if lease is not None:
                method, tool = wire_http.call_in(request)
                lease.report(self._name, source, credential, status, method, tool, self._variable)

    def _credential(self, request: httpx2.Request, bearer: str | None) -> tuple[str, CredentialSource]:
        if self._configured:
            return self._configured, "configured"
        if self._forward and bearer and _origin(request.url) == self._origin:
            return bearer, "forwarded"
        return "", "none"


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    default = {"http": 80, "https": 443}.get(url.scheme)
    return url.scheme, url.host, url.port or default
