"""A port of an agent's own, which another agent may take over while it answers."""

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Receive, Scope, Send

from pallas.surfaces.ingress import not_yet
from pallas.surfaces.listener import GRACE, Listener
from pallas.surfaces.stay import Stay

if TYPE_CHECKING:
    from .door import Door


class OwnPort:
    """ASGI application behind a bound socket: whoever stays there answers, and nobody else notices.

    ``holder`` is the door that the port belongs to; ``is_free`` says that another one may have it, though the
    one before may still answer.
    """

    def __init__(self, sock: socket.socket, listener: Callable[[ASGIApp, socket.socket], Listener]) -> None:
        self.number: int = sock.getsockname()[1]
        self.holder: Door | None = None
        self.is_free = False
        self._sock = sock
        self._new_listener = listener
        self._stay: Stay | None = None
        self.listener: Listener | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to who stays here; who comes too early or too late is asked to come again."""
        stay = self._stay
        await (not_yet if stay is None else stay)(scope, receive, send)

    @property
    def is_bound(self) -> bool:
        """Whether nobody else can have the port."""
        return self._sock.fileno() >= 0

    def take(self, holder: "Door") -> None:
        """From now on the port belongs to this door, whose agent ``enter``s when it answers."""
        self.holder, self.is_free = holder, False

    def enter(self, stay: Stay) -> None:
        """``stay`` answers from now on. What is under way at the one before goes on."""
        before, self._stay = self._stay, stay
        if before is not None:
            before.end_streams()

    def leave(self, stay: Stay) -> None:
        """``stay`` answers no more, if it does."""
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
