"""The health of a server is the state of the connections that agents use, and says what of it is unusable."""

import logging
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.live import agent_module, ask, client, running, tool_call, write_project
from support.locked import ORDER, SHOP, STOCK, list_now, locked_project
from support.offline import model_record
from support.outages import outages
from support.processes import below
from support.waiting import until

from pallas.fleet.fleet import Fleet
from pallas.fleet.health_monitor import CheckIntervals
from pallas.fleet.local_port import LocalPort
from pallas.model import Downstream, HealthStatus, ProbeResult

PACE = CheckIntervals(health=0.2, confirm=0.1)
NEVER = CheckIntervals(health=3600, confirm=3600, providers=3600, retry=3600)
UNFIT: Mapping[str, Any] = {"name": "pay", "inputSchema": "{}"}
WHY = "its inputSchema is a text, not an object"

pytestmark = [pytest.mark.usefixtures("forked_children"), pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=["legacy", "modern", pytest.param("process", marks=pytest.mark.slow)],
)
async def fleet(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> AsyncIterator[Fleet]:
    kind = request.param
    root = locked_project(
        tmp_path_factory.mktemp("used"),
        mode="off",
        protocol="auto" if kind == "process" else kind,
        keys={"isolation": "process"} if kind == "process" else {},
    )
    async with running(root, pace=PACE) as found:
        yield found


def health(fleet: Fleet) -> tuple[HealthStatus, str]:
    (agent,) = fleet.snapshot().agents
    return agent.health.status, agent.health.message


def shop(fleet: Fleet) -> Downstream:
    (agent,) = fleet.snapshot().agents
    (found,) = agent.downstreams
    return found


def list_tools(fleet: Fleet, *tools: Mapping[str, Any], **more: Any) -> None:
    list_now(fleet.project.root, {**SHOP, "tools": tools, **more})


def warnings(caplog: pytest.LogCaptureFixture) -> Sequence[str]:
    return [
        each.getMessage()
        for each in caplog.records
        if each.levelno == logging.WARNING and getattr(each, "downstream", "") == "shop"
    ]


async def well(fleet: Fleet) -> None:
    """Wait until the server is as at first."""
    list_now(fleet.project.root, SHOP)
    await until(lambda: health(fleet)[0] is HealthStatus.OK and "left out" not in shop(fleet).detail)
    await until(lambda: (found := shop(fleet).connection) is not None and found.tools == 2)


@pytest.mark.slow
async def test_an_unfit_tool_costs_itself_and_is_told_once(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    await well(fleet)
    with caplog.at_level(logging.WARNING):
        list_tools(fleet, ORDER, UNFIT, STOCK)
        await until(lambda: f"tool pay: {WHY}" in shop(fleet).detail)
        assert health(fleet)[0] is HealthStatus.OK
        assert warnings(caplog) == [
            f"desk: server shop lists items that cannot be used and are left out: tool pay: {WHY}"
        ]
        async with client(fleet, "desk") as desk:
            await ask(desk, "hello")
        offered = [each["function"]["name"] for each in model_record(fleet).requests[-1]["tools"]]
        assert offered == ["shop__order", "shop__stock"]
        # The same findings again, beside another description.
        list_tools(fleet, {**ORDER, "description": "Order two."}, UNFIT)
        await until(lambda: "1 tool," in shop(fleet).detail)
        assert len(warnings(caplog)) == 1
    await well(fleet)


@pytest.mark.slow
async def test_a_server_without_a_usable_tool_says_why(fleet: Fleet) -> None:
    await well(fleet)
    list_tools(fleet, UNFIT, {**UNFIT, "name": "buy"})
    words = f"shop lists no tool that can be used: pay: {WHY}; buy: {WHY}"
    await until(lambda: health(fleet) == (HealthStatus.DEGRADED, words))
    assert shop(fleet).reach is ProbeResult.OK
    list_tools(fleet, prompts=[])
    await until(lambda: health(fleet) == (HealthStatus.DEGRADED, "shop announces tools and lists none"))
    # One that has prompts need not have tools.
    list_tools(fleet)
    await until(lambda: health(fleet)[0] is HealthStatus.OK)
    await well(fleet)


async def test_the_tools_screen_names_what_is_left_out(fleet: Fleet) -> None:
    await well(fleet)
    list_tools(fleet, ORDER, UNFIT)
    detail = await LocalPort(fleet).describe("desk")
    (found,) = (each for each in detail.servers if each.server == "shop")
    assert found.left_out == (f"tool pay: {WHY}",)
    assert [each.name for each in found.tools] == ["order"]
    await well(fleet)


async def test_a_server_that_hangs_does_not_stay_green(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    await well(fleet)
    (agent,) = fleet.agents
    monkeypatch.setattr(agent.watched._prober, "_timeout_s", 0.5)
    stopped = below(os.getpid(), "changing_server.py")
    for each in stopped:
        each.send_signal(signal.SIGSTOP)
    try:
        await until(lambda: health(fleet) == (HealthStatus.DEGRADED, "Unreachable: shop"))
        assert shop(fleet).detail == "no answer within 0.5 s"
    finally:
        for each in stopped:
            each.send_signal(signal.SIGCONT)
    await until(lambda: health(fleet)[0] is HealthStatus.OK)
    assert [each.pid for each in below(os.getpid(), "changing_server.py")] == [each.pid for each in stopped]


@pytest.mark.parametrize("protocol", ["legacy", "modern"])
async def test_a_server_is_asked_over_the_connection_that_there_is(tmp_path: Path, protocol: str) -> None:
    async with outages("shop") as (server,):
        root = write_project(
            tmp_path,
            {"desk": agent_module("desk", ("shop",))},
            config={"mcp": {"servers": {"shop": {"url": server.url, "protocol_mode": protocol}}}},
        )
        async with running(root, pace=NEVER) as fleet:
            (agent,) = fleet.agents
            before, probes = server.requests, server.seen - server.requests
            await agent.check_health()
            assert server.requests > before and server.seen - server.requests == probes
            found = shop(fleet).connection
            assert found is not None and found.is_open and found.tools == 1
            assert "1 tool" in shop(fleet).detail and found.version in shop(fleet).detail
            # One that lost all its sessions, while nobody asked anything.
            await server.stop()
            await server.start()
            await agent.check_health()
            assert health(fleet) == (HealthStatus.OK, "")
            async with client(fleet, "desk") as desk:
                assert "shop:x" in await ask(desk, tool_call("shop__say", text="x"))
            # One that answers probes, and none of the agent's own requests.
            server.refuse = 503
            await agent.check_health()
            await agent.check_health()
            assert health(fleet) == (HealthStatus.DEGRADED, "Unreachable: shop")
            assert "HTTP 503" in shop(fleet).detail
            await server.stop()
            await agent.check_health()
            assert health(fleet) == (HealthStatus.DEGRADED, "Unreachable: shop")
            server.refuse = 0
            await server.start()
            await agent.check_health()
            await agent.check_health()
            assert health(fleet) == (HealthStatus.OK, "")
            found = shop(fleet).connection
            assert found is not None and found.is_open


async def test_a_server_that_connects_and_does_not_list_is_not_green(tmp_path: Path) -> None:
    async with outages("shop") as (server,):
        server.lists = False
        root = write_project(
            tmp_path,
            {"desk": agent_module("desk", ("shop",))},
            config={"mcp": {"servers": {"shop": {"url": server.url}}}},
        )
        async with running(root, pace=NEVER) as fleet:
            (agent,) = fleet.agents
            await agent.check_health()
            assert health(fleet) == (HealthStatus.DEGRADED, "Unreachable: shop")
            assert "it answers, but is not connected" in shop(fleet).detail
            server.lists = True
            await agent.check_health()
            await agent.check_health()
            assert health(fleet) == (HealthStatus.OK, "")
