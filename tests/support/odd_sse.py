"""Odd MCP servers over the older HTTP transport: one stream of events, to which messages are posted."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from .odd_server_program import OddEngine

EVENTS: Final = "text/event-stream"


@dataclass
class _Stream:
    engine: OddEngine
    events: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    answers: int = 0


class SseServer:
    """One server: the path that is asked for the stream takes messages, too."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec
        self._streams: dict[str, _Stream] = {}

    async def respond(self, request: Request) -> Response:
        """Open a stream, or take a message."""
        if request.method == "GET":
            return self._opened(request)
        stream = self._streams.get(request.query_params.get("session", ""))
        if request.method != "POST" or stream is None:
            return Response("no such session", 404)
        message = json.loads(await request.body())
        named = self._spec.get("call_status", {})
        if message.get("method") == "tools/call" and (odd := named.get(message["params"]["name"])):
            return Response(odd["body"], odd["status"])
        post = self._spec.get("post", {"status": 202, "body": ""})
        said = stream.engine.hear(message)
        wired = [stream.engine.wire(each) for each in said]
        if post["body"] == "instead" and wired:
            return Response(wired[-1], 200, media_type="application/json")
        for each, data in zip(said, wired, strict=True):
            stream.events.put_nowait(self._event(data))
            stream.answers += "method" not in each
        if stream.answers >= self._spec.get("stream_answers", 10**9):
            stream.events.put_nowait(None)
        return Response(wired[-1] if post["body"] == "same" and wired else post["body"], post["status"])

    def _event(self, data: bytes) -> bytes:
        form = self._spec.get("event_form", "event: message\ndata: {}\n\n").encode()
        return form.replace(b"{}", data.replace(b"\n", b"\ndata: "))

    def _opened(self, request: Request) -> Response:
        form = self._spec.get("endpoint", "path")
        if form == "html":
            return Response("<html>no</html>", media_type="text/html")
        id_ = uuid4().hex
        stream = self._streams[id_] = _Stream(OddEngine(self._spec))
        path, own = request.url.path, str(request.url.replace(query=""))
        address = {
            "path": f"{path}?session={id_}",
            "relative": f"{path.rpartition('/')[2]}?session={id_}",
            "absolute": f"{own}?session={id_}",
            "query": f"?session={id_}&key=a%20b",
            "padded": f" {path}?session={id_} ",
            "json": json.dumps({"url": f"{path}?session={id_}"}),
            "quoted": json.dumps(f"{path}?session={id_}"),
            "elsewhere": f"http://odd.test{path}?session={id_}",
        }.get(form, "")

        async def events() -> AsyncIterator[bytes]:
            yield self._spec.get("noise_first", "").encode()
            if address:
                yield f"event: endpoint\ndata: {address}\n\n".encode()
            while form != "ends" and (event := await stream.events.get()) is not None:
                yield event
            self._streams.pop(id_, None)

        return StreamingResponse(events(), media_type=EVENTS)
