"""How a server is reached: a program's pipes, Streamable HTTP, or server-sent events."""

import os
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TextIO, cast

import httpx2
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from pallas.aiohttp_transport import AiohttpTransport
from pallas.bounds import MAX_MESSAGE
from pallas.mcp_client import stdio_seam
from pallas.telemetry.log.server_output import is_logged

from .http_requests import BoundedTransport, WatchedTransport, wrap_transports
from .server_stderr import ServerErrorReader, ServerErrors
from .sse_streams import sse_streams

TIMEOUT: Final = httpx2.Timeout(30.0, read=300.0)
"""Seconds for one HTTP request and its answer, unless the settings of the server say otherwise."""


class Transport(Protocol):
    """Opens the two streams of a connection; each call of ``open`` makes a new one."""

    @property
    def key(self) -> str:
        """What the era of the server is remembered by."""

    @property
    def is_program(self) -> bool:
        """Whether the server is a program that is started for the connection."""

    @property
    def writes_record(self) -> bool:
        """Whether what it sends and gets is put on the wire record below it."""

    def open(self, link: "Link") -> Any:
        """Return an async context manager of the two streams."""


@dataclass(slots=True)
class Link:
    """What a transport and its connection know of each other: ``stderr`` is what reads the program's."""

    name: str
    is_open: bool = False
    stderr: ServerErrorReader | None = None


@dataclass(frozen=True, slots=True)
class StdioProgram:
    """A server that is a program. ``env`` is all of its environment.

    ``errors`` gives the file for its stderr, which the caller closes; without it, that is logged.
    """

    command: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    errors: Callable[[], TextIO] | None = None

    is_program = True
    writes_record = False

    @property
    def key(self) -> str:
        """The command line."""
        return "\0".join((self.command, *self.args, self.cwd or ""))

    @asynccontextmanager
    async def open(self, link: Link) -> AsyncIterator[Any]:
        """Start the program. Raises OSError."""
        parameters = StdioServerParameters(
            command=self.command, args=list(self.args), env=dict(self.env), cwd=self.cwd
        )
        with self._errors(link.name) as errors:
            link.stderr = errors.reader if isinstance(errors, ServerErrors) else None
            program = stdio_client(parameters, errlog=cast(TextIO, errors))
            async with stdio_seam.guarded(link.name, program) as streams:
                yield streams

    def _errors(self, name: str) -> AbstractContextManager[Any]:
        if self.errors is not None:
            return nullcontext(self.errors())
        # The null device opens at once.
        return ServerErrors(name) if is_logged() else Path(os.devnull).open("w")


@dataclass(frozen=True, slots=True)
class Http:
    """A server over Streamable HTTP.

    ``prepare`` gets the client before it is used. ``verify`` and ``trust_env``, whether the environment's
    proxies are used, are as httpx2 takes them.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    auth: httpx2.Auth | None = field(default=None, repr=False)
    timeout: httpx2.Timeout = field(default_factory=lambda: TIMEOUT)
    prepare: Callable[[httpx2.AsyncClient], None] | None = None
    verify: ssl.SSLContext | bool = True
    trust_env: bool = True

    is_program = False
    writes_record = True

    @property
    def key(self) -> str:
        """The address."""
        return self.url

    @asynccontextmanager
    async def open(self, link: Link) -> AsyncIterator[Any]:
        """Make a client; the first request is the opening's."""
        async with (
            self._client(link) as client,
            streamable_http_client(self.url, http_client=client, max_sse_event_size=MAX_MESSAGE) as streams,
        ):
            yield streams

    def _client(self, link: Link) -> httpx2.AsyncClient:
        client = http_client(
            self.headers, self.auth, self.timeout, verify=self.verify, trust_env=self.trust_env
        )
        if self.prepare is not None:
            self.prepare(client)
        return watched(client, link)


@dataclass(frozen=True, slots=True)
class Sse:
    """A server over the older HTTP transport with server-sent events."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    auth: httpx2.Auth | None = field(default=None, repr=False)
    read_timeout: float = 300.0

    is_program = False
    writes_record = False

    @property
    def key(self) -> str:
        """The address."""
        return self.url

    @asynccontextmanager
    async def open(self, link: Link) -> AsyncIterator[Any]:
        """Make a client, and open the stream of events. Raises httpx2's errors and ConnectionError."""
        timeout = httpx2.Timeout(TIMEOUT.connect, read=self.read_timeout)
        client = watched(http_client(self.headers, self.auth, timeout), link)
        async with client, sse_streams(client, self.url) as streams:
            yield streams


def http_client(
    headers: Mapping[str, str],
    auth: httpx2.Auth | None,
    timeout: httpx2.Timeout,
    *,
    verify: ssl.SSLContext | bool = True,
    trust_env: bool = True,
) -> httpx2.AsyncClient:
    """Return a client for one server."""
    return httpx2.AsyncClient(
        headers=dict(headers),
        auth=auth,
        timeout=timeout,
        transport=AiohttpTransport(
            verify=httpx2.create_ssl_context(verify, trust_env=trust_env),
            trust_env=trust_env,
            resends=False,
        ),
        trust_env=trust_env,
    )


def watched(client: httpx2.AsyncClient, link: Link) -> httpx2.AsyncClient:
    """Limit what a client reads, and note what becomes of its requests."""
    wrap_transports(client, lambda way: WatchedTransport(BoundedTransport(way), lambda: link.is_open))
    return client
