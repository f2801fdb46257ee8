"""An agent answers with the tools of the servers that are up, and says which were missing."""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from support.live import ECHO, ERAS, agent_module, client, running, tool_call, write_project
from support.outages import Outage, answer_and_missing, outages
from support.ports import free_ports
from support.processes import below
from support.waiting import poll, until

from pallas.fleet.fleet import Fleet
from pallas.fleet.health_monitor import CheckIntervals
from pallas.model import Health, HealthStatus

pytestmark = pytest.mark.usefixtures("forked_children")

ISOLATION = pytest.mark.parametrize("isolation", ["none", "process"])


def project(
    root: Path,
    servers: Sequence[Outage],
    *,
    keys: Mapping[str, Any] | None = None,
    **server: Any,
) -> Path:
    """Agent ``one``, which calls all of ``servers``; ``server`` are keys that each of their entries has."""
    entries = {each.name: {"url": each.url, **server} for each in servers}
    return write_project(
        root,
        {"one": agent_module("one", tuple(entries))},
        config={"mcp": {"servers": entries}},
        keys={"one": keys or {}},
    )


async def answer_with(connected: Client, server: str) -> None:
    """Wait until a message is answered with the tool of that server and nothing is missing."""
    await poll(
        lambda: answer_and_missing(connected, tool_call(f"{server}__say", text="back")),
        lambda given: f"{server}:back" in given[0] and not given[1],
    )


def health(fleet: Fleet) -> Health:
    """The health of agent ``one`` as the fleet shows it."""
    return fleet.snapshot().agents[0].health


@pytest.mark.slow
@ISOLATION
async def test_an_agent_started_without_a_server_answers_and_uses_it_when_it_returns(
    tmp_path: Path, isolation: str
) -> None:
    # PI-12, PI-17
    async with outages("left", "right", up=False) as (left, right):
        await left.start()
        root = project(tmp_path, (left, right), keys={"isolation": isolation})
        async with running(root, pace=CheckIntervals(health=0.2, confirm=0.1)) as fleet:
            assert health(fleet).status is HealthStatus.DEGRADED
            assert health(fleet).message == "Unreachable: right"
            for era in ERAS:
                async with client(fleet, "one", era=era) as one:
                    assert await answer_and_missing(one, "hi") == ("hi", {"right": "cannot be reached"})
                    text, missing = await answer_and_missing(one, tool_call("left__say", text="here"))
                    assert "left:here" in text
                    assert list(missing) == ["right"]
            await right.start()
            for era in ERAS:
                async with client(fleet, "one", era=era) as one:
                    await answer_with(one, "right")
            await until(lambda: health(fleet).status is HealthStatus.OK)


@pytest.mark.slow
@ISOLATION
async def test_an_outage_in_the_middle_costs_the_tools_of_that_server_alone(
    tmp_path: Path, isolation: str
) -> None:
    # PI-12, PI-17
    async with outages("left", "right") as (left, right):
        root = project(tmp_path, (left, right), keys={"isolation": isolation})
        async with (
            running(root) as fleet,
            client(fleet, "one") as one,
            client(fleet, "one", era=ERAS[1]) as two,
        ):
            assert "right:x" in (await answer_and_missing(one, tool_call("right__say", text="x")))[0]
            await right.stop()
            for caller in (one, two):
                text, missing = await answer_and_missing(caller, tool_call("right__say", text="x"))
                assert "right:x" not in text
                assert missing == {"right": "cannot be reached"}
                text, missing = await answer_and_missing(caller, tool_call("left__say", text="x"))
                assert "left:x" in text
                assert missing == {"right": "cannot be reached"}
            await right.start()
            for caller in (one, two):
                await answer_with(caller, "right")


@pytest.mark.slow
async def test_a_server_that_refuses_one_bearer_is_missing_for_that_caller_alone(tmp_path: Path) -> None:
    # PI-12, PR-25
    async with outages("left", "right") as (left, right):
        right.token = "good"
        root = project(tmp_path, (left, right), forward_inbound_auth=True)
        async with running(root) as fleet:
            for era in ERAS:
                async with client(fleet, "one", era=era, bearer="bad") as bad:
                    text, missing = await answer_and_missing(bad, tool_call("left__say", text="x"))
                    assert "left:x" in text
                    assert list(missing) == ["right"]
                    assert "refused the caller's bearer (HTTP 401)" in missing["right"]
                async with client(fleet, "one", era=era, bearer="good") as good:
                    text, missing = await answer_and_missing(good, tool_call("right__say", text="x"))
                    assert "right:x" in text
                    assert missing == {}
                async with client(fleet, "one", era=era) as nobody:
                    text, missing = await answer_and_missing(nobody, "hi")
                    assert text == "hi"
                    assert "asks for a credential (HTTP 401)" in missing["right"]


@pytest.mark.slow
async def test_a_new_callers_instance_is_made_without_the_server_that_is_down(tmp_path: Path) -> None:
    # PI-12
    async with outages("left", "right") as (left, right):
        root = project(tmp_path, (left, right), forward_inbound_auth=True)
        async with running(root) as fleet:
            await right.stop()
            for era in ERAS:
                async with client(fleet, "one", era=era, bearer=f"new-{era}") as caller:
                    text, missing = await answer_and_missing(caller, tool_call("left__say", text="x"))
                    assert "left:x" in text
                    assert missing == {"right": "cannot be reached"}
            await right.start()
            for era in ERAS:
                async with client(fleet, "one", era=era, bearer=f"new-{era}") as caller:
                    await answer_with(caller, "right")


@pytest.mark.slow
async def test_servers_are_connected_at_once(tmp_path: Path) -> None:
    """No server answers before all have been asked, at the start and for a new caller's instance."""
    # PI-12
    names = [f"s{number}" for number in range(5)]
    async with outages(*names) as servers:
        asked: set[str] = set()
        gate = asyncio.Event()

        def note(name: str) -> None:
            asked.add(name)
            if len(asked) == len(names):
                gate.set()

        def close() -> None:
            nonlocal gate
            asked.clear()
            gate = asyncio.Event()
            for server in servers:
                server.gate = gate

        for server in servers:
            server.on_request = lambda name=server.name: note(name)  # type: ignore[misc]
        close()
        async with running(project(tmp_path, servers, forward_inbound_auth=True)) as fleet:
            assert asked == set(names)
            close()
            async with client(fleet, "one", bearer="new") as caller:
                for name in names:
                    text, missing = await answer_and_missing(caller, tool_call(f"{name}__say", text="x"))
                    assert f"{name}:x" in text
                    assert missing == {}


@pytest.mark.slow
@ISOLATION
async def test_an_agent_does_not_answer_without_a_server_that_it_requires(
    tmp_path: Path, isolation: str
) -> None:
    # PI-12, PI-17
    async with outages("left", "right", up=False) as (left, right):
        await left.start()
        keys = {"isolation": isolation, "servers": {"right": {"required": True}}}
        root = project(tmp_path, (left, right), keys=keys)
        async with running(root, pace=CheckIntervals(health=0.2, confirm=0.1)) as fleet:
            assert health(fleet).status is HealthStatus.ERROR
            assert health(fleet).message == "Unreachable: right"
            for era in ERAS:
                async with client(fleet, "one", era=era) as one:
                    result = await one.call_tool("send_message", {"message": "hi"})
                    assert result.is_error
                    body = json.loads(result.content[0].text)  # type: ignore[union-attr]
                    assert "downstream right cannot be reached" in body["error"]
                    assert (body["data"]["type"], body["data"]["retryable"]) == ("UPSTREAM", True)
            await right.start()
            for era in ERAS:
                async with client(fleet, "one", era=era) as one:
                    assert await answer_and_missing(one, "hi") == ("hi", {})
            await until(lambda: health(fleet).status is HealthStatus.OK)
            await left.stop()
            await until(lambda: health(fleet).status is HealthStatus.DEGRADED)


async def test_a_program_that_is_required_is_so_for_every_agent_that_calls_it(tmp_path: Path) -> None:
    # PI-12
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}/mcp"
    gone = {"command": "python -c 'raise SystemExit(1)'", "url": url, "restart": "never", "required": True}
    write_project(
        tmp_path,
        {"one": agent_module("one", ("db",)), "two": None},
        config={"mcp": {"servers": {"db": {"url": url}}}},
        top={"servers": {"store": gone}},
    )
    async with running(tmp_path) as fleet:
        one, two = fleet.snapshot().agents
        assert (one.health.status, two.health.status) == (HealthStatus.ERROR, HealthStatus.OK)
        async with client(fleet, "one") as connected:
            result = await connected.call_tool("send_message", {"message": "hi"})
            assert "downstream db cannot be reached" in result.content[0].text  # type: ignore[union-attr]


@pytest.mark.slow
async def test_a_server_that_does_not_answer_holds_up_the_start_once_and_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PI-12
    monkeypatch.setattr("pallas.executors.fastagent.connect_plan.CONNECT_SECONDS", 1.0)
    async with outages("left", "right") as (left, right):
        right.gate = asyncio.Event()
        root = project(tmp_path, (left, right), keys={"max_instances": 2})
        async with running(root) as fleet:
            for era in ERAS:
                async with client(fleet, "one", era=era) as one:
                    text, missing = await answer_and_missing(one, tool_call("left__say", text="x"))
                    assert "left:x" in text
                    assert missing == {"right": "does not answer"}
            right.gate.set()
            for era in ERAS:
                async with client(fleet, "one", era=era) as one:
                    await answer_with(one, "right")


async def test_a_server_that_cannot_list_its_tools_is_missing_until_it_can(tmp_path: Path) -> None:
    # PI-12
    async with outages("left", "right") as (left, right):
        right.lists = False
        async with running(project(tmp_path, (left, right))) as fleet, client(fleet, "one") as one:
            text, missing = await answer_and_missing(one, tool_call("left__say", text="x"))
            assert "left:x" in text
            assert missing == {"right": "answers with an error"}
            right.lists = True
            await answer_with(one, "right")


@pytest.mark.slow
@ISOLATION
async def test_an_outage_is_told_by_a_run_that_calls_no_tool(tmp_path: Path, isolation: str) -> None:
    # PI-12, PI-17
    async with outages("left", "right") as (left, right):
        root = project(tmp_path, (left, right), keys={"isolation": isolation})
        async with (
            running(root, pace=CheckIntervals(health=0.2, confirm=0.1)) as fleet,
            client(fleet, "one") as one,
        ):
            assert await answer_and_missing(one, "hi") == ("hi", {})
            await right.stop()
            await until(lambda: health(fleet).message == "Unreachable: right")
            # The probe is told to the agent a moment later.
            expected = ("hi", {"right": "cannot be reached"})
            await poll(lambda: answer_and_missing(one, "hi"), lambda given: given == expected, timeout=30)
            await right.start()
            await answer_with(one, "right")


@pytest.mark.slow
@ISOLATION
async def test_a_stdio_server_that_ended_between_two_runs_is_started_again_before_the_next(
    tmp_path: Path, isolation: str, caplog: pytest.LogCaptureFixture
) -> None:
    # PI-12
    write_project(
        tmp_path,
        {"one": agent_module("one", ("echo",))},
        config=ECHO,
        keys={"one": {"isolation": isolation}},
    )
    script = tmp_path / "echo_server.py"
    source = script.read_text()
    call = '***CALL_TOOL echo__echo {"text": "x"}'

    async with (
        running(tmp_path, pace=CheckIntervals(health=0.2, confirm=0.1)) as fleet,
        client(fleet, "one") as one,
    ):

        async def end_server() -> None:
            (server,) = below(os.getpid(), script.name)
            ends = caplog.text.count("killed by SIGKILL")
            server.kill()
            await until(lambda: caplog.text.count("killed by SIGKILL") > ends)

        assert "echo:x" in (await answer_and_missing(one, call))[0]
        await end_server()
        text, missing = await answer_and_missing(one, call)
        assert "echo:x" in text
        assert missing == {}
        await until(lambda: health(fleet).status is HealthStatus.OK)
        script.write_text("raise SystemExit(1)")
        await end_server()
        await until(lambda: health(fleet).message == "Unreachable: echo")
        assert await answer_and_missing(one, "hi") == ("hi", {"echo": "cannot be reached"})
        script.write_text(source)
        # It is tried again before each run.
        await poll(lambda: answer_and_missing(one, call), lambda given: "echo:x" in given[0])
        await until(lambda: health(fleet).status is HealthStatus.OK)
