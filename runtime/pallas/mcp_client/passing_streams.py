"""Wrappers of a transport's streams, whose subclasses change the items that pass."""

from typing import Any

import anyio


class PassingStream:
    """A wrapper of a stream, with all its attributes."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aenter__(self) -> Any:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._stream.__aexit__(*error)


class PassingReader(PassingStream):
    """A wrapper of a stream that is read; iterating gives what ``receive`` returns."""

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def receive(self) -> Any:
        """Return the next item. Raises anyio.EndOfStream at the end."""
        return await self._stream.receive()
