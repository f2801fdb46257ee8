"""Reports the requests of a client of model providers, and their answers, to the step that they belong to."""

from collections.abc import AsyncIterator
from typing import Any, Final

import httpx2

from pallas.model import StepUsage
from pallas.telemetry.open_step import OpenStep
from pallas.telemetry.step_record import current_step

from .answer_document import answer_of

MAX_ANSWER: Final = 4 * 1024 * 1024
"""Bytes of an answer that are recorded, from its beginning."""
_STEP: Final = "pallas.step"


async def note_request(request: httpx2.Request) -> None:
    """Record a request of the current step; does nothing outside of one. A hook of httpx2."""
    step = current_step()
    if step is None or request.method != "POST":
        return
    try:
        body = request.content
    except httpx2.RequestNotRead:
        return  # a stream: no model is asked so
    step.send(len(body), lambda: (str(request.url), request.headers.multi_items(), body))
    request.extensions = {**request.extensions, _STEP: step}


async def note_response(response: httpx2.Response) -> None:
    """Record what answers such a request, while it is read. A hook of httpx2."""
    step = response.request.extensions.get(_STEP)
    if isinstance(step, OpenStep):
        step.answered(response.status_code)
        response.stream = _ObservedStream(response.stream, step)


class _ObservedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: Any, step: OpenStep) -> None:
        self._stream = stream
        self._step = step
        self._kept = bytearray()
        self._is_open = True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for data in self._stream:
            if not self._kept:
                self._step.first_token()
            self._kept += data[: MAX_ANSWER - len(self._kept)]
            yield data
        self._end()

    async def aclose(self) -> None:
        """Let go of the answer."""
        self._end()
        await self._stream.aclose()

    def _end(self) -> None:
        if self._is_open:
            self._is_open = False
            kept = bytes(self._kept)
            self._step.attempted(len(kept), lambda: answer_of(kept) if kept else ("", StepUsage()))
