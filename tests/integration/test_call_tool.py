"""A tool called by hand, of an agent and of what it calls, in a fleet that runs."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from support import pallas_process
from support.live import ECHO, agent_module, control, running, write_project
from support.recording import Recorder, recording
from support.waiting import until

from pallas.fleet.fleet import Fleet
from pallas.fleet.threaded_fleet import ThreadedFleet
from pallas.model import AuthHop, Fault, FaultType, FleetState, Notice

TOKEN = "sesame-open-4711"


def echoing(root: Path, **entry: Any) -> Path:
    """An agent with a stdio downstream ``echo``; ``entry`` adds to its settings."""
    servers = {"echo": {**ECHO["mcp"]["servers"]["echo"], **entry}}
    return write_project(root, {"one": agent_module("one", ("echo",))}, config={"mcp": {"servers": servers}})


def recorded(root: Path, recorder: Recorder, **entry: Any) -> Path:
    servers = {"rec": {"url": recorder.url, **entry}}
    return write_project(root, {"one": agent_module("one", ("rec",))}, config={"mcp": {"servers": servers}})


async def test_an_agents_own_tools_are_called_over_its_port(tmp_path: Path) -> None:
    async with running(echoing(tmp_path)) as fleet:
        outcome = await fleet.call_tool("one", "", "send_message", {"message": "hello"})
        assert (outcome.ok, outcome.texts) == (True, ("hello",))
        assert outcome.seconds > 0
        assert json.loads(outcome.content)["content"][0]["text"] == "hello"
        assert fleet.snapshot().agents[0].runs_total == 1
        outcome = await fleet.call_tool("one", "", "send_message", {"message": 5})
        assert not outcome.ok
        await control(fleet, "one", "stop")
        outcome = await fleet.call_tool("one", "", "get_health", {})
        assert "stopped by hand" in outcome.texts[0]


async def test_a_command_is_started_for_the_call_and_is_gone_afterwards(tmp_path: Path) -> None:
    async with running(echoing(tmp_path)) as fleet:
        before = set(pallas_process.below())
        outcome = await fleet.call_tool("one", "echo", "echo", {"text": "x"})
        assert (outcome.ok, outcome.texts) == (True, ("echo:x",))
        assert json.loads(outcome.content)["structuredContent"] == {"result": "echo:x"}
        outcome = await fleet.call_tool("one", "echo", "boom", {"text": "x"})
        assert not outcome.ok
        outcome = await fleet.call_tool("one", "echo", "no_such_tool", {})
        assert not outcome.ok
        assert set(pallas_process.below()) <= before
        assert fleet.snapshot().agents[0].runs_total == 0


ENVIRONMENT = '''
import os
from stdio_server import StdioServer

server = StdioServer("echo")

@server.tool()
def echo(text: str) -> str:
    """Say where it runs."""
    return os.environ.get(text, "") + " " + os.path.basename(os.getcwd())

server.run()
'''


async def test_a_command_gets_the_environment_and_the_folder_of_the_project(tmp_path: Path) -> None:
    root = echoing(tmp_path, env={"WORD": "spoken"}, cwd="sub", args=["../server.py"])
    (root / "sub").mkdir()
    (root / "server.py").write_text(ENVIRONMENT)
    async with running(root) as fleet:
        outcome = await fleet.call_tool("one", "echo", "echo", {"text": "WORD"})
        assert outcome.texts == ("spoken sub",)


@pytest.mark.parametrize("mode", ["auto", "modern", "legacy"])
async def test_the_bearer_goes_where_a_server_was_opted_in_and_is_masked_in_what_comes_back(
    tmp_path: Path, mode: str
) -> None:
    async with recording() as recorder:
        root = recorded(tmp_path, recorder, forward_inbound_auth=True, protocol_mode=mode)
        async with running(root) as fleet:
            recorder.demand = True
            start = len(recorder.requests)
            outcome = await fleet.call_tool("one", "rec", "note", {"text": f"have {TOKEN}"}, TOKEN)
            assert outcome.ok
            heard = recorder.requests[start:]
            assert {each.bearer for each in heard} == {TOKEN}
            assert ("initialize" in {each.what for each in heard}) is (mode == "legacy")
            assert TOKEN not in outcome.content
            assert outcome.texts == ("noted have [redacted]",)
            with pytest.raises(Fault, match="call it with a bearer token"):
                await fleet.call_tool("one", "rec", "note", {"text": "x"})
            assert TOKEN not in repr(fleet.hub.since(0).events)


@pytest.mark.parametrize("entry", [{}, {"access_token": "configured-1", "forward_inbound_auth": True}])
async def test_the_bearer_goes_nowhere_else(tmp_path: Path, entry: dict[str, Any]) -> None:
    async with recording() as recorder, running(recorded(tmp_path, recorder, **entry)) as fleet:
        outcome = await fleet.call_tool("one", "rec", "note", {"text": "x"}, TOKEN)
        assert outcome.ok
        assert TOKEN not in {each.bearer for each in recorder.requests}
        assert recorder.calls()[-1].bearer == entry.get("access_token", "")


async def test_the_bearer_is_not_taken_to_another_origin(tmp_path: Path) -> None:
    async with (
        recording() as recorder,
        recording() as elsewhere,
        running(recorded(tmp_path, recorder, forward_inbound_auth=True)) as fleet,
    ):
        recorder.moved_to = elsewhere.url
        with pytest.raises(Fault):
            await fleet.call_tool("one", "rec", "note", {"text": "x"}, TOKEN)
        assert elsewhere.requests == []


async def test_the_agents_own_port_gets_the_bearer_as_from_any_caller(tmp_path: Path) -> None:
    async with (
        recording() as recorder,
        running(recorded(tmp_path, recorder, forward_inbound_auth=True)) as fleet,
    ):
        message = '***CALL_TOOL rec__note {"text": "x"}'
        outcome = await fleet.call_tool("one", "", "send_message", {"message": message}, TOKEN)
        assert outcome.ok
        assert recorder.calls()[-1].bearer == TOKEN
        hops = [event for event in fleet.hub.since(0).events if isinstance(event, AuthHop)]
        assert {hop.source for hop in hops if hop.method == "tools/call"} == {"forwarded"}


async def test_what_cannot_be_called_is_a_fault_that_says_why(tmp_path: Path) -> None:
    servers = {
        "none": {"command": "no-such-program-anywhere"},
        "refused": {"url": "http://127.0.0.1:9/mcp"},
    }
    root = write_project(
        tmp_path, {"one": agent_module("one", tuple(servers))}, config={"mcp": {"servers": servers}}
    )
    async with running(root) as fleet:

        async def fault(server: str, agent: str = "one", bearer: str | None = None) -> str:
            with pytest.raises(Fault) as caught:
                await fleet.call_tool(agent, server, "tool", {}, bearer)
            return caught.value.message

        assert "Agent not found: two" in await fault("", "two")
        assert "one does not call other; its servers: none, refused" in await fault("other")
        assert "no-such-program-anywhere cannot be started" in await fault("none")
        assert "cannot connect" in await fault("refused")
        bad = f"{TOKEN}\r\nX-Evil: 1"
        message = await fault("", bearer=bad)
        assert "the bearer token holds spaces" in message
        assert TOKEN not in message


async def test_arguments_that_are_not_json_are_refused(tmp_path: Path) -> None:
    async with running(echoing(tmp_path)) as fleet:
        with pytest.raises(Fault) as caught:
            await fleet.call_tool("one", "echo", "echo", {"text": object()})
        assert caught.value.type is FaultType.PROTOCOL
        assert "not JSON" in caught.value.message


async def test_a_call_that_takes_too_long_is_given_up_and_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(echoing(tmp_path)) as fleet:
        before = set(pallas_process.below())
        monkeypatch.setattr("pallas.fleet.inspector.CALL_TIMEOUT", 0.2)
        with pytest.raises(Fault) as caught:
            await fleet.call_tool("one", "echo", "slow", {"text": "x"})
        assert caught.value.type is FaultType.TIMEOUT
        assert "slow of echo did not answer within" in caught.value.message
        await until(lambda: set(pallas_process.below()) <= before)


async def test_a_cancelled_call_of_an_agent_cancels_its_run(tmp_path: Path) -> None:
    async with running(echoing(tmp_path)) as fleet:
        message = '***CALL_TOOL echo__slow {"text": "x"}'
        call = asyncio.create_task(fleet.call_tool("one", "", "send_message", {"message": message}))
        await until(lambda: fleet.snapshot().agents[0].runs_active == 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: fleet.snapshot().agents[0].runs_active == 0)
        await until(lambda: len(fleet.inspector._pending) == 0)


LARGE = '''
from stdio_server import StdioServer

server = StdioServer("echo")

@server.tool()
def echo(text: str) -> str:
    """Say much."""
    return "\\x1b[31m" + "word " * 200_000

server.run()
'''


async def test_a_large_and_hostile_result_is_bounded_and_harmless(tmp_path: Path) -> None:
    root = echoing(tmp_path)
    (root / "echo_server.py").write_text(LARGE)
    async with running(root) as fleet:
        outcome = await fleet.call_tool("one", "echo", "echo", {"text": "x"})
        assert len(outcome.content) < 1_100_000
        assert "\x1b" not in outcome.content
        assert json.loads(outcome.content)["content"][0]["text"].startswith("␛[31mword ")
        assert outcome.texts[0].endswith("more characters)")


@pytest.mark.slow
async def test_the_workbench_calls_from_its_own_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALLAS_LOG_FILE", str(tmp_path / "pallas.log"))
    before = Path.cwd()
    fleet = ThreadedFleet(echoing(tmp_path / "project"))
    fleet.start()
    try:
        await until(lambda: fleet.snapshot().state is FleetState.RUNNING, timeout=60)
        outcome = await fleet.call_tool("one", "echo", "echo", {"text": "x"})
        assert outcome.texts == ("echo:x",)
        call = asyncio.create_task(fleet.call_tool("one", "echo", "slow", {"text": "x"}))
        children = set(pallas_process.below())
        await until(lambda: set(pallas_process.below()) - children)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: set(pallas_process.below()) <= children)
        fleet.control("one", "restart")
        await until(lambda: fleet.snapshot().agents[0].restarts == 1, timeout=60)
        assert not [event for event in fleet.since(0).events if isinstance(event, Notice)]
        call = asyncio.create_task(fleet.call_tool("one", "echo", "slow", {"text": "x"}))
        await until(lambda: _asked(fleet) == 1)
        await asyncio.to_thread(fleet.stop, 20)
        with pytest.raises(Fault, match="stopping"):
            await call
    finally:
        await asyncio.to_thread(fleet.stop, 20)
        os.chdir(before)


def _asked(thread: ThreadedFleet) -> int:
    fleet: Fleet | None = thread._fleet
    return len(fleet.inspector._pending) if fleet is not None else 0
