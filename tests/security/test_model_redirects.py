"""A model server that redirects: what is sent to a model, with its key, goes to no other server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.routing import Route
from support.live import agent_module, client, running, write_project
from support.providers import MODELS, Provider, provider

from pallas.surfaces.listener import Listener, bind

KEY = "key-of-the-first-server-4711"


@dataclass
class Redirecting:
    """A server on a port of its own that sends every request elsewhere."""

    to: str
    base: str = ""
    asked: list[dict[str, str]] = field(default_factory=list)

    async def answer(self, request: Request) -> RedirectResponse:
        await request.body()
        if request.method == "POST":  # the check of providers sends none, and follows no redirect
            self.asked.append(dict(request.headers))
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"{self.to}{request.url.path.removeprefix('/moved')}{query}", 307)


@asynccontextmanager
async def redirecting(to: str, *others: Route) -> AsyncIterator[Redirecting]:
    found = Redirecting(to)
    app = Starlette(routes=[*others, Route("/{rest:path}", found.answer, methods=["GET", "POST"])])
    listener = Listener(app, bind("127.0.0.1", 0, "redirecting server"))
    await listener.start()
    found.base = f"http://127.0.0.1:{listener.port}"
    try:
        yield found
    finally:
        await listener.stop()


@pytest.mark.parametrize("model", MODELS.values())
async def test_nothing_is_sent_to_another_origin_that_a_model_server_names(
    tmp_path: Path, model: str
) -> None:
    async with provider() as second, redirecting(second.base.replace("127.0.0.1", "localhost")) as first:
        second.base, there = first.base, second.base.replace("127.0.0.1", "localhost")
        config = second.config(model, api_key=KEY)
        root = write_project(tmp_path, {"desk": agent_module("desk", model=model)}, config=config)
        async with running(root) as fleet, client(fleet, "desk") as desk:
            result = await desk.call_tool("send_message", {"message": "hello"})
    text = str(result.content)
    assert result.is_error
    assert first.base in text
    assert there in text
    assert "base_url" in text
    assert KEY not in text
    assert second.asked == []
    assert len(first.asked) == 1  # it is configured wrongly: to ask again helps nothing
    assert KEY in str(first.asked[0])


async def test_a_model_server_may_move_to_another_path(tmp_path: Path) -> None:
    models = Provider()
    async with redirecting("", Route("/v1/chat/completions", models.openai, methods=["POST"])) as server:
        models.base = f"{server.base}/moved"
        config = models.config(MODELS["chat"], api_key=KEY)
        root = write_project(tmp_path, {"desk": agent_module("desk", model=MODELS["chat"])}, config=config)
        async with running(root) as fleet, client(fleet, "desk") as desk:
            assert not (await desk.call_tool("send_message", {"message": "hello"})).is_error
    assert server.asked
    assert len(models.asked) == 1
    assert KEY in str(models.asked[0].headers)
