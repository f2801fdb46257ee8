"""The messages of one connection as they come and go, before the SDK reads them.

Answers are made usable here, one by one: what a server says wrong costs the thing that it is about, and not
the whole list or result.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Final

import anyio
from mcp import Client, MCPError
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    ErrorData,
    JSONRPCError,
    JSONRPCRequest,
    JSONRPCResponse,
)

from pallas.mcp_client.passing_streams import PassingReader, PassingStream
from pallas.model.fault import leaves_of
from pallas.telemetry.trace_context import current_call, current_run
from pallas.telemetry.wire_record import OpenExchange

from .flood_limit import A_SECOND, FloodLimit
from .http_requests import goes_beside
from .usable_results import UsableResult

DISCOVER: Final = "server/discover"
_BEGINS: Final = "notifications/initialized"
SILENCE_SECONDS: Final = 3.0
"""How long a server may be silent after it was asked for its versions, before the handshake is tried."""
# Requests without an answer that are remembered; the oldest is forgotten first.
_MAX_OPEN: Final = 1_000
# How long a server may take to read that it asks too much.
_REFUSE_SECONDS: Final = 1.0
_SILENT: Final = "the server does not answer it"

type Read = Callable[[str, Any], UsableResult]
"""Returns the result of a method as the SDK can read it."""

before_call: Final[ContextVar[Callable[[], Awaitable[None]] | None]] = ContextVar("before_call", default=None)
"""Asked before a call of a tool is written to a program's stdin; raises where the call must not be made."""


class RawStreams:
    """The two streams of one opened transport.

    ``read`` makes results usable; ``ended`` is called once when the other side has closed the connection.
    ``recorded`` is the name of the peer in the wire record; empty if the transport records by itself.
    ``version`` is the one that the handshake asks for, if not the newest; ``server`` names it in the log, and
    ``changed`` is called where it says too often that its lists have changed.
    """

    def __init__(
        self,
        streams: Any,
        *,
        read: Read,
        ended: Callable[[], None],
        recorded: str = "",
        version: str = "",
        server: str = "",
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        incoming, outgoing = streams
        self.incoming = _In(incoming, self)
        self.outgoing = _Out(outgoing, self)
        self.read = read
        self.ended = ended
        self.recorded = recorded
        self.version = version
        self.limit = FloodLimit(server, changed)
        self.discovering: Any = None
        """The id of the question for versions, while it has no answer."""
        self.silence: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once nobody waits for the answer to that question any more."""
        self.methods: OrderedDict[Any, str] = OrderedDict()
        self.exchanges: OrderedDict[Any, OpenExchange] = OrderedDict()

    def stop_discovering(self) -> None:
        """Wait no longer for the answer to the question for versions."""
        if not self.silence.done():
            self.silence.set_result(None)

    def close(self) -> None:
        """Stop reading, and end the records of requests that get no answer any more."""
        self.stop_discovering()
        self.incoming.stop()
        for exchange in self.exchanges.values():
            exchange.close()
        self.exchanges.clear()

    def asked(self, message: JSONRPCRequest) -> None:
        """Note a request that goes out."""
        if message.method == DISCOVER:
            self.discovering = message.id
            asyncio.get_running_loop().call_later(SILENCE_SECONDS, self.stop_discovering)
        self.methods[message.id] = message.method
        if len(self.methods) > _MAX_OPEN:
            self.methods.popitem(last=False)
        run = current_run()
        if not self.recorded or run is None or run.wire is None:
            return
        self.exchanges[message.id] = run.wire.begin(
            "downstream",
            self.recorded,
            message.method,
            _encoded(message),
            span_id=current_call() if message.method == "tools/call" else "",
        )
        if len(self.exchanges) > _MAX_OPEN:
            self.exchanges.popitem(last=False)[1].close()

    def answered(self, item: Any) -> Any:
        """Note an answer, and return it as the SDK can read it."""
        message = getattr(item, "message", None)
        if not isinstance(message, JSONRPCResponse | JSONRPCError):
            return item
        if isinstance(message, JSONRPCError) and message.id is None and self.discovering is not None:
            # The server did not take the question for a request: that is its answer.
            message = message.model_copy(update={"id": self.discovering})
            item = SessionMessage(message)
        elif isinstance(message.id, str) and message.id.isdecimal() and message.id not in self.methods:
            # Some servers answer with the text of the request's number.
            message = message.model_copy(update={"id": int(message.id)})
            item = SessionMessage(message)
        if message.id == self.discovering:
            self.discovering = None
        method = self.methods.pop(message.id, "")
        if (exchange := self.exchanges.pop(message.id, None)) is not None:
            exchange.end(_encoded(message))
        if method and isinstance(message, JSONRPCResponse):
            read = self.read(method, message.result)
            if read.result is None:
                text = f"the server's answer cannot be used: {read.problem}"
                error = ErrorData(code=INTERNAL_ERROR, message=text)
                return SessionMessage(JSONRPCError(jsonrpc="2.0", id=message.id, error=error))
            if read.result is not message.result:
                return SessionMessage(message.model_copy(update={"result": read.result}))
        return item

    async def refuse(self, request: JSONRPCRequest) -> None:
        """Answer one of too many requests: a server may wait for that before it goes on."""
        error = ErrorData(code=INTERNAL_ERROR, message=f"more than {A_SECOND} messages a second")
        answer = SessionMessage(JSONRPCError(jsonrpc="2.0", id=request.id, error=error))
        with suppress(TimeoutError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with asyncio.timeout(_REFUSE_SECONDS):  # it may not read
                await self.outgoing.send(answer)

    def no_answer(self) -> SessionMessage:
        """Answer the question for versions in place of a server that is silent."""
        number, self.discovering = self.discovering, None
        self.methods.pop(number, None)
        error = ErrorData(code=METHOD_NOT_FOUND, message=_SILENT)
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=number, error=error))


class _Out(PassingStream):
    def __init__(self, stream: Any, raw: RawStreams) -> None:
        super().__init__(stream)
        self._raw = raw

    async def send(self, item: Any) -> None:
        """Pass a message on, in the context of its sender."""
        message = item.message
        if isinstance(message, JSONRPCRequest):
            message, item = self._as_taken(message, item)
            if self._raw.recorded and message.method == "tools/call" and (check := before_call.get()):
                await check()
            self._raw.asked(message)
        # What begins a session must be there before all else.
        is_beside = not isinstance(message, JSONRPCRequest) and getattr(message, "method", "") != _BEGINS
        token = goes_beside.set(is_beside)
        try:
            await self._stream.send(item)
        finally:
            goes_beside.reset(token)

    def _as_taken(self, message: JSONRPCRequest, item: Any) -> tuple[JSONRPCRequest, Any]:
        """Return a request as careless servers take it: they look into the params of a list unasked."""
        params: dict[str, Any] | None = message.params
        if message.method == "initialize" and self._raw.version:
            params = {**(params or {}), "protocolVersion": self._raw.version}
        elif message.method.endswith("/list") and params is None:
            params = {}
        if params is message.params:
            return message, item
        message = message.model_copy(update={"params": params})
        return message, SessionMessage(message, metadata=item.metadata)


class _In(PassingReader):
    def __init__(self, stream: Any, raw: RawStreams) -> None:
        super().__init__(stream)
        self._raw = raw
        self._coming: asyncio.Future[Any] | None = None

    def stop(self) -> None:
        """Wait no longer for the message that comes after a server was given up."""
        if self._coming is not None:
            self._coming.cancel()

    async def receive(self) -> Any:
        """Return the next message; raises EndOfStream when the other side has closed the connection."""
        try:
            while True:
                if self._raw.silence.done() and self._coming is None:
                    item = self._raw.answered(await self._stream.receive())
                else:
                    item = await self._receive_or_give_up()
                message = getattr(item, "message", None)
                if await self._raw.limit.takes(message):
                    return item
                if isinstance(message, JSONRPCRequest):
                    await self._raw.refuse(message)
        except anyio.EndOfStream:
            self._raw.ended()
            raise

    async def _receive_or_give_up(self) -> Any:
        """Return the next message, or an answer in place of a server that is silent."""
        coming = self._coming or asyncio.ensure_future(self._stream.receive())
        self._coming = None
        try:
            await asyncio.wait({coming, self._raw.silence}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            coming.cancel()
            raise
        if not coming.done() and self._raw.silence.done() and self._raw.discovering is not None:
            self._coming = coming
            return self._raw.no_answer()
        return self._raw.answered(await coming)


def was_silent(error: BaseException) -> bool:
    """Return whether a server was given up for ``SILENCE_SECONDS`` without an answer: it may be starting."""
    return any(isinstance(each, MCPError) and each.message == _SILENT for each in leaves_of(error))


def version_of(client: Client) -> str | None:
    """Return the protocol version of a client; None while it is being opened."""
    try:
        return client.session.protocol_version
    except RuntimeError:
        return None


def _encoded(message: Any) -> bytes:
    """Return the line that goes through the pipe: the transport encodes it the same way."""
    return bytes(
        message.model_dump_json(by_alias=True, exclude_unset=True, warnings=False), "utf-8", "replace"
    )
