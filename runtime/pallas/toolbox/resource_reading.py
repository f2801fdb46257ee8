"""Resources of servers read by hand: once, or followed by a subscription that tells of updates."""

import asyncio
import logging
from base64 import b64decode
from contextlib import suppress
from contextvars import Context
from dataclasses import replace
from time import time
from typing import Any, Final
from uuid import uuid4

from mcp import Client, MCPError
from mcp.client.subscriptions import SubscriptionLost
from mcp_types import (
    BlobResourceContents,
    EmptyResult,
    Resource,
    ResourceUpdatedNotification,
    SubscribeRequest,
    SubscribeRequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from pallas.downstreams.media_types import is_text_type, plain_media_type, size_of_base64
from pallas.downstreams.offer import resources_of
from pallas.downstreams.pulse import Pulse
from pallas.model import Fault, FaultType, ResourceDetail, ResourceReading
from pallas.model.redaction import MASK, redact_text
from pallas.safe_text import one_line

from .plain_json import text_of
from .server_connection import connected
from .server_endpoint import ServerEndpoint

log = logging.getLogger(__name__)

MAX_SUBSCRIPTIONS: Final = 16
"""In one fleet at one time."""
MAX_RESOURCES: Final = 500
WAIT_SECONDS: Final = 20.0
"""How long one call waits for an update."""
LEASE_SECONDS: Final = 30.0
"""How long a subscription lasts after a call that no other call follows."""
OPEN_SECONDS: Final = 20.0
"""How long a connection, a subscription and a reading may take together."""
# Between two readings, for a server that notifies all the time.
_PAUSE_SECONDS: Final = 0.5
_ANSWER_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 2.0
_MAX_TEXT: Final = 256 * 1024
_MAX_URI: Final = 2_000


def resource_details(resources: list[Resource]) -> tuple[ResourceDetail, ...]:
    """Return resources as values: sanitised, secrets masked, bounded."""
    return tuple(
        ResourceDetail(
            _shown(each),
            one_line(redact_text(each.name), 200),
            one_line(redact_text(each.title or ""), 200),
            text_of(each.description or "", 4_000),
            one_line(each.mime_type or "", 100),
            each.size,
        )
        for each in resources[:MAX_RESOURCES]
    )


async def read_resource(endpoint: ServerEndpoint, uri: str) -> ResourceReading:
    """Return the contents of a resource; the connection is closed afterwards. Has no deadline.

    Raises Fault (UPSTREAM): the server cannot be reached, or has no such resource.
    """
    async with connected(endpoint) as client:
        return await _read(client, await _own_uri(client, uri))


class ResourceSubscriptions:
    """Subscriptions of a fleet's workbenches, each with a connection of its own. Belongs to one event loop.

    A subscription ends when a call that follows it is cancelled, when no call follows it for
    ``LEASE_SECONDS``, and when its connection ends.
    """

    def __init__(self) -> None:
        self._all: dict[str, _Subscription] = {}

    async def begin(self, endpoint: ServerEndpoint, uri: str) -> ResourceReading:
        """Subscribe, and return the contents with the subscription's id. Raises Fault (UPSTREAM, CONFIG)."""
        if sum(not each.task.done() for each in self._all.values()) >= MAX_SUBSCRIPTIONS:
            raise Fault(
                FaultType.CONFIG,
                f"{MAX_SUBSCRIPTIONS} resources are followed in this fleet; unsubscribe from one of them",
            )
        subscription = _Subscription(endpoint, uri)
        self._all[subscription.id] = subscription
        return await self._used(subscription, None)

    async def following(self, id_: str, after: int) -> ResourceReading:
        """Return the contents when there are more updates than ``after``, or after ``WAIT_SECONDS``.

        Raises Fault (UPSTREAM) if there is no such subscription any more; it says why.
        """
        if (subscription := self._all.get(id_)) is None:
            raise Fault(FaultType.UPSTREAM, "the subscription has ended; subscribe again")
        return await self._used(subscription, after)

    async def close(self) -> None:
        """End all of them, within 2 s."""
        tasks = {each.task for each in self._all.values()}
        for each in list(self._all.values()):
            self._end(each)
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)

    async def _used(self, subscription: "_Subscription", after: int | None) -> ResourceReading:
        if subscription.lease is not None:
            subscription.lease.cancel()
        try:
            if after is not None:
                await subscription.wait_for_update(after)
            reading = await subscription.read()
        except BaseException:
            self._end(subscription)
            raise
        loop = asyncio.get_running_loop()
        subscription.lease = loop.call_later(LEASE_SECONDS, self._end, subscription)
        return reading

    def _end(self, subscription: "_Subscription") -> None:
        if subscription.lease is not None:
            subscription.lease.cancel()
        self._all.pop(subscription.id, None)
        if not subscription.task.cancelling():
            subscription.task.cancel()


class _Subscription:
    """One subscription. Its task owns the connection."""

    def __init__(self, endpoint: ServerEndpoint, uri: str) -> None:
        self.id = uuid4().hex
        self._endpoint = endpoint
        self._uri = uri
        self._client: Client | None = None
        self._why = Fault(FaultType.UPSTREAM, "the subscription has ended")
        self._updates = 0
        self._updated_at: float | None = None
        self._ready = asyncio.Event()
        self._news = asyncio.Event()
        self._gone = asyncio.Event()
        self._last: ResourceReading | None = None
        self.lease: asyncio.TimerHandle | None = None
        """Ends it, unless a call follows it before."""
        name = f"resource of {endpoint.config.name}"
        self.task = asyncio.create_task(self._own(), name=name, context=Context())

    async def wait_for_update(self, after: int) -> None:
        """Wait for another update, ``WAIT_SECONDS`` at most. Raises Fault if the server is gone."""
        await asyncio.sleep(_PAUSE_SECONDS)
        if self._updates <= after and self._client is not None:
            self._news.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), WAIT_SECONDS)
        if self._updates <= after:
            await self._check()

    async def read(self) -> ResourceReading:
        """Return the contents; those of the last time if there was no update. Raises Fault."""
        try:
            await asyncio.wait_for(self._ready.wait(), OPEN_SECONDS)
        except TimeoutError:
            text = f"it did not take the subscription within {OPEN_SECONDS:g} s"
            raise Fault(FaultType.TIMEOUT, text) from None
        if self._client is None:
            raise self._why
        if self._last is None or self._last.updates != self._updates:
            updates = self._updates
            try:
                async with asyncio.timeout(OPEN_SECONDS):
                    found = await _read(self._client, self._uri)
            except Fault as fault:  # it may be there again with the next update
                found = ResourceReading("", time(), problem=fault.message)
            except TimeoutError:
                found = ResourceReading("", time(), problem=f"no answer within {OPEN_SECONDS:g} s")
            self._last = replace(found, subscription=self.id, updates=updates, updated_at=self._updated_at)
        return self._last

    async def _own(self) -> None:
        try:
            async with connected(self._endpoint, heard=self._hear, ended=self._gone.set) as client:
                resources = client.server_capabilities.resources
                if resources is None or not resources.subscribe:
                    raise Fault(FaultType.CONFIG, "this server takes no subscriptions to resources")
                self._uri = await _own_uri(client, self._uri)
                try:
                    if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
                        await self._listen(client)
                    else:
                        await self._subscribe(client)
                finally:
                    self._client = None
        except Fault as fault:
            self._why = fault
        finally:
            self._ready.set()
            self._news.set()

    async def _listen(self, client: Client) -> None:
        """Follow the resource in the modern era, until the stream ends."""
        async with client.listen(resource_subscriptions=[self._uri]) as subscription:
            if not subscription.honored.resource_subscriptions:
                raise Fault(FaultType.UPSTREAM, "the server does not take a subscription to this resource")
            self._begun(client)
            with suppress(SubscriptionLost):
                async for _ in subscription:
                    self._note()
        raise Fault(FaultType.UPSTREAM, "the server has ended the subscription")

    async def _subscribe(self, client: Client) -> None:
        """Follow the resource in the era of the handshake, until the other side is gone."""
        params = SubscribeRequestParams(uri=self._uri)
        await client.session.send_request(SubscribeRequest(params=params), EmptyResult)
        self._begun(client)
        await self._gone.wait()
        raise Fault(FaultType.UPSTREAM, "the connection to the server was lost")

    async def _check(self) -> None:
        """Raise Fault if the subscription has ended, or a server that says nothing does not answer either."""
        if self._client is None:
            raise self._why
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await Pulse().ask(self._client)
        except (TimeoutError, ConnectionError, MCPError) as error:
            raise Fault(FaultType.UPSTREAM, "the server does not answer any more") from error

    def _begun(self, client: Client) -> None:
        self._client = client
        self._ready.set()

    async def _hear(self, message: Any) -> None:
        is_legacy = self._client is not None and (
            self._client.protocol_version not in MODERN_PROTOCOL_VERSIONS
        )
        if is_legacy and isinstance(message, ResourceUpdatedNotification):
            self._note()

    def _note(self) -> None:
        self._updates += 1
        self._updated_at = time()
        self._news.set()


async def _read(client: Client, uri: str) -> ResourceReading:
    try:
        result = await client.read_resource(uri)
    except MCPError as error:
        raise _refused(error) from error
    text = await asyncio.to_thread(lambda: "\n\n".join(_text(each) for each in result.contents))
    return ResourceReading(text_of(text, _MAX_TEXT), time())


def _text(contents: Any) -> str:
    if not isinstance(contents, BlobResourceContents):
        return str(contents.text)
    media_type = plain_media_type(contents.mime_type)
    if is_text_type(media_type):
        with suppress(ValueError):
            return b64decode(contents.blob, validate=True).decode()
    return f"[{one_line(media_type, 100)}, {size_of_base64(contents.blob):,} bytes]"


async def _own_uri(client: Client, shown: str) -> str:
    """Return the URI of the resource that is shown so, which may be masked."""
    if MASK not in shown and len(shown) < _MAX_URI:
        return shown
    return next((str(each.uri) for each in await resources_of(client) if _shown(each) == shown), shown)


def _shown(resource: Resource) -> str:
    return one_line(redact_text(str(resource.uri)), _MAX_URI)


def _refused(error: Exception) -> Fault:
    return Fault(FaultType.UPSTREAM, f"it answered with an error: {one_line(redact_text(str(error)), 300)}")
