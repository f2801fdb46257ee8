"""The ports of a fleet: taken all at once, or none."""

import asyncio
import socket
from collections.abc import Iterable
from typing import Final

import httpx2

from pallas.config import AgentConfig, Project
from pallas.model import Fault, FaultType
from pallas.surfaces.listener import bind

LOOPBACK: Final = "127.0.0.1"
ANYWHERE: Final = "0.0.0.0"


def reserve_ports(
    project: Project, agents: Iterable[AgentConfig], *, host: str, fleet: bool
) -> dict[str, socket.socket]:
    """Bound sockets by ``agent NAME``, ``registry`` and ``scripted``; the last is always on loopback.

    Agents without a port of their own have none; ``fleet`` says whether the fleet as a whole has one.

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
    if project.scripted is not None:
        take("scripted", LOOPBACK, project.scripted.port, f"{project.scripted.where}: scripted")
    if problems:
        for sock in sockets.values():
            sock.close()
        raise Fault(FaultType.CONFIG, "\n".join(problems))
    return sockets


def reach(host: str) -> str:
    """The host by which this machine reaches what is bound to ``host``, as it stands in a URL."""
    if host in (ANYWHERE, "::", "", "localhost"):
        return LOOPBACK
    return f"[{host}]" if ":" in host else host


async def answers(url: str) -> None:
    """Until something speaks HTTP at ``url``, whatever certificate it shows; the caller bounds it."""
    async with httpx2.AsyncClient(timeout=2.0, trust_env=False, verify=False) as client:
        while True:
            try:
                async with client.stream("GET", url):
                    return
            except httpx2.HTTPError:
                await asyncio.sleep(0.05)
