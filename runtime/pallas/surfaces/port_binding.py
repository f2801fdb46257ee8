"""Binds a port, or says who holds it. Imports no server, since the parent of worker processes binds too."""

import errno
import socket

from pallas.model import Fault, FaultType

from .port_holder import holder_of


def bind(host: str, port: int, owner: str) -> socket.socket:
    """Return a bound socket. Raises Fault (CONFIG) that names ``owner`` if the port cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns off Nagle's delay (44 ms a call) only if the protocol is named.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            holder = holder_of(port)
            by = f" ({holder})" if holder else ""
            problem = f"port {port} is in use; stop the program that holds it{by} or choose another port"
        elif error.errno == errno.EACCES:
            problem = f"port {port} may not be used by this user; choose one above 1023"
        else:
            problem = f"{host}:{port} cannot be bound ({error.strerror})"
        raise Fault(FaultType.CONFIG, f"{owner}: {problem}") from None
    except OverflowError:
        sock.close()
        raise Fault(FaultType.CONFIG, f"{owner}: port {port} is out of range") from None
    sock.set_inheritable(False)
    return sock
