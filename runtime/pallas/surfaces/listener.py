"""A port: bound first, then served by uvicorn without its signals, banners or exits."""

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from email.utils import formatdate
from math import ceil
from time import monotonic, time
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp

from pallas.deadlines import cancel_and_wait, done_within
from pallas.model import Fault, FaultType

from .connection_shares import ConnectionShares
from .connections import BOUNDS, Bounds, ClientConnection, ConnectionLimits
from .port_binding import bind as bind

log = logging.getLogger(__name__)

BACKLOG: Final = 2048
# Connections that are accepted before yielding to the loop.
_AT_A_TIME: Final = 8
# Connections that are checked before yielding to the loop.
_LOOKED_AT: Final = 32
# Errors that mean no descriptor is left; seconds until the next attempt.
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_EXHAUSTED_PAUSE: Final = 0.2
# Seconds between two checks for the end of a port while it stops.
_LOOK: Final = 0.01
START_TIMEOUT: Final = 30.0
GRACE: Final = 2
STOP_TIMEOUT: Final = 4.0


class _Gate:
    """Accepts connections from one socket and gives each a protocol; uvicorn takes it for an asyncio
    server."""

    def __init__(
        self,
        sock: socket.socket,
        protocol: Callable[[], ClientConnection],
        connections: set[Any],
        *,
        pool: ConnectionLimits,
        bounds: Bounds,
        tls: ssl.SSLContext | None,
        shares: ConnectionShares | None = None,
        looks: bool = True,
    ) -> None:
        self._sock = sock
        self._shares = shares
        self._protocol = protocol
        self._connections = connections
        self._pool = pool
        self._bounds = bounds
        self._tls = tls
        self._making: set[asyncio.Task[None]] = set()
        self._closing = False
        self._wanted = asyncio.Event()  # there may be something to look at
        sock.setblocking(False)
        sock.listen(BACKLOG)
        self._accepting = asyncio.create_task(self._accept(), name="accept connections")
        self._looking: asyncio.Task[None] | None = None
        if looks:  # once for all gates that share their connections
            pool.watch(connections)
            self._looking = asyncio.create_task(self._look(), name="look at connections")

    async def stop_accepting(self) -> None:
        """Stop accepting connections; the socket may be closed after that."""
        await cancel_and_wait(self._accepting, seconds=1.0)

    def close(self) -> None:
        """Abort the handshakes in progress; once no connection is left, nothing is checked any more."""
        self._closing = True
        self._wanted.set()
        for task in self._making:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until its tasks have ended; all connections must be closed."""
        ending = {self._accepting, *self._making}
        if self._looking is not None:
            self._looking.cancel()
            self._pool.unwatch(self._connections)
            ending.add(self._looking)
        await asyncio.wait(ending, timeout=1.0)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        since_pause = 0
        while True:
            try:
                if self._shares is None:
                    sock, _ = await loop.sock_accept(self._sock)
                else:
                    await self._turn(self._shares)
                    sock, _ = self._sock.accept()
            except BlockingIOError:  # another process has accepted it
                continue
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    # The connection stays in the queue: an immediate retry would fail for ever.
                    self._pool.make_room()
                    self._pool.tell("lack of descriptors")
                    await asyncio.sleep(_EXHAUSTED_PAUSE)
                elif self._sock.fileno() < 0:
                    return
                continue
            since_pause += 1
            if since_pause >= _AT_A_TIME:  # let other tasks of the loop run during a flood
                since_pause = 0
                await asyncio.sleep(0)
            if not self._pool.admit():
                self._pool.tell("lack of room")
                sock.close()
                continue
            task = asyncio.create_task(self._make(sock), name="make connection")
            self._making.add(task)
            # A task that is cancelled before it began does not close its socket.
            task.add_done_callback(lambda done, sock=sock: self._made(done, sock))  # type: ignore[misc]
            self._pool.making(task)

    async def _turn(self, shares: ConnectionShares) -> None:
        """Wait for a connection that this process should accept: one with fewer connections goes first."""
        loop, comes = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._sock, comes.set)
        try:
            await comes.wait()
        finally:
            loop.remove_reader(self._sock)
        if shares.has_more(self._pool.count):
            await asyncio.sleep(shares.PAUSE)

    def _made(self, task: asyncio.Task[None], sock: socket.socket) -> None:
        self._making.discard(task)
        if task.cancelled():
            sock.close()

    async def _make(self, sock: socket.socket) -> None:
        """Create the connection of a socket; it is dropped if its TLS handshake takes too long."""
        task, connection = asyncio.current_task(), self._protocol()
        if task is not None:
            connection.when_made(lambda: self._pool.made(task))
        try:
            sock.setblocking(False)
            # Otherwise asyncio leaves Nagle's delay on: this socket's protocol is not named.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                sock,
                ssl=self._tls,
                ssl_handshake_timeout=self._bounds.head if self._tls else None,
                ssl_shutdown_timeout=self._bounds.linger if self._tls else None,
            )
            self._wanted.set()
        except OSError:  # already closed, or no TLS
            sock.close()

    async def _look(self) -> None:
        while self._connections or not self._closing:
            if not self._connections and self._shares is None:  # other processes read how many there are
                self._wanted.clear()
                await self._wanted.wait()
            await asyncio.sleep(self._bounds.look)
            if self._shares is not None:
                self._shares.publish(self._pool.count)
            now = monotonic()
            for number, connection in enumerate(tuple(self._connections)):
                if not number % _LOOKED_AT:
                    await asyncio.sleep(0)  # thousands may end now: let other tasks of the loop run
                if why := connection.look(now, self._bounds):
                    self._pool.tell(f"slow {why}")
        self._pool.unwatch(self._connections)


class _ServerState(uvicorn.server.ServerState):
    """The state of a port, with the headers of each answer; the date is made when an answer needs it."""

    def __init__(self, config: uvicorn.Config) -> None:
        self._config = config
        self._second = 0
        self._headers: list[tuple[bytes, bytes]] = []
        super().__init__()

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """What each answer has, and the date."""
        if (second := int(time())) != self._second:
            date = (b"date", formatdate(second, usegmt=True).encode())
            self._second, self._headers = second, [date, *self._config.encoded_headers]
        return self._headers

    @default_headers.setter
    def default_headers(self, value: list[tuple[bytes, bytes]]) -> None:
        """Do nothing: uvicorn sets them once a second."""


class _Server(uvicorn.Server):
    """uvicorn's server without its signals and exits, accepting connections through ``_Gate``."""

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        pool: ConnectionLimits,
        bounds: Bounds,
        tls: ssl.SSLContext | None,
        shares: ConnectionShares | None = None,
    ) -> None:
        super().__init__(config)
        self.server_state = _ServerState(config)
        self._shares = shares
        self._own: socket.socket | None = None
        self._pool = pool
        self._bounds = bounds
        self._tls = tls
        self._ending = asyncio.Event()

    def end(self) -> None:
        """End now."""
        self.should_exit = True
        self._ending.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # signals belong to the process, not to a port

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections of the one socket in ``sockets``."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            self.should_exit = True
            return
        shared = (sockets or [])[0]

        def gate(sock: socket.socket, **more: Any) -> Any:
            return _Gate(
                sock,
                lambda: ClientConnection(
                    config=self.config, server_state=self.server_state, app_state=self.lifespan.state
                ),
                self.server_state.connections,
                pool=self._pool,
                bounds=self._bounds,
                tls=self._tls,
                **more,
            )

        self.servers = [gate(shared, shares=self._shares)]
        if self._shares is not None:
            # What this fleet calls of itself must reach this process.
            own = self._own = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
            own.bind(("127.0.0.1", 0))
            self._shares.own_ports[shared.getsockname()[1]] = own.getsockname()[1]
            self.servers.append(gate(own, looks=False))
        self.started = True

    async def main_loop(self) -> None:
        """Wait for the end. uvicorn's ticks ten times a second."""
        await self._ending.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting before the socket is closed: its descriptor may then belong to another file.

        Otherwise like uvicorn's, which checks only ten times a second whether everything has ended.
        """
        gates: list[Any] = self.servers
        for gate in gates:
            await gate.stop_accepting()
            gate.close()
        if self._shares is not None and self._own is not None:
            for sock in sockets or []:
                self._shares.own_ports.pop(sock.getsockname()[1], None)
            self._own.close()
        for sock in sockets or []:
            sock.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                await self._wait_ended(gates)
        except TimeoutError:
            tasks = self.server_state.tasks
            if tasks:
                log.error("%d requests did not end in time and are cancelled", len(tasks))
            for task in tasks:
                task.cancel()
        if not self.force_exit:
            await self.lifespan.shutdown()

    async def _wait_ended(self, gates: list[Any]) -> None:
        state = self.server_state
        while (state.connections or state.tasks) and not self.force_exit:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK)  # uvicorn reports it to no caller
        for gate in gates:
            await gate.wait_closed()


class Listener:
    """One ASGI app on one bound socket, from ``start`` to ``stop``, in the running loop.

    With ``tls`` it speaks TLS only. Listeners with the same ``pool`` share its limit. With ``shares`` other
    processes accept from the same socket.
    """

    def __init__(
        self,
        app: ASGIApp,
        sock: socket.socket,
        *,
        lifespan: bool = True,
        tls: ssl.SSLContext | None = None,
        pool: ConnectionLimits | None = None,
        bounds: Bounds = BOUNDS,
        shares: ConnectionShares | None = None,
    ) -> None:
        self._sock = sock
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="on" if lifespan else "off",
            timeout_graceful_shutdown=GRACE,
            server_header=False,
            ws="none",
            http=ClientConnection,
            # Any client may have written the headers for scheme and address.
            proxy_headers=False,
        )
        self._server = _Server(config, pool=pool or ConnectionLimits(), bounds=bounds, tls=tls, shares=shares)
        self._task: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it has its port."""
        return self._sock.fileno() >= 0

    @property
    def port(self) -> int:
        """The port it is bound to."""
        name: Any = self._sock.getsockname()
        return int(name[1])

    async def start(self) -> None:
        """Serve, and return when the port answers. Raises Fault (INTERNAL) if the app does not start."""
        self._task = asyncio.create_task(self._server.serve(sockets=[self._sock]), name=f"port {self.port}")
        starting = asyncio.create_task(self._started(self._task))
        try:
            if not await done_within(START_TIMEOUT, starting):
                raise Fault(FaultType.INTERNAL, f"port {self.port} did not start to answer")
        finally:
            starting.cancel()
        if self._task.done() and not self._server.started:
            raise Fault(FaultType.INTERNAL, f"port {self.port} could not be served; the log has the details")

    async def _started(self, serving: asyncio.Task[None]) -> None:
        while not self._server.started and not serving.done():  # noqa: ASYNC110 - uvicorn tells nobody
            await asyncio.sleep(0.005)

    async def stop(self, grace_s: float = GRACE) -> None:
        """Close the port: requests in progress have ``grace_s`` seconds, then their connections end.

        A second caller waits for the same end, with its own ``grace_s``.
        """
        if self._task is not None:
            if not self._server.should_exit:
                self._server.config.timeout_graceful_shutdown = ceil(grace_s)
            self._server.end()
            _, late = await asyncio.wait({self._task}, timeout=grace_s + STOP_TIMEOUT - GRACE)
            if late:
                self._server.force_exit = True
                await cancel_and_wait(self._task, seconds=1.0)
        self._sock.close()
