"""The agents' API of a fleet that does not exist, on a real socket: answers as a test writes them."""

import asyncio
import json
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from pallas.surfaces.listener import Listener, bind

type Step = dict[str, Any] | float | str
"""A chunk; seconds to wait; ``hang`` until the run is cancelled, ``break`` the connection."""


@dataclass
class ChatApi:
    """What it answers, and what it was asked."""

    steps: list[Step] = field(default_factory=lambda: [{"type": "text", "delta": "Hello."}])
    status: dict[str, tuple[int, dict[str, Any]]] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    saved: list[dict[str, Any]] = field(default_factory=list)
    token: str = ""
    url: str = ""
    ended: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._gone: set[str] = set()
        self._broken = 0

    def app(self) -> Starlette:
        """The application."""
        base = "/api/v1"
        return Starlette(
            routes=[
                Route(f"{base}/whoami", self._guarded(self._whoami)),
                Route(f"{base}/agents", self._guarded(self._agents)),
                Route(f"{base}/agents/{{name}}", self._guarded(self._agent), methods=["GET", "PUT"]),
                Route(f"{base}/agents/{{name}}/chat", self._guarded(self._chat), methods=["POST"]),
                Route(f"{base}/agents/{{name}}/threads", self._guarded(self._threads)),
                Route(f"{base}/threads/{{id}}", self._guarded(self._thread)),
                Route(f"{base}/threads/{{id}}/messages", self._guarded(self._messages)),
                Route(f"{base}/runs/{{id}}", self._guarded(self._run), methods=["GET", "DELETE"]),
            ]
        )

    def _guarded(self, page: Callable[[Request], Any]) -> Callable[[Request], Any]:
        async def guarded(request: Request) -> Response:
            if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
                return fault("AUTH", "say who you are", 401, reason="unauthenticated")
            wanted = self.status.get(f"{request.method} {request.url.path.removeprefix('/api/v1')}")
            if wanted:
                return JSONResponse(wanted[1], wanted[0])
            answer: Response = await page(request)
            return answer

        return guarded

    async def _whoami(self, request: Request) -> Response:
        return JSONResponse({"principal": "anonymous", "enforced": False, "grants": ["*"]})

    async def _agents(self, request: Request) -> Response:
        return JSONResponse({"items": [_AGENT, {**_AGENT, "name": "vision"}], "next": None})

    async def _agent(self, request: Request) -> Response:
        if request.path_params["name"] not in ("research", "vision"):
            return fault("UPSTREAM", "there is no such agent", 404, reason="not_found")
        if request.method == "PUT":
            self.saved.append(await request.json())
            return JSONResponse({**_AGENT, **self.saved[-1], "version": 2})
        return JSONResponse({**_AGENT, "name": request.path_params["name"]})

    async def _threads(self, request: Request) -> Response:
        return JSONResponse({"items": [_thread("conv-b"), _thread("conv-a")], "next": None})

    async def _thread(self, request: Request) -> Response:
        which = request.path_params["id"]
        if which == "conv-none":
            return fault("UPSTREAM", "conversation not found", 404, reason="not_found")
        return JSONResponse(_thread(which, "vision" if which == "conv-vision" else "research"))

    async def _messages(self, request: Request) -> Response:
        items = [
            {"role": "user", "content": "What is it?", "status": "complete"},
            {"role": "assistant", "content": "A \x1b[31mlamp.", "status": "complete"},
        ]
        newest = request.query_params.get("order") == "desc"
        return JSONResponse({"items": items[::-1] if newest else items, "next": None})

    async def _run(self, request: Request) -> Response:
        if request.method == "DELETE":
            self.cancelled.append(request.path_params["id"])
            return JSONResponse({}, 202)
        return JSONResponse(
            {"id": "run-1", "seconds": 2.0, "steps": 2, "tools": 1}
            | {"usage": {"inputTokens": 100, "outputTokens": 30}}
        )

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append(body)
        self.headers.append(dict(request.headers))
        if not body.get("stream"):
            text = "".join(each.get("delta", "") for each in self.steps if isinstance(each, dict))
            if "hang" in self.steps:
                await _until(request.is_disconnected)
                self.cancelled.append("disconnected")
            return JSONResponse(
                {"text": text, "threadId": "conv-1", "turnIndex": 1, "runId": "run-1", "usage": None}
            )
        return StreamingResponse(
            self._frames(int(request.headers.get("last-event-id", "0"))),
            media_type="text/event-stream",
            headers={"Pallas-Run-Id": "run-1", "Pallas-Thread-Id": "conv-1"},
        )

    async def _frames(self, after: int) -> AsyncIterator[bytes]:
        number = 0
        steps = [*self.steps, {"type": "final", "threadId": "conv-1", "turnIndex": 1, **self.ended}]
        for step in steps:
            number += 1
            if number <= after:
                continue
            if isinstance(step, float):
                await asyncio.sleep(step)
            elif step == "hang":
                while not self.cancelled:  # noqa: ASYNC110 - set by another request
                    await asyncio.sleep(0.02)
                chunk = {"type": "error", "message": "cancelled", "data": {"type": "UPSTREAM"}}
                yield f"id: {number}\ndata: {json.dumps(chunk)}\n\n".encode()
                break
            elif step == "break":
                if number not in self._gone_steps():
                    self._gone.add(str(number))
                    yield f"id: {number}\ndata: {json.dumps({'type': 'nothing'})}\n\n".encode()
                    raise ConnectionResetError
            else:
                yield f"id: {number}\ndata: {json.dumps(step)}\n\n: heartbeat\n\n".encode()
                if isinstance(step, dict) and step.get("type") == "error":
                    break
        yield b"data: [DONE]\n\n"

    def _gone_steps(self) -> set[int]:
        return {int(each) for each in self._gone}


_AGENT = {
    "id": "a1",
    "name": "research",
    "description": "Finds things",
    "systemPrompt": "You find things.",
    "llm": {"id": "l1", "name": "scripted"},
    "defaultParams": {"temperature": 0.5, "top_p": 0.9},
    "version": 1,
}


def _thread(name: str, agent: str = "research") -> dict[str, Any]:
    return {"id": name, "agent": agent, "title": "Lamps", "messages": 2, "createdAt": "2026-05-04T12:00:00Z"}


def fault(kind: str, message: str, status: int, **data: Any) -> JSONResponse:
    """A Fault as the API tells it."""
    return JSONResponse(
        {"error": message, "code": -32000, "data": {"type": kind, "retryable": False, **data}}, status
    )


async def _until(condition: Callable[[], Any]) -> None:
    while not await condition():  # noqa: ASYNC110
        await asyncio.sleep(0.02)


@contextmanager
def chat_api(api: ChatApi | None = None, tls: ssl.SSLContext | None = None) -> Iterator[ChatApi]:
    """It answers at ``url``, on a thread and loop of its own."""
    api = api or ChatApi()
    port: Future[int] = Future()
    stop: Future[None] = Future()

    async def serve() -> None:
        listener = Listener(api.app(), bind("127.0.0.1", 0, "the agents' API"), tls=tls)
        await listener.start()
        port.set_result(listener.port)
        try:
            await asyncio.wrap_future(stop)
        finally:
            await listener.stop()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    api.url = f"{'https' if tls else 'http'}://127.0.0.1:{port.result(60)}"
    try:
        yield api
    finally:
        stop.set_result(None)
        thread.join(60)
