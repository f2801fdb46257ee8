"""Odd MCP servers over HTTP: one app for many, each at a path of its own."""

import asyncio
import json
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from starlette.concurrency import iterate_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from .odd_server_program import BrokenError, Message, OddEngine
from .odd_servers import Transport
from .odd_sse import SseServer

JSON = "application/json"
EVENTS = "text/event-stream"


@dataclass
class _Session:
    engine: OddEngine
    held: dict[str, asyncio.Future[list[Message]]] = field(default_factory=dict)
    """Requests that are answered once the client has answered something, by their ids."""


@dataclass
class _Server:
    transport: Transport
    spec: dict[str, Any]
    sse: SseServer
    """It, where it is one over the older transport."""
    sessions: dict[str, _Session] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    """How many calls each session has had."""
    refused: int = 0
    """How often it was too busy."""
    gets: int = 0
    """How often a stream was asked for."""
    polled: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    """By the id of an event: how many streams end before the answer comes, and the answer."""


class OddHttp:
    """The app: the server NAME is at ``/NAME/mcp``."""

    def __init__(self) -> None:
        self._servers: dict[str, _Server] = {}

    def gets(self, name: str) -> int:
        """How often a server was asked for a stream."""
        return self._servers[name].gets

    def add(self, name: str, transport: Transport, spec: dict[str, Any]) -> None:
        """Serve another one."""
        self._servers[name] = _Server(transport, spec, SseServer(spec))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        server = self._servers.get(request.url.path.rstrip("/").removesuffix("/mcp").strip("/"))
        try:
            response = Response(status_code=404) if server is None else await _wrapped(server, request)
        except BrokenError:
            response = Response("this server cannot do that", 500, media_type="text/plain")
        await response(scope, receive, send)


async def _wrapped(server: _Server, request: Request) -> Response:
    """The answer with what is odd about the connection."""
    spec, path = server.spec, request.url.path
    await request.body()
    if "moved" in spec and not path.endswith("/"):
        return Response(status_code=spec["moved"], headers={"location": f"{path}/"})
    if "busy" in spec and server.refused < spec["busy"]["count"]:
        server.refused += 1
        return Response("busy", spec["busy"]["status"], {"retry-after": "1"}, "text/plain")
    if refuses := spec.get("refuses"):
        return Response(refuses["body"], refuses["status"], refuses["headers"])
    await asyncio.sleep(spec.get("slow_s", 0))
    response = await _respond(server, request)
    for name, value in spec.get("headers", {}).items():
        response.headers[name] = value
    if "renames" in spec and "mcp-session-id" not in response.headers:
        response.headers["mcp-session-id"] = spec["renames"]
    if response.status_code == 202 and "accepted" in spec:
        return Response(spec["accepted"], 202, media_type=JSON)
    return packed(response, spec["packed"]) if "packed" in spec else response


def packed(response: Response, encoding: str) -> Response:
    """The response with its body compressed, whether the client takes that or not."""
    is_stream = isinstance(response, StreamingResponse)
    given: Any = response
    body = given.body_iterator if is_stream else iterate_in_threadpool([bytes(response.body)])
    headers = {name: value for name, value in response.headers.items() if name != "content-length"}

    async def pieces() -> AsyncIterator[bytes]:
        packer = zlib.compressobj(wbits=31 if encoding == "gzip" else 15)
        async for piece in body:
            assert isinstance(piece, bytes)
            yield packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH)
        yield packer.flush()

    headers["content-encoding"] = encoding
    return StreamingResponse(pieces(), response.status_code, headers)


async def _respond(server: _Server, request: Request) -> Response:
    if server.transport == "sse":
        return await server.sse.respond(request)
    id_ = request.headers.get("mcp-session-id", "")
    if request.method == "DELETE" and (status := server.spec.get("goodbye")) is not None:
        if not status:
            await _gone(request)
        return Response(status_code=status or 500, headers={"location": "/login"})
    if request.method == "DELETE":
        return Response(status_code=204 if server.sessions.pop(id_, None) else 404)
    if request.method == "GET":
        server.gets += 1
        if (event := request.headers.get("last-event-id")) in server.polled:
            return _polled(server, event)
        if listening := server.spec.get("get"):
            return _kept_open(listening) if "stays" in listening else _as_said(listening)
    if request.method != "POST":
        return Response(status_code=405, headers={"allow": "POST, DELETE"})
    message = json.loads(await request.body())
    headers: dict[str, str] = {}
    if (odd := _odd_answer(server.spec, message)) is not None:
        return odd
    if server.transport == "http-modern" or "sessionless" in server.spec:
        session = _Session(OddEngine(server.spec))
    elif message.get("method") == "initialize":
        headers["mcp-session-id"] = uuid4().hex
        session = server.sessions[headers["mcp-session-id"]] = _Session(OddEngine(server.spec))
    elif (ends := _ended_session(server, id_, message)) is not None:
        return ends
    elif id_ in server.sessions:
        session = server.sessions[id_]
    else:
        status, text = (404, "Session not found") if id_ else (400, "Bad Request: no session id")
        body = {"jsonrpc": "2.0", "id": message.get("id"), "error": {"code": -32600, "message": text}}
        return Response(json.dumps(body), status, media_type=JSON)
    said = session.engine.hear(message)
    number = message.get("id")
    if "method" not in message or number is None:
        for each in said:  # the answer to a request that waits
            session.held.pop(str(each["id"])).set_result([each])
        if said and "unread" in server.spec:  # no response until the client goes
            await _gone(request)
        return Response(status_code=202)
    polled = server.spec.get("polled", {})
    answers = [each for each in said if "method" not in each]
    if answers and message["method"] == "tools/call" and message["params"]["name"] == polled.get("tool"):
        event = f"poll-{number}-1"
        server.polled[event] = polled["empty"], session.engine.wire(answers[0])
        return Response(f"id: {event}\nretry: 10\ndata:\n\n", headers={"content-type": EVENTS})
    if server.spec.get("cut_body") == (message.get("params") or {}).get("name", ...):
        return StreamingResponse(_broken(session.engine.wire(said[-1])), media_type=JSON)
    if server.transport == "http-sse":
        return _typed(
            StreamingResponse(_events(server, session, number, said), headers=headers), server, EVENTS
        )
    (answer,) = said
    status = (
        404 if server.transport == "http-modern" and answer.get("error", {}).get("code") == -32601 else 200
    )
    body = server.spec.get("start", "").encode() + session.engine.wire(answer)
    body += server.spec.get("end", "").encode()
    if drip := server.spec.get("drip"):
        return _typed(StreamingResponse(_dripping(body, drip), status, headers), server, JSON)
    return _typed(Response(body, status, headers), server, JSON)


def _ended_session(server: _Server, id_: str, message: Message) -> Response | None:
    """The answer to a call in a session that has had as many as it may."""
    limit = server.spec.get("session_calls")
    if limit is None or not id_:
        return None
    if message.get("method") == "tools/call":
        server.calls[id_] = server.calls.get(id_, 0) + 1
    if server.calls.get(id_, 0) <= limit["count"]:
        return None
    server.sessions.pop(id_, None)
    kind = JSON if limit["body"].startswith("{") else "text/plain"
    return Response(limit["body"], limit["status"], media_type=kind)


async def _broken(body: bytes) -> AsyncIterator[bytes]:
    yield body[: len(body) // 2]
    raise ConnectionResetError("the server breaks the connection")


async def _dripping(body: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]
        await asyncio.sleep(0)


async def _gone(request: Request) -> None:
    """Wait until the client goes."""
    while (await request.receive())["type"] != "http.disconnect":
        continue


def _odd_answer(spec: dict[str, Any], message: Message) -> Response | None:
    """What stands in the spec for a message, whatever the engine would say."""
    method = message.get("method", "")
    if "id" not in message and "notified" in spec and method == "notifications/initialized":
        return _as_said(spec["notified"])
    if method == "tools/call" and message["params"]["name"] in spec.get("call_status", {}):
        return _as_said(spec["call_status"][message["params"]["name"]])
    if "other_status" in spec and method.startswith(("prompts/", "resources/")):
        return Response("unprocessable", spec["other_status"], media_type="text/plain")
    return None


def _as_said(answer: dict[str, Any]) -> Response:
    return Response(answer["body"], answer["status"], answer["headers"])


def _kept_open(listening: dict[str, Any]) -> Response:
    async def nothing() -> AsyncIterator[bytes]:
        yield b": here\n\n"
        if "said" in listening:
            yield f"data: {json.dumps(listening['said'])}\n\n".encode()
        await asyncio.Event().wait()

    return StreamingResponse(nothing(), media_type=EVENTS)


def _polled(server: _Server, event: str) -> Response:
    """The stream after an event of a call: empty, or the answer."""
    empty, answer = server.polled.pop(event)
    base, _, number = event.rpartition("-")
    following = event if "same_id" in server.spec["polled"] else f"{base}-{int(number) + 1}"
    if empty:
        server.polled[following] = empty - 1, answer
    data = b"" if empty else answer
    body = f"id: {following}\nretry: 10\ndata: ".encode() + data + b"\n\n"
    return Response(body, headers={"content-type": EVENTS})


def _typed(response: Response, server: _Server, kind: str) -> Response:
    if given := server.spec.get("media_type", kind):
        response.headers["content-type"] = given
    return response


async def _events(
    server: _Server, session: _Session, number: object, said: list[Message]
) -> AsyncIterator[bytes]:
    later: asyncio.Future[list[Message]] = asyncio.get_running_loop().create_future()
    if any("method" not in message for message in said):
        later.set_result([])
    else:
        session.held[str(number)] = later
    yield server.spec.get("start", "").encode()
    form = server.spec.get("event_form", "event: message\ndata: {}\n\n").encode()
    for messages in (said, later):
        for message in messages if isinstance(messages, list) else await messages:
            data = session.engine.wire(message).replace(b"\n", b"\ndata: ")
            event = server.spec.get("noise", "").encode() + form.replace(b"{}", data)
            size = server.spec.get("piece", len(event))
            for start in range(0, len(event), size):
                yield event[start : start + size]
    if server.spec.get("lingers"):
        for _ in range(100):
            yield b": still here\n\n"
            await asyncio.sleep(0.3)
