"""The one port: every agent at ``/agents/<name>``, the fleet's own pages beside them."""

import asyncio
import json
from collections.abc import Collection
from typing import Any, Final
from urllib.parse import unquote

from starlette.types import ASGIApp, Receive, Scope, Send

from .published_agent import AGENTS

_WELL_KNOWN: Final = ".well-known"
# What the caller sent is not repeated in the answer.
_UNKNOWN: Final = (
    "there is no agent of that name; GET /v0.1/servers or /.well-known/mcp/server.json on this port lists "
    "all of them, each with its URL"
)
_STARTING: Final = "this agent does not answer yet, or not any more; try again in a moment"
# Seconds that requests under way have when their agent goes.
GRACE: Final = 2.0


class AgentMount:
    """Where one agent is reached at the one port; nobody answers there while ``app`` is None."""

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
        if task is None:  # only a task can be told to end
            raise RuntimeError("a request is answered in a task")
        self._under_way.add(task)
        try:
            await self.app(scope, receive, send)
        finally:
            self._under_way.discard(task)

    def serve(self, app: ASGIApp) -> None:
        """Answer with ``app`` from now on."""
        self.app = app

    async def leave(self) -> None:
        """Take no more requests; those under way have two seconds, then they are cancelled."""
        self.app = None
        under_way = self._under_way - {asyncio.current_task()}
        if not under_way:
            return
        _, late = await asyncio.wait(under_way, timeout=GRACE)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=1.0)


class Ingress:
    """ASGI application: ``/agents/<name>/…`` goes to that agent, all else to ``rest``.

    ``top`` is another path than ``agents`` below which places are, ``unknown`` what is said where none is.

    An agent's application sees the path that it would see on a port of its own. Its ``/.well-known/…``
    documents stand at ``/.well-known/<document>/agents/<name>/…`` as well, which is where RFC 9728 looks for
    them. ``prefix`` is the path of the project's ``public_url``: a proxy may leave it on or take it off.
    Names are compared after decoding, a slash that was encoded is none.
    """

    def __init__(
        self, rest: ASGIApp, *, prefix: str = "", top: str = AGENTS, unknown: str = _UNKNOWN
    ) -> None:
        self._rest = rest
        self._top = top
        self._unknown = unknown
        self._prefix = _segments(prefix)
        self._places: dict[str, AgentMount] = {}

    def behind(self, prefix: str) -> None:
        """From now on this is the path of ``public_url``."""
        self._prefix = _segments(prefix)

    def add(self, place: AgentMount) -> None:
        """From now on callers find ``place`` under each of its names."""
        for name in place.names:
            self._places[name] = place

    def remove(self, place: AgentMount) -> None:
        """Forget ``place``."""
        for name in place.names:
            if self._places.get(name) is place:
                del self._places[name]

    def find(self, name: str) -> AgentMount | None:
        """The place of that name."""
        return self._places.get(name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on to whom it is for."""
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
            if place is None:
                await _answer(scope, send, 404, self._unknown)
            else:
                await place(_at(scope, document + inner[2:]), receive, send)
        else:
            await self._rest(_at(scope, parts), receive, send)

    def _without_prefix(self, parts: list[str]) -> list[str]:
        size = len(self._prefix)
        return parts[size:] if size and parts[:size] == self._prefix else parts


async def not_yet(scope: Scope, receive: Receive, send: Send) -> None:
    """ASGI application: nobody answers here at the moment."""
    if scope["type"] == "http":
        await _answer(scope, send, 503, _STARTING, (b"retry-after", b"1"))


def slashless(app: ASGIApp) -> ASGIApp:
    """``app``, where ``/mcp/`` is ``/mcp``: a redirect would name a scheme and host that a proxy changed."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/mcp/":
            scope = {**scope, "path": "/mcp", "raw_path": b"/mcp"}
        await app(scope, receive, send)

    return answer


def _segments(path: str) -> list[str]:
    """The parts of a path that is still encoded; a slash at the end leaves an empty one."""
    return path.removeprefix("/").split("/") if path.strip("/") else []


def _at(scope: Scope, parts: list[str]) -> Scope:
    raw = "/" + "/".join(parts)
    return {**scope, "path": unquote(raw), "raw_path": raw.encode("latin-1")}


async def _answer(scope: Scope, send: Send, status: int, error: str, *more: tuple[bytes, bytes]) -> None:
    body = json.dumps({"error": error}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        *more,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
