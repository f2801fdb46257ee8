"""A served fleet that is asked to stop: real processes, real clients of both eras, real signals."""

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from support import raw_client
from support.live import ERAS, agent_module
from support.offline import offline_project
from support.served import Served, fault_in, served, text_of
from support.turnstile import Turnstile, turnstile
from support.waiting import poll, until

pytestmark = pytest.mark.usefixtures("forked_children")

SCRIPT = """
rules:
  - when: {last: user, system: You are boss, text: delegate}
    say: I ask the helper.
    call: [{tool: stile__go, arguments: {who: boss}}]
  - when: {last: tool, system: You are boss, tool: stile__go}
    call: [{tool: helper__send_message, arguments: {message: quick}}]
  - when: {last: tool, system: You are boss, tool: helper__send_message}
    say: "the helper said {{ result }}"
  - when: {last: user, text: hold}
    say: this much was written
    call: [{tool: stile__go, arguments: {who: "{{ last }}"}}]
  - when: {last: tool, tool: stile__go}
    say: "{{ result }}"
  - when: {last: user}
    say: "turn {{ turns }}"
"""


@asynccontextmanager
async def held(
    tmp_path: Path, drain_timeout: float = 30, isolation: str = "none"
) -> AsyncIterator[tuple[Served, Turnstile]]:
    """A served fleet of ``boss``, who may ask ``helper``, both behind a turnstile of the test's."""
    async with turnstile() as stile:
        root = offline_project(
            tmp_path / "p",
            {"boss": agent_module("boss", ("helper", "stile")), "helper": agent_module("helper", ("stile",))},
            SCRIPT,
            peers=("helper",),
            keys={"boss": {"depends_on": ["helper"], "isolation": isolation}},
            top={"drain_timeout": drain_timeout, "bind": "127.0.0.1"},
            config={"mcp": {"servers": {"stile": {"url": stile.url}}}},
        )
        with served(root) as fleet:
            await fleet.says("] running")
            yield fleet, stile


@asynccontextmanager
async def of_both_eras(fleet: Served, agent: str) -> AsyncIterator[list[Any]]:
    """A caller of each era: what one fleet does when it ends, it does to both. They know the tools."""
    async with AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(fleet.client(agent, era)) for era in ERAS]
        for caller in callers:
            await caller.list_tools()
        yield callers


@pytest.mark.slow
async def test_runs_in_flight_finish_new_ones_are_refused_and_reads_go_on(tmp_path: Path) -> None:
    async with held(tmp_path) as (fleet, stile), of_both_eras(fleet, "helper") as callers:
        calls = [
            asyncio.create_task(each.call_tool("send_message", {"message": "hold a"})) for each in callers
        ]
        await until(lambda: stile.arrived == ["hold a", "hold a"])
        assert (await fleet.get("/readyz")).status_code == 200
        fleet.send(signal.SIGTERM)
        await fleet.says("draining: 2 runs in flight, 30 s at most: helper ")
        ready = await fleet.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (503, "draining")
        assert int(ready.headers["retry-after"]) > 0
        assert (await fleet.get("/healthz")).status_code == 200
        entries = (await fleet.get("/.well-known/mcp/server.json")).json()["servers"]
        provided = "io.modelcontextprotocol.registry/publisher-provided"
        assert [each["server"]["_meta"][provided]["state"] for each in entries] == ["draining", "draining"]
        async with of_both_eras(fleet, "boss") as latecomers:  # new connections, to an agent that is idle
            for late in latecomers:
                fault = fault_in(await late.call_tool("send_message", {"message": "new"}))
                assert fault["error"].startswith("the fleet is draining")
                assert fault["data"] == {"type": "TRANSPORT", "retryable": True, "retry_after": 5.0}
                assert not (await late.call_tool("get_health", {})).is_error
        stile.open.set()
        for result in await asyncio.gather(*calls):
            assert not result.is_error
            assert text_of(result) == "this much was written\n\nhold a went through"
        for caller in callers:  # as clients do by themselves behind a first answer
            assert {each.name for each in (await caller.list_tools()).tools} == {"send_message", "get_health"}
        assert await fleet.ended() == 0
        assert "draining: 2 runs finished in" in fleet.out[-2]
        assert fleet.out[-1].endswith("] stopped")


@pytest.mark.slow
async def test_a_message_that_waits_for_its_turn_counts_as_in_flight(tmp_path: Path) -> None:
    async with held(tmp_path) as (fleet, stile), of_both_eras(fleet, "helper") as callers:
        calls = [
            asyncio.create_task(
                caller.call_tool("send_message", {"message": f"hold {each}", "conversation_id": era})
            )
            for caller, era in zip(callers, ERAS, strict=True)
            for each in "ab"
        ]
        queued = 'pallas_runs_queued{agent="helper"} 2.0'
        await poll(lambda: fleet.get("/metrics"), lambda page: queued in page.text)
        fleet.send(signal.SIGTERM)
        await fleet.says("draining: 4 runs in flight")
        stile.open.set()
        results = await asyncio.gather(*calls)
        assert sorted(text_of(each).split("\n\n")[1] for each in results) == [
            "hold a went through",
            "hold a went through",
            "hold b went through",
            "hold b went through",
        ]
        assert await fleet.ended() == 0


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["none", "process"])
async def test_what_a_run_in_flight_asks_of_another_agent_is_let_in(tmp_path: Path, isolation: str) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    async with held(tmp_path, isolation=isolation) as (fleet, stile), of_both_eras(fleet, "boss") as callers:
        meta: Any = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
        calls = [
            asyncio.create_task(each.call_tool("send_message", {"message": "delegate"}, meta=meta))
            for each in callers
        ]
        await until(lambda: stile.arrived == ["boss", "boss"])
        fleet.send(signal.SIGTERM)
        await fleet.says("draining: 2 runs in flight")
        async with of_both_eras(fleet, "helper") as strangers:  # the same trace, but no call of the run's
            for stranger in strangers:
                answer = await stranger.call_tool("send_message", {"message": "quick"}, meta=meta)
                assert fault_in(answer)["data"]["retry_after"] == 5.0
        stile.open.set()
        for result in await asyncio.gather(*calls):
            assert not result.is_error, text_of(result)
            assert text_of(result) == "I ask the helper.\n\nthe helper said turn 1"
        assert await fleet.ended() == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_what_is_cut_short_reaches_its_caller_with_what_was_written(
    tmp_path: Path, number: signal.Signals
) -> None:
    async with held(tmp_path, drain_timeout=0.5) as (fleet, stile), of_both_eras(fleet, "helper") as callers:
        message = {"message": "hold a", "conversation_id": "new"}
        calls = [asyncio.create_task(each.call_tool("send_message", message)) for each in callers]
        await until(lambda: stile.arrived == ["hold a", "hold a"])
        fleet.send(number)
        for fault in map(fault_in, await asyncio.gather(*calls)):
            assert fault["error"].startswith("the run was cancelled: the fleet is stopping")
            data = fault["data"]
            assert data.pop("conversation_id").startswith("conv-")
            assert data == {
                "type": "UPSTREAM",
                "retryable": False,
                "cancelled": True,
                "partial": "this much was written",
            }
        assert await fleet.ended() == 3
        assert "draining: 2 runs cut short after" in fleet.out[-2]
        record = await fleet.logs("cancelled in")
        assert record["partial"] == "this much was written"
        assert record["agent"] == "helper"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("drain", "status", "outcome"), [("finish", 3, "1 run cut short"), ("hand_over", 0, "1 run handed over")]
)
async def test_how_it_drains_is_what_the_files_said_last(
    tmp_path: Path, drain: str, status: int, outcome: str
) -> None:
    async with held(tmp_path, drain_timeout=1_000) as (fleet, stile):
        saved = {**fleet.entries, "drain_timeout": 0.5, "drain": drain}
        (fleet.root / "agents.yaml").write_text(yaml.safe_dump(saved, sort_keys=False), "utf-8")
        fleet.send(signal.SIGHUP)
        await fleet.says("project: reloaded")
        async with fleet.client("helper", ERAS[0]) as helper:
            message = {"message": "hold a", "conversation_id": "new"}
            call = asyncio.create_task(helper.call_tool("send_message", message))
            await until(lambda: stile.arrived == ["hold a"])
            fleet.send(signal.SIGTERM)
            await asyncio.wait({call})
        assert await fleet.ended() == status
        await fleet.says(f"draining: {outcome}")


@pytest.mark.slow
async def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    for second, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        async with held(tmp_path / str(status)) as (fleet, stile):
            writer = await raw_client.call(fleet.url("helper"), ERAS[0], "hold a")
            await until(lambda here=stile: here.arrived == ["hold a"])  # type: ignore[misc]
            fleet.send(signal.SIGTERM)
            await fleet.says("draining: 1 run in flight")
            fleet.send(second)
            assert await fleet.ended() == status
            await fleet.says(f"a second signal ({second.name}) ended the fleet at once, 1 of its runs with")
            await fleet.logs("a second signal")
            writer.transport.abort()


@pytest.mark.slow
async def test_an_idle_fleet_ends_whatever_is_connected_to_it(tmp_path: Path) -> None:
    async with held(tmp_path) as (fleet, _), httpx2.AsyncClient(trust_env=False, timeout=None) as http:
        url = fleet.url("helper")
        session = await raw_client.handshake(url)
        headers = {
            "mcp-session-id": session,
            "mcp-protocol-version": "2025-11-25",
            "accept": "text/event-stream",
        }
        here = ("127.0.0.1", fleet.entries["agents"]["helper"]["port"])
        with socket.create_connection(here), socket.create_connection(here) as slow:
            slow.send(b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-le")
            await http.get(fleet.registry + "/readyz")  # stays connected
            token = _token(fleet)
            events = {"authorization": f"Bearer {token}"}
            async with (
                http.stream("GET", url, headers=headers) as stream,
                http.stream("GET", fleet.registry + "/api/v1/fleet/events", headers=events) as reader,
            ):
                assert stream.status_code == 200
                assert reader.status_code == 200
                fleet.send(signal.SIGTERM)
                assert await fleet.ended() == 0
        # What has to be cut when a port closes, or takes the whole time of the end, is told in the log.
        records = [json.loads(line) for line in fleet.log.read_text("utf-8").splitlines()]
        assert [each for each in records if each["level"] in ("ERROR", "CRITICAL")] == []
        assert not any("did not stop in" in each["message"] for each in records)


def _token(fleet: Served) -> str:
    from pallas.surfaces.control import token_file

    found: Any = token_file.find_tokens(int(fleet.registry.rpartition(":")[2]))
    return str(found[0].token)
