"""JSON-RPC 2.0 with a worker, one message per line."""

import asyncio
import json
import logging
import re
from asyncio import StreamReader, StreamWriter
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from inspect import isawaitable
from time import monotonic
from typing import Any, Final

from pallas.model import Fault, FaultType
from pallas.model.redaction import redact_text
from pallas.safe_text import one_line, sanitize

from .worker_limits import WorkerLimits

METHOD_NOT_FOUND: Final = -32601
MAX_REQUESTS: Final = 64
"""Requests of a worker that wait for their answers at a time."""
_BUSY: Final = -32000

log = logging.getLogger(__name__)

_CHUNK: Final = 65_536
_SHOWN: Final = 80
_ID: Final = re.compile(rb'"id"\s*:\s*(\d{1,9})\b')


class JsonRpcError(Exception):
    """A JSON-RPC error; ``message`` is sanitised."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


def encode_line(message: Mapping[str, Any]) -> bytes:
    """Return a message as a line."""
    # Lone surrogates, which no encoder takes, stay escaped.
    return json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n"


def error_of(error: Any) -> JsonRpcError:
    """Return an answer's ``error`` as an exception; it may be any JSON value."""
    if not isinstance(error, dict):
        return JsonRpcError(0, one_line(redact_text(str(error)), 300))
    code = error.get("code")
    message = error.get("message")
    text = one_line(redact_text(message), 300) if isinstance(message, str) else ""
    return JsonRpcError(
        code if type(code) is int else 0, text or "an error without a message", error.get("data")
    )


class JsonRpcPeer:
    """One worker's stdin and stdout.

    ``on_notification`` gets its notifications, ``on_request`` returns the results of its requests, or what
    returns one when awaited, or raises JsonRpcError. ``on_broken`` gets the reason when it breaks the
    protocol; its owner then ends it and calls ``fail``.
    """

    def __init__(
        self,
        name: str,
        reader: StreamReader,
        writer: StreamWriter,
        limits: WorkerLimits,
        *,
        on_notification: Callable[[str, Mapping[str, Any]], None],
        on_request: Callable[[str, Mapping[str, Any]], Any],
        on_broken: Callable[[str], None],
    ) -> None:
        self._name = name
        self._limits = limits
        self._on_notification, self._on_request, self._on_broken = on_notification, on_request, on_broken
        self._next = 1
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._lines: deque[bytes] = deque()
        self._queued = 0
        self._more, self._room = asyncio.Event(), asyncio.Event()
        self._fault: Fault | None = None
        self._garbage_times: deque[float] = deque(maxlen=limits.garbage)
        self._answering: set[asyncio.Task[None]] = set()
        # Only this queue holds lines: the transport takes one when the one before is sent.
        with suppress(RuntimeError):  # uvloop's for a closed transport: the worker has ended already
            writer.transport.set_write_buffer_limits(high=0)
        self.reading = asyncio.create_task(self._read(reader), name=f"{name}: stdout")
        self._writing = asyncio.create_task(self._write(writer), name=f"{name}: stdin")

    @property
    def in_flight(self) -> frozenset[asyncio.Future[Any]]:
        """The calls that wait for an answer."""
        return frozenset(self._pending.values())

    async def call(self, method: str, params: Mapping[str, Any], timeout_s: float) -> Any:
        """Return the answer, within ``timeout_s`` seconds. Raises Fault, JsonRpcError."""
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self.request(method, params)
                try:
                    await asyncio.wait({answer})
                finally:
                    self.forget(answer)
        except TimeoutError:
            raise Fault(
                FaultType.TIMEOUT,
                f"{self._name}: the worker did not answer {method} within {timeout_s:g} s",
                data={"stage": method},
            ) from None
        return answer.result()

    async def request(self, method: str, params: Mapping[str, Any]) -> asyncio.Future[Any]:
        """Send a request and return the future of its answer, which fails with Fault or JsonRpcError.

        Waits while the worker has too much to read already. Raises Fault (TRANSPORT, UPSTREAM).
        """
        number, self._next = self._next, self._next + 1
        line = encode_line({"id": number, "method": method, "params": params})
        await self._has_room(len(line))
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(_retrieve_exception)
        self._pending[number] = answer
        self._enqueue(line)
        return answer

    def forget(self, answer: asyncio.Future[Any]) -> None:
        """Drop an answer that no code waits for."""
        for number, each in list(self._pending.items()):
            if each is answer:
                del self._pending[number]
        answer.cancel()

    def notify(self, method: str, params: Mapping[str, Any], *, request: bool = False) -> None:
        """Send a notification, or a ``request`` whose answer is ignored; it is lost if it cannot be sent."""
        message: dict[str, Any] = {"method": method, "params": params}
        if request:
            message["id"], self._next = self._next, self._next + 1
        self._send(message)

    def hear(self, line: bytes) -> None:
        """Take a line as if the worker had written it."""
        self._take(line)

    def fail(self, fault: Fault) -> None:
        """Fail every call in flight, and each later one, with ``fault``: the worker has ended."""
        if self._fault is None:
            self._fault = fault
        self._fail_all(fault)
        self._lines.clear()
        self._room.set()
        for task in (self.reading, self._writing, *self._answering):
            task.cancel()

    async def _has_room(self, size: int) -> None:
        limits = self._limits
        if size > limits.queue:
            raise Fault(
                FaultType.UPSTREAM,
                f"{self._name}: a message of {size:,} bytes is too large for a worker, which takes "
                f"{limits.queue:,}; send less at once",
            )
        try:
            async with asyncio.timeout(limits.backpressure):
                while self._fault is None and self._queued and self._queued + size > limits.queue:
                    self._room.clear()
                    await self._room.wait()
        except TimeoutError:
            raise Fault(
                FaultType.TRANSPORT,
                f"{self._name}: the worker does not read: {self._queued:,} bytes have waited for it for "
                f"{limits.backpressure:g} s; try again in a moment",
            ) from None
        if self._fault is not None:
            raise self._fault

    def _enqueue(self, line: bytes) -> None:
        self._lines.append(line)
        self._queued += len(line)
        self._more.set()

    def _send(self, message: Mapping[str, Any]) -> None:
        line = encode_line(message)
        if self._fault is not None:
            return
        if self._queued + len(line) > 2 * self._limits.queue:  # it sends requests and reads no answer
            self._on_broken("does not read its answers")
            return
        self._enqueue(line)

    async def _write(self, writer: StreamWriter) -> None:
        with suppress(OSError, RuntimeError):  # it has ended, which its owner notices; see ``__init__``
            while True:
                await self._more.wait()
                while self._lines:
                    line = self._lines.popleft()
                    writer.write(line)
                    await writer.drain()
                    self._queued -= len(line)
                    self._room.set()
                self._more.clear()

    async def _read(self, reader: StreamReader) -> None:
        held, skipping = bytearray(), False
        while data := await reader.read(_CHUNK):
            start = 0
            while (end := data.find(b"\n", start)) >= 0:
                held += data[start:end]
                start = end + 1
                if skipping:
                    skipping = False
                elif len(held) > self._limits.line:
                    self._too_long(held)
                else:
                    self._take(bytes(held))
                held.clear()
            if not skipping:
                held += data[start:]
            if len(held) > self._limits.line:
                self._too_long(held)
                held.clear()
                skipping = True
            await asyncio.sleep(0)  # other tasks get their turn even if it writes without end
        if held.strip():
            self._take(bytes(held))

    def _take(self, line: bytes) -> None:
        line = line.strip()
        if not line:
            return
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            self._garbage("wrote a line that is not a JSON-RPC message", line)
            return
        number, method = message.get("id"), message.get("method")
        if isinstance(method, str):
            params = message.get("params")
            self._incoming(method, params if isinstance(params, dict) else {}, number)
        elif not ("result" in message or "error" in message):
            self._garbage("wrote a line that is not a JSON-RPC message", line)
        elif not self._answered(number, message):
            self._garbage("answered a call that was not made", line)

    def _incoming(self, method: str, params: Mapping[str, Any], number: Any) -> None:
        try:
            if number is None:
                self._on_notification(method, params)
                return
            if len(self._answering) >= MAX_REQUESTS:
                raise JsonRpcError(_BUSY, f"{MAX_REQUESTS} requests wait for an answer already")
            result = self._on_request(method, params)
        except Exception as error:
            self._refuse(number, method, error)
            return
        if not isawaitable(result):
            self._send({"id": number, "result": result})
            return
        task = asyncio.create_task(self._answer_later(number, method, result), name=f"{self._name}: answer")
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer_later(self, number: Any, method: str, result: Awaitable[Any]) -> None:
        try:
            self._send({"id": number, "result": await result})
        except Exception as error:
            self._refuse(number, method, error)

    def _refuse(self, number: Any, method: str, error: Exception) -> None:
        if isinstance(error, JsonRpcError):
            body = {"code": error.code, "message": error.message}
        else:
            log.error("%s: %s of its worker failed here", self._name, one_line(method, 60), exc_info=error)
            body = {"code": -32603, "message": "internal error"}
        if number is not None:
            self._send({"id": number, "error": body})

    def _answered(self, number: Any, message: Mapping[str, Any]) -> bool:
        """Return whether it answers a call that was made, even if no code waits for the answer."""
        error = message.get("error")
        if number is None and error is not None and len(self._pending) == 1:
            number = next(iter(self._pending))  # it could not read the id
        if isinstance(number, str) and number.isdecimal() and len(number) < 10:
            number = int(number)
        if type(number) is not int or not 0 < number < self._next:
            return False
        answer = self._pending.pop(number, None)
        if answer is None or answer.done():
            return True
        if error is None:
            answer.set_result(message.get("result"))
        else:
            answer.set_exception(error_of(error))
        return True

    def _too_long(self, held: bytearray) -> None:
        self._garbage(f"wrote a line of more than {self._limits.line:,} bytes", bytes(held[:4_096]))

    def _garbage(self, what: str, line: bytes) -> None:
        """Handle a line that is no message: it fails the call that it names, or else all calls."""
        text = redact_text(line[:4_096].decode(errors="replace"), cut=len(line) >= 4_096)
        shown = sanitize(text, _SHOWN).replace("\n", " ").replace("\t", " ")
        log.warning("%s: the worker %s: %s", self._name, what, shown, extra={"agent": self._name})
        fault = Fault(
            FaultType.PROTOCOL,
            f"{self._name}: the worker {what}: {shown}",
            data={"stage": "read", "hint": "only messages belong on its stdout, anything else on stderr"},
        )
        meant = _ID.search(line[:200]) if line.startswith(b"{") else None
        if meant is not None and (answer := self._pending.pop(int(meant[1]), None)) is not None:
            if not answer.done():
                answer.set_exception(fault)
        else:
            self._fail_all(fault)
        now = monotonic()
        self._garbage_times.append(now)
        if (
            len(self._garbage_times) == self._limits.garbage
            and now - self._garbage_times[0] < self._limits.within
        ):
            self._on_broken(f"was ended, because its stdout is not JSON-RPC: {shown}")

    def _fail_all(self, fault: Fault) -> None:
        pending, self._pending = self._pending, {}
        for answer in pending.values():
            if not answer.done():
                answer.set_exception(fault)


def _retrieve_exception(answer: asyncio.Future[Any]) -> None:
    """Mark the exception as seen: maybe no code waits for this answer any more."""
    if not answer.cancelled():
        answer.exception()
