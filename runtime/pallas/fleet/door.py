"""The way in to one agent."""

import asyncio
from typing import TYPE_CHECKING

from starlette.types import ASGIApp

from pallas.config import AgentConfig
from pallas.surfaces.ingress import Place, slashless
from pallas.surfaces.lifespan import Lifespan
from pallas.surfaces.listener import GRACE
from pallas.surfaces.listening import ListeningStreams
from pallas.surfaces.published import AGENTS
from pallas.surfaces.stay import Stay

from .own_port import OwnPort

if TYPE_CHECKING:
    from .doors import Doors


class Door:
    """An agent's own port, its place at the one port, or both; one surface behind them."""

    def __init__(
        self,
        doors: "Doors",
        config: AgentConfig,
        port: OwnPort | None,
        place: Place | None,
    ) -> None:
        self._doors = doors
        self._place = place
        self._app: ASGIApp | None = None
        self._lifespan: Lifespan | None = None
        self._streams: ListeningStreams | None = None  # at its place
        self._stays: list[Stay] = []  # at its port, and at those of before while requests are under way
        self.config = config
        self.port = port
        if port is not None:
            port.take(self)

    @property
    def url(self) -> str:
        """Where callers on this machine reach the agent."""
        if self.config.port:
            return f"{self._doors.origin_of(self.config.port)}/mcp"
        return f"{self._doors.origin}/{AGENTS}/{self.config.name}/mcp"

    @property
    def is_open(self) -> bool:
        """Whether it answers."""
        return self._app is not None

    async def open(self, app: ASGIApp) -> None:
        """Serve ``app``, which answers at ``/mcp``. Raises Fault (INTERNAL), and is closed then."""
        lifespan = Lifespan(app, f"agent {self.config.name}")
        await lifespan.start()
        self._lifespan, self._app = lifespan, slashless(app)
        if self._place is not None:
            self._streams = self._place.app = ListeningStreams(self._app)
        if self.port is not None:
            try:
                self._enter(self.port)
                await self.port.open()
            except BaseException:
                await self.close()
                raise

    def _enter(self, port: OwnPort) -> None:
        self._stays = [stay for stay in self._stays if not stay.is_idle]
        if self._app is not None:
            self._stays.append(Stay(self._app))
            port.enter(self._stays[-1])

    def move(self, config: AgentConfig, port: OwnPort | None) -> None:
        """``port`` is this door's from now on; whoever calls this opens it, and sees to the one of before.

        What is under way there goes on.
        """
        if port is not None:
            port.take(self)
            self._enter(port)
        self.config, self.port = config, port
        if self._doors.has_place(config) != (self._place is not None):
            self._move_place()

    def _move_place(self) -> None:
        """It got a port of its own, and no place beside that; or it has none any more, but a place."""
        if self._streams is not None:
            self._streams.end()
        self._doors.forget(self._place)
        self._place, self._streams = self._doors.place(self.config), None
        if self._place is not None and self._app is not None:
            self._streams = self._place.app = ListeningStreams(self._app)

    def let_go(self) -> None:
        """Another agent may have the port at once; until one does this one answers."""
        if self.port is not None and self.port.holder is self:
            self.port.is_free = True

    async def close(self) -> None:
        """Stop answering. Requests under way have two seconds."""
        self._app, port = None, self.port
        held = port is not None and port.holder is self
        if self._streams is not None:
            self._streams.end()
        for stay in self._stays:
            if port is not None and not held:  # its own answers until it is closed
                port.leave(stay)
        try:
            await asyncio.gather(
                *([self._doors.close_port(port)] if port is not None and held else []),
                *([self._place.leave()] if self._place is not None else []),
                *(stay.leave(GRACE) for stay in self._stays),
            )
            if self._lifespan is not None:
                lifespan, self._lifespan = self._lifespan, None
                await lifespan.stop()
        finally:
            self._doors.forget(self._place)  # until now whoever came was asked to come again
