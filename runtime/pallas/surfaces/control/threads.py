"""Durable threads over the control API: what was said by whom, for a token that may read texts."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pallas.model import FaultType, FleetPort, Image, MessageRecord, Page, ThreadRecord, codec
from pallas.model.safe_text import handle_start, one_line

from .answers import HEADERS, Status, body_of, caller_of, faults, json_answer, number_of, within, wrong
from .gate import NO_TEXTS, audit

TIMEOUT: Final = 35.0
"""Seconds; a little more than the fleet's own deadline."""
MAX_PAGE: Final = 200
MAX_PICTURES: Final = 12 * 1024 * 1024
"""Characters of base64 in one page: the data of further pictures is left out, their kinds stay."""

_MAX_CURSOR: Final = 1_000
_MAX_HANDLE: Final = 500


class _Title(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)
    title: str = Field(max_length=2_000)


class _Saved(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)
    params: dict[str, Any]


class ThreadRoutes:
    """The routes over ``fleet``. ``known`` gives the agent of a request, ``allow`` writes a change down or
    refuses it, ``work`` bounds how many requests wait at once.
    """

    def __init__(
        self,
        fleet: FleetPort,
        known: Callable[[Request], str],
        allow: Callable[..., None],
        work: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._fleet, self._known, self._allow, self._work = fleet, known, allow, work
        one = "/threads/{thread}"
        self.routes = [
            Route("/threads", faults(self._list)),
            Route(f"{one}/messages", faults(self._messages)),
            Route(f"{one}/rename", faults(self._rename), methods=["POST"]),
            Route(one, faults(self._delete), methods=["DELETE"]),
            Route("/agents/{agent}/thread", faults(self._find)),
            Route("/agents/{agent}/params", faults(self._save), methods=["POST"]),
        ]

    async def _list(self, request: Request) -> Response:
        """Threads, the one that was used last first; of one agent with ``agent``."""
        self._may_read(request)
        limit, cursor = paging(request)
        agent = request.query_params.get("agent", "")[:200]
        page = await self._asked(request, self._fleet.threads(agent, limit, cursor))
        return _encoded(Page[ThreadRecord], page)

    async def _find(self, request: Request) -> Response:
        """One thread, by its id or by its caller's own handle, which may hold any sign."""
        self._may_read(request)
        which = request.query_params.get("which", "")
        if not 0 < len(which) <= _MAX_HANDLE:
            raise wrong(f"which must be the id or the handle of a thread, at most {_MAX_HANDLE} characters")
        return _encoded(
            ThreadRecord, await self._asked(request, self._fleet.thread(self._known(request), which))
        )

    async def _messages(self, request: Request) -> Response:
        self._may_read(request)
        limit, cursor = paging(request)
        newest = number_of(request, "newest", 0, 1) == 1
        work = self._fleet.thread_messages(_id(request), limit, cursor, newest)
        return _encoded(Page[MessageRecord], _light(await self._asked(request, work)))

    async def _rename(self, request: Request) -> Response:
        thread, title = _id(request), _read(_Title, await body_of(request)).title
        self._allow(request, f"rename thread {handle_start(thread)}")
        return _encoded(ThreadRecord, await self._asked(request, self._fleet.rename_thread(thread, title)))

    async def _delete(self, request: Request) -> Response:
        thread = _id(request)
        self._allow(request, f"delete thread {handle_start(thread)}")
        await self._asked(request, self._fleet.delete_thread(thread))
        return json_answer({"deleted": True})

    async def _save(self, request: Request) -> Response:
        agent, params = self._known(request), _read(_Saved, await body_of(request)).params
        self._allow(request, f"save parameters of {agent}", agent=agent)
        return json_answer({"said": await self._asked(request, self._fleet.save_params(agent, params))})

    async def _asked[T](self, request: Request, work: Awaitable[T]) -> T:
        with self._work():
            return await within(TIMEOUT, request, work)

    def _may_read(self, request: Request) -> None:
        """Refuse a token that may only look: it sees what the fleet does, and nothing of what was said."""
        if not caller_of(request).access.reads_texts or not self._fleet.can_control:
            audit(caller_of(request), request.scope, "refused", "read threads")
            raise Status(403, NO_TEXTS, FaultType.AUTH)


def _light(page: Page[MessageRecord]) -> Page[MessageRecord]:
    """The page with no more pictures than an answer takes."""
    room, kept = MAX_PICTURES, []
    for row in page.items:
        images = []
        for image in row.images:
            room -= len(image.data)
            images.append(image if room >= 0 else Image("", image.mime_type))
        kept.append(replace(row, images=tuple(images)) if row.images else row)
    return Page(tuple(kept), page.next)


def paging(request: Request) -> tuple[int, str]:
    """How many, and from where on. Raises Status for what is neither."""
    limit = number_of(request, "limit", 50, MAX_PAGE)
    cursor = request.query_params.get("cursor", "")
    if len(cursor) > _MAX_CURSOR:
        raise wrong("cursor is none that this fleet gave")
    return max(1, limit), cursor


def _id(request: Request) -> str:
    return str(request.path_params["thread"])[:200]


def _read[T: BaseModel](kind: type[T], body: bytes) -> T:
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = one_line(".".join(str(part) for part in first["loc"]), 100)
        raise wrong(f"the body is not as it must be: {where + ': ' if where else ''}{first['msg']}") from None


def _encoded(kind: Any, value: Any) -> Response:
    return Response(codec.encode_as(kind, value), headers=HEADERS, media_type="application/json")
