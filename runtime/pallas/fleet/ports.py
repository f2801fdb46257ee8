"""The ports of a fleet: taken together, opened and closed as agents come and go."""

import asyncio
import socket
import ssl
import struct
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit
from weakref import WeakSet

import httpx2
from starlette.types import ASGIApp

from pallas.config import AgentConfig, Project
from pallas.config.network import local_port
from pallas.model import Fault, FaultType
from pallas.surfaces.connection_shares import ConnectionShares
from pallas.surfaces.connections import ConnectionLimits
from pallas.surfaces.host_guard import HostOriginGuard
from pallas.surfaces.ingress import AgentMount, Ingress
from pallas.surfaces.listener import GRACE, Listener
from pallas.surfaces.port_binding import bind
from pallas.surfaces.port_holder import process_line
from pallas.surfaces.tls_certificate import Certificate

from .agent_port import AgentAddress, AgentPort
from .worker_process import WorkerProcess

type Bind = Callable[[str, int, str], socket.socket]
"""Binds a port of a host; its owner, the last argument, is named in the Fault (CONFIG)."""

WELL_KNOWN: Final = "/.well-known/mcp/server.json"
LOOPBACK: Final = "127.0.0.1"
ANYWHERE: Final = "0.0.0.0"
_CREDENTIALS: Final = struct.Struct("3i")


class PortClaims:
    """Ports that a starting fleet has taken and does not listen on yet: another fleet leaves them alone.

    Each has a name, which one process at a time can hold; it is released when all ports are listened on.
    Two programs may both bind a port on which neither listens yet: the one that listens last would find that
    out in the middle of its start. The names are those of Linux's abstract sockets, which end with their
    process and are separate wherever ports are; elsewhere nothing is claimed.
    """

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def take(self, host: str, ports: Iterable[tuple[int, str]]) -> None:
        """Claim these ports of ``host``, each with who wants it.

        Raises Fault (CONFIG) with a line for each that is taken, and claims none then.
        """
        if sys.platform != "linux":
            return
        problems = []
        for port, owner in ports:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.bind(_claim_name(host, port))
                sock.listen(1)
            except OSError:
                sock.close()
                other = f"another fleet that is starting{_claimed_by(host, port)}"
                problems.append(f"{owner}: port {port} is in use by {other}; stop it or choose another port")
            else:
                self._held.append(sock)
        if problems:
            self.release()
            raise Fault(FaultType.CONFIG, "\n".join(problems))

    def release(self) -> None:
        """Claim nothing any more. Safe to call twice."""
        for sock in self._held:
            sock.close()
        self._held.clear()


class FleetPorts:
    """The ports of one fleet. Belongs to the fleet's event loop.

    All of them are bound to ``host``, the offline model's to loopback, behind a guard that lets ``hosts``
    pass. An agent without a port of its own is reached at the fleet's. With ``only`` one agent is served: on
    its own port alone where it has one. To add an agent while the fleet runs, ask for its ``address``, open
    that, and close it in the end.
    """

    def __init__(
        self,
        project: Project,
        *,
        host: str,
        hosts: frozenset[str],
        only: str | None,
        worker: WorkerProcess | None = None,
    ) -> None:
        self.project = project
        self._worker = worker
        self._bind: Bind = bind if worker is None else worker.bind
        self._host = host
        self._hosts = hosts
        self._only = only
        self._guards: WeakSet[HostOriginGuard] = WeakSet()
        self._sockets: dict[str, socket.socket] = {}
        self._ports: dict[int, AgentPort] = {}
        self._closing: dict[asyncio.Task[None], AgentPort] = {}
        self._served: list[tuple[str, Listener]] = []
        one_port = project.port is not None and (only is None or not project.agents[only].port)
        self._has_fleet_port = one_port or only is None
        self._one_port = one_port
        self._claims = PortClaims()
        self._places: list[AgentMount] | None = [] if self._has_fleet_port else None
        self._ingress: Ingress | None = None
        self._public_path = urlsplit(project.public_url).path
        self._pool = ConnectionLimits()
        self._certificate: Certificate | None = None

    @property
    def _shares(self) -> ConnectionShares | None:
        return self._worker.shares if self._worker is not None else None

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
        return f"{'http' if self.project.tls is None else 'https'}://{reachable_host(self._host)}:{port}"

    def warnings(self) -> tuple[str, ...]:
        """Problems of TLS that do not stop the fleet: dates, and calls that would not use it."""
        if self._certificate is None:
            return ()
        own = {self.project.registry_port, *(agent.port for agent in self.project.agents.values())}
        dates = self._certificate.warning()
        plain = (
            f"{each.where}: {each.name} is called without TLS at a port of this fleet, which speaks "
            "only TLS; write https:// and a host that the certificate names"
            for each in self.project.downstreams.values()
            if each.url.startswith("http:") and local_port(each.url) in own
        )
        return (*([dates] if dates else []), *plain)

    def reserve(self, agents: Iterable[AgentConfig]) -> None:
        """Take every port. Raises Fault (CONFIG) with a line for each that cannot be had, and holds none.

        The same for a certificate that cannot be used.
        """
        try:
            if self.project.tls is not None and self._certificate is None:
                self._certificate = Certificate(self.project.tls)
            self._sockets = self._reserved(agents)
            if self._worker is None or self._worker.is_first:
                self._claims.take(self._host, self._owners())
        except Fault:
            self.release()
            raise

    def _reserved(self, agents: Iterable[AgentConfig]) -> dict[str, socket.socket]:
        scripted = self._worker is None or self._worker.is_first
        return reserve_ports(
            self.project,
            agents,
            host=self._host,
            fleet=self._has_fleet_port,
            scripted=scripted,
            bind=self._bind,
        )

    @property
    def reserved(self) -> tuple[tuple[str, int], ...]:
        """Address and port of each that was taken and not yet opened."""
        return tuple(sock.getsockname()[:2] for sock in self._sockets.values())

    def _owners(self) -> tuple[tuple[int, str], ...]:
        """Each port that was taken and not yet opened, with the key in the project's file that names it."""
        file = self.project.agents_file.name
        return tuple((sock.getsockname()[1], f"{file}: {key}") for key, sock in self._sockets.items())

    def address(self, config: AgentConfig) -> AgentAddress:
        """Return where an agent is reached, still closed; its port is taken. Raises Fault (CONFIG).

        A port that another agent has let go answers all the time, and is this agent's from now on.
        """
        port = self._port(config) if config.port else None
        return AgentAddress(self, config, port, self.place(config))

    def has_place(self, config: AgentConfig) -> bool:
        """Whether the agent is reached at the fleet's port: all at the one port, else those without one."""
        return self._places is not None and (self._one_port or not config.port)

    def place(self, config: AgentConfig) -> AgentMount | None:
        """A new place for the agent on the fleet's port, where callers find it from now on; None for none."""
        if self._places is None or not self.has_place(config):
            return None
        place = AgentMount((config.name, config.slug))
        self._places.append(place)
        if self._ingress is not None:
            self._ingress.add(place)
        return place

    async def move(
        self, moves: Mapping[AgentAddress, AgentConfig], keep: Collection[int] = (), grace_s: float = GRACE
    ) -> dict[AgentAddress, Fault]:
        """Move each address to the port of its configuration, all of them at once.

        They may take over one another's ports. A port without an address after that is closed, with
        ``grace_s`` seconds for the requests under way; those of ``keep`` answer until another address takes
        them or until ``close_free``. Returns a Fault (CONFIG, INTERNAL) for each agent that stays where it
        is.
        """
        wanted, problems = dict(moves), dict[AgentAddress, Fault]()
        ports: dict[AgentAddress, AgentPort | None] = {}
        while undone := [address for address in wanted if address not in ports]:
            for address in undone:
                try:
                    ports[address] = self._moved_to(wanted[address], wanted)
                except Fault as fault:
                    problems[address] = fault
                    del wanted[address]
            # An agent that wants the port of one that stays cannot have it either.
            for address, port in list(ports.items()):
                if port is not None and port.holder in problems and not port.is_free:
                    del ports[address]
        before = {address.port for address in wanted}
        for address, config in wanted.items():
            address.move(config, ports[address])
        for address in wanted:
            if address.is_open and address.port is not None:
                try:
                    await address.port.open()
                except Fault as fault:
                    problems[address] = fault
        for port in before - {address.port for address in wanted}:
            if port is not None and port.holder in wanted:  # not taken over
                port.abandon()
        self.close_free(keep, grace_s)
        return problems

    def _moved_to(self, config: AgentConfig, moving: Collection[AgentAddress]) -> AgentPort | None:
        if not config.port:
            return None
        found = self._ports.get(config.port)
        return found if found is not None and found.holder in moving else self._port(config)

    def close_free(self, keep: Collection[int] = (), grace_s: float = GRACE) -> None:
        """Close the ports that agents have moved away from and no other has taken; returns at once."""
        for port in list(self._ports.values()):
            if port.holder is None and port.number not in keep:
                task = asyncio.create_task(self.close_port(port, grace_s), name=f"close port {port.number}")
                self._closing[task] = port
                task.add_done_callback(lambda done: self._closing.pop(done, None))

    async def shut(self, numbers: Collection[int]) -> None:
        """Until those of these ports that are being closed can be bound again, two seconds at most."""
        closing = [port for port in self._closing.values() if port.number in numbers]
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                while any(port.is_bound for port in closing):  # noqa: ASYNC110 - nothing tells
                    await asyncio.sleep(0.02)

    async def close_port(self, port: AgentPort, grace_s: float = GRACE) -> None:
        """Refuse connections there; requests under way have ``grace_s`` seconds."""
        if self._ports.get(port.number) is port:
            del self._ports[port.number]
        await port.close(grace_s)
        if self._worker is not None:
            self._worker.closed(self._host, port.number)

    def _port(self, config: AgentConfig) -> AgentPort:
        """The agent's port, one that is free or another socket. Raises Fault (CONFIG)."""
        found = self._ports.get(config.port)
        if found is not None and found.is_free:
            return found
        owner = f"{config.where}: agent {config.name}"
        if found is not None and found.holder is not None:
            text = f"port {config.port} is still that of {found.holder.config.name}"
            raise Fault(FaultType.CONFIG, f"{owner}: {text}")
        sock = self._sockets.pop(f"agent {config.name}", None)
        new_port = AgentPort(sock or self._bind(self._host, config.port, owner), self._listener)
        self._ports[new_port.number] = new_port
        return new_port

    def _listener(self, app: ASGIApp, sock: socket.socket) -> Listener:
        """An agent's port, behind the guard; the app's lifespan is not its business."""
        return Listener(
            self._guarded(app), sock, lifespan=False, tls=self._tls, pool=self._pool, shares=self._shares
        )

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

    def forget(self, place: AgentMount | None) -> None:
        """Remove the place from the fleet's port."""
        if place is None:
            return
        if self._places is not None and place in self._places:
            self._places.remove(place)
        if self._ingress is not None:
            self._ingress.remove(place)

    def end(self) -> None:
        """Say of agents that are gone that the fleet stops, and not that there is none of that name."""
        if self._ingress is not None:
            self._ingress.end()

    async def open_fleet(self, app: ASGIApp) -> None:
        """Serve the fleet's own pages, and with one port for everything the agents that are open."""
        if self._places is not None:
            self._ingress = Ingress(app, prefix=self._public_path)
            for place in self._places:
                self._ingress.add(place)
            app = self._ingress
        sock = self._sockets.pop("registry")
        listener = Listener(self._guarded(app), sock, tls=self._tls, pool=self._pool, shares=self._shares)
        await self._serve("registry", listener)

    async def open_scripted(self, app: ASGIApp) -> None:
        """Serve the offline model."""
        await self._serve("scripted", Listener(app, self._sockets.pop("scripted")))

    async def _serve(self, key: str, listener: Listener) -> None:
        self._served.append((key, listener))
        await listener.start()

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """What serves the fleet as a whole, and ports that are being closed; agents close their own."""
        closing = (port.listener for port in self._closing.values() if port.listener is not None)
        return (*(each for _, each in self._served), *closing)

    def release_claims(self) -> None:
        """Let other fleets try these ports: all of them are listened on, or none will be."""
        self._claims.release()

    def release(self) -> None:
        """Let go of ports that were taken and never opened."""
        self._claims.release()
        for sock in self._sockets.values():
            sock.close()
        self._sockets.clear()


def reserve_ports(
    project: Project,
    agents: Iterable[AgentConfig],
    *,
    host: str,
    fleet: bool,
    scripted: bool = True,
    bind: Bind = bind,
) -> dict[str, socket.socket]:
    """Bound sockets by ``agent NAME``, ``registry`` and ``scripted``; the last is always on loopback.

    Agents without a port of their own have none; ``fleet`` says whether the fleet as a whole has one,
    ``scripted`` whether the offline model is served here.

    Raises Fault (CONFIG) with a line for each port that cannot be had, and then holds none.
    """
    sockets: dict[str, socket.socket] = {}
    problems: list[str] = []

    def take(key: str, host: str, port: int, owner: str) -> None:
        try:
            sockets[key] = bind(host, port, owner)
        except Fault as fault:
            problems.append(fault.message)

    for agent in agents:
        if agent.port:
            take(f"agent {agent.name}", host, agent.port, f"{agent.where}: agent {agent.name}")
    if fleet:
        owner = "registry" if project.port is None else "port"
        take("registry", host, project.registry_port, f"{project.agents_file.name}: {owner}")
    if project.scripted is not None and scripted:
        take("scripted", LOOPBACK, project.scripted.port, f"{project.scripted.where}: scripted")
    if problems:
        for sock in sockets.values():
            sock.close()
        raise Fault(FaultType.CONFIG, "\n".join(problems))
    return sockets


def reachable_host(host: str) -> str:
    """Return the host, as in a URL, by which this machine reaches a listener bound to ``host``."""
    if host in (ANYWHERE, "::", "", "localhost"):
        return LOOPBACK
    return f"[{host}]" if ":" in host else host


async def answers(url: str) -> None:
    """Wait until something speaks HTTP at ``url``, with any certificate; the caller bounds it."""
    async with httpx2.AsyncClient(timeout=2.0, trust_env=False, verify=False) as client:
        while True:
            try:
                async with client.stream("GET", url):
                    return
            except httpx2.HTTPError:
                await asyncio.sleep(0.05)


def _claim_name(host: str, port: int) -> str:
    # Who listens on every address and who listens on loopback are in each other's way.
    where = "any" if host in ("0.0.0.0", "127.0.0.1", "::", "::1", "localhost", "") else host
    return f"\0pallas/{where}/{port}"


def _claimed_by(host: str, port: int) -> str:
    """Which process that is, in parentheses; empty where it does not say."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(0.2)
        try:
            sock.connect(_claim_name(host, port))
            raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except OSError:
            return ""
    return f" ({process_line(_CREDENTIALS.unpack(raw)[0])})"
