"""The bytes of requests to an agent and its answers, for the wire record."""

from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pallas.model import Event, RunStarted
from pallas.telemetry.wire_record import Body, OpenExchange, WireRecord, method_in

from .send_message_call import bearer_in

_KEY: Final = "pallas.wire"


class WireTap:
    """ASGI middleware: requests that become a run are recorded with their answers; all others pass through.

    Nothing is decoded or masked before the request is known to be a run's, and the answer's end is recorded
    after it was sent.
    """

    def __init__(self, app: ASGIApp, record: WireRecord) -> None:
        self._app = app
        self._record = record

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and record it."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        tap = Tap(self._record, scope)
        scope = {**scope, _KEY: tap}
        try:
            await self._app(scope, tap.receiving(receive), tap.sending(send))
        finally:
            tap.end()


class Tap:
    """One request and its answer."""

    def __init__(self, record: WireRecord, scope: Scope) -> None:
        self._record = record
        self._headers: list[tuple[bytes, bytes]] = scope["headers"]
        self._request = Body()
        self._answer: Body | None = None
        self._status: int | None = None
        self._answer_headers: list[tuple[bytes, bytes]] = []
        self._exchange: OpenExchange | None = None

    def receiving(self, receive: Receive) -> Receive:
        """Return ``receive`` with recording."""

        async def tapped() -> Message:
            message = await receive()
            if body := message.get("body"):
                self._request.feed(body)
            return message

        return tapped

    def sending(self, send: Send) -> Send:
        """Return ``send`` with recording."""

        async def tapped(message: Message) -> None:
            await send(message)
            if message["type"] == "http.response.start":
                self._status = message["status"]
                self._answer_headers = list(message.get("headers", ()))
                content = _value(self._answer_headers, b"content-type")
                self._answer = Body(events=content.startswith("text/event-stream"))
            elif self._answer is not None and (body := message.get("body")):
                self._answer.feed(body)

        return tapped

    def hear(self, event: Event) -> None:
        """Note the run's id from its first event."""
        if self._exchange is not None or not isinstance(event, RunStarted):
            return
        run = self._record.of(event.run_id)
        if run is None:
            return
        raw, more = self._request.end()
        self._exchange = run.begin(
            "inbound",
            event.caller or "caller",
            method_in(raw),
            raw,
            more=more,
            headers=_text(self._headers),
            span_id=event.span_id,
        )

    def end(self) -> None:
        """Finish: the answer was sent, or no client waits for it any more."""
        if self._exchange is None:
            return
        if self._answer is None:
            self._exchange.close()
            return
        self._exchange.head(self._status, _text(self._answer_headers))
        bearer = bearer_in(_value(self._headers, b"authorization"))
        self._exchange.end(*self._answer.end(), secret=bearer or "")


def with_tap(
    request: Request | None, listener: Callable[[Event], None] | None
) -> Callable[[Event], None] | None:
    """Return ``listener`` behind the tap that the request came through, if there is one."""
    tap: Tap | None = request.scope.get(_KEY) if request is not None else None
    if tap is None:
        return listener
    if listener is None:
        return tap.hear

    def both(event: Event) -> None:
        tap.hear(event)
        listener(event)

    return both


def _text(headers: list[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


def _value(headers: list[tuple[bytes, bytes]], header: bytes) -> str:
    return next((value.decode("latin-1") for name, value in headers if name.lower() == header), "")
