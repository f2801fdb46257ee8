"""Ports that a starting fleet has taken and does not listen on yet: another fleet leaves them alone."""

import socket
import struct
import sys
from collections.abc import Iterable
from typing import Final

from pallas.model import Fault, FaultType
from pallas.surfaces.port_holder import process_line

_CREDENTIALS: Final = struct.Struct("3i")


class PortClaims:
    """A name for each port, which one process at a time can hold. Released when all ports are listened on.

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
                sock.bind(_name(host, port))
                sock.listen(1)
            except OSError:
                sock.close()
                other = f"another fleet that is starting{_by(host, port)}"
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


def _name(host: str, port: int) -> str:
    # Who listens on every address and who listens on loopback are in each other's way.
    where = "any" if host in ("0.0.0.0", "127.0.0.1", "::", "::1", "localhost", "") else host
    return f"\0pallas/{where}/{port}"


def _by(host: str, port: int) -> str:
    """Which process that is, in parentheses; empty where it does not say."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(0.2)
        try:
            sock.connect(_name(host, port))
            raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except OSError:
            return ""
    return f" ({process_line(_CREDENTIALS.unpack(raw)[0])})"
