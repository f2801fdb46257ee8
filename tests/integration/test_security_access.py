"""Who may call what on an agent's port, and what a caller reads when something inside is wrong."""

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastmcp.server.middleware import Middleware, MiddlewareContext
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from support.executors import FakeAgent, FakeExecutor
from support.live import ERAS, ask

from pallas.access.identity import unverified_principal
from pallas.model import Fault, FaultType, Health, HealthStatus, Principal
from pallas.runs.kernel import Kernel
from pallas.surfaces.agent_access import Authorize
from pallas.surfaces.agent_mcp import agent_app, endpoint
from pallas.surfaces.host_guard import LOCAL_NAMES
from pallas.surfaces.listener import Listener, bind
from pallas.telemetry.event_hub import EventHub

TOKEN = "planted-token-41d2"
AWAIT_NONE = "object NoneType can't be used in 'await' expression"
pytestmark = pytest.mark.parametrize("era", ERAS)


@asynccontextmanager
async def agent(
    authorize: Any = None, *, middleware: Middleware | None = None, health: Any = None
) -> AsyncIterator[str]:
    """A served agent named ``echo``; gives its URL."""
    kernel = Kernel(EventHub())
    kernel.attach(FakeAgent(FakeExecutor()))

    async def ok() -> Health:
        return Health(HealthStatus.OK)

    server = agent_app(kernel, "echo", description="says it again", health=health or ok, authorize=authorize)
    if middleware is not None:
        server.add_middleware(middleware)
    listener = Listener(endpoint(server, LOCAL_NAMES), bind("127.0.0.1", 0, "test"))
    await listener.start()
    try:
        yield f"http://127.0.0.1:{listener.port}/mcp"
    finally:
        await listener.stop()


@asynccontextmanager
async def calling(url: str, era: str, bearer: str | None = None) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
    async with (
        create_mcp_http_client(headers=headers) as http,
        Client(streamable_http_client(url, http_client=http), mode=era) as connected,
    ):
        yield connected


async def refused(connected: Client, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The Fault that a call is answered with."""
    result = await connected.call_tool(tool, arguments)
    assert result.is_error
    body: dict[str, Any] = json.loads(result.content[0].text)  # type: ignore[union-attr]
    return body


class Only:
    """Lets one token in; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Principal]] = []

    async def __call__(self, tool: str, principal: Principal) -> None:
        self.asked.append((tool, principal))
        if principal != unverified_principal(TOKEN):
            raise Fault(FaultType.AUTH, f"{tool} needs a bearer that this agent knows")


async def test_get_health_is_public_and_everything_else_needs_a_credential(era: str) -> None:
    # PR-31
    only = Only()
    check: Authorize = only
    async with agent(check) as url:
        async with calling(url, era) as nobody:
            health = await nobody.call_tool("get_health", {})
            assert not health.is_error
            assert only.asked == []
            # By its own name, by the agent's, and as a prompt: the real name is what is asked about.
            for tool in ("send_message", "echo"):
                body = await refused(nobody, tool, {"message": "hello"})
                assert body["data"]["type"] == "AUTH"
                assert "send_message needs a bearer" in body["error"]
            with pytest.raises(MCPError, match="echo_history needs a bearer"):
                await nobody.get_prompt("echo_history", {"conversation_id": "c"})
        assert [tool for tool, _ in only.asked] == ["send_message", "send_message", "echo_history"]
        async with calling(url, era, TOKEN) as known:
            assert await ask(known, "hello", conversation_id="c") == "0:hello"
            assert (await known.get_prompt("echo_history", {"conversation_id": "c"})).messages
        async with calling(url, era, TOKEN + "x") as other:
            assert (await refused(other, "send_message", {"message": "hello"}))["data"]["type"] == "AUTH"


async def test_an_unknown_tool_is_named(era: str) -> None:
    # PR-31
    async with agent() as url, calling(url, era) as caller:
        body = await refused(caller, "delete_everything", {})
        assert "unknown tool 'delete_everything'" in body["error"]
        assert "send_message, get_health" in body["error"]
        hostile = await refused(caller, "\x1b]0;owned\x07\u202e" + "x" * 5000, {})
        assert "\x1b" not in json.dumps(hostile, ensure_ascii=False)
        assert "\u202e" not in json.dumps(hostile, ensure_ascii=False)
        assert len(hostile["error"]) < 300


class ReturnsNone(Middleware):
    """What the extractor of the incident led to: somebody awaits what is no awaitable."""

    def __init__(self, how: str) -> None:
        self._how = how

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        if self._how == "awaits none":
            nothing: Any = None
            await nothing
        return None

    async def on_get_prompt(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        return await self.on_call_tool(context, call_next)


@pytest.mark.parametrize("how", ["awaits none", "returns none"])
async def test_a_middleware_that_returns_nothing_is_a_fault_with_a_traceback_in_the_log(
    era: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    # PR-31
    async with agent(middleware=ReturnsNone(how)) as url, calling(url, era) as caller:
        body = await refused(caller, "send_message", {"message": "hello"})
        with pytest.raises(MCPError) as prompt:
            await caller.get_prompt("echo_history", {"conversation_id": "c"})
    assert body["error"] == "send_message failed inside this server; the log has the details"
    for said in (json.dumps(body), str(prompt.value)):
        assert "NoneType" not in said
        assert "await" not in said
    told = [record for record in caplog.records if record.name == "pallas.surfaces.agent_access"]
    assert len(told) == 2
    assert all(record.exc_info and record.exc_info[2] for record in told)


def _sync(tool: str, principal: Principal) -> None:
    return None


async def _breaks(tool: str, principal: Principal) -> None:
    raise ValueError(TOKEN)


@pytest.mark.parametrize("broken", [_sync, _breaks])
async def test_a_broken_check_refuses_and_says_no_more(
    era: str, broken: Callable[[str, Principal], Awaitable[None]], caplog: pytest.LogCaptureFixture
) -> None:
    # PR-31: a check that is not awaitable is no permission
    caplog.set_level(logging.ERROR)
    async with agent(broken) as url, calling(url, era, TOKEN) as caller:
        body = await refused(caller, "send_message", {"message": "hello"})
        assert not (await caller.call_tool("get_health", {})).is_error
    assert body["data"]["type"] == "INTERNAL"
    assert AWAIT_NONE not in json.dumps(body)
    assert TOKEN not in json.dumps(body)
    assert [record.name for record in caplog.records if record.name.startswith("pallas")] == [
        "pallas.surfaces.agent_access"
    ]


async def test_a_tool_that_breaks_tells_its_kind_and_not_its_text(era: str) -> None:
    async def breaks() -> Health:
        raise ValueError(f"the password is {TOKEN}")

    async with agent(health=breaks) as url, calling(url, era) as caller:
        body = await refused(caller, "get_health", {})
    assert body["error"] == "get_health failed inside this server; the log has the details"
