"""Decodes bodies of HTTP responses and counts their bytes while they are read, without blocking the loop."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator
from time import monotonic
from typing import Any, Final

import httpx2

from . import MAX_MESSAGE, MAX_STREAM, in_mib

ACCEPTED: Final = "gzip, deflate"
"""The content encodings that are accepted: those that can be decoded step by step."""

_PIECE: Final = 256 * 1024
# Lines of a stream that are passed on at once, and seconds after which the loop runs other tasks.
_LINES: Final = 32
_TURN: Final = 0.005


class TooLarge(httpx2.StreamError):
    """A response that is too large."""


class Undecodable(TooLarge):
    """A response whose encoding was not asked for, or is not the one that its header names."""


def accept_bounded_encodings(request: httpx2.Request) -> None:
    """Ask only for encodings that can be decoded within limits."""
    if request.headers.get("accept-encoding", "").lower() != "identity":
        request.headers["Accept-Encoding"] = ACCEPTED


def bound(
    response: httpx2.Response,
    *,
    body_limit: int = MAX_MESSAGE,
    line: int | None = None,
    stream: int | None = None,
) -> None:
    """Limit the decoded bytes of a response whose body was not read. Reading it raises TooLarge.

    ``body_limit`` limits a body that is read at once; for an event stream ``line`` limits one line and
    ``stream`` the sum. None sets no limit.
    """
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    events = kind in ("text/event-stream", "application/x-ndjson")
    encodings = [each.strip().lower() for each in response.headers.get("content-encoding", "").split(",")]
    response.stream = _Bounded(
        response.stream,
        [each for each in encodings if each not in _PLAIN],
        line=line if events else None,
        body_limit=stream if events else body_limit,
    )
    # Our stream yields decoded bytes.
    response.headers.pop("content-encoding", None)


def bound_model(response: httpx2.Response) -> None:
    """Limit a response of a model's provider."""
    bound(response, line=MAX_MESSAGE, stream=MAX_STREAM)


# What servers say of bodies that are not encoded.
_PLAIN: Final = frozenset(("", "identity", "none", "utf-8", "utf8", "aws-chunked", "binary", "8bit"))


class _Bounded(httpx2.AsyncByteStream):
    def __init__(
        self, stream: Any, encodings: list[str], *, line: int | None, body_limit: int | None
    ) -> None:
        self._stream = stream
        self._encodings = encodings
        self._line, self._body_limit = line, body_limit
        self._in_line = self._in_all = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        decode = _decoder(self._encodings)
        turn = monotonic()
        async for data in self._stream:
            for plain in decode(data):
                self._count(plain)
                for piece in _pieces(plain):
                    if monotonic() - turn > _TURN:
                        await asyncio.sleep(0)
                        turn = monotonic()
                    yield piece

    async def aclose(self) -> None:
        """Let go of the answer."""
        await self._stream.aclose()

    def _count(self, data: bytes) -> None:
        self._in_all += len(data)
        if self._body_limit is not None and self._in_all > self._body_limit:
            raise TooLarge(f"the answer holds more than {in_mib(self._body_limit)}, decoded")
        if self._line is not None:
            end = data.rfind(b"\n") + 1
            self._in_line = len(data) - end + (0 if end else self._in_line)
            if self._in_line > self._line:
                raise TooLarge(f"the answer holds a line of more than {in_mib(self._line)}, decoded")


def _pieces(data: bytes) -> Iterator[bytes]:
    """Yield the data in pieces of ``_LINES`` whole lines; the last piece may be shorter."""
    begin = end = lines = 0
    while end := data.find(b"\n", end) + 1:
        lines += 1
        if lines % _LINES == 0:
            yield data[begin:end]
            begin = end
    if begin < len(data):
        yield data[begin:]


def _decoder(encodings: list[str]) -> Any:
    if not encodings:
        return lambda data: (data,)
    if len(encodings) > 1 or encodings[0] not in ("gzip", "x-gzip", "deflate"):
        raise Undecodable(f"the answer is encoded as {', '.join(encodings)[:40]!r}; {ACCEPTED} are accepted")
    return _Inflate().decode


class _Inflate:
    """Decodes gzip or zlib data in pieces of bounded size."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(zlib.MAX_WBITS | 32)

    def decode(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._zlib.eof:  # another member of a gzip file
                self._zlib = zlib.decompressobj(zlib.MAX_WBITS | 32)
            try:
                plain = self._zlib.decompress(data, _PIECE)
            except zlib.error:
                raise Undecodable("the answer is not encoded as its Content-Encoding header says") from None
            if plain:
                yield plain
            data = self._zlib.unconsumed_tail or self._zlib.unused_data
