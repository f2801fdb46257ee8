"""The two streams of a server over the older HTTP transport: events come in one stream, messages are posted.

The SDK's own transport sends one message after the other, ends all sending when one is refused, and waits
without end for a server that names no address.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import anyio
import httpx2
from mcp.shared._httpx_utils import request_within_origin, sse_within_origin
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCRequest, JSONRPCResponse

from pallas.bounds import MAX_MESSAGE
from pallas.bounds.bodies import TooLarge
from pallas.bounds.message_nodes import too_many_nodes
from pallas.deadlines import cancel_and_wait
from pallas.mcp_client.odd_framing import messages_in
from pallas.model.redaction import redact_text
from pallas.safe_text import one_line

from .http_requests import call_fate

log = logging.getLogger(__name__)

ENDPOINT_SECONDS: Final = 15.0
"""How long a server may take to name the address for messages."""
_ANSWERS: Final = (JSONRPCResponse, JSONRPCError)
_MAX_SENDING: Final = 1_000
"""Requests that are being posted at the same time; further ones wait."""
_NO_SESSION: Final = frozenset({404, 410})
_END_SECONDS: Final = 2.0


class NoEndpointError(ConnectionError):
    """A server names no address for messages that can be used; the text says why."""


@asynccontextmanager
async def sse_streams(client: httpx2.AsyncClient, url: str) -> AsyncIterator[tuple[Any, Any]]:
    """Yield the streams of a server once it has named its address for messages.

    Raises httpx2's errors, and NoEndpointError.
    """
    async with sse_within_origin(client, url, max_event_size=MAX_MESSAGE) as source:
        source.response.raise_for_status()
        events = aiter(source)
        endpoint = await _endpoint(url, events)
        inlet, incoming = anyio.create_memory_object_stream[Any](0)
        outgoing = _Posts(client, endpoint, inlet)
        reader = asyncio.create_task(_read(events, inlet), name="read events")
        try:
            yield incoming, outgoing
        finally:
            await outgoing.aclose()
            await cancel_and_wait(reader, seconds=_END_SECONDS)
            inlet.close()
            incoming.close()


async def _endpoint(url: str, events: AsyncIterator[Any]) -> str:
    """Return the address that the first event names."""
    hint = "a server at an address for Streamable HTTP needs transport: http"
    try:
        async with asyncio.timeout(ENDPOINT_SECONDS):
            async for event in events:
                if event.event == "endpoint":
                    return _checked(url, event.data.strip().strip('"'))
    except TimeoutError:
        why = f"its stream named no endpoint for messages within {ENDPOINT_SECONDS:g} s; {hint}"
        raise NoEndpointError(why) from None
    except httpx2.SSEError:
        raise NoEndpointError(f"it sends no stream of events; {hint}") from None
    raise NoEndpointError(f"its stream ended before it named an endpoint for messages; {hint}")


def _checked(url: str, named: str) -> str:
    """Return an address within the origin of the stream."""
    try:
        endpoint = urljoin(url, named)
        own, other = urlsplit(url), urlsplit(endpoint)
    except ValueError:
        raise NoEndpointError(f"its endpoint is not an address: {one_line(named, 100)}") from None
    if (own.scheme, own.netloc) != (other.scheme, other.netloc):
        origin = one_line(f"{other.scheme}://{other.hostname}", 100)
        raise NoEndpointError(
            f"its endpoint for messages has another origin, {origin}, which gets no messages"
        )
    return endpoint


async def _read(events: AsyncIterator[Any], inlet: Any) -> None:
    """Pass the messages of events on until the stream ends."""
    try:
        async for event in events:
            if event.event in ("endpoint", "ping") or not event.data:
                continue
            if (problem := too_many_nodes(event.data)) is not None:
                log.warning("an event of a server was dropped: %s", problem)
                continue
            for message in messages_in(event.data):
                await inlet.send(SessionMessage(message))
    except (httpx2.HTTPError, httpx2.SSEError, TooLarge, anyio.BrokenResourceError) as error:
        log.debug("a stream of events ended: %s", error)
    finally:
        inlet.close()


class _Posts:
    """The outgoing stream: each request is posted by a task of its own, in the context of its sender."""

    def __init__(self, client: httpx2.AsyncClient, endpoint: str, inlet: Any) -> None:
        self._client = client
        self._endpoint = endpoint
        self._inlet = inlet
        self._sending: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(_MAX_SENDING)

    async def __aenter__(self) -> "_Posts":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def send(self, item: Any) -> None:
        """Post a message. The answer to a request that is refused comes from here."""
        if not isinstance(item.message, JSONRPCRequest):
            with suppress(httpx2.HTTPError, TooLarge):
                await self._posted(item.message)
            return
        await self._room.acquire()
        task = asyncio.create_task(self._request(item.message), name="post a request")
        self._sending.add(task)
        task.add_done_callback(self._sent)

    async def aclose(self) -> None:
        """End what is being sent."""
        await cancel_and_wait(*self._sending, seconds=_END_SECONDS)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        self._room.release()

    async def _request(self, request: JSONRPCRequest) -> None:
        try:
            response = await self._posted(request)
        except (httpx2.HTTPError, TooLarge) as error:
            answers = [_failed(request, f"{type(error).__name__}: {error}")]
        else:
            answers = [each for each in messages_in(response.content) if isinstance(each, _ANSWERS)]
            answers = [each for each in answers if each.id == request.id or response.status_code >= 400]
            fate = call_fate.get()
            if response.status_code in _NO_SESSION and fate is not None and not fate.accepted:
                fate.no_session = True
            if response.status_code >= 400 and not answers:
                said = one_line(redact_text(response.text), 300)
                answers = [_failed(request, f"HTTP {response.status_code}" + (f": {said}" if said else ""))]
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            for answer in answers[:1]:
                answer.id = request.id
                await self._inlet.send(SessionMessage(answer))

    async def _posted(self, message: Any) -> httpx2.Response:
        body = json.dumps(message.model_dump(by_alias=True, mode="json", exclude_unset=True))
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        return await request_within_origin(
            self._client, "POST", self._endpoint, content=body, headers=headers
        )


def _failed(request: JSONRPCRequest, why: str) -> Any:
    return JSONRPCError(jsonrpc="2.0", id=request.id, error=ErrorData(code=INTERNAL_ERROR, message=why))
