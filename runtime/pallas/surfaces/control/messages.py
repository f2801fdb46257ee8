"""Messages between handlers over the control API, for a token that may read texts."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pallas.model import (
    Envelope,
    Event,
    FaultType,
    FleetPort,
    MessagePassed,
    Routed,
    RunFinished,
    RunStarted,
    TextDelta,
    TodoChanged,
    codec,
)

from .answers import HEADERS, Status, caller_of, faults, number_of, within
from .gate import NO_TEXTS, audit

TIMEOUT: Final = 35.0
"""Seconds; a little more than the fleet's own deadline."""
MAX_PAGE: Final = 1_000
MAX_CHARACTERS: Final = 8 * 1024 * 1024
"""Of XML in one page: a page of large messages has fewer of them, at least one."""

_MAX_NUMBER: Final = 10**9


class MessageRoutes:
    """The route over ``fleet``; ``work`` bounds how many requests wait at once."""

    def __init__(self, fleet: FleetPort, work: Callable[[], AbstractContextManager[None]]) -> None:
        self._fleet, self._work = fleet, work
        self.routes = [Route("/runs/{run}/messages", faults(self._list))]

    async def _list(self, request: Request) -> Response:
        """Those of a run with a number above ``after``, at most ``limit``; none where there are no more."""
        if not caller_of(request).access.reads_texts or not self._fleet.can_control:
            audit(caller_of(request), request.scope, "refused", "read messages")
            raise Status(403, NO_TEXTS, FaultType.AUTH)
        after = number_of(request, "after", 0, _MAX_NUMBER)
        limit = max(1, number_of(request, "limit", MAX_PAGE, MAX_PAGE))
        run = request.path_params["run"][:200]
        with self._work():
            found = await within(TIMEOUT, request, self._fleet.envelopes(run, after, limit))
        return Response(
            codec.encode_as(tuple[Envelope, ...], _bounded(found)),
            headers=HEADERS,
            media_type="application/json",
        )


def for_lookers(event: Event) -> Event:
    """The event for a token that may only look: without what was said, or why a message was refused."""
    match event:
        case RunStarted():
            return replace(event, preview="")
        case TextDelta():
            return replace(event, text="")
        case RunFinished():
            return replace(event, partial="")
        case Routed():
            return replace(event, why="")
        case TodoChanged():
            return replace(event, description="")
        case MessagePassed():
            return replace(event, detail="")
        case _:
            return event


def _bounded(found: tuple[Envelope, ...]) -> tuple[Envelope, ...]:
    size = 0
    for index, each in enumerate(found):
        size += len(each.xml)
        if size > MAX_CHARACTERS and index:
            return found[:index]
    return found
