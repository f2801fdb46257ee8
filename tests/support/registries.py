"""Registries that list what a test says, and a clock that a test turns."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pallas_tui.instances.registry_address import WELL_KNOWN

from .fake_downstreams import serving
from .fake_fleet import NOON


def entry(name: str, url: str = "http://127.0.0.1:9/mcp", /, **changes: Any) -> dict[str, Any]:
    """An entry of a registry's document; keyword arguments replace or add keys of its server."""
    server = {"name": name, "remotes": [{"type": "streamable-http", "url": url}], **changes}
    return {"server": server, "_meta": {"io.example/unknown": {"status": "deleted"}}}


class FakeRegistry:
    """Serves the document of ``entries`` at the well-known path, or what ``answer`` says by path."""

    def __init__(self, entries: Sequence[Mapping[str, Any]] = ()) -> None:
        self.entries = list(entries)
        self.answers: dict[str, Response] = {}
        self.requests: list[Request] = []

    def serving(self) -> AbstractAsyncContextManager[str]:
        """Serve it; gives its origin."""
        return serving(self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        self.requests.append(request)
        path = request.url.path
        response = self.answers.get(path)
        if response is None:
            known = path == WELL_KNOWN
            body = json.dumps({"servers": self.entries}) if known else "nothing here"
            response = Response(body, 200 if known else 404, media_type="application/json")
        await response(scope, receive, send)


class HandClock:
    """Time that goes on only by ``turn``; ``wait`` ends when enough of it went."""

    def __init__(self) -> None:
        self.now = NOON
        self._waiting: list[tuple[float, asyncio.Future[None]]] = []

    def __call__(self) -> float:
        return self.now

    @property
    def waiting(self) -> int:
        """How many wait now."""
        return sum(not future.done() for _, future in self._waiting)

    async def wait(self, seconds: float) -> None:
        """Until so many seconds were turned."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((self.now + seconds, future))
        await future

    def turn(self, seconds: float) -> None:
        """Let so many seconds go by."""
        self.now += seconds
        for due, future in self._waiting:
            if due <= self.now and not future.done():
                future.set_result(None)
        self._waiting = [each for each in self._waiting if not each[1].done()]
