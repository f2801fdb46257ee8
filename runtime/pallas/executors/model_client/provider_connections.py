"""The HTTP clients of model providers: one for each address and credential, shared by an event loop."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Final, Self
from weakref import WeakKeyDictionary

import httpx2

from pallas.aiohttp_transport import AiohttpTransport, Interceptor
from pallas.bounds.bodies import accept_bounded_encodings, bound_model
from pallas.model import Fault, FaultType
from pallas.safe_text import one_line

from .checked_answer import check_answer
from .step_observer import note_request, note_response

MAX_CLIENTS: Final = 64
"""Clients that are kept. Beyond that the one unused for longest is closed, if it has no request."""
_CLOSING: Final = 2.0
"""Seconds for closing the connections of one client."""


@dataclass(frozen=True, slots=True)
class ClientKey:
    """What requests must have in common to share connections; ``credential`` is a fingerprint."""

    base_url: str
    credential: str
    trust_env: bool = True
    follow_redirects: bool = True


class PooledClient(httpx2.AsyncClient):
    """A client that stays open: who borrows it may close it, to no effect.

    Answers are limited (``pallas.bounds.bodies``): reading a larger one raises TooLarge. A redirect to
    another origin raises Fault (CONFIG): request and credentials are for the server that is configured.
    Reading what is no answer of a model raises AnswerError.
    """

    def __init__(self, key: ClientKey, interceptor: Callable[[], Interceptor | None]) -> None:
        self.key = key
        self.transport = AiohttpTransport(
            verify=httpx2.create_ssl_context(), trust_env=key.trust_env, interceptor=interceptor
        )
        super().__init__(
            transport=self.transport,
            trust_env=key.trust_env,
            follow_redirects=key.follow_redirects,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),  # none is stored
            event_hooks={
                "request": [_limit_encodings, note_request],
                "response": [limit_answer, note_response, refuse_other_origin, check_answer],
            },
        )

    @property
    def opened(self) -> int:
        """The number of connections that it opened."""
        return self.transport.opened

    @property
    def in_use(self) -> bool:
        """Whether one of its responses is not closed yet."""
        return self.transport.in_use > 0

    async def __aenter__(self) -> Self:
        """Do nothing: it is open from its first request on."""
        return self

    async def aclose(self) -> None:
        """Do nothing: its owner closes it."""

    async def __aexit__(self, *_: object) -> None:
        """Do nothing, as ``aclose``."""

    async def close_connections(self) -> None:
        """Close it."""
        await self.transport.aclose()


class ProviderConnections:
    """The clients of one event loop. Who asks models holds them: they are closed when nobody does.

    ``interceptor`` is asked before each of their requests.
    """

    def __init__(self) -> None:
        self.interceptor: Interceptor | None = None
        self._clients: OrderedDict[ClientKey, PooledClient] = OrderedDict()
        self._holders = 0
        self._closing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Keep the clients open until the block ends."""
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
            if not self._holders:
                await self._close()

    async def _close(self) -> None:
        clients = list(self._clients.values())
        self._clients.clear()
        await asyncio.gather(*map(_closed, clients))
        if self._closing:
            await asyncio.wait(self._closing, timeout=_CLOSING)

    def client(self, key: ClientKey) -> PooledClient:
        """The client of that key."""
        client = self._clients.get(key)
        if client is None:
            client = self._clients[key] = PooledClient(key, lambda: self.interceptor)
            self._make_room()
        self._clients.move_to_end(key)
        return client

    @property
    def opened(self) -> int:
        """The number of connections that its clients opened."""
        return sum(client.opened for client in self._clients.values())

    def _make_room(self) -> None:
        if len(self._clients) <= MAX_CLIENTS:
            return
        for key, client in self._clients.items():
            if not client.in_use:
                del self._clients[key]
                task = asyncio.create_task(_closed(client), name="close connections to a provider")
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
                return


_of_loops: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, ProviderConnections]] = WeakKeyDictionary()


def provider_connections() -> ProviderConnections:
    """The clients of the running event loop."""
    loop = asyncio.get_running_loop()
    found = _of_loops.get(loop)
    if found is None:
        found = _of_loops[loop] = ProviderConnections()
    return found


async def _limit_encodings(request: httpx2.Request) -> None:
    accept_bounded_encodings(request)


async def limit_answer(response: httpx2.Response) -> None:
    bound_model(response)


async def refuse_other_origin(response: httpx2.Response) -> None:
    """Raise Fault (CONFIG) for a redirect to another scheme, host or port."""
    if not response.has_redirect_location:
        return
    asked = response.request.url
    try:
        target = asked.join(response.headers["location"])
    except httpx2.InvalidURL:
        return  # httpx2 refuses it itself
    if _origin_of(target) != _origin_of(asked):
        here, there = (one_line(each, 200) for each in (_origin_of(asked), _origin_of(target)))
        raise Fault(
            FaultType.CONFIG,
            f"the model server at {here} redirects to {there}, where no request and no key is sent; "
            "if that is the right server, make it the provider's base_url",
        )


def _origin_of(url: httpx2.URL) -> str:
    return f"{url.scheme}://{url.netloc.decode('ascii', 'replace')}"


async def _closed(client: PooledClient) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(_CLOSING):
            await client.close_connections()
