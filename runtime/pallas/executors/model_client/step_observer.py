"""Reports the requests of a client of model providers, and their answers, to the step that they belong to."""

from collections.abc import AsyncIterator
from typing import Any, Final

import httpx2

from pallas.telemetry.open_step import OpenStep
from pallas.telemetry.step_record import current_step

from .answer_document import answer_of, breaks_off
from .answer_usage import usage_of

MAX_ANSWER: Final = 16 * 1024 * 1024
"""Bytes of an answer that are recorded, from its beginning."""
MAX_TAIL: Final = 64 * 1024
"""Bytes that are kept of the end of a longer one, which says what it used."""
STEP: Final = "pallas.step"


class AnswerRecord:
    """What is kept of an answer for its step."""

    __slots__ = ("_kept", "_step", "_tail")

    def __init__(self, step: OpenStep) -> None:
        self._step = step
        self._kept = bytearray()
        self._tail = b""

    def add(self, data: bytes) -> None:
        """Keep a piece that arrived."""
        if not self._kept:
            self._step.first_token()
        room = MAX_ANSWER - len(self._kept)
        self._kept += data[:room]
        if len(data) > room:
            self._tail = (self._tail + data[max(0, room) :])[-MAX_TAIL:]

    def end(self) -> None:
        """Report it to the step: it is over, or was cut short."""
        kept = bytes(self._kept)
        usage = usage_of(kept + self._tail)
        cut = bool(self._tail) or breaks_off(kept)
        self._step.attempted(len(kept), lambda: answer_of(kept) if kept else "", usage, cut=cut)


async def note_request(request: httpx2.Request) -> None:
    """Record a request of the current step; does nothing outside of one. A hook of httpx2."""
    step = current_step()
    if step is None or request.method != "POST":
        return
    try:
        body = request.content
    except httpx2.RequestNotRead:
        return  # a stream: no model is asked so
    url = str(request.url)
    step.send(len(body), lambda: (url, request.headers.multi_items(), body), url)
    request.extensions = {**request.extensions, STEP: step}


async def note_response(response: httpx2.Response) -> None:
    """Record what answers such a request, while it is read. A hook of httpx2."""
    step = response.request.extensions.get(STEP)
    if isinstance(step, OpenStep):
        step.answered(response.status_code)
        response.stream = _ObservedStream(response.stream, step)


class _ObservedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: Any, step: OpenStep) -> None:
        self._stream = stream
        self._record = AnswerRecord(step)
        self._is_open = True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for data in self._stream:
            self._record.add(data)
            yield data
        self._end()

    async def aclose(self) -> None:
        """Let go of the answer."""
        self._end()
        await self._stream.aclose()

    def _end(self) -> None:
        if self._is_open:
            self._is_open = False
            self._record.end()
