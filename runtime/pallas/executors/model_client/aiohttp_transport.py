"""HTTP requests of an httpx2 client, sent over connections of aiohttp that stay open.

aiohttp parses HTTP in C: a streamed answer of many small pieces costs a fraction of what it does in Python.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any, Final
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx2

KEEP_ALIVE: Final = 60.0
"""Seconds that an unused connection stays open, unless the server closes it before."""
MAX_CONNECTIONS: Final = 1_000
"""Connections of one transport at the same time; further requests wait for one."""
STALE_AFTER: Final = 2.0
"""Seconds without use after which a server may have closed a connection without our knowledge."""
REFUSED_WITHIN: Final = 1.0
"""Seconds in which a closed connection refuses a request. Later it was the server that broke off."""
_CHUNK: Final = 16 * 1024
_REST_WITHIN: Final = 0.1
"""Seconds for the end of a response that nobody wants to read further."""
_ERRORS: Final[tuple[tuple[type[Exception], type[httpx2.TransportError]], ...]] = (
    (aiohttp.ConnectionTimeoutError, httpx2.ConnectTimeout),
    (aiohttp.ServerTimeoutError, httpx2.ReadTimeout),
    (TimeoutError, httpx2.TimeoutException),
    (aiohttp.ClientProxyConnectionError, httpx2.ProxyError),
    (aiohttp.ClientConnectorError, httpx2.ConnectError),
    (aiohttp.ServerDisconnectedError, httpx2.RemoteProtocolError),
    (aiohttp.ClientPayloadError, httpx2.RemoteProtocolError),
    (aiohttp.ClientResponseError, httpx2.RemoteProtocolError),
    (aiohttp.InvalidURL, httpx2.UnsupportedProtocol),
    (OSError, httpx2.NetworkError),
    (aiohttp.ClientError, httpx2.TransportError),
)
"""The first that fits: aiohttp's errors are partly subclasses of each other."""


class AiohttpTransport(httpx2.AsyncBaseTransport):
    """Sends requests over one pool of connections; one event loop only.

    Cookies are not stored: requests of different callers share the connections. With ``trust_env`` the
    environment's proxies are used. ``opened`` counts the connections so far, ``in_use`` the requests whose
    response is not closed yet.
    """

    def __init__(self, *, verify: ssl.SSLContext, trust_env: bool) -> None:
        self.opened = 0
        self.in_use = 0
        self._verify = verify
        self._trust_env = trust_env
        self._session: aiohttp.ClientSession | None = None
        self._last_used = monotonic()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; the response is read as it arrives. Raises httpx2.TransportError."""
        session = self._session or self._new_session()
        response = await self._answered(session, request)
        self.in_use += 1
        return httpx2.Response(
            response.status,
            headers=list(response.raw_headers),
            stream=_ResponseStream(response, self),
            request=request,
            extensions={"http_version": b"HTTP/1.1", "reason_phrase": (response.reason or "").encode()},
        )

    def end_response(self) -> None:
        """Note that a response was closed, and its connection is free or closed."""
        self.in_use -= 1
        self._last_used = monotonic()

    async def _answered(
        self, session: aiohttp.ClientSession, request: httpx2.Request
    ) -> aiohttp.ClientResponse:
        while True:
            idle, reused, sent = monotonic() - self._last_used, _Reuse(), monotonic()
            try:
                with _mapped():
                    return await self._send(session, request, reused)
            except httpx2.TransportError as error:
                closed = isinstance(error, httpx2.RemoteProtocolError | httpx2.NetworkError)
                in_time = monotonic() - sent < REFUSED_WITHIN
                if closed and reused.value and idle > STALE_AFTER and in_time:
                    continue  # the server had closed it: such a connection is not in the pool any more
                raise

    async def aclose(self) -> None:
        """Close the connections, those in use as well."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _new_session(self) -> aiohttp.ClientSession:
        tracing = aiohttp.TraceConfig()
        tracing.on_connection_create_end.append(self._count)
        tracing.on_connection_reuseconn.append(_note_reuse)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                ssl=self._verify, limit=MAX_CONNECTIONS, keepalive_timeout=KEEP_ALIVE
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trace_configs=[tracing],
        )
        return self._session

    async def _count(self, *_: Any) -> None:
        self.opened += 1

    async def _send(
        self, session: aiohttp.ClientSession, request: httpx2.Request, reused: "_Reuse"
    ) -> aiohttp.ClientResponse:
        try:
            body: Any = request.content or None
        except httpx2.RequestNotRead:
            body = request.stream
            request.headers.pop("transfer-encoding", None)  # aiohttp sets it
        limits = request.extensions.get("timeout", {})
        return await session.request(
            request.method,
            str(request.url),
            headers=request.headers.multi_items(),
            data=body,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(
                total=None,
                connect=limits.get("pool"),
                sock_connect=limits.get("connect"),
                sock_read=limits.get("read"),
            ),
            proxy=self._proxy_of(request.url),
            trace_request_ctx=reused,
        )

    def _proxy_of(self, url: httpx2.URL) -> str | None:
        if not self._trust_env:
            return None
        proxies = getproxies()
        found = proxies.get(url.scheme) or proxies.get("all")
        return None if found is None or proxy_bypass(url.netloc.decode("ascii")) else found


class _Reuse:
    """Whether a request was sent over a connection that had been used before."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = False


async def _note_reuse(session: aiohttp.ClientSession, context: Any, _: Any) -> None:
    context.trace_request_ctx.value = True


class _ResponseStream(httpx2.AsyncByteStream):
    def __init__(self, response: aiohttp.ClientResponse, transport: AiohttpTransport) -> None:
        self._response = response
        self._transport = transport
        self._is_open = True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _mapped():
            async for data in self._response.content.iter_chunked(_CHUNK):
                yield data
                if len(data) == _CHUNK:
                    # More may be buffered, which is read without waiting: let other agents work in between.
                    await asyncio.sleep(0)

    async def aclose(self) -> None:
        """Free the connection; one whose response does not end now is closed."""
        if self._is_open:
            self._is_open = False
            try:
                await self._read_rest()
            finally:
                self._response.release()
                self._transport.end_response()

    async def _read_rest(self) -> None:
        """Read what is left behind the last event of a stream, which libraries do not read."""
        content = self._response.content
        with suppress(TimeoutError, aiohttp.ClientError, OSError):
            async with asyncio.timeout(_REST_WITHIN):
                while not content.at_eof():
                    await content.read(_CHUNK)


@contextmanager
def _mapped() -> Iterator[None]:
    """Raise httpx2's error for one of aiohttp."""
    try:
        yield
    except asyncio.CancelledError:
        raise
    except Exception as error:
        for kind, mapped in _ERRORS:
            if isinstance(error, kind):
                raise mapped(str(error)) from error
        raise
