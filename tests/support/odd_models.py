"""A model server whose answers are odd in the ways that real ones are: the user's message names the oddity.

Once a request holds results of tools, it answers with their texts, and with the reason of a call that was not
made.
"""

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pallas.surfaces.listener import Listener, bind

from .providers import Asked, Reply, _anthropic, _google, _openai, _responses

EVENTS = "text/event-stream"
JSON = "application/json"
DONE = "[DONE]"
ECHO = "echo__echo"
_WANTED = re.compile(r"odd=([a-z0-9_]+)")
_REFUSED = re.compile(r"was not called: (its arguments are not one JSON object|the limit of output tokens)")
_RESULT = re.compile(r"echo:(\w+)")
_NORMAL = {"openai": _openai, "anthropic": _anthropic, "responses": _responses}


@dataclass(frozen=True, slots=True)
class OddAnswer:
    """A body of status 200: ``events`` as server-sent events, or ``body`` as it is."""

    events: Sequence[Any] = ()
    body: str | bytes | None = None
    kind: str = EVENTS
    encoding: str = ""

    def response(self) -> Response:
        """The answer on the wire."""
        body = stream(self.events) if self.body is None else self.body
        headers = {"content-encoding": self.encoding} if self.encoding else None
        return Response(body, media_type=self.kind, headers=headers)


def stream(events: Sequence[Any]) -> str:
    """The events of a stream as they are sent."""
    return "".join(map(_event, events))


def _event(event: Any) -> str:
    data = event if isinstance(event, str) else json.dumps(event)
    name = event.get("type") if isinstance(event, dict) else None
    return f"event: {name}\ndata: {data}\n\n" if name else f"data: {data}\n\n"


@dataclass
class OddModels:
    """Such a server; ``answers`` by name, ``asked`` counts the requests of each."""

    answers: Mapping[str, OddAnswer]
    base: str = ""
    asked: Counter[str] = field(default_factory=Counter)

    async def answer(self, request: Request, kind: Any) -> Response:
        """Answer one request."""
        raw = await request.body()
        body = json.loads(raw)
        name = _WANTED.findall(raw.decode())[-1]
        self.asked[name] += 1
        results, refused = _RESULT.findall(raw.decode()), _REFUSED.findall(raw.decode())
        if results or refused:
            asked = Asked(kind, body, {})
            reply = Reply(" ".join(["results:", *results, *refused]))
            lines = _google(asked, reply) if kind == "google" else _NORMAL[kind](asked, reply, iter([7]))
            return Response("".join(lines), media_type=EVENTS)
        return self.answers[name].response()


@asynccontextmanager
async def odd_models(answers: Mapping[str, OddAnswer]) -> AsyncIterator[OddModels]:
    """Such a server on a free port of this loop; ``base`` has no path."""
    found = OddModels(answers)

    def route(path: str, kind: str) -> Route:
        async def handle(request: Request) -> Response:
            return await found.answer(request, kind)

        return Route(path, handle, methods=["POST"])

    async def models(request: Request) -> Response:
        return Response("{}", media_type=JSON)

    app = Starlette(
        routes=[
            route("/v1/chat/completions", "openai"),
            route("/v1/messages", "anthropic"),
            route("/v1/responses", "responses"),
            route("/v1beta/models/{call}", "google"),
            Route("/{rest:path}", models),
        ]
    )
    listener = Listener(app, bind("127.0.0.1", 0, "model provider"))
    await listener.start()
    found.base = f"http://127.0.0.1:{listener.port}"
    try:
        yield found
    finally:
        await listener.stop()
