"""HTTP requests of an httpx2 client, sent over connections of aiohttp that stay open.

aiohttp parses HTTP in C: a streamed answer of many small pieces costs a fraction of what it does in Python.
"""

import asyncio
import os
import select
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from time import monotonic
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx2
from aiohttp.client_proto import ResponseHandler

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
_PROXY_VARIABLES: Final = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
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


type Interceptor = Callable[[httpx2.Request], Awaitable[httpx2.Response | None]]
"""Answers a request without a connection, or returns None to have it sent. What it raises its caller gets."""


class AiohttpTransport(httpx2.AsyncBaseTransport):
    """Sends requests over one pool of connections; one event loop only.

    Cookies are not stored: requests of different callers share the connections. With ``trust_env`` the
    environment's proxies are used. With ``resends`` a request on a connection that the server seems to have
    closed unnoticed is sent again; the server may have read it, so not for what must not run twice.
    ``in_use`` counts the requests whose response is not closed yet. ``interceptor`` returns what is asked
    before each request, except those that ``send`` gets directly.
    """

    def __init__(
        self,
        *,
        verify: ssl.SSLContext,
        trust_env: bool,
        resends: bool = True,
        interceptor: Callable[[], Interceptor | None] = lambda: None,
    ) -> None:
        self.in_use = 0
        self.interceptor = interceptor
        self._verify = verify
        self._trust_env = trust_env
        self._resends = resends
        self._session: aiohttp.ClientSession | None = None
        self._opened = [0]
        self._last_used = monotonic()

    @property
    def opened(self) -> int:
        """The number of connections that it opened."""
        return self._opened[0]

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; the response is read as it arrives. Raises httpx2.TransportError."""
        if (intercept := self.interceptor()) is not None and (answer := await intercept(request)) is not None:
            return answer
        try:
            body: Any = request.content or None
        except httpx2.RequestNotRead:
            body = request.stream
            request.headers.pop("transfer-encoding", None)  # aiohttp sets it
        url, headers = str(request.url), request.headers.multi_items()
        limits = timeouts(request.extensions.get("timeout", {}))
        return self.as_httpx(await self.send(request.method, url, headers, body, limits), request)

    async def send(
        self, method: str, url: str, headers: Any, body: Any, limits: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        """Send a request and return its response, whose reader calls ``end_response`` at the end.

        Raises httpx2.TransportError.
        """
        session = self._session or self._new_session()
        while True:
            idle, sent = monotonic() - self._last_used, monotonic()
            new_connection = [False]
            token = _new_connection.set(new_connection)
            try:
                with mapped_errors():
                    response = await session.request(
                        method,
                        url,
                        headers=headers,
                        data=body,
                        allow_redirects=False,
                        timeout=limits,
                        proxy=self._proxy_of(url) if self._trust_env else None,
                    )
            except httpx2.TransportError as error:
                closed = isinstance(error, httpx2.RemoteProtocolError | httpx2.NetworkError)
                in_time = monotonic() - sent < REFUSED_WITHIN
                if self._resends and closed and not new_connection[0] and idle > STALE_AFTER and in_time:
                    continue  # the server had closed it: such a connection is not in the pool any more
                raise
            finally:
                _new_connection.reset(token)
            self.in_use += 1
            return response

    def as_httpx(self, response: aiohttp.ClientResponse, request: httpx2.Request) -> httpx2.Response:
        """Return a response of ``send`` as one of httpx2, which calls ``end_response`` when it is closed."""
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

    async def aclose(self) -> None:
        """Close the connections, those in use as well."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _new_session(self) -> aiohttp.ClientSession:
        self._session = aiohttp.ClientSession(
            connector=_Connector(
                self._opened, ssl=self._verify, limit=MAX_CONNECTIONS, keepalive_timeout=KEEP_ALIVE
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        return self._session

    def _proxy_of(self, url: str) -> str | None:
        if sys.platform == "linux" and not any(map(os.environ.get, _PROXY_VARIABLES)):
            return None  # looking through the whole environment takes ten times as long
        parts = urlsplit(url)
        proxies = getproxies()
        found = proxies.get(parts.scheme) or proxies.get("all")
        return None if found is None or proxy_bypass(parts.netloc) else found


_new_connection: Final[ContextVar[list[bool] | None]] = ContextVar("pallas_new_connection", default=None)
"""Where it is noted that a connection was opened for the request of this task, or tried to be."""


class _Connector(aiohttp.TCPConnector):
    """Counts the connections that it opens in ``opened``; aiohttp's own tracing costs ten calls a request.

    It reuses no connection on which something arrived while it was idle: that would be read as the answer to
    the next request.
    """

    def __init__(self, opened: list[int], **options: Any) -> None:
        super().__init__(**options)
        self._pallas_opened = opened

    async def _get(self, key: Any, traces: Any) -> Any:
        if (idle := self._conns.get(key)) is not None:
            for each in [each for each in idle if _has_unasked_data(each[0])]:
                idle.remove(each)
                each[0].close()
        return await super()._get(key, traces)

    async def _create_connection(self, *arguments: Any, **options: Any) -> Any:
        if (noted := _new_connection.get()) is not None:
            noted[0] = True  # also where it fails: a server that is away did not close an idle one
        connection = await super()._create_connection(*arguments, **options)
        self._pallas_opened[0] += 1
        return connection


def _has_unasked_data(connection: ResponseHandler) -> bool:
    """Whether an idle connection has read something, or has something to read."""
    if connection.should_close:
        return True
    sock = connection.transport.get_extra_info("socket") if connection.transport is not None else None
    if sock is None or sock.fileno() == -1:
        return False
    waiting = select.poll()
    waiting.register(sock.fileno(), select.POLLIN)
    return bool(waiting.poll(0))


def timeouts(limits: Mapping[str, float | None]) -> aiohttp.ClientTimeout:
    """Return the seconds that httpx2 puts into a request's ``extensions`` as a timeout of aiohttp."""
    return aiohttp.ClientTimeout(
        total=None,
        connect=limits.get("pool"),
        sock_connect=limits.get("connect"),
        sock_read=limits.get("read"),
    )


class _ResponseStream(httpx2.AsyncByteStream):
    def __init__(self, response: aiohttp.ClientResponse, transport: AiohttpTransport) -> None:
        self._response = response
        self._transport = transport
        self._is_open = True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with mapped_errors():
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
                await read_rest(self._response)
            finally:
                self._response.release()
                self._transport.end_response()


async def read_rest(response: aiohttp.ClientResponse) -> None:
    """Read what is left behind the last event of a stream, which libraries do not read."""
    content = response.content
    if content.at_eof():
        return
    with suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with asyncio.timeout(_REST_WITHIN):
            while not content.at_eof():
                await content.read(_CHUNK)


@contextmanager
def mapped_errors() -> Iterator[None]:
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
