"""Frames over a socket: four bytes of length, then JSON. Both ends are ours, but user code lives at one."""

import asyncio
import socket
from asyncio import StreamReader, StreamWriter
from typing import Any, Final, Self

from pallas.model.codec import Undecodable, dumps, loads

MAX_FRAME: Final = 64 * 1024 * 1024
"""Bytes of one frame. What may be larger goes in parts."""
PART: Final = 4 * 1024 * 1024
"""Bytes that one part is filled up to."""
# Bytes that wait to be written: beyond the first, who can wait does; beyond the second, what may be lost is;
# beyond the third something is broken.
_ROOM: Final = 1024 * 1024
_FULL: Final = 8 * 1024 * 1024
_BROKEN: Final = 256 * 1024 * 1024
# Frames that are read in one go before others of the loop have their turn.
_AT_ONCE: Final = 50


class ChannelBroken(Exception):
    """What came is no frame, or more waits to be written than can be: this channel is of no use any more."""


class Channel:
    """One end of the socket. ``send`` and ``receive`` belong to its event loop."""

    def __init__(self, reader: StreamReader, writer: StreamWriter, most: int = MAX_FRAME) -> None:
        self.most = most
        """Bytes of a frame that comes."""
        self._reader = reader
        self._writer = writer
        self._taken = 0
        self.lost = 0

    @classmethod
    async def over(cls, sock: socket.socket, most: int = MAX_FRAME) -> Self:
        """The end that ``sock`` is, closed with the channel; frames that come have ``most`` bytes."""
        reader, writer = await asyncio.open_unix_connection(sock=sock, limit=256 * 1024)
        writer.transport.set_write_buffer_limits(high=_ROOM)
        return cls(reader, writer, most)

    def send(self, document: Any, *, may_be_lost: bool = False) -> None:
        """Send a frame; never waits. Where nobody reads, one that ``may_be_lost`` is, counted in ``lost``.

        Raises ChannelBroken for a frame that is too large, and where far too much waits.
        """
        if self._writer.is_closing():
            return
        waiting = self._writer.transport.get_write_buffer_size()
        if may_be_lost and waiting > _FULL:
            self.lost += 1
            return
        body = dumps(document)
        if len(body) > MAX_FRAME or waiting + len(body) > _BROKEN:
            raise ChannelBroken(f"{len(body)} bytes are too many for a frame, with {waiting} that wait")
        self._writer.write(len(body).to_bytes(4, "big") + body)

    async def room(self) -> None:
        """Wait until what was sent has gone, but for a little. Raises ConnectionError."""
        await self._writer.drain()

    async def receive(self) -> Any:
        """The next frame; None at the end. Raises ChannelBroken."""
        self._taken += 1
        if self._taken % _AT_ONCE == 0:
            await asyncio.sleep(0)
        try:
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            if size > self.most:
                raise ChannelBroken(f"a frame of {size} bytes was announced")
            return loads(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError, OSError):
            return None
        except Undecodable as error:
            raise ChannelBroken(str(error)) from None

    def close(self) -> None:
        """Close it; what waits to be written is lost where the other end is gone."""
        self._writer.close()
