"""Where a fleet is reached: its ports, taken together, opened and closed as agents come and go."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit
from weakref import WeakSet

from starlette.types import ASGIApp

from pallas.config import AgentConfig, Project
from pallas.config.network import local_port
from pallas.surfaces.connections import Pool
from pallas.surfaces.guard import HostOriginGuard
from pallas.surfaces.ingress import Ingress, Place, slashless
from pallas.surfaces.lifespan import Lifespan
from pallas.surfaces.listener import Listener, bind
from pallas.surfaces.listening import ListeningStreams
from pallas.surfaces.published import AGENTS
from pallas.surfaces.tls import Certificate

from .ports import reach, reserve_ports

log = logging.getLogger(__name__)

WELL_KNOWN: Final = "/.well-known/mcp/server.json"


class Doors:
    """The ports of one fleet. Belongs to the fleet's event loop.

    All of them are bound to ``host``, the offline model's to loopback, and stand behind a guard that lets
    ``hosts`` pass. With ``only`` one agent is served: on its own port alone where it has one. Who adds an
    agent while the fleet runs asks for a ``door``, opens it, and closes it in the end.
    """

    def __init__(self, project: Project, *, host: str, hosts: frozenset[str], only: str | None) -> None:
        self.project = project
        self._host = host
        self._hosts = hosts
        self._only = only
        self._guards: WeakSet[HostOriginGuard] = WeakSet()
        self._sockets: dict[str, socket.socket] = {}
        self._listeners: list[Listener] = []
        self._made: list[tuple[str, Listener]] = []
        one = project.port is not None and (only is None or not project.agents[only].port)
        self._has_fleet_port = one or only is None
        self._places: list[Place] | None = [] if one else None
        self._ingress: Ingress | None = None
        self._public_path = urlsplit(project.public_url).path
        self._pool = Pool()
        self._certificate: Certificate | None = None

    @property
    def _tls(self) -> ssl.SSLContext | None:
        return self._certificate.context if self._certificate is not None else None

    def reload_certificate(self) -> str:
        """Show a certificate that was renewed from now on; connections stay. A warning, or empty.

        Raises Fault (CONFIG), and goes on with the one of before. Without TLS there is nothing to do.
        """
        if self._certificate is None:
            return ""
        self._certificate.reload()
        return self._certificate.warning()

    @property
    def has_fleet_port(self) -> bool:
        """Whether there is a port for the fleet as a whole: the registry's, or the one for everything."""
        return self._has_fleet_port

    @property
    def origin(self) -> str:
        """``scheme://host:port`` of the fleet's port as this machine reaches it."""
        return self.origin_of(self.project.registry_port)

    def origin_of(self, port: int) -> str:
        """``scheme://host:port`` of a port of the fleet's as this machine reaches it."""
        return f"{'http' if self.project.tls is None else 'https'}://{reach(self._host)}:{port}"

    def warnings(self) -> tuple[str, ...]:
        """What is wrong with TLS though it can be served: dates, and calls that would not speak it."""
        if self._certificate is None:
            return ()
        own = {self.project.registry_port, *(agent.port for agent in self.project.agents.values())}
        dates = self._certificate.warning()
        plain = (
            f"{each.where}: {each.name} is called without TLS at a port of this fleet, which speaks "
            "nothing else; write https:// and a host that the certificate names"
            for each in self.project.downstreams.values()
            if each.url.startswith("http:") and local_port(each.url) in own
        )
        return (*([dates] if dates else []), *plain)

    def reserve(self, agents: Iterable[AgentConfig]) -> None:
        """Take every port. Raises Fault (CONFIG) with a line for each that cannot be had, and holds none.

        The same for a certificate that cannot be used.
        """
        if self.project.tls is not None and self._certificate is None:
            self._certificate = Certificate(self.project.tls)
        self._sockets = reserve_ports(self.project, agents, host=self._host, fleet=self._has_fleet_port)

    @property
    def reserved(self) -> tuple[tuple[str, int], ...]:
        """Address and port of each that was taken and not yet opened."""
        return tuple(sock.getsockname()[:2] for sock in self._sockets.values())

    @property
    def owners(self) -> tuple[tuple[int, str], ...]:
        """Each port that was taken and not yet opened, and who wants it."""
        file = self.project.agents_file.name
        return tuple((sock.getsockname()[1], f"{file}: {key}") for key, sock in self._sockets.items())

    def door(self, config: AgentConfig) -> "Door":
        """The way in to an agent, still closed; its port is taken. Raises Fault (CONFIG)."""
        sock = self._sockets.pop(f"agent {config.name}", None)
        place = None
        if self._places is not None:
            place = Place((config.name, config.slug))
            self._places.append(place)
            if self._ingress is not None:
                self._ingress.add(place)
        try:
            if sock is None and config.port:
                sock = self.bind(config)
        except BaseException:
            self.forget(place)
            raise
        return Door(self, config, sock, place)

    def bind(self, config: AgentConfig) -> socket.socket:
        """A socket on the agent's port. Raises Fault (CONFIG)."""
        return bind(self._host, config.port, f"{config.where}: agent {config.name}")

    def listener(self, app: ASGIApp, sock: socket.socket, name: str) -> Listener:
        """An agent's port, behind the guard; the app's lifespan is not its business."""
        made = Listener(self._guarded(app), sock, lifespan=False, tls=self._tls, pool=self._pool)
        self._made = [*self.open_listeners(), (f"agent {name}", made)]
        return made

    def allow(self, hosts: frozenset[str]) -> None:
        """From now on these hosts pass at every port, and no others."""
        self._hosts = hosts
        for guard in self._guards:
            guard.allow(hosts)

    def behind(self, public_url: str) -> None:
        """From now on this is the address that a proxy in front has."""
        self._public_path = urlsplit(public_url).path
        if self._ingress is not None:
            self._ingress.behind(self._public_path)

    def _guarded(self, app: ASGIApp) -> HostOriginGuard:
        guard = HostOriginGuard(app, self._hosts)
        self._guards.add(guard)
        return guard

    def open_listeners(self) -> tuple[tuple[str, Listener], ...]:
        """Each port that is served, by ``agent NAME``, ``registry`` and ``scripted``."""
        return tuple((key, each) for key, each in self._made if each.is_open)

    def forget(self, place: Place | None) -> None:
        """Callers find nobody at ``place`` any more."""
        if place is None:
            return
        if self._places is not None and place in self._places:
            self._places.remove(place)
        if self._ingress is not None:
            self._ingress.remove(place)

    async def open_fleet(self, app: ASGIApp) -> None:
        """Serve the fleet's own pages, and with one port for everything the agents that are open."""
        if self._places is not None:
            self._ingress = Ingress(app, prefix=self._public_path)
            for place in self._places:
                self._ingress.add(place)
            app = self._ingress
        sock = self._sockets.pop("registry")
        await self._serve("registry", Listener(self._guarded(app), sock, tls=self._tls, pool=self._pool))

    async def open_scripted(self, app: ASGIApp) -> None:
        """Serve the offline model."""
        await self._serve("scripted", Listener(app, self._sockets.pop("scripted")))

    async def _serve(self, key: str, listener: Listener) -> None:
        self._listeners.append(listener)
        self._made = [*self.open_listeners(), (key, listener)]
        await listener.start()

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """What serves the fleet as a whole; agents close their own."""
        return tuple(self._listeners)

    def release(self) -> None:
        """Let go of ports that were taken and never opened."""
        for sock in self._sockets.values():
            sock.close()
        self._sockets.clear()


class Door:
    """The way in to one agent: its own port, its place at the one port, or both; one surface behind them."""

    def __init__(
        self, doors: Doors, config: AgentConfig, sock: socket.socket | None, place: Place | None
    ) -> None:
        self._doors = doors
        self._config = config
        self._sock = sock
        self._place = place
        self._app: ASGIApp | None = None
        self._streams: ListeningStreams | None = None
        self._lifespan: Lifespan | None = None
        self._listener: Listener | None = None

    @property
    def url(self) -> str:
        """Where callers on this machine reach the agent."""
        if self._config.port:
            return f"{self._doors.origin_of(self._config.port)}/mcp"
        return f"{self._doors.origin}/{AGENTS}/{self._config.name}/mcp"

    @property
    def is_open(self) -> bool:
        """Whether it answers."""
        return self._app is not None

    async def open(self, app: ASGIApp) -> None:
        """Serve ``app``, which answers at ``/mcp``. Raises Fault (INTERNAL), and is closed then."""
        lifespan = Lifespan(app, f"agent {self._config.name}")
        await lifespan.start()
        self._streams = ListeningStreams(slashless(app))
        self._lifespan, self._app = lifespan, self._streams
        if self._place is not None:
            self._place.app = self._app
        if self._sock is not None:
            self._listener, self._sock = self._doors.listener(self._app, self._sock, self._config.name), None
            try:
                await self._listener.start()
            except BaseException:
                await self.close()
                raise

    async def move(self, config: AgentConfig) -> None:
        """Answer on the port that ``config`` says from now on; a port of before is closed after that.

        Raises Fault (CONFIG) when it cannot be had; then all is as it was.
        """
        before, port = self._config, config.port
        if port == before.port:
            self._config = config
            return
        sock = self._doors.bind(config) if port else None
        old, old_sock = self._listener, self._sock
        if self._app is None:
            self._sock = sock
        else:
            listener = self._doors.listener(self._app, sock, config.name) if sock is not None else None
            if listener is not None:
                await listener.start()
            self._listener = listener
        self._config = config
        if old is not None:
            await old.stop()
        if old_sock is not None:
            old_sock.close()

    async def close(self) -> None:
        """Stop answering. Requests under way have two seconds."""
        listener, self._listener, self._app = self._listener, None, None
        if self._streams is not None:
            self._streams.end()
        try:
            await asyncio.gather(
                *([listener.stop()] if listener is not None else []),
                *([self._place.leave()] if self._place is not None else []),
            )
            if self._sock is not None:
                self._sock.close()
                self._sock = None
            if self._lifespan is not None:
                lifespan, self._lifespan = self._lifespan, None
                await lifespan.stop()
        finally:
            self._doors.forget(self._place)  # until now whoever came was asked to come again
