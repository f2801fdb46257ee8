"""Where one agent is reached: its own port, its place on the fleet's port, or both."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

from pallas.config import AgentConfig
from pallas.deadlines import cancel_and_wait
from pallas.surfaces.app_lifespan import Lifespan
from pallas.surfaces.ingress import AgentMount, not_yet, slashless
from pallas.surfaces.listener import GRACE, Listener
from pallas.surfaces.listening_streams import ListeningStreams
from pallas.surfaces.published_agent import AGENTS


class Stay:
    """ASGI application: ``app``, with a count of the requests in flight that came through this port.

    The port may switch to another application before this one's requests have ended: those go on.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = ListeningStreams(app)
        self._under_way: set[asyncio.Task[Any]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        task = asyncio.current_task()
        if task is None:  # only a task can be cancelled
            raise RuntimeError("a request is answered in a task")
        self._under_way.add(task)
        try:
            await self._app(scope, receive, send)
        finally:
            self._under_way.discard(task)

    @property
    def is_idle(self) -> bool:
        """Whether no request is in flight."""
        return not self._under_way

    def end_streams(self) -> None:
        """End the streams on which clients only listen; returns at once."""
        self._app.end()

    async def leave(self, seconds: float) -> None:
        """Wait ``seconds`` for the requests in flight, then cancel them. No new ones may be sent here."""
        self.end_streams()
        under_way = self._under_way - {asyncio.current_task()}
        if not under_way:
            return
        _, late = await asyncio.wait(under_way, timeout=seconds)
        await cancel_and_wait(*late, seconds=1.0)


class AgentPort:
    """ASGI application behind a bound socket, which another agent may take over without closing it.

    ``holder`` is the address that the port belongs to, None for one that waits for an agent. ``is_free`` says
    that another agent may take it, though the one before may still answer.
    """

    def __init__(self, sock: socket.socket, listener: Callable[[ASGIApp, socket.socket], Listener]) -> None:
        self.number: int = sock.getsockname()[1]
        self.holder: AgentAddress | None = None
        self.is_free = False
        self.listener: Listener | None = None
        self._sock = sock
        self._new_listener = listener
        self._stay: Stay | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the agent that answers here; without one, ask the client to come again."""
        stay = self._stay
        await (not_yet if stay is None else stay)(scope, receive, send)

    @property
    def is_bound(self) -> bool:
        """Whether the socket still holds the port."""
        return self._sock.fileno() >= 0

    def take(self, holder: "AgentAddress") -> None:
        """Give the port to this address, whose agent ``enter``s when it answers."""
        self.holder, self.is_free = holder, False

    def offer(self) -> None:
        """Let another agent take the port; until one does, its holder answers."""
        self.is_free = True

    def abandon(self) -> None:
        """Leave the port without a holder: its agent has moved away."""
        self.holder, self.is_free = None, True

    def enter(self, stay: Stay) -> None:
        """Answer with ``stay`` from now on. Requests under way at the one before go on."""
        before, self._stay = self._stay, stay
        if before is not None:
            before.end_streams()

    def leave(self, stay: Stay) -> None:
        """Stop answering with ``stay``, if it is what answers."""
        if self._stay is stay:
            self._stay = None

    async def open(self) -> None:
        """Answer, if it does not yet. Raises Fault (INTERNAL)."""
        if self.listener is None:
            self.listener = self._new_listener(self, self._sock)
            await self.listener.start()

    async def close(self, seconds: float = GRACE) -> None:
        """Refuse connections; requests under way have ``seconds``."""
        if self._stay is not None:
            self._stay.end_streams()
        if self.listener is not None:
            await self.listener.stop(seconds)
        self._sock.close()


class AddressBook(Protocol):
    """The fleet's ports, as far as one agent's address uses them."""

    @property
    def origin(self) -> str:
        """``scheme://host:port`` of the fleet's port."""
        ...

    def origin_of(self, port: int) -> str:
        """``scheme://host:port`` of one port."""
        ...

    def has_place(self, config: AgentConfig) -> bool:
        """Whether the agent is reached at the fleet's port."""
        ...

    def place(self, config: AgentConfig) -> AgentMount | None:
        """A new place for the agent on the fleet's port, None for none."""
        ...

    def forget(self, place: AgentMount | None) -> None:
        """Remove the place from the fleet's port."""
        ...

    async def close_port(self, port: AgentPort) -> None:
        """Refuse connections at the port."""
        ...


class AgentAddress:
    """An agent's own port, its place on the fleet's port, or both; one application behind them."""

    def __init__(
        self,
        ports: AddressBook,
        config: AgentConfig,
        port: AgentPort | None,
        place: AgentMount | None,
    ) -> None:
        self._ports = ports
        self._place = place
        self._app: ASGIApp | None = None
        self._lifespan: Lifespan | None = None
        # Streams of requests at its place.
        self._streams: ListeningStreams | None = None
        # Its stays at its port, and at earlier ports while requests are under way there.
        self._stays: list[Stay] = []
        self.config = config
        self.port = port
        if port is not None:
            port.take(self)

    @property
    def url(self) -> str:
        """Where callers on this machine reach the agent."""
        if self.config.port:
            return f"{self._ports.origin_of(self.config.port)}/mcp"
        return f"{self._ports.origin}/{AGENTS}/{self.config.name}/mcp"

    @property
    def is_open(self) -> bool:
        """Whether it answers."""
        return self._app is not None

    async def open(self, app: ASGIApp) -> None:
        """Serve ``app``, which answers at ``/mcp``. Raises Fault (INTERNAL), and is closed then."""
        lifespan = Lifespan(app, f"agent {self.config.name}")
        await lifespan.start()
        self._lifespan, self._app = lifespan, slashless(app)
        self._serve_at_place()
        if self.port is not None:
            try:
                self._enter(self.port)
                await self.port.open()
            except BaseException:
                await self.close()
                raise

    def move(self, config: AgentConfig, port: AgentPort | None) -> None:
        """Answer at ``port`` from now on; the caller opens it and closes the one before.

        Requests under way there go on.
        """
        if port is not None:
            port.take(self)
            self._enter(port)
        self.config, self.port = config, port
        if self._ports.has_place(config) != (self._place is not None):
            self._move_place()

    def let_go(self) -> None:
        """Let another agent take the port at once; until one does, this one answers."""
        if self.port is not None and self.port.holder is self:
            self.port.offer()

    async def close(self) -> None:
        """Stop answering. Requests under way have two seconds."""
        self._app, port = None, self.port
        held = port is not None and port.holder is self
        if self._streams is not None:
            self._streams.end()
        for stay in self._stays:
            if port is not None and not held:  # its own port answers until it is closed
                port.leave(stay)
        try:
            await asyncio.gather(
                *([self._ports.close_port(port)] if port is not None and held else []),
                *([self._place.leave()] if self._place is not None else []),
                *(stay.leave(GRACE) for stay in self._stays),
            )
            if self._lifespan is not None:
                lifespan, self._lifespan = self._lifespan, None
                await lifespan.stop()
        finally:
            self._ports.forget(self._place)  # until now every client was asked to come again

    def _enter(self, port: AgentPort) -> None:
        self._stays = [stay for stay in self._stays if not stay.is_idle]
        if self._app is not None:
            self._stays.append(Stay(self._app))
            port.enter(self._stays[-1])

    def _move_place(self) -> None:
        """Leave its place for a port of its own, or its port for a place."""
        if self._streams is not None:
            self._streams.end()
        self._ports.forget(self._place)
        self._place, self._streams = self._ports.place(self.config), None
        self._serve_at_place()

    def _serve_at_place(self) -> None:
        if self._place is not None and self._app is not None:
            self._streams = ListeningStreams(self._app)
            self._place.serve(self._streams)
