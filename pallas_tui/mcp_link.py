"""A connection to one MCP endpoint that opens itself, and again when it was lost."""

import asyncio
import json
from collections.abc import Callable, Mapping
from importlib import import_module
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, Literal, cast
from urllib.parse import urlsplit

from pallas import __version__
from pallas.downstreams.client_task import ClientTask, plain_opener
from pallas.mcp_client import import_client
from pallas.model import Fault, FaultType, ToolDetail
from pallas.safe_text import one_line, sanitize

from .mcp_faults import asks_for_credential, explain, is_session_gone
from .trust import trust_in

if TYPE_CHECKING:
    from mcp import Client
    from mcp.shared.dispatcher import ProgressFnT

    from pallas.downstreams.opening import Opener

Era = Literal["auto", "modern", "legacy"]
"""How the protocol is negotiated: the newest first, the newest only, or the handshake of before 2026."""

Bearer = Callable[[], str]
"""Gives the token that goes with each request, empty for none. It is asked for each request again."""

CONNECT_TIMEOUT: Final = 10.0
READ_TIMEOUT: Final = 30 * 60.0

_MAX_TOOLS: Final = 500


class McpLink:
    """At most one open connection to ``url``, in a task of its own; it is made by the first ``call``.

    ``era`` chooses the protocol. ``bearer`` is sent to the scheme, host and port of ``url`` and to no one
    else, wherever an answer may lead; over plain HTTP to another machine only with ``plain_allowed``. Nothing
    of MCP is imported before the first ``call``.
    """

    def __init__(
        self,
        url: str,
        *,
        era: Era = "auto",
        bearer: Bearer | None = None,
        plain_allowed: bool = False,
        connect_timeout: float = CONNECT_TIMEOUT,
        read_timeout: float = READ_TIMEOUT,
    ) -> None:
        self.url = url
        self.era: Era = era
        self._bearer = bearer or _nothing
        self._plain_allowed = plain_allowed
        self._connect_timeout = connect_timeout
        self._read_timeout = read_timeout
        self._connection: _Connection | None = None
        self._opening = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        """Whether there is a connection now, as far as is known."""
        return self._connection is not None and not self._connection.is_lost

    @property
    def protocol(self) -> str:
        """The version of the protocol that is spoken, empty while there is no connection."""
        return self._connection.protocol if self._connection is not None else ""

    async def arguments_of(self, tool: str) -> frozenset[str] | None:
        """The names of the arguments that a tool takes; None where the server does not tell.

        Raises Fault when there is no connection to be had.
        """
        found = next((each for each in await self.tools() if each.name == tool), None)
        properties = json.loads(found.input_schema).get("properties") if found is not None else None
        return frozenset(properties) if isinstance(properties, dict) and properties else None

    async def tools(self) -> tuple[ToolDetail, ...]:
        """What the endpoint offers, asked once for each connection; empty where it does not tell in time, and
        then asked again the next time.

        Raises Fault when there is no connection to be had.
        """
        connection = await self._open()
        if connection.tools is None:
            found = await _tools(connection.client, self._connect_timeout)
            if found is None:
                return ()
            connection.tools, connection.promised = found
        return connection.tools

    async def promises(self, tool: str, key: str) -> bool:
        """Whether the endpoint lists ``true`` under that key in the metadata of a tool. Raises Fault."""
        await self.tools()
        connection = self._connection
        return connection is not None and (tool, key) in connection.promised

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        hear: "ProgressFnT | None" = None,
        *,
        meta: Mapping[str, Any] | None = None,
    ) -> Any:
        """The result of a tool; cancelling the caller cancels the call on the server.

        With ``hear`` progress is asked for; ``meta`` goes along as the call's metadata. Raises Fault when the
        tool could not be called.
        """
        from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult

        for attempt in (1, 2):
            connection = await self._open()
            try:
                # Not the client's own `call_tool`: that lists the tools after a call, to check the result
                # against a schema, and an agent that asks who is there tells its health and not its list.
                params = CallToolRequestParams(name=tool, arguments=dict(arguments), _meta=cast(Any, meta))
                return await connection.client.session.send_request(
                    CallToolRequest(params=params),
                    CallToolResult,
                    request_read_timeout_seconds=self._read_timeout,
                    progress_callback=hear,
                )
            except Exception as error:  # every error of the transport becomes one Fault
                # The agent was restarted: it refused the call before doing anything, so asking again
                # in a new session is safe.
                if attempt == 1 and is_session_gone(error):
                    await self.close()
                    continue
                cause = connection.refusal or await connection.cause_of(error)
                if connection.is_lost:
                    await self.close()
                raise explain(cause, self.url, self._read_timeout) from error
        raise AssertionError("two attempts, each of which returns or raises")

    async def close(self) -> None:
        """End the connection; safe to call twice, done within 4 s."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _open(self) -> "_Connection":
        async with self._opening:
            if self._connection is not None and self._connection.is_lost:
                await self.close()
            if self._connection is None:
                if self._bearer() and not self._plain_allowed and is_plain(self.url):
                    raise _in_clear(self.url)
                connection = _Connection(self.url, self.era, self._read_timeout, self._bearer)
                try:
                    await connection.open(self._connect_timeout)
                except Exception as error:
                    cause = connection.refusal or error
                    raise explain(cause, self.url, self._connect_timeout) from error
                self._connection = connection
            return self._connection


class _Connection(ClientTask):
    """An MCP client of ``url``."""

    def __init__(self, url: str, era: Era, read_timeout: float, bearer: Bearer) -> None:
        self._url, self._era, self._read_timeout, self._bearer = url, era, read_timeout, bearer
        self.tools: tuple[ToolDetail, ...] | None = None
        self.promised: frozenset[tuple[str, str]] = frozenset()
        self._refused = 0
        super().__init__(f"mcp {url}", self._make_opener)

    @property
    def protocol(self) -> str:
        """The negotiated version of the protocol."""
        return str(self.client.protocol_version or "")

    @property
    def refusal(self) -> Fault | None:
        """Why nothing works here, when the newest answer was a refusal: the client's own error hides it."""
        return (
            asks_for_credential(self._url, self._refused, sent=bool(self._bearer()))
            if self._refused
            else None
        )

    async def _make_opener(self) -> "Opener":
        # Importing the client takes the better part of a second: never on the loop that draws.
        await asyncio.to_thread(_import_opening)
        import httpx2
        from mcp_types import Implementation
        from mcp_types.version import LATEST_MODERN_VERSION

        from pallas.downstreams.opening import Settings
        from pallas.downstreams.transports import Http
        from pallas.mcp_client import mcp_seam

        mcp_seam.install()

        async def lend(request: httpx2.Request) -> None:
            request.headers.pop("Authorization", None)
            if origin_of(str(request.url)) == origin_of(self._url) and (token := self._bearer()):
                request.headers["Authorization"] = f"Bearer {token}"

        async def note(response: httpx2.Response) -> None:
            self._refused = response.status_code if response.status_code in (401, 403) else 0

        def prepare(client: httpx2.AsyncClient) -> None:
            client.event_hooks = {"request": [lend], "response": [note]}

        transport = Http(
            self._url,
            timeout=httpx2.Timeout(30.0, read=self._read_timeout + 60.0),
            prepare=prepare,
            verify=trust_in(self._url),
            # A proxy of the environment is not meant for the agents of this machine.
            trust_env=not _is_loopback(self._url),
        )
        settings = Settings(
            mode=LATEST_MODERN_VERSION if self._era == "modern" else self._era,
            implementation=Implementation(name="pallas-workbench", version=__version__),
            discovers=False,
        )
        return plain_opener(self._url, transport, settings)


def _import_opening() -> None:
    import_client()
    import_module("pallas.downstreams.opening")


async def _tools(
    client: "Client", timeout: float
) -> tuple[tuple[ToolDetail, ...], frozenset[tuple[str, str]]] | None:
    """Return the tools, and the keys of their metadata that are ``true``, each with the tool's name.

    None if they are not told in time.
    """
    from pallas.downstreams.offer import all_pages

    try:
        async with asyncio.timeout(timeout):
            tools = await all_pages(client.list_tools, "tools", [])
    except Exception:  # the next call reports the error better
        return None
    promised = {
        (tool.name, key) for tool in tools for key, value in (tool.meta or {}).items() if value is True
    }
    return tuple(
        ToolDetail(
            name=one_line(tool.name, 100),
            title=one_line(tool.title or "", 100),
            description=sanitize(tool.description or "", 4_000),
            input_schema=sanitize(json.dumps(tool.input_schema), 64_000),
        )
        for tool in tools[:_MAX_TOOLS]
    ), frozenset(promised)


def origin_of(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port of a URL: what a credential is meant for."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = None
    return parts.scheme, (parts.hostname or "").lower(), port or {"http": 80, "https": 443}.get(parts.scheme)


def is_plain(url: str) -> bool:
    """Return whether others can read the traffic on its way: plain HTTP to another machine."""
    return urlsplit(url).scheme != "https" and not _is_loopback(url)


def _in_clear(url: str) -> Fault:
    scheme, host, port = origin_of(url)
    return Fault(
        FaultType.CONFIG,
        f"The token would go to {scheme}://{host}:{port} unencrypted, and everyone on the way could read it. "
        "Use https, or choose the token again and confirm that it may.",
    )


def _nothing() -> str:
    return ""


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
