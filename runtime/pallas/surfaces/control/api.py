"""The paths of the control API (``/api/v1/fleet/...``) over any fleet."""

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import time
from typing import Any, Final, get_args

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError
from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from pallas import __version__
from pallas.model import FaultType, FleetPort, FleetVerb, Verb, codec
from pallas.model.safe_text import one_line
from pallas.telemetry.log import forget, redact

from .answers import (
    HEADERS,
    Page,
    Quiet,
    Status,
    body_of,
    busy,
    caller_of,
    faults,
    json_answer,
    nothing_here,
    number_of,
    other_method,
    within,
    wrong,
)
from .gate import NO_TEXTS, READ_ONLY, Gate, audit
from .log_range import MAX_RANGE, LogFiles
from .messages import MessageRoutes, for_lookers
from .stream import resume_at, stream
from .tasks import TaskRoutes
from .threads import ThreadRoutes
from .tokens import Access, Attempts, Tokens

VERSION: Final = 1
HEARTBEAT: Final = 10.0
"""Seconds between two signs of life on a stream on which nothing happens."""
SEND_TIMEOUT: Final = 20.0
MAX_STREAMS: Final = 16
MAX_WORK: Final = 32
"""Requests at once that wait for something: looked up, or called."""
LOOKUP_TIMEOUT: Final = 35.0
CALL_TIMEOUT: Final = 305.0
"""A little more than the fleet's own deadlines."""

_MAX_SEQ: Final = 10**15


class ToolCall(BaseModel):
    """The body of a tool call by hand; ``server`` is empty for a tool of the agent's own."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    server: str = Field(default="", max_length=200)
    tool: str = Field(min_length=1, max_length=200)
    arguments: dict[str, Any] = Field(default_factory=dict)
    bearer: SecretStr | None = Field(default=None, max_length=16_384)


class ControlApi:
    """The control API over ``fleet``, guarded by ``tokens``; ``app`` is mounted at ``BASE``.

    Put a ``HostOriginGuard`` before it. ``log_file`` is the log that may be read. ``boot`` names this life
    of the fleet: event numbers mean something only within it. ``close`` ends what streams.
    """

    def __init__(
        self,
        fleet: FleetPort,
        tokens: Tokens,
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
        self._working = 0
        self._tokens = tokens
        redact(*tokens.given)
        routes = [
            Route("/snapshot", faults(self._snapshot)),
            Route("/events", faults(self._events)),
            Route("/log", faults(self._log_parts)),
            Route("/log/{part}", faults(self._log_bytes)),
            Route("/runs/{run}/cancel", faults(self._cancel), methods=["POST"]),
            Route("/runs/{run}/exchanges", faults(self._exchanges)),
            *(
                Route(f"/{verb}", faults(self._control_fleet(verb)), methods=["POST"])
                for verb in get_args(FleetVerb)
            ),
            *ThreadRoutes(fleet, self._known, self._allow, self._work).routes,
            *TaskRoutes(fleet, self._allow, self._work).routes,
            *MessageRoutes(fleet, self._work).routes,
            Route("/agents/{agent}", faults(self._describe)),
            Route("/agents/{agent}/tools/call", faults(self._call_tool), methods=["POST"]),
            Route("/agents/{agent}/{verb}", faults(self._control), methods=["POST"]),
        ]
        known = {404: nothing_here, 405: other_method}
        inner = Quiet(Starlette(routes=routes, exception_handlers=known))
        self.app: ASGIApp = Gate(inner, tokens, attempts)

    def close(self) -> None:
        """End every stream with a last word. Safe to call twice and from any thread."""
        if not self._closed:
            self._closed = True
            forget(*self._tokens.given)

    # Looking

    async def _snapshot(self, request: Request) -> Response:
        """The fleet as it is now, which life of it that is, and what the token allows."""
        self._still_here()
        access = caller_of(request).access
        if access is Access.FULL and not self._fleet.can_control:
            access = Access.READ
        snapshot = codec.loads(codec.encode(self._fleet.snapshot()))
        return json_answer(
            {
                "api": VERSION,
                "pallas": __version__,
                "boot": self.boot,
                "now": time(),
                "access": access.value,
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
                raise wrong("Last-Event-ID is none of this stream's ids; leave it out to begin anew")
        else:
            since = number_of(request, "since", 0, _MAX_SEQ)
        if self._streams >= MAX_STREAMS:
            raise busy(f"{MAX_STREAMS} readers follow this fleet already; close one of them")

        shown = None if caller_of(request).access.reads_texts else for_lookers

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
        """The files of the log, the one that is written now first."""
        parts = await asyncio.to_thread(self._log.parts)
        return json_answer({"files": [{"id": part.id, "size": part.size} for part in parts]})

    async def _log_bytes(self, request: Request) -> Response:
        offset = number_of(request, "offset", 0, _MAX_SEQ)
        limit = number_of(request, "limit", MAX_RANGE, MAX_RANGE)
        found = await asyncio.to_thread(self._log.read, request.path_params["part"], offset, limit)
        if found is None:
            raise Status(410, "that file of the log is no longer there; ask for the list of files")
        headers = {
            **HEADERS,
            "pallas-log-size": str(found.size),
            "pallas-log-newer": found.newer,
        }
        return Response(found.data, headers=headers, media_type="application/octet-stream")

    async def _describe(self, request: Request) -> Response:
        agent = self._known(request)
        with self._work():
            detail = await within(LOOKUP_TIMEOUT, request, self._fleet.describe(agent))
        return _value(detail)

    async def _exchanges(self, request: Request) -> Response:
        if not caller_of(request).access.reads_texts:
            audit(caller_of(request), request.scope, "refused", "read exchanges")
            raise Status(403, NO_TEXTS, FaultType.AUTH)
        with self._work():
            wire = await within(
                LOOKUP_TIMEOUT, request, self._fleet.exchanges(request.path_params["run"][:200])
            )
        return _value(wire)

    # Changing

    async def _cancel(self, request: Request) -> Response:
        run = request.path_params["run"][:200]
        self._allow(request, f"cancel run {one_line(run, 60)}", run_id=one_line(run, 60))
        self._fleet.cancel(run)
        return json_answer({"accepted": True}, 202)

    async def _control(self, request: Request) -> Response:
        agent, verb = self._known(request), request.path_params["verb"]
        if verb not in get_args(Verb):
            raise wrong(f"what can be done with an agent is {', '.join(get_args(Verb))}", 404)
        self._allow(request, f"{verb} {agent}", agent=agent)
        self._fleet.control(agent, verb)
        return json_answer({"accepted": True}, 202)

    def _control_fleet(self, verb: FleetVerb) -> Page:
        async def control(request: Request) -> Response:
            self._allow(request, f"{verb} the fleet")
            self._fleet.control_fleet(verb)
            return json_answer({"accepted": True}, 202)

        return control

    async def _call_tool(self, request: Request) -> Response:
        agent = self._known(request)
        call = _tool_call(await body_of(request))
        shown = one_line("/".join(part for part in (call.server, call.tool) if part), 120)
        self._allow(request, f"call tool {shown} of {agent}", agent=agent)
        bearer = call.bearer.get_secret_value() if call.bearer is not None else None
        with self._work(), _masked(bearer):
            work = self._fleet.call_tool(agent, call.server, call.tool, call.arguments, bearer or None)
            return _value(await within(CALL_TIMEOUT, request, work))

    # Help

    def _still_here(self) -> None:
        # Whoever was told goodbye comes back at once, and would find a fleet that is about to go.
        if self._closed:
            raise Status(503, "the fleet is stopping", FaultType.TRANSPORT)

    def _known(self, request: Request) -> str:
        name = str(request.path_params["agent"])
        agents = [agent.name for agent in self._fleet.snapshot().agents]
        if name not in agents:
            raise wrong(f"there is no such agent; this fleet has {one_line(', '.join(agents), 400)}", 404)
        return name

    def _allow(self, request: Request, what: str, **more: str) -> None:
        """Refuse a change where the fleet takes none; write it down otherwise."""
        if not self._fleet.can_control:
            audit(caller_of(request), request.scope, "refused", what, **more)
            raise Status(403, READ_ONLY, FaultType.AUTH)
        audit(caller_of(request), request.scope, "accepted", what, **more)

    @contextmanager
    def _work(self) -> Iterator[None]:
        if self._working >= MAX_WORK:
            raise busy(f"{MAX_WORK} requests are being answered already")
        self._working += 1
        try:
            yield
        finally:
            self._working -= 1


def _tool_call(body: bytes) -> ToolCall:
    try:
        return ToolCall.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = one_line(".".join(str(part) for part in first["loc"]), 100)
        raise wrong(f"the body is no tool call: {where + ': ' if where else ''}{first['msg']}") from None


@contextmanager
def _masked(secret: str | None) -> Iterator[None]:
    """The secret is masked in every log record as long as this lasts."""
    if not secret:
        yield
        return
    redact(secret)
    try:
        yield
    finally:
        forget(secret)


def _value(value: codec.Value) -> Response:
    return Response(codec.encode(value), headers=HEADERS, media_type="application/json")
