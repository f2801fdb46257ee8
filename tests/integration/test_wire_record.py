"""What runs say over the wire is kept, whole enough to read, and holds no credential."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from support.live import ECHO, ERAS, agent_module, ask, client, running, tool_call, write_project
from support.offline import offline_project
from support.recording import recording
from support.waiting import until

from pallas.config import load_project
from pallas.fleet.fleet import Fleet
from pallas.fleet.threaded_fleet import ThreadedFleet
from pallas.model import Exchange, Fault, FleetState, RunStarted
from pallas.model.fingerprint import fingerprint
from pallas.telemetry.wire_record import MAX_BODY

both_eras = pytest.mark.parametrize("era", ERAS)
BEARER = "canary-bearer-4f1b2c3d4e5f"
KEY = "canary-configured-99aa88bb"
COOKIE = "session=canary-cookie-1234567"
PASSWORD = "canary-password-abcdef"
HANDLE = "canary-conversation-0123456789"
CANARIES = (BEARER, KEY, COOKIE, "canary-cookie", PASSWORD, HANDLE)


def run_of(fleet: Fleet, agent: str) -> str:
    """The last run of an agent."""
    runs = [each for each in fleet.hub.since(0, 20_000).events if isinstance(each, RunStarted)]
    return next(each.run_id for each in reversed(runs) if each.agent == agent)


def everything(exchanges: tuple[Exchange, ...]) -> str:
    return "\n".join(repr(each) for each in exchanges)


@pytest.fixture
async def stdio(tmp_path: Path) -> AsyncIterator[Fleet]:
    """One agent with a stdio downstream, on the passthrough model."""
    root = write_project(tmp_path, {"one": agent_module("one", ("echo",))}, config=ECHO)
    async with running(root) as fleet:
        yield fleet


@pytest.mark.slow
@both_eras
async def test_no_credential_is_in_any_exchange(tmp_path: Path, era: str) -> None:
    async with recording() as recorder:
        down = "legacy" if era == "legacy" else "modern"
        entry = {"url": recorder.url, "protocol_mode": down, "forward_inbound_auth": True}
        keyed = {"url": recorder.url, "protocol_mode": down, "headers": {"X-Api-Key": KEY}}
        root = write_project(
            tmp_path,
            {"one": agent_module("one", ("rec", "keyed"))},
            config={"mcp": {"servers": {"rec": entry, "keyed": keyed}}},
        )
        async with running(root) as fleet:
            headers = {"Authorization": f"Bearer {BEARER}", "Cookie": COOKIE, "X-Api-Key": KEY}
            url = fleet.agents[0].url
            seen: list[Exchange] = []
            async with (
                create_mcp_http_client(headers=headers) as http,
                Client(streamable_http_client(url, http_client=http), mode=era) as caller,
            ):
                for server in ("rec", "keyed"):
                    # The passthrough model calls the tool with it, the tool says it back.
                    message = tool_call(f"{server}__note", text=f"{BEARER} password={PASSWORD}")
                    assert BEARER in await ask(caller, message, conversation_id=HANDLE)
                    seen += fleet.exchanges(run_of(fleet, "one"))
            assert any(BEARER in each.bearer for each in recorder.calls())
            text = everything(tuple(seen))
            assert [canary for canary in CANARIES if canary in text] == []
            assert f"[key {fingerprint(BEARER)}]" in text
            assert f"[key {fingerprint(KEY)}]" in text
            assert [each.side for each in seen].count("inbound") == 2
            assert {each.peer for each in seen if each.side == "downstream"} == {"rec", "keyed"}


@both_eras
async def test_an_inbound_request_and_its_answer_are_the_json_that_went_over_the_wire(
    stdio: Fleet, era: str
) -> None:
    async with client(stdio, "one", era=era) as caller:
        heard: list[float] = []

        async def progress(value: float, total: float | None, message: str | None) -> None:
            heard.append(value)

        result = await caller.call_tool(
            "send_message", {"message": '***CALL_TOOL echo__echo {"text": "hi"}'}, progress_callback=progress
        )
        assert not result.is_error
        assert heard
    run = run_of(stdio, "one")
    inbound, down = sorted(stdio.exchanges(run), key=lambda each: each.side != "inbound")
    request, response = json.loads(inbound.request), json.loads(inbound.response)
    assert (inbound.method, inbound.status) == ("tools/call", 200)
    assert request["params"]["arguments"]["message"].startswith("***CALL_TOOL")
    assert request["params"]["_meta"]["progressToken"] is not None
    assert response["id"] == request["id"]
    assert "echo:hi" in response["result"]["content"][0]["text"]
    assert dict(inbound.request_headers)["content-type"] == "application/json"
    assert dict(inbound.response_headers)["content-type"].startswith("text/event-stream")
    assert inbound.seconds is not None
    # The stdio server's: no headers, no status, and the span of the call.
    sent, got = json.loads(down.request), json.loads(down.response)
    assert (down.side, down.peer, down.status, down.request_headers) == ("downstream", "echo", None, ())
    assert sent["params"]["arguments"] == {"text": "hi"}
    assert got["id"] == sent["id"]
    assert down.span_id in sent["params"]["_meta"]["traceparent"]


async def test_a_run_in_flight_shows_what_it_waits_for(stdio: Fleet) -> None:
    async with client(stdio, "one") as caller:
        message = '***CALL_TOOL echo__slow {"text": "x"}'
        call = asyncio.create_task(caller.call_tool("send_message", {"message": message}))
        await until(lambda: len(stdio.exchanges(run_of(stdio, "one"))) == 2)
        run = run_of(stdio, "one")
        waiting = [each for each in stdio.exchanges(run) if each.side == "downstream"]
        assert [(each.method, each.response, each.seconds) for each in waiting] == [("tools/call", "", None)]
        stdio.kernel.cancel(run)
        await asyncio.wait({call}, timeout=30)
        assert call.done()


async def test_a_large_body_is_cut_and_says_so(stdio: Fleet) -> None:
    async with client(stdio, "one") as caller:
        await ask(caller, "x" * 200_000)
    (inbound,) = stdio.exchanges(run_of(stdio, "one"))
    assert inbound.cut
    assert len(inbound.request) <= MAX_BODY
    assert len(inbound.response) <= MAX_BODY


async def test_what_is_no_run_is_not_kept(stdio: Fleet) -> None:
    async with client(stdio, "one") as caller:
        await caller.list_tools()
        await caller.call_tool("get_health", {})
        await caller.call_tool("send_message", {"message": 5})
    assert stdio.kernel.wire is not None
    assert stdio.kernel.wire.size == 0


async def test_a_downstream_over_http_is_kept_with_status_and_headers(tmp_path: Path) -> None:
    root = offline_project(
        tmp_path,
        {"boss": agent_module("boss", ("helper",)), "helper": None},
        """
rules:
  - when: {last: user, system: boss}
    call:
      - tool: helper__send_message
        arguments: {message: "go", conversation_id: "canary-conversation-0123"}
  - when: {last: user}
    say: "done"
  - when: {last: tool}
    say: "it is done"
""",
        peers=("helper",),
        keys={"boss": {"depends_on": ["helper"]}},
    )
    async with running(root) as fleet:
        async with client(fleet, "boss") as caller:
            await ask(caller, "hello")
        exchanges = fleet.exchanges(run_of(fleet, "boss"))
        (call,) = [each for each in exchanges if each.side == "downstream" and each.method == "tools/call"]
        assert (call.peer, call.status) == ("helper", 200)
        assert json.loads(call.response)["result"]["content"][0]["text"] == "done"
        assert dict(call.request_headers)["mcp-protocol-version"] == "2026-07-28"
        assert json.loads(call.request)["params"]["arguments"]["conversation_id"] == "canary-c…"
        # What the one sent is what the other got.
        (got,) = [each for each in fleet.exchanges(run_of(fleet, "helper")) if each.side == "inbound"]
        assert got.peer == "pallas"
        assert json.loads(got.request) == json.loads(call.request)


async def test_headless_nothing_is_kept_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = load_project(write_project(tmp_path, {"one": None}))
    with pytest.raises(Fault, match="PALLAS_WIRE_RECORD=1"):
        Fleet(project).exchanges("any")
    assert Fleet(project, dev=True).exchanges("any") == ()
    monkeypatch.setenv("PALLAS_WIRE_RECORD", "1")
    assert Fleet(project).exchanges("any") == ()
    monkeypatch.setenv("PALLAS_WIRE_RECORD", "off")
    with pytest.raises(Fault):
        Fleet(project, dev=True).exchanges("any")


async def test_a_fleet_in_a_thread_tells_what_a_run_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALLAS_LOG_FILE", str(tmp_path / "pallas.log"))
    before = Path.cwd()
    fleet = ThreadedFleet(write_project(tmp_path, {"one": None}))
    assert await fleet.exchanges("before it runs") == ()
    fleet.start()
    try:
        await until(lambda: fleet.snapshot().state is FleetState.RUNNING, timeout=60)
        async with Client(fleet.snapshot().agents[0].url) as caller:
            await ask(caller, "hello")
        begun = [each for each in fleet.since(0).events if isinstance(each, RunStarted)]
        (inbound,) = await fleet.exchanges(begun[0].run_id)
        assert json.loads(inbound.response)["result"]["content"][0]["text"] == "hello"
        assert await fleet.exchanges("never") == ()
    finally:
        await asyncio.to_thread(fleet.stop, 10)
        os.chdir(before)
