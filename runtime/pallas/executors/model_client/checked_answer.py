"""Checks and corrects the answers of model servers before a provider's library reads them."""

import json
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

import httpx2
import msgspec

from .answer_dialects import reader_of
from .answer_reader import AnswerReader, Event
from .event_lines import EventLines, is_end

_AT_ONCE: Final = (b"{", b"[", b"<")
"""How a body begins that is not a stream of events."""


async def check_answer(response: httpx2.Response) -> None:
    """Make reading a model's answer raise AnswerError where it is none. A hook of httpx2.

    Works on a response whose body was not read and has no content encoding.
    """
    request = response.request
    if request.method != "POST" or not response.is_success:
        return
    path = request.url.path
    reader = reader_of(path)
    if reader is None:
        return
    is_streamed = path.endswith(":streamGenerateContent") or await _asks_for_stream(request)
    if not is_streamed:  # the libraries believe the header
        response.headers["content-type"] = "application/json"
    response.stream = _CheckedStream(response.stream, reader, is_streamed=is_streamed)


class _Streamed(msgspec.Struct):
    stream: Any = False


async def _asks_for_stream(request: httpx2.Request) -> bool:
    try:
        content = await request.aread()  # after a redirect it was not read yet
        return msgspec.json.decode(content, type=_Streamed).stream is True
    except (httpx2.StreamError, msgspec.MsgspecError, UnicodeError):
        return False


class _CheckedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: Any, reader: AnswerReader, *, is_streamed: bool) -> None:
        self._stream = stream
        self._reader = reader
        self._is_streamed = is_streamed
        self._is_over = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces = aiter(self._stream)
        begin = b""
        async for data in pieces:
            begin += data
            if begin.strip():
                break
        if not self._is_streamed or begin.lstrip().startswith(_AT_ONCE):
            body = b"".join([begin, *[data async for data in pieces]])
            for document in self._reader.document(body, streamed=self._is_streamed):
                yield _event(document) if self._is_streamed else _json(document)
            return
        lines = EventLines()
        for data in self._read(lines.feed(begin)):
            yield data
        async for data in pieces:
            if self._is_over:
                break
            for each in self._read(lines.feed(data)):
                yield each
        for each in self._read(lines.end()):
            yield each
        for event in self._reader.last(lines):
            yield _event(event)

    async def aclose(self) -> None:
        """Let go of the answer."""
        await self._stream.aclose()

    def _read(self, events: Iterable[bytes]) -> Iterable[bytes]:
        for data in events:
            if self._is_over:
                return
            if is_end(data):
                self._reader.is_whole = self._is_over = True
                return
            name = self._reader.name_of_text(data) if data.isascii() and b"\n" not in data else None
            if name is None:
                yield from map(_event, self._reader.read(data))
            else:
                yield _named(name, data)


def _event(event: Event) -> bytes:
    """Return an event as it is sent; Anthropic's library goes by its name."""
    kind = event.get("type")
    return _named(kind if isinstance(kind, str) and kind.isprintable() else "", _json(event))


def _named(name: str, data: bytes) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data) if name else b"data: %s\n\n" % data


def _json(value: Event) -> bytes:
    """Return JSON in ASCII, in which no separator of Unicode splits a line."""
    return json.dumps(value).encode()
