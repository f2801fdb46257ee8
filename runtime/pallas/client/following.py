"""A task while it is under way: what it is like now, again and again, to its end."""

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Final

from pallas.model import Fault, FaultType, codec

from .chat_stream import DONE, IDLE, MAX_FRAME, Open
from .client_faults import bounded, lost

if TYPE_CHECKING:
    import httpx2

_AGAIN: Final = (0.3, 1.0, 3.0, 10.0, 20.0)
"""Seconds before each new try: a fleet that is started again says then what became of its tasks."""


async def follow(
    opened: Open, path: str, origin: str, *, idle: float = IDLE
) -> AsyncGenerator[dict[str, Any]]:
    """The task at ``path``, as it is and whenever that is different; the last one is over.

    Raises Fault: what the fleet refused, TRANSPORT where the connection cannot be had again, TIMEOUT when
    nothing, not even a heartbeat, came for ``idle`` seconds.
    """
    import httpx2

    pauses, known = iter(_AGAIN), False
    while True:
        begun = False
        try:
            async with opened("GET", path, timeout=idle, headers={"accept": "text/event-stream"}) as answer:
                begun = known = True
                async for task in _tasks(answer, origin):
                    pauses = iter(_AGAIN)
                    yield task
                    if task.get("status") not in ("working", "input_required"):
                        return
            fault = Fault(FaultType.TRANSPORT, f"{origin} ended before the task was over")
        except Fault as refused:
            if not known or refused.type is not FaultType.TRANSPORT:
                raise
            fault = refused
        except httpx2.TimeoutException as error:
            text = f"nothing was heard of {origin} for {idle:.0f} s, not even a sign of life"
            raise Fault(FaultType.TIMEOUT, text) from error
        except httpx2.HTTPError as error:
            fault = lost(error, origin, connected=begun)
        pause = next(pauses, None)
        if pause is None:
            raise fault
        await asyncio.sleep(pause)


async def _tasks(answer: "httpx2.Response", origin: str) -> AsyncGenerator[dict[str, Any]]:
    import httpx2

    if not answer.headers.get("content-type", "").startswith("text/event-stream"):
        await bounded(answer)
        raise Fault(FaultType.PROTOCOL, f"{origin} answered something that is no stream")
    async for message in httpx2.EventSource(answer, MAX_FRAME):
        if message.data == DONE:
            return
        try:
            chunk = codec.visible(codec.loads(message.data))
        except codec.Undecodable as error:
            text = f"{origin} sent something that is not understood: {error}"
            raise Fault(FaultType.PROTOCOL, text) from error
        if isinstance(chunk, dict) and isinstance(task := chunk.get("task"), dict):
            yield task
        elif isinstance(chunk, dict) and chunk.get("type") == "error":
            body = {"error": chunk.get("message"), "code": chunk.get("code"), "data": chunk.get("data")}
            raise codec.fault_of(body, "the task could not be followed")
