"""Frames over a socket: four bytes of length, then JSON. User code runs at one end."""

import asyncio
import socket
from asyncio import StreamReader, StreamReaderProtocol, StreamWriter
from typing import Any, Final, Self

from pallas.model.codec import Undecodable, dumps, loads

MAX_FRAME: Final = 64 * 1024 * 1024
"""Bytes of one frame. Values that may be larger are sent in parts."""
PART: Final = 4 * 1024 * 1024
"""Bytes that a part is filled up to."""
# Bytes that wait to be written. Beyond the first, senders that can wait do; beyond the second, frames that
# may be lost are dropped; beyond the third, the channel counts as broken.
_ROOM: Final = 1024 * 1024
_FULL: Final = 8 * 1024 * 1024
_BROKEN: Final = 256 * 1024 * 1024
# Frames that are read in one go before other tasks get their turn.
_AT_ONCE: Final = 50


class _Protocol(StreamReaderProtocol):
    """Keeps what arrived before a reset: a process that ends with something unread resets its socket."""

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(None if isinstance(error, ConnectionError) else error)


class ChannelBroken(Exception):
    """The channel cannot be used any more: it got something that is no frame, or too much waits."""


class Channel:
    """One end of the socket. ``send`` and ``receive`` belong to its event loop."""

    def __init__(self, reader: StreamReader, writer: StreamWriter, most: int = MAX_FRAME) -> None:
        self.most = most
        """Bytes of a frame that is received."""
        self._reader = reader
        self._writer = writer
        self._taken = 0
        self.lost = 0

    @classmethod
    async def over(cls, sock: socket.socket, most: int = MAX_FRAME) -> Self:
        """Return a channel over ``sock``, which it closes; frames that it receives have ``most`` bytes."""
        loop = asyncio.get_running_loop()
        reader = StreamReader(limit=256 * 1024, loop=loop)
        protocol = _Protocol(reader, loop=loop)
        transport, _ = await loop.create_unix_connection(lambda: protocol, sock=sock)
        transport.set_write_buffer_limits(high=_ROOM)
        return cls(reader, StreamWriter(transport, protocol, reader, loop), most)

    def send(self, document: Any, *, may_be_lost: bool = False) -> None:
        """Send a frame; never waits.

        If the other end does not read, a frame that ``may_be_lost`` is dropped and counted in ``lost``.
        Raises ChannelBroken for a frame that is too large, and if far too much waits.
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
        """Wait until all but a little of it is sent. Raises ConnectionError."""
        await self._writer.drain()

    async def receive(self) -> Any:
        """Return the next frame, None at the end. Raises ChannelBroken."""
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
        """Close it; frames that wait are lost if the other end is gone."""
        self._writer.close()
