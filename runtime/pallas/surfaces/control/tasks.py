"""Tasks over the control API, for a token that may read texts: they hold what people said."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pallas.model import FaultType, FleetPort, Page, TaskRecord, codec
from pallas.model.safe_text import handle_start

from .answers import HEADERS, Status, caller_of, faults, within
from .gate import NO_TEXTS, audit
from .threads import TIMEOUT, paging


class TaskRoutes:
    """The routes over ``fleet``. ``allow`` writes a change down or refuses it, ``work`` bounds how many
    requests wait at once.
    """

    def __init__(
        self,
        fleet: FleetPort,
        allow: Callable[..., None],
        work: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._fleet, self._allow, self._work = fleet, allow, work
        self.routes = [
            Route("/tasks", faults(self._list)),
            Route("/tasks/{task}", faults(self._find)),
            Route("/tasks/{task}", faults(self._cancel), methods=["DELETE"]),
        ]

    async def _list(self, request: Request) -> Response:
        """Tasks, the newest first; of one agent with ``agent``."""
        self._may_read(request)
        limit, cursor = paging(request)
        agent = request.query_params.get("agent", "")[:200]
        return _encoded(Page[TaskRecord], await self._asked(request, self._fleet.tasks(agent, limit, cursor)))

    async def _find(self, request: Request) -> Response:
        self._may_read(request)
        return _encoded(TaskRecord, await self._asked(request, self._fleet.task(_id(request))))

    async def _cancel(self, request: Request) -> Response:
        self._allow(request, f"cancel task {handle_start(_id(request))}")
        return _encoded(TaskRecord, await self._asked(request, self._fleet.cancel_task(_id(request))))

    async def _asked[T](self, request: Request, work: Awaitable[T]) -> T:
        with self._work():
            return await within(TIMEOUT, request, work)

    def _may_read(self, request: Request) -> None:
        if not caller_of(request).access.reads_texts or not self._fleet.can_control:
            audit(caller_of(request), request.scope, "refused", "read tasks")
            raise Status(403, NO_TEXTS, FaultType.AUTH)


def _id(request: Request) -> str:
    return str(request.path_params["task"])[:200]


def _encoded(kind: Any, value: Any) -> Response:
    return Response(codec.encode_as(kind, value), headers=HEADERS, media_type="application/json")
