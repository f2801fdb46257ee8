"""Responses and errors of the control API, and reading of its requests."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from pallas.deadlines import cancel_and_wait
from pallas.model import Fault, FaultType, codec
from pallas.model.refusals import REASON

from .control_tokens import TokenHolder
from .token_middleware import CALLER

log = logging.getLogger(__name__)

MAX_BODY: Final = 1024 * 1024
BODY_TIMEOUT: Final = 10.0

_REASONS: Final = {"not_found": 404, "conflict": 409, "in_use": 409, "forbidden": 403}
_STATUS: Final = {
    FaultType.CONFIG: 400,
    FaultType.PROTOCOL: 400,
    FaultType.TIMEOUT: 504,
    FaultType.INTERNAL: 500,
}
_BROKEN: Final = Fault(FaultType.INTERNAL, "the control API failed; the fleet's log has the details")

HEADERS: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}

type RouteHandler = Callable[[Request], Awaitable[Response]]


class ControlError(Exception):
    """A Fault with its HTTP status."""

    def __init__(self, status: int, message: str, kind: FaultType = FaultType.PROTOCOL) -> None:
        super().__init__(message)
        self.status = status
        self.fault = Fault(kind, message)


class DisconnectMiddleware:
    """ASGI middleware: a client that disconnects, or reads nothing any more, is logged as no error."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except* (TimeoutError, OSError, ClientDisconnect) as gone:
            log.debug("control: a reader went away: %s", type(gone.exceptions[0]).__name__)


def faults(page: RouteHandler) -> RouteHandler:
    """``page`` with its exceptions turned into responses."""

    async def answered(request: Request) -> Response:
        try:
            return await page(request)
        except ControlError as refused:
            return json_answer(refused.fault.to_body(), refused.status)
        except Fault as fault:
            return json_answer(fault.to_body(), _status_of(fault))
        except (ClientDisconnect, asyncio.CancelledError):
            raise
        except Exception:
            log.exception("control: %s failed", getattr(page, "__name__", "a page").strip("_"))
            return json_answer(_BROKEN.to_body(), 500)

    return answered


def _status_of(fault: Fault) -> int:
    return _REASONS.get(str(fault.data.get(REASON, "")), _STATUS.get(fault.type, 502))


async def nothing_here(_: Request, __: Exception) -> Response:
    """404."""
    return json_answer(Fault(FaultType.PROTOCOL, "there is nothing under this path").to_body(), 404)


async def other_method(_: Request, error: Exception) -> Response:
    """405."""
    allowed = dict(getattr(error, "headers", None) or {})
    fault = Fault(FaultType.PROTOCOL, "this path needs another method")
    answer = json_answer(fault.to_body(), 405)
    answer.headers.update(allowed)
    return answer


async def within[T](seconds: float, request: Request, work: Awaitable[T]) -> T:
    """The result of ``work``, which is cancelled at the deadline, and when the client disconnects."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({task, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        if gone.done():
            raise ClientDisconnect
        raise Fault(FaultType.TIMEOUT, f"the fleet did not answer within {seconds:.0f} s")
    finally:
        await cancel_and_wait(task, gone, seconds=1.0)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def body_of(request: Request) -> bytes:
    """The whole body. Raises ControlError when it is too large or late."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY:
                    raise ControlError(413, f"the body is larger than {MAX_BODY // 1024} KiB")
    except TimeoutError:
        raise ControlError(408, f"the body did not come within {BODY_TIMEOUT:.0f} s") from None
    return bytes(body)


def number_of(request: Request, name: str, default: int, most: int) -> int:
    """A whole number from 0 to ``most`` in the query. Raises ControlError."""
    given = request.query_params.get(name)
    if given is None:
        return default
    if not given.isascii() or not given.isdigit() or len(given) > 16 or int(given) > most:
        raise wrong(f"{name} must be a whole number from 0 to {most}")
    return int(given)


def caller_of(request: Request) -> TokenHolder:
    """The sender, as the middleware found them."""
    caller = request.scope[CALLER]
    assert isinstance(caller, TokenHolder)
    return caller


def wrong(message: str, status: int = 400) -> ControlError:
    """The error for an invalid request."""
    return ControlError(status, message)


def busy(message: str) -> ControlError:
    """The error for too many requests at once."""
    return ControlError(503, message, FaultType.TRANSPORT)


def json_answer(document: dict[str, Any], status: int = 200) -> Response:
    """A response with a JSON document."""
    return Response(codec.dumps(document), status, HEADERS, media_type="application/json")
