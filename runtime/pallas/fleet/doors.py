"""Where a fleet is reached: its ports, taken together, opened and closed as agents come and go."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit
from weakref import WeakSet

from starlette.types import ASGIApp

from pallas.config import AgentConfig, Project
from pallas.config.network import local_port
from pallas.model import Fault, FaultType
from pallas.surfaces.connections import Pool
from pallas.surfaces.guard import HostOriginGuard
from pallas.surfaces.ingress import Ingress, Place
from pallas.surfaces.listener import GRACE, Listener, bind
from pallas.surfaces.tls import Certificate

from .door import Door
from .own_port import OwnPort
from .ports import reach, reserve_ports

log = logging.getLogger(__name__)

WELL_KNOWN: Final = "/.well-known/mcp/server.json"


class Doors:
    """The ports of one fleet. Belongs to the fleet's event loop.

    All of them are bound to ``host``, the offline model's to loopback, and stand behind a guard that lets
    ``hosts`` pass. An agent without a port of its own is reached at the fleet's. With ``only`` one agent is
    served: on its own port alone where it has one. Who adds an agent while the fleet runs asks for a
    ``door``, opens it, and closes it in the end.
    """

    def __init__(self, project: Project, *, host: str, hosts: frozenset[str], only: str | None) -> None:
        self.project = project
        self._host = host
        self._hosts = hosts
        self._only = only
        self._guards: WeakSet[HostOriginGuard] = WeakSet()
        self._sockets: dict[str, socket.socket] = {}
        self._ports: dict[int, OwnPort] = {}
        self._closing: dict[asyncio.Task[None], OwnPort] = {}
        self._made: list[tuple[str, Listener]] = []
        one = project.port is not None and (only is None or not project.agents[only].port)
        self._has_fleet_port = one or only is None
        self._one = one
        self._places: list[Place] | None = [] if self._has_fleet_port else None
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

    def door(self, config: AgentConfig) -> Door:
        """The way in to an agent, still closed; its port is taken. Raises Fault (CONFIG).

        A port that another agent was let go from answers all the time, and is its own from now on.
        """
        port = self._port(config) if config.port else None
        return Door(self, config, port, self.place(config))

    def has_place(self, config: AgentConfig) -> bool:
        """Whether the agent is reached at the fleet's port: all at the one port, else those without one."""
        return self._places is not None and (self._one or not config.port)

    def place(self, config: AgentConfig) -> Place | None:
        """A new place for the agent on the fleet's port, where callers find it from now on; None for none."""
        if self._places is None or not self.has_place(config):
            return None
        place = Place((config.name, config.slug))
        self._places.append(place)
        if self._ingress is not None:
            self._ingress.add(place)
        return place

    async def move(
        self, moves: Mapping[Door, AgentConfig], keep: Collection[int] = (), grace: float = GRACE
    ) -> dict[Door, Fault]:
        """Each of these answers at the port that its configuration says from now on, all of them at once.

        They may take over one another's. A port that nobody has then is closed, with ``grace`` seconds for
        the requests under way; those of ``keep`` answer on until another door takes them, or ``close_free``.
        Ports that could not be had are told as Faults (CONFIG, INTERNAL): those agents stay where they are.
        """
        wanted, problems = dict(moves), dict[Door, Fault]()
        ports: dict[Door, OwnPort | None] = {}
        while undone := [door for door in wanted if door not in ports]:
            for door in undone:
                try:
                    ports[door] = self._moved_to(wanted[door], wanted)
                except Fault as fault:
                    problems[door] = fault
                    del wanted[door]
            # Whoever wants the port of one that stays cannot have it either.
            for door, port in list(ports.items()):
                if port is not None and port.holder in problems and not port.is_free:
                    del ports[door]
        before = {door.port for door in wanted}
        for door, config in wanted.items():
            door.move(config, ports[door])
        for door in wanted:
            if door.is_open and door.port is not None:
                try:
                    await door.port.open()
                except Fault as fault:
                    problems[door] = fault
        for port in before - {door.port for door in wanted}:
            if port is not None and port.holder in wanted:  # nobody else's yet
                port.holder, port.is_free = None, True
        self.close_free(keep, grace)
        return problems

    def _moved_to(self, config: AgentConfig, moving: Collection[Door]) -> OwnPort | None:
        if not config.port:
            return None
        found = self._ports.get(config.port)
        return found if found is not None and found.holder in moving else self._port(config)

    def close_free(self, keep: Collection[int] = (), grace: float = GRACE) -> None:
        """Close the ports that agents have moved away from and no other has taken; returns at once."""
        for port in list(self._ports.values()):
            if port.holder is None and port.number not in keep:
                task = asyncio.create_task(self.close_port(port, grace), name=f"close port {port.number}")
                self._closing[task] = port
                task.add_done_callback(lambda done: self._closing.pop(done, None))

    async def shut(self, numbers: Collection[int]) -> None:
        """Until those of these ports that are being closed can be bound again, two seconds at most."""
        closing = [port for port in self._closing.values() if port.number in numbers]
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                while any(port.is_bound for port in closing):  # noqa: ASYNC110 - nothing tells
                    await asyncio.sleep(0.02)

    async def close_port(self, port: OwnPort, grace: float = GRACE) -> None:
        """Refuse connections there; requests under way have ``grace`` seconds."""
        if self._ports.get(port.number) is port:
            del self._ports[port.number]
        await port.close(grace)

    def _port(self, config: AgentConfig) -> OwnPort:
        """The agent's port, one that is free or another socket. Raises Fault (CONFIG)."""
        found = self._ports.get(config.port)
        if found is not None and found.is_free:
            return found
        owner = f"{config.where}: agent {config.name}"
        if found is not None and found.holder is not None:
            text = f"port {config.port} is still that of {found.holder.config.name}"
            raise Fault(FaultType.CONFIG, f"{owner}: {text}")
        sock = self._sockets.pop(f"agent {config.name}", None)
        made = OwnPort(sock or bind(self._host, config.port, owner), self._listener)
        self._ports[made.number] = made
        return made

    def _listener(self, app: ASGIApp, sock: socket.socket) -> Listener:
        """An agent's port, behind the guard; the app's lifespan is not its business."""
        return Listener(self._guarded(app), sock, lifespan=False, tls=self._tls, pool=self._pool)

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
        own = (
            (f"agent {port.holder.config.name}", port.listener)
            for port in self._ports.values()
            if port.holder is not None and port.listener is not None
        )
        return tuple((key, each) for key, each in (*self._made, *own) if each.is_open)

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
        self._made.append((key, listener))
        await listener.start()

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """What serves the fleet as a whole, and ports that are being closed; agents close their own."""
        closing = (port.listener for port in self._closing.values() if port.listener is not None)
        return (*(each for _, each in self._made), *closing)

    def release(self) -> None:
        """Let go of ports that were taken and never opened."""
        for sock in self._sockets.values():
            sock.close()
        self._sockets.clear()
