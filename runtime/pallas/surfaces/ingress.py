"""The fleet's one port: every agent at ``/agents/<name>``, and the fleet's own pages."""

import asyncio
from collections.abc import Collection
from typing import Any, Final
from urllib.parse import unquote

from starlette.types import ASGIApp, Receive, Scope, Send

from pallas.deadlines import cancel_and_wait
from pallas.surfaces.whole_answer import answer_json

from .published_agent import AGENTS

_WELL_KNOWN: Final = ".well-known"
# What the caller sent is not repeated in the answer.
_UNKNOWN: Final = (
    "there is no agent of that name; GET /v0.1/servers or /.well-known/mcp/server.json on this port lists "
    "all of them, each with its URL"
)
_STOPPING: Final = "the fleet is stopping; try again, another one may answer"
_STARTING: Final = "this agent is starting or stopping; try again in a moment"
# Seconds that requests in progress have when their agent is removed.
GRACE: Final = 2.0


class AgentMount:
    """The place of one agent at the fleet's port; it answers 503 while ``app`` is None."""

    def __init__(self, names: Collection[str]) -> None:
        self.names = tuple(dict.fromkeys(names))
        self.app: ASGIApp | None = None
        self._under_way: set[asyncio.Task[Any]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the agent."""
        if self.app is None:
            await not_yet(scope, receive, send)
            return
        task = asyncio.current_task()
        if task is None:  # only a task can be cancelled
            raise RuntimeError("a request is answered in a task")
        self._under_way.add(task)
        try:
            await self.app(scope, receive, send)
        finally:
            self._under_way.discard(task)

    def serve(self, app: ASGIApp) -> None:
        """Answer requests with ``app`` from now on."""
        self.app = app

    async def leave(self) -> None:
        """Refuse new requests; those in progress have two seconds, then they are cancelled."""
        self.app = None
        under_way = self._under_way - {asyncio.current_task()}
        if not under_way:
            return
        _, late = await asyncio.wait(under_way, timeout=GRACE)
        await cancel_and_wait(*late, seconds=1.0)


class Ingress:
    """ASGI application: ``/agents/<name>/…`` goes to that agent, everything else to ``rest``.

    ``top`` replaces ``agents`` as the path above the mounts, ``unknown`` is the answer for a name that has
    none.

    An agent's application sees the same path as on a port of its own. Its ``/.well-known/…`` documents are
    also at ``/.well-known/<document>/agents/<name>/…``, where RFC 9728 looks for them. ``prefix`` is the
    path of the project's ``public_url``: a proxy may keep it or strip it. Names are compared after
    decoding; an encoded slash does not separate segments.
    """

    def __init__(
        self, rest: ASGIApp, *, prefix: str = "", top: str = AGENTS, unknown: str = _UNKNOWN
    ) -> None:
        self._rest = rest
        self._top = top
        self._unknown = unknown
        self._prefix = _segments(prefix)
        self._places: dict[str, AgentMount] = {}
        self._is_ending = False

    def end(self) -> None:
        """Answer 503 for agents that are gone from now on: the fleet stops, and another one may answer."""
        self._is_ending = True

    def behind(self, prefix: str) -> None:
        """Set the path of ``public_url``."""
        self._prefix = _segments(prefix)

    def add(self, place: AgentMount) -> None:
        """Serve ``place`` under each of its names."""
        for name in place.names:
            self._places[name] = place

    def remove(self, place: AgentMount) -> None:
        """Stop serving ``place``."""
        for name in place.names:
            if self._places.get(name) is place:
                del self._places[name]

    def find(self, name: str) -> AgentMount | None:
        """Return the mount of that name."""
        return self._places.get(name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request to its application."""
        if scope["type"] != "http":
            await self._rest(scope, receive, send)
            return
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        parts = self._without_prefix(_segments(raw.decode("latin-1")))
        document: list[str] = []
        inner = parts
        if len(parts) > 2 and parts[0] == _WELL_KNOWN:
            inner = self._without_prefix(parts[2:])
            document = parts[:2] if inner[:1] == [self._top] else []
        if document or parts[:1] == [self._top]:
            place = self.find(unquote(inner[1])) if len(inner) > 1 else None
            if place is None and self._is_ending:
                await _refuse(scope, send, 503, _STOPPING)
            elif place is None:
                await _refuse(scope, send, 404, self._unknown)
            else:
                await place(_at(scope, document + inner[2:]), receive, send)
        else:
            await self._rest(_at(scope, parts), receive, send)

    def _without_prefix(self, parts: list[str]) -> list[str]:
        size = len(self._prefix)
        return parts[size:] if size and parts[:size] == self._prefix else parts


async def not_yet(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer 503: the agent does not answer at the moment."""
    if scope["type"] == "http":
        await _refuse(scope, send, 503, _STARTING)


def slashless(app: ASGIApp) -> ASGIApp:
    """Return ``app`` with ``/mcp/`` treated as ``/mcp``: a redirect would name a scheme and host that a
    proxy changed."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/mcp/":
            scope = {**scope, "path": "/mcp", "raw_path": b"/mcp"}
        await app(scope, receive, send)

    return answer


def _segments(path: str) -> list[str]:
    """Return the segments of a path that is still encoded; a trailing slash leaves an empty one."""
    return path.removeprefix("/").split("/") if path.strip("/") else []


def _at(scope: Scope, parts: list[str]) -> Scope:
    raw = "/" + "/".join(parts)
    return {**scope, "path": unquote(raw), "raw_path": raw.encode("latin-1")}


async def _refuse(scope: Scope, send: Send, status: int, error: str) -> None:
    retry = {"retry-after": "1"} if status == 503 else {}
    await answer_json(scope, send, status, {"error": error}, {"cache-control": "no-store", **retry})
