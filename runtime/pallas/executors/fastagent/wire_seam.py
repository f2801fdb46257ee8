"""Records a run's messages to and from stdio servers on the wire record (HTTP: ``wire_http``).

Recorded only while the run of a message has a wire record (``pallas.telemetry.wire_record``); otherwise this
costs one context variable look-up.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from pallas.mcp_client.stdio_seam import PassingStream
from pallas.telemetry.trace_context import current_call, current_run
from pallas.telemetry.wire_record import OpenExchange

from . import send_gate
from .transport_seam import stdio_hook

# The limit of pending requests to one stdio server; the oldest unanswered one is dropped.
_MAX_OPEN: Final = 200


@asynccontextmanager
async def _overheard(peer: str, transport: Any) -> AsyncIterator[Any]:
    async with transport as (read, write):
        awaited: OrderedDict[Any, OpenExchange] = OrderedDict()
        try:
            yield _Read(read, awaited), _Write(write, awaited, peer)
        finally:
            for exchange in awaited.values():
                exchange.close()


class _Write(PassingStream):
    def __init__(self, stream: Any, awaited: OrderedDict[Any, OpenExchange], peer: str) -> None:
        super().__init__(stream)
        self._awaited, self._peer = awaited, peer

    async def send(self, item: Any) -> None:
        """Pass a message on; a request of a run is recorded.

        A call of a run that another fleet has is not sent.
        """
        # Here and not in the writer's task: this is the caller's context.
        run = current_run()
        message = item.message
        if send_gate.is_due() and getattr(message, "method", "") == "tools/call":
            await send_gate.check()
        if run is not None and run.wire is not None and hasattr(message, "id") and hasattr(message, "method"):
            self._awaited[message.id] = run.wire.begin(
                "downstream",
                self._peer,
                message.method,
                _encoded(message),
                span_id=current_call() if message.method == "tools/call" else "",
            )
            if len(self._awaited) > _MAX_OPEN:
                self._awaited.popitem(last=False)[1].close()
        await self._stream.send(item)


class _Read(PassingStream):
    def __init__(self, stream: Any, awaited: OrderedDict[Any, OpenExchange]) -> None:
        super().__init__(stream)
        self._awaited = awaited

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        return self._record(await self._stream.__anext__())

    async def receive(self) -> Any:
        """Return the next message."""
        return self._record(await self._stream.receive())

    def _record(self, item: Any) -> Any:
        if self._awaited:
            message = getattr(item, "message", None)
            if not hasattr(message, "method") and (number := getattr(message, "id", None)) is not None:
                exchange = self._awaited.pop(number, None)
                if exchange is not None:
                    exchange.end(_encoded(message))
        return item


def _encoded(message: Any) -> bytes:
    """Return the line that went through the pipe: the transport encodes it the same way."""
    return bytes(message.model_dump_json(by_alias=True, exclude_unset=True), "utf-8", "replace")


HOOK: Final = stdio_hook("wire.stdio", _overheard)
