"""What became of the HTTP requests of a call: whether the server can have run it."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Final

import httpx2
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR

from pallas.bounds.bodies import TooLarge, accept_bounded_encodings, bound
from pallas.model.redaction import redact_text
from pallas.safe_text import one_line

from .stream_pauses import StreamPauses

_OURS: Final = "pallas_made"
_BESIDE_SECONDS: Final = 30.0
_MAX_BESIDE: Final = 100
_MAX_REDIRECTS: Final = 3
_SESSION: Final = "mcp-session-id"
# A server that does not know the session of a request answers with one of these, whatever the body says.
_NO_SESSION: Final = frozenset({400, 404, 410})
# The SDK, or what asks for credentials, knows what these mean.
_KNOWN: Final = frozenset({404, 401})
_SESSION_LOST: Final = re.compile(
    r"session\b.{0,40}\b(not found|not exist|not valid|expired|invalid|unknown|terminated|closed)"
    r"|\b(no|no valid|invalid|unknown|expired|missing) session",
    re.IGNORECASE | re.DOTALL,
)
# The same in the error of an answer, where a tool may speak of sessions of its own: nothing else is in it.
_ONLY_SESSION_LOST: Final = re.compile(
    r"\W*(bad request\W+)?((mcp )?session( id)?( is| was| has)?( been)? "
    r"(not found|not valid|expired|invalid|unknown|terminated|closed)( or \w+)?"
    r"|(no|no valid|invalid|unknown|expired|missing) (mcp )?session( id)?( provided)?)\W*",
    re.IGNORECASE,
)
_LAST_EVENT: Final = "last-event-id"
# Bytes of a failed response that are read for its reason, and for how long.
_MAX_REASON: Final = 64 * 1024
_REASON_SECONDS: Final = 5.0
# What a line of an event stream begins with, how many bytes tell, and how many blank ones are looked at.
_FIELD: Final = re.compile(rb"(\xef\xbb\xbf)?(:|(data|event|id|retry)\s*[:\r\n])")
_HEAD: Final = 8
_MAX_BLANK: Final = 64 * 1024
_NOT_SENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


class CallFate:
    """What is known of the requests of one call.

    ``unsent``: no connection was made, so the server knows nothing of it. ``has_session``: the last request
    named a session. ``no_session``: the server refused one that did; ``refused``: it refused one, with a
    session or not. ``broken``: the connection broke after the request was sent. None of the first, third and
    fourth is said once the server has ``accepted`` a request: it may have run the call. ``status`` is that of
    the last response, 0 without one.
    ``streams`` are those that were asked for because the one with the answer ended too soon.
    """

    __slots__ = ("accepted", "broken", "has_session", "no_session", "refused", "status", "streams", "unsent")

    def __init__(self) -> None:
        self.streams = StreamPauses()
        self.unsent = self.no_session = self.refused = self.broken = self.accepted = False
        self.has_session = False
        self.status = 0

    def failed(self, error: httpx2.TransportError) -> None:
        """Note a request that was not answered."""
        self.unsent = isinstance(error, _NOT_SENT) and not self.accepted
        self.broken = not self.unsent

    def answered(self, request: httpx2.Request, response: httpx2.Response) -> None:
        """Note the head of a response."""
        self.status = response.status_code
        self.has_session = _SESSION in request.headers
        if response.is_success:
            self.accepted, self.unsent, self.no_session, self.refused = True, False, False, False
        elif response.status_code in _NO_SESSION and not self.accepted:
            self.refused = True
            self.no_session = self.has_session


call_fate: Final[ContextVar[CallFate | None]] = ContextVar("pallas_call_fate", default=None)
"""The fate of the call that is made in this context."""
goes_beside: Final[ContextVar[bool]] = ContextVar("pallas_goes_beside", default=False)
"""Whether the message of this context gets no answer: it is an answer itself, or a notification."""


class BoundedTransport(httpx2.AsyncBaseTransport):
    """Limits the decoded bytes of each answer; compressed ones are decoded step by step.

    It lies below redirects, credentials and hooks, which read bodies as well.
    """

    def __init__(self, transport: httpx2.AsyncBaseTransport) -> None:
        self._transport = transport

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. Raises httpx2.TransportError; reading too large a body raises TooLarge."""
        accept_bounded_encodings(request)
        response = await self._transport.handle_async_request(request)
        bound(response)
        return response

    async def aclose(self) -> None:
        """Close it."""
        await self._transport.aclose()


class WatchedTransport(httpx2.AsyncBaseTransport):
    """Notes what becomes of requests in ``call_fate``.

    A request that fails is answered with an error once ``is_open`` says so: the SDK would end the connection
    with all its calls. Until then it raises, so that who opens the connection knows why.

    A server that keeps closing its streams is asked for them in growing pauses.

    What ``goes_beside`` is sent in parallel to the other requests, within 30 s, and at most 100 at a
    time: the SDK sends nothing else before it is answered, so a server that hangs would hold up all
    later calls.
    """

    def __init__(self, transport: httpx2.AsyncBaseTransport, is_open: Callable[[], bool]) -> None:
        self._transport = transport
        self._is_open = is_open
        self._beside: set[asyncio.Task[None]] = set()
        self._streams = StreamPauses()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. Raises httpx2.TransportError while the connection is opened."""
        if request.method == "POST" and goes_beside.get():
            self._send_beside(request)
            return httpx2.Response(202, request=request, extensions={_OURS: True})
        fate = call_fate.get()
        if request.method == "GET" and await self._is_too_often(request, fate):
            return httpx2.Response(404, request=request, extensions={_OURS: True})
        # What else is sent for a call, to read on in its stream, says nothing of whether it was run.
        fate = fate if request.method == "POST" else None
        try:
            response = await self._transport.handle_async_request(request)
        except httpx2.TransportError as error:
            if fate is not None:
                fate.failed(error)
            if request.method != "POST" or not self._is_open():
                raise
            return _failure(request, error)
        if fate is not None:
            fate.answered(request, response)
        if request.method == "POST" and response.is_success:
            await _call_what_it_is(response)
        if fate is not None and self._is_open() and _needs_reason(request, response):
            response = await _with_reason(request, response)
            if fate.has_session and not fate.accepted and says_session_lost(response.text):
                fate.refused = fate.no_session = True
        return response

    async def _is_too_often(self, request: httpx2.Request, fate: CallFate | None) -> bool:
        """Wait where the streams before have ended soon; return whether to ask for no other one."""
        streams = self._streams if fate is None else fate.streams
        pause = streams.before(request.headers.get(_LAST_EVENT, ""))
        if pause:
            await asyncio.sleep(pause)
        return pause is None

    async def aclose(self) -> None:
        """Close it."""
        for each in self._beside:
            each.cancel()
        await self._transport.aclose()

    def _send_beside(self, request: httpx2.Request) -> None:
        if len(self._beside) < _MAX_BESIDE:
            task = asyncio.create_task(self._sent(request), name="send an answer or a notification")
            self._beside.add(task)
            task.add_done_callback(self._beside.discard)

    async def _sent(self, request: httpx2.Request) -> None:
        with suppress(httpx2.TransportError, httpx2.InvalidURL, TimeoutError):
            async with asyncio.timeout(_BESIDE_SECONDS):
                for _ in range(_MAX_REDIRECTS + 1):
                    response = await self._transport.handle_async_request(request)
                    await response.aclose()
                    if (following := _redirected(request, response)) is None:
                        return
                    request = following


def _redirected(request: httpx2.Request, response: httpx2.Response) -> httpx2.Request | None:
    """Return the request at the place within its origin that it is redirected to; None if it is not."""
    if response.status_code not in (307, 308) or "location" not in response.headers:
        return None
    url = request.url.join(response.headers["location"])
    if (url.scheme, url.host, url.port) != (request.url.scheme, request.url.host, request.url.port):
        return None
    return httpx2.Request("POST", url, headers=request.headers, content=request.content)


def is_answer(response: httpx2.Response) -> bool:
    """Return whether a server has sent the response: not if ``WatchedTransport`` made it itself."""
    return _OURS not in response.extensions


def wrap_transports(
    client: httpx2.AsyncClient, wrap: Callable[[httpx2.AsyncBaseTransport], httpx2.AsyncBaseTransport]
) -> None:
    """Replace each transport of a client, also those of proxies, by what ``wrap`` makes of it.

    httpx2 takes a transport only when a client is made, and then no proxies.
    """
    ways: dict[str, Any] = vars(client)
    ways["_transport"] = wrap(ways["_transport"])
    ways["_mounts"] = {each: way and wrap(way) for each, way in ways["_mounts"].items()}


async def _call_what_it_is(response: httpx2.Response) -> None:
    """Give an answer the media type that its first bytes have; the SDK reads JSON and event streams only."""
    kind = response.headers.get("content-type", "").lower()
    is_stream, is_json = kind.startswith("text/event-stream"), kind.startswith("application/json")
    if response.status_code == 202 or not isinstance(response.stream, httpx2.AsyncByteStream):
        return
    begun = _Begun(response.stream)
    response.stream = begun
    first = (await begun.first(_HEAD if is_stream else 1)).lstrip()
    is_events = _FIELD.match(first) is not None
    if is_stream and first and not is_events:
        response.headers["content-type"] = "application/json"
    elif not is_stream and (is_events or not is_json):
        response.headers["content-type"] = "text/event-stream" if is_events else "application/json"
    begun.is_whole = not is_events and not (is_stream and not first)


class _Begun(httpx2.AsyncByteStream):
    """A stream whose first bytes were looked at; what went wrong then is raised where it is read.

    With ``is_whole`` the body is one JSON, and one that breaks off just ends: the SDK fails its call for it;
    an error would end all calls of the connection.
    """

    is_whole = False

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream
        self._rest = aiter(stream)
        self._first = b""
        self._error: Exception | None = None

    async def first(self, size: int) -> bytes:
        """Return at least so many bytes that are not blank, a line of less, or all that were looked at."""
        while len(said := self._first.lstrip()) < size and (not said or b"\n" not in said):
            if len(self._first) > _MAX_BLANK or (data := await self._next()) is None:
                break
            self._first += data
            if size > 1 and not said and b"\n\n" in self._first:
                break
        return self._first

    async def _next(self) -> bytes | None:
        try:
            return await anext(self._rest, None)
        except Exception as error:
            self._error = error
            return None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._first:
            yield self._first
        try:
            if self._error is not None:
                raise self._error
            async for data in self._rest:
                yield data
        except httpx2.TransportError:
            if not self.is_whole:
                raise

    async def aclose(self) -> None:
        """Close it."""
        await self._stream.aclose()


def says_session_lost(text: str, *, only: bool = False) -> bool:
    """Return whether a text says that a session is not known any more; with ``only``, no more than that."""
    return (_ONLY_SESSION_LOST.fullmatch(text) if only else _SESSION_LOST.search(text)) is not None


def _needs_reason(request: httpx2.Request, response: httpx2.Response) -> bool:
    """Whether the body of a response says why it refuses; what asks for credentials reads a 401 itself."""
    is_asking = "www-authenticate" in response.headers or _SESSION not in request.headers
    return response.status_code >= 400 and (
        response.status_code not in _KNOWN or (response.status_code == 401 and not is_asking)
    )


async def _with_reason(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    """Return a response that refuses a call as an error of the protocol with the reason that it gives."""
    body = b""
    with suppress(TimeoutError, httpx2.TransportError, httpx2.DecodingError, TooLarge):
        async with asyncio.timeout(_REASON_SECONDS):
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) >= _MAX_REASON:
                    break
    await response.aclose()
    if (error := _error_of(body)) is None:
        said = one_line(redact_text(body.decode("utf-8", "replace")), 300)
        text = f"HTTP {response.status_code}" + (f": {said}" if said else "")
        error = {"code": INTERNAL_ERROR, "message": text}
    answer = {"jsonrpc": "2.0", "id": None, "error": error}  # the SDK gives it the id of the request
    return httpx2.Response(response.status_code, json=answer, request=request)


def _error_of(body: bytes) -> dict[str, Any] | None:
    """Return the error of the protocol that a body is, whatever its id; None if it is none."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or said.get("jsonrpc") != "2.0":
        return None
    error = said.get("error")
    return error if isinstance(error, dict) else None


def _failure(request: httpx2.Request, error: httpx2.TransportError) -> httpx2.Response:
    what = "cannot connect" if isinstance(error, _NOT_SENT) else "the connection was lost in the middle of it"
    text = f"{what} ({type(error).__name__}: {error})" if str(error) else what
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": CONNECTION_CLOSED, "message": text}}
    return httpx2.Response(503, json=body, request=request, extensions={_OURS: True})
