"""The relay between a client's stdin and stdout and a fleet. It parses each line only as far as needed."""

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from pallas.deadlines import cancel_and_wait
from pallas.model import Fault, FaultType

from .bridge_requests import BridgeRequests, shown
from .bridge_target import BridgeTarget
from .jsonrpc_lines import (
    CANCELLED,
    INITIALIZE,
    INVALID_REQUEST,
    PARSE_ERROR,
    error,
    failed,
    modern,
)
from .stdio_wire import MAX_LINE, StdioWire, TooLong

Work = Callable[[], Coroutine[Any, Any, None]]

log = logging.getLogger(__name__)

MAX_REQUESTS: Final = 256
"""Concurrent requests of one client."""
GRACE_S: Final = 0.25
"""Seconds that open requests have for their answers once stdin has ended; the rest are cancelled."""


class Relay:
    """Serves one client, until its stdin ends or ``stop`` is set. Open requests are cancelled then.

    Requests are passed on at once, each in its own task. The client's first messages, and notifications, keep
    their order.
    """

    def __init__(self, wire: StdioWire, target: BridgeTarget) -> None:
        self._wire = wire
        self._target = target
        self._forward = BridgeRequests(target, wire.say)
        self._requests: dict[tuple[type, Any], asyncio.Task[None]] = {}
        self._era: dict[tuple[type, Any], bool] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._first: asyncio.Task[None] | None = None

    async def run(self, stop: asyncio.Event, ended: Callable[[], object] = lambda: None) -> None:
        """Pass everything on, and return when it is over. ``ended`` is called as soon as stdin has ended."""
        self._wire.begin()
        future = asyncio.ensure_future(stop.wait())
        try:
            await self._listen(future)
            if not future.done():
                ended()
            await self._finish(future)
        finally:
            future.cancel()
            await cancel_and_wait(*self._tasks, seconds=1.0)
            await self._forward.forget()
            await self._forward.close()

    async def _listen(self, future: "asyncio.Future[Any]") -> None:
        while True:
            coming = asyncio.ensure_future(self._wire.line())
            await asyncio.wait({coming, future}, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                coming.cancel()
                return
            line = coming.result()
            if line is None:
                return
            await self._take(line)

    async def _finish(self, future: "asyncio.Future[Any]") -> None:
        """After stdin has ended, give answers that are about to arrive time to be written."""
        if self._tasks and not future.done() and not self._wire.gone:
            answered = asyncio.ensure_future(asyncio.wait(self._tasks))
            await asyncio.wait({answered, future}, timeout=GRACE_S, return_when=asyncio.FIRST_COMPLETED)
            answered.cancel()

    async def _take(self, line: bytes | TooLong) -> None:
        if isinstance(line, TooLong):
            text = f"a message has {line.size} bytes; at most {MAX_LINE} are read"
            await self._wire.say(error(None, INVALID_REQUEST, text))
            return
        if not line.strip():
            return
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            await self._wire.say(
                error(None, PARSE_ERROR, "a line on stdin is not JSON; write one message a line")
            )
            return
        if not isinstance(document, dict) or document.get("jsonrpc") != "2.0":
            text = 'a message is one JSON object with "jsonrpc": "2.0"'
            await self._wire.say(error(None, INVALID_REQUEST, text))
            return
        if not isinstance(document.get("method"), str):
            self._in_order(lambda: self._forward.notify(document, line))  # A response from the client.
        elif "id" not in document:
            self._heed(document, line)
        elif not isinstance(document["id"], str | int) or isinstance(document["id"], bool):
            await self._wire.say(error(None, INVALID_REQUEST, "an id is a string or a whole number"))
        elif len(self._requests) >= MAX_REQUESTS:
            data = {"limit": MAX_REQUESTS}
            await self._wire.say(failed(document, Fault(FaultType.TRANSPORT, "Server overloaded", data=data)))
        else:
            self._forward_request(document, line)

    def _forward_request(self, document: dict[str, Any], line: bytes) -> None:
        key = (type(document["id"]), document["id"])
        if document["method"] == INITIALIZE:
            task = self._in_order(lambda: self._answered(document, line))
        else:
            task = self._own(_after(self._first, lambda: self._answered(document, line)))
        self._requests[key], self._era[key] = task, bool(modern(document))

        def on_done(done: "asyncio.Task[None]") -> None:
            if self._requests.get(key) is done:
                del self._requests[key], self._era[key]

        task.add_done_callback(on_done)

    def _heed(self, document: dict[str, Any], line: bytes) -> None:
        """Pass on a notification. A cancelled request ends at once, so that no answer to it is written.

        In the newer protocol version the closed connection cancels the run; in the older one the fleet is
        notified.
        """
        if document["method"] == CANCELLED:
            params = document.get("params")
            request_id = params.get("requestId") if isinstance(params, dict) else None
            key = (type(request_id), request_id if isinstance(request_id, str | int) else None)
            task = self._requests.get(key)
            if task is None:
                return  # It is over.
            announces_era = not self._era[key] and self._target.started.is_set()
            task.cancel()
            if announces_era:
                self._own(self._forward.notify(document, line))
            return
        self._in_order(lambda: self._forward.notify(document, line))

    async def _answered(self, document: dict[str, Any], line: bytes) -> None:
        try:
            await self._forward.request(document, line)
        except Exception as problem:
            log.error("a request could not be passed on: %s", shown(problem), exc_info=problem)
            text = f"the bridge failed inside ({type(problem).__name__}); the log has the details"
            await self._wire.say(failed(document, Fault(FaultType.INTERNAL, text)))

    def _in_order(self, work: Work) -> "asyncio.Task[None]":
        self._first = self._own(_after(self._first, work))
        return self._first

    def _own(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _after(before: "asyncio.Task[None] | None", work: Work) -> None:
    """Run ``work`` after ``before`` has ended, successfully or not."""
    if before is not None and not before.done():
        await asyncio.wait({before})
    await work()
