"""Servers that end, close their streams or send their clients elsewhere: each was seen in a bug report."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import Context
from pathlib import Path
from random import Random
from typing import Any

from mcp import Client
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.types import Receive, Scope, Send
from support.fake_downstreams import serving
from support.live import agent_module, run_agent, running, write_project
from support.odd_fleets import MODEL, called, odd_fleet, strict_model
from support.odd_http import OddHttp
from support.odd_servers import OddServer, build
from support.processes import below
from support.providers import provider
from support.waiting import until

from pallas.config import load_project
from pallas.downstreams.connection import Connection, Watch
from pallas.downstreams.opening import Callbacks, Settings
from pallas.downstreams.transports import Http
from pallas.tools_lock.lock_check import check_servers
from pallas.tools_lock.lock_file import ToolsLock

SECRET = "sk-of-the-server-4711"


def odd(label: str, transport: Any, **wire: Any) -> OddServer:
    """A server with sound tools that says things in this way."""
    server = build(label, transport, [], Random(1))
    server.wire |= wire
    return server


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Connection]:
    """A connection of its own."""

    async def listed(offer: Any) -> Any:
        return offer

    made = Connection("odd", Http(url), Settings(), Callbacks(), Watch(listed), {}, Context)
    try:
        await made.open(60)
        yield made
    finally:
        await made.close()


async def test_a_server_that_closes_its_streams_is_not_asked_for_them_without_end() -> None:
    events = {"content-type": "text/event-stream"}
    http, server = OddHttp(), odd("loop", "http-json")
    server.wire["get"] = {"status": 200, "headers": events, "body": "retry: 0\n\n"}
    http.add(server.name, server.transport, server.spec())

    async def ping(client: Client) -> None:
        await client.session.send_ping()

    async with serving(http) as origin, opened(f"{origin}/{server.name}/mcp") as connection:
        await until(lambda: http.gets(server.name) >= 3)
        for _ in range(100):
            await connection.call(ping)
        assert http.gets(server.name) <= 12


async def test_a_program_that_ends_after_each_answer_says_so_and_is_started_for_each_call(
    tmp_path: Path,
) -> None:
    server = odd("ends", "stdio", ends_after={"method": "tools/call", "status": 5})
    one, two = server.tools[:2]
    async with odd_fleet(tmp_path, [server]) as fleet:
        for _ in range(3):
            read, problem, _ = await called(fleet, server.agent, [one.key])
            assert not problem and one.is_answered(read.get(one.key))
            # Two agents have it, and a probe may start another one.
            await until(lambda: len(below(os.getpid(), f"{server.name}.json")) <= 3)
        read, _, _ = await called(fleet, server.agent, [one.key, two.key])
        lost = next(text for text in read.values() if "closed in the middle" in text)
        assert "its program ended with exit status 5 right after it answered tools/call" in lost


class Elsewhere:
    """Redirects ``/same`` within its origin and ``/other`` to another one; all else is the inner app's."""

    def __init__(self, inner: OddHttp, name: str, target: str) -> None:
        self.inner, self.name, self.target = inner, name, target
        self.authorized: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        self.authorized.append(request.headers.get("authorization", ""))
        places = {"/same/mcp": f"/{self.name}/mcp", "/other/mcp": f"{self.target}/{self.name}/mcp"}
        if (place := places.get(scope["path"])) is not None:
            await RedirectResponse(place, 307)(scope, receive, send)
        else:
            await self.inner(scope, receive, send)


async def test_redirects_are_followed_within_the_origin_and_credentials_go_nowhere_else(
    tmp_path: Path,
) -> None:
    http = OddHttp()
    servers = [odd("moved", transport) for transport in ("http-json", "http-modern")]
    away = Elsewhere(http, "nobody", "")
    for number, server in enumerate(servers):
        server.label = f"moved{number}"
        http.add(server.name, server.transport, server.spec())
    async with provider(strict_model) as behind, serving(away) as other:
        for server in servers:
            near = Elsewhere(http, server.name, other)
            async with serving(near) as origin:
                entry = {"headers": {"Authorization": f"Bearer {SECRET}"}, "auth": {"oauth": False}}
                entries = {name: {"url": f"{origin}/{name}/mcp", **entry} for name in ("same", "other")}
                root = write_project(
                    tmp_path / server.name,
                    {name: agent_module(name, (name,), model=MODEL) for name in entries},
                    config={**behind.config(MODEL), "mcp": {"servers": entries}},
                )
                async with running(root) as fleet:
                    tool = server.tools[0]
                    read, problem, _ = await called(fleet, "same", [tool.key])
                    assert not problem and tool.is_answered(read.get(tool.key))
                    await run_agent(fleet, "other", "call")
                    (detail,) = (each for each in (await fleet.describe("other")).servers if each.server)
                    snapshot = fleet.snapshot().agent("other")
                    assert snapshot is not None and snapshot.downstreams[0].connection is not None
                    what = f"{origin}/other/mcp redirects to {other}/{server.name}/mcp, which is not followed"
                    assert what in detail.problem and what in snapshot.downstreams[0].connection.error
            assert {*near.authorized} == {f"Bearer {SECRET}"}
    assert away.authorized == []


async def test_a_list_that_is_too_long_is_named_by_the_agents_screen_the_lock_and_health(
    tmp_path: Path,
) -> None:
    prompts = [{"name": f"p{number}", "description": "x" * 60_000} for number in range(150)]
    server = odd("long", "http-modern", side={"prompts/list": {"prompts": prompts}})
    server.announce(prompts={})
    why = "it has more than 8,388,608 characters; only the first 139 prompts are used"
    async with odd_fleet(tmp_path, [server]) as fleet:
        tool = server.tools[0]
        read, problem, _ = await called(fleet, server.agent, [tool.key])
        assert not problem and tool.is_answered(read.get(tool.key))
        (detail,) = (each for each in (await fleet.describe(server.agent)).servers if each.server)
        assert f"result prompts: {why}" in detail.left_out
        assert len(detail.tools) == len(server.tools)
        (checked,) = await check_servers(load_project(tmp_path), ToolsLock(), [server.name])
        assert checked.left_out == detail.left_out and why in checked.compared.problem

        def words() -> str:
            snapshot = fleet.snapshot().agent(server.agent)
            assert snapshot is not None
            return snapshot.downstreams[0].detail

        await until(lambda: why in words())


async def test_a_server_that_floods_gets_an_answer_to_each_of_its_questions(tmp_path: Path) -> None:
    servers = [odd(f"loud{number}", each) for number, each in enumerate(("stdio", "http-sse"))]
    for server in servers:
        # It asks once the flood is over, and its tool answers only after that.
        flood = {"message": {"method": "notifications/message", "params": {"level": "info", "data": "x"}}}
        server.wire |= {
            "asks": "roots/list",
            "flood_before": {**flood, "count": 1_000, "tool": server.tools[0].name},
        }
    async with odd_fleet(tmp_path, servers) as fleet:
        for server in (*servers, *servers):
            read, problem, _ = await called(fleet, server.agent, [server.tools[0].key])
            assert problem == ""
            assert server.tools[0].is_answered(read.get(server.tools[0].key))
