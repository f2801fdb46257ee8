"""The control API of a fleet (``/api/v1/fleet/...``), and whether it has one."""

import asyncio
import logging
import os
import secrets
from collections.abc import MutableMapping
from dataclasses import replace
from pathlib import Path
from time import time
from typing import Any, Final, Protocol

from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from pallas import __version__
from pallas.model import FaultType, FleetPort, TokenScope, codec
from pallas.model.redaction import forget, redact

from .control_tokens import FULL_VARIABLE, Attempts, ControlTokens, is_loopback, make_token, take_tokens
from .event_stream import for_lookers, resume_at, stream
from .log_files import MAX_RANGE, LogFiles
from .operation_routes import OperationRoutes
from .owner import owner
from .responses import (
    HEADERS,
    ControlError,
    DisconnectMiddleware,
    busy,
    caller_of,
    faults,
    json_answer,
    nothing_here,
    number_of,
    other_method,
    wrong,
)
from .token_file import TokenFileExposed, remove_token, store_token
from .token_middleware import TokenMiddleware

log = logging.getLogger(__name__)

VERSION: Final = 1
HEARTBEAT: Final = 10.0
"""Seconds between two comments on a stream without events."""
SEND_TIMEOUT: Final = 20.0
MAX_STREAMS: Final = 16

_MAX_SEQ: Final = 10**15
EVERYWHERE: Final = ("0.0.0.0", "::", "")
"""Addresses that include loopback."""


class SharingWorker(Protocol):
    """A worker process, as far as its control API depends on the others."""

    control_token: str
    """The token of all of them."""
    parent: int
    """The process to signal."""

    @property
    def is_first(self) -> bool:
        """Whether this one keeps the token's file."""
        ...


class ControlApi:
    """The control API over ``fleet``, guarded by ``tokens``; ``app`` is mounted at ``BASE``.

    Put a ``HostOriginGuard`` before it. ``log_file`` is the log that may be read. ``boot`` is the id
    of this start of the fleet: event numbers are valid within it only. ``close`` ends the streams.
    """

    def __init__(
        self,
        fleet: FleetPort,
        tokens: ControlTokens,
        log_file: Path,
        *,
        boot: str = "",
        attempts: Attempts | None = None,
        heartbeat: float = HEARTBEAT,
    ) -> None:
        self.boot = boot or secrets.token_hex(8)
        self._fleet = fleet
        self._log = LogFiles(log_file)
        self._heartbeat = heartbeat
        self._closed = False
        self._streams = 0
        self.operations = OperationRoutes(fleet)
        self._tokens = tokens
        redact(*tokens.given)
        routes = [
            Route("/snapshot", faults(self._snapshot)),
            Route("/events", faults(self._events)),
            Route("/log", faults(self._log_parts)),
            Route("/log/{part}", faults(self._log_bytes)),
            *self.operations.routes,
        ]
        known = {404: nothing_here, 405: other_method}
        inner = DisconnectMiddleware(Starlette(routes=routes, exception_handlers=known))
        self.app: ASGIApp = TokenMiddleware(inner, tokens, attempts)

    def close(self) -> None:
        """End every stream with ``bye``. Safe to call twice and from any thread."""
        if not self._closed:
            self._closed = True
            forget(*self._tokens.given)

    async def _snapshot(self, request: Request) -> Response:
        """The fleet as it is now, with ``boot``, the scope of the token, and who runs it."""
        self._still_here()
        scope = caller_of(request).scope
        if scope is TokenScope.FULL and not self._fleet.can_control:
            scope = TokenScope.READ
        snapshot = codec.loads(codec.encode(self._fleet.snapshot()))
        return json_answer(
            {
                "api": VERSION,
                "pallas": __version__,
                "boot": self.boot,
                "now": time(),
                "access": scope.value,
                "owner": owner(),
                "snapshot": snapshot,
            }
        )

    async def _events(self, request: Request) -> Response:
        if request.method == "HEAD":
            return Response(headers=HEADERS, media_type="text/event-stream")
        self._still_here()
        last = request.headers.get("last-event-id", "")
        since: int | None
        if last:
            if (since := resume_at(self.boot, last)) is None:
                raise wrong(
                    "Last-Event-ID is not an id of this stream; leave it out to start from the beginning"
                )
        else:
            since = number_of(request, "since", 0, _MAX_SEQ)
        if self._streams >= MAX_STREAMS:
            raise busy(f"{MAX_STREAMS} readers follow this fleet already; close one of them")

        shown = None if caller_of(request).scope.reads_texts else for_lookers

        async def counted() -> Any:
            self._streams += 1
            try:
                async for message in stream(self._fleet, self.boot, since, lambda: self._closed, shown=shown):
                    yield message
            finally:
                self._streams -= 1

        return EventSourceResponse(
            counted(),
            headers=HEADERS,
            ping=self._heartbeat,
            sep="\n",
            send_timeout=SEND_TIMEOUT,
            cleanup_timeout=1.0,
        )

    async def _log_parts(self, _: Request) -> Response:
        """The files of the log, the current one first."""
        parts = await asyncio.to_thread(self._log.parts)
        return json_answer({"files": [{"id": part.id, "size": part.size} for part in parts]})

    async def _log_bytes(self, request: Request) -> Response:
        offset = number_of(request, "offset", 0, _MAX_SEQ)
        limit = number_of(request, "limit", MAX_RANGE, MAX_RANGE)
        found = await asyncio.to_thread(self._log.read, request.path_params["part"], offset, limit)
        if found is None:
            raise ControlError(410, "that file of the log no longer exists; ask for the list of files")
        headers = {
            **HEADERS,
            "pallas-log-size": str(found.size),
            "pallas-log-newer": found.newer,
        }
        return Response(found.data, headers=headers, media_type="application/octet-stream")

    def _still_here(self) -> None:
        # A reader that got `bye` reconnects at once, and would find a fleet that is about to stop.
        if self._closed:
            raise ControlError(503, "the fleet is stopping", FaultType.TRANSPORT)


class ServedControlApi:
    """A control API and the file with its token, if there is one. ``close`` ends both."""

    def __init__(self, api: ControlApi, token_file: Path | None, tokens: ControlTokens) -> None:
        self._api = api
        self.tokens = tokens
        self.token_file = token_file

    @property
    def app(self) -> ASGIApp:
        """The ASGI application, to be mounted at ``BASE``."""
        return self._api.app

    def close(self) -> None:
        """End the streams and remove the file. Safe to call twice."""
        self._api.close()
        path, self.token_file = self.token_file, None
        if path is not None:
            remove_token(path, self.tokens.full)


def open_control(
    fleet: FleetPort,
    *,
    project: Path,
    bind: str,
    port: int,
    log_file: Path,
    environ: MutableMapping[str, str] = os.environ,
    worker: SharingWorker | None = None,
) -> ServedControlApi | None:
    """The control API for the fleet whose registry is bound to ``bind`` and ``port``; None for none.

    The tokens are those of the environment. Without ``PALLAS_CONTROL_TOKEN`` a fleet that listens on loopback
    makes one, valid on this machine only, and stores it in a file of its user. A fleet that is bound to
    another address has no control API then, and the log says how to get one. Worker processes share the token
    that such a fleet makes; the first one stores it.
    """
    tokens, problems = take_tokens(environ)
    if problems:
        log.error("the control API is off: %s", "; ".join(problems))
        return None
    path: Path | None = None
    if not tokens.full and (is_loopback(bind) or bind in EVERYWHERE):
        new_token = make_token() if worker is None else worker.control_token
        try:
            if worker is None:
                path = store_token(new_token, project, port, address=bind)
            elif worker.is_first:
                path = store_token(new_token, project, port, pid=worker.parent, address=bind)
        except (OSError, TokenFileExposed) as error:
            reason = (
                str(error) if isinstance(error, TokenFileExposed) else error.strerror or type(error).__name__
            )
            level = logging.WARNING if is_loopback(bind) else logging.INFO
            log.log(level, "no token for the control API could be kept (%s); set %s", reason, FULL_VARIABLE)
        else:
            tokens = replace(tokens, full=new_token, local=True)
    if not tokens.given:
        log.info(
            "the control API is off: the fleet listens on %s and no token was given; to attach a workbench "
            "set %s (at least 16 characters) where the fleet is started, or bind: 127.0.0.1",
            bind,
            FULL_VARIABLE,
        )
        return None
    return ServedControlApi(ControlApi(fleet, tokens, log_file), path, tokens)
