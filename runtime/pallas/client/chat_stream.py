"""An answer while it is written: chunks over SSE, resumed after a lost connection."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from pallas.bounds.fleet_answer import read_answer
from pallas.model import Fault, FaultType, codec
from pallas.safe_text import sanitize, without_controls

from .client_faults import lost

if TYPE_CHECKING:
    import httpx2

MAX_FRAME: Final = 16 * 1024 * 1024
DONE: Final = "[DONE]"
IDLE: Final = 60.0
"""Seconds without a byte, heartbeats included, after which a stream is given up."""
NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
_AGAIN: Final = (0.3, 1.0, 3.0)
"""Seconds before each retry; a run without a listener goes on for 30 s."""

type Open = Callable[..., AbstractAsyncContextManager["httpx2.Response"]]


class ChatStream(AsyncIterator[dict[str, Any]]):
    """The chunks of one answer, as they arrive. ``run_id`` and ``thread_id`` are set before the first one.

    Texts in them are sanitised. The pieces of the answer (``delta``) have no controls and are data otherwise:
    ``PieceSanitizer`` makes them visible.

    Raises Fault: what the fleet refused before the run began; TRANSPORT when the connection cannot be
    restored; TIMEOUT when nothing, not even a heartbeat, came for ``idle`` seconds. A run that fails is a
    chunk of type ``error`` (``fault_in``).
    """

    def __init__(
        self,
        opened: Open,
        path: str,
        body: Mapping[str, Any],
        origin: str,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        idle: float = IDLE,
    ) -> None:
        self.run_id = ""
        self.thread_id = ""
        self._open = opened
        self._path = path
        self._body = {**body, "stream": True}
        self._origin = origin
        self._more_headers = headers
        self._idle = idle
        self._last_id = ""
        # With this key a repeated request reaches the same run.
        self._key = uuid4().hex
        self._ended = False
        self._chunks = self._read()

    async def __anext__(self) -> dict[str, Any]:
        return await anext(self._chunks)

    async def aclose(self) -> None:
        """Close the connection; the run goes on for a while."""
        await self._chunks.aclose()

    async def _read(self) -> AsyncGenerator[dict[str, Any]]:
        pauses = iter(_AGAIN)
        while True:
            begun = False
            try:
                async with self._open(
                    "POST", self._path, self._body, timeout=self._idle, headers=self._headers()
                ) as answer:
                    begun = True
                    self.run_id = self.run_id or sanitize(answer.headers.get("pallas-run-id", ""), 200)
                    self.thread_id = self.thread_id or sanitize(
                        answer.headers.get("pallas-thread-id", ""), 200
                    )
                    async for chunk in self._frames(answer):
                        pauses = iter(_AGAIN)
                        yield chunk
                if self._ended:
                    return
                fault = Fault(FaultType.TRANSPORT, f"{self._origin} ended the answer before it was complete")
            except Fault as refused:
                if not self.run_id or refused.type is not FaultType.TRANSPORT:
                    raise
                fault = refused
            except Exception as error:
                import httpx2

                if not isinstance(error, httpx2.HTTPError):
                    raise
                if isinstance(error, httpx2.TimeoutException):
                    raise Fault(
                        FaultType.TIMEOUT,
                        f"{self._origin} sent nothing for {self._idle:.0f} s, not even a heartbeat: the "
                        "connection is lost",
                    ) from error
                fault = lost(error, self._origin, connected=begun)
            pause = next(pauses, None)
            if pause is None:
                raise fault
            await asyncio.sleep(pause)

    def _headers(self) -> dict[str, str]:
        headers = {**self._more_headers, "accept": "text/event-stream", "idempotency-key": self._key}
        return headers | ({"last-event-id": self._last_id} if self._last_id else {})

    async def _frames(self, answer: "httpx2.Response") -> AsyncIterator[dict[str, Any]]:
        import httpx2

        if not answer.headers.get("content-type", "").startswith("text/event-stream"):
            await read_answer(answer)
            raise Fault(FaultType.PROTOCOL, f"{self._origin} did not answer with a stream")
        async for message in httpx2.EventSource(answer, MAX_FRAME):
            if message.data == DONE:
                self._ended = True
                return
            try:
                found = codec.loads(message.data)
            except codec.Undecodable as error:
                raise Fault(
                    FaultType.PROTOCOL, f"{self._origin} sent something that cannot be read: {error}"
                ) from error
            if isinstance(found, dict):
                # A piece of a text can be made visible only together with the pieces around it.
                delta = found.get("delta")
                yield codec.visible(found) | (
                    {"delta": without_controls(delta)} if isinstance(delta, str) else {}
                )
            self._last_id = message.id or self._last_id


def fault_in(chunk: Mapping[str, Any]) -> Fault:
    """Return the Fault in a chunk of type ``error``."""
    data = chunk.get("data")
    body = {"error": chunk.get("message"), "code": chunk.get("code"), "data": data}
    return codec.fault_of(body, sanitize(str(chunk.get("message") or "the run failed"), 4_000))
