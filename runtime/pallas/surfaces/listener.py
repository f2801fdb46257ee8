"""A port of ours: bound first, served by uvicorn without its signals, banners or exits."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Iterator
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp

from pallas.model import Fault, FaultType

START_TIMEOUT: Final = 10.0
GRACE: Final = 2
STOP_TIMEOUT: Final = 4.0


def bind(host: str, port: int, owner: str) -> socket.socket:
    """A listening-ready socket. Raises Fault (CONFIG) that names ``owner`` when it cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio turns off Nagle's delay (44 ms a call) only then.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            problem = f"port {port} is in use; stop the program that holds it or choose another port"
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


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # signals are the process's business, not a port's


class Listener:
    """One ASGI app on one bound socket, from ``start`` to ``stop``, in the running loop."""

    def __init__(self, app: ASGIApp, sock: socket.socket, *, lifespan: bool = True) -> None:
        self._sock = sock
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="on" if lifespan else "off",
            timeout_graceful_shutdown=GRACE,
            server_header=False,
            ws="none",
        )
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The port it is bound to."""
        name: Any = self._sock.getsockname()
        return int(name[1])

    async def start(self) -> None:
        """Serve; returns when the port answers. Raises Fault (INTERNAL) when the app does not start."""
        self._task = asyncio.create_task(self._server.serve(sockets=[self._sock]), name=f"port {self.port}")
        try:
            async with asyncio.timeout(START_TIMEOUT):
                while not self._server.started:
                    if self._task.done():
                        break
                    await asyncio.sleep(0.005)
        except TimeoutError:
            raise Fault(FaultType.INTERNAL, f"port {self.port} did not start to answer") from None
        if self._task.done() and not self._server.started:
            raise Fault(FaultType.INTERNAL, f"port {self.port} could not be served; the log has the details")

    async def stop(self) -> None:
        """Close the port: requests in flight get a short grace, then their connections end."""
        if self._task is not None:
            self._server.should_exit = True
            _, late = await asyncio.wait({self._task}, timeout=STOP_TIMEOUT)
            if late:
                self._server.force_exit = True
                self._task.cancel()
                await asyncio.wait({self._task}, timeout=1.0)
        self._sock.close()
