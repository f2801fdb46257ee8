"""Faults that are injected into calls of tools show as real ones do: in answer, feed, health and log."""

import json
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from mcp import Client
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from support.live import ECHO, MODERN_FIRST, agent_module, client, running, tool_call, write_project
from support.outages import Outage, outages
from support.waiting import poll, until

from pallas.executors.faults import fault_injection
from pallas.executors.faults.fault_injection import FaultInjection
from pallas.executors.faults.provider_failures import GARBAGE
from pallas.fleet.fleet import Fleet
from pallas.model import AuthHop, Downstream, RunFinished, ToolEvent
from pallas.model.fault_rules import FaultKind, FaultPlan, FaultRule

FAULTS: tuple[FaultKind, ...] = ("401", "429", "500", "dropped", "garbage", "cut")
LIMIT = 90
"""Seconds that a call of the program may take."""

pytestmark = [pytest.mark.usefixtures("forked_children"), pytest.mark.asyncio(loop_scope="module")]


def calls(server: str, tool: str = "say", text: str = "x") -> str:
    """What makes the passthrough model call the tool."""
    return tool_call(f"{server}__{tool}", text=text)


async def ask(connected: Client, message: str) -> str:
    result = await connected.call_tool("send_message", {"message": message})
    return "".join(getattr(block, "text", "") for block in result.content)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def servers() -> AsyncIterator[list[Outage]]:
    async with outages("alpha", "bravo") as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory, servers: list[Outage]) -> AsyncIterator[Fleet]:
    """Agent ``one``. Nothing is injected unless a test has it: the rule is for no call that is made."""
    echo = {**ECHO["mcp"]["servers"]["echo"], "read_timeout_seconds": LIMIT}
    entries: Mapping[str, Any] = {**{each.name: {"url": each.url} for each in servers}, "echo": echo}
    root = write_project(
        tmp_path_factory.mktemp("tools"),
        {"one": agent_module("one", tuple(entries))},
        config={"mcp": {"servers": entries}},
    )
    async with running(root, faults=FaultPlan((FaultRule("none", "500", at=(1,)),))) as found:
        yield found


async def break_(server: Outage, what: FaultKind) -> None:
    """Have the server itself fail so."""

    async def garbage(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(GARBAGE, media_type="application/json")(scope, receive, send)

    async def cut(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        server.drop()

    def drop_once() -> None:
        server.on_request = None
        server.drop()

    server.refuse = int(what) if what.isdigit() else 0
    server.on_request = drop_once if what == "dropped" else None
    server.answer = {"garbage": garbage, "cut": cut}.get(what)


def downstreams_of(fleet: Fleet) -> Sequence[Downstream]:
    """As the fleet shows them."""
    return fleet.snapshot().agents[0].downstreams


async def outcome(fleet: Fleet, name: str, era: str, caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    """All that is said of a call that fails, without the name of the server."""

    def last_call() -> Any:
        (shown,) = (each for each in downstreams_of(fleet) if each.name == name)
        return shown.last_call

    since, before = fleet.hub.since(0, 100_000).events[-1].seq, last_call()
    caplog.clear()
    with caplog.at_level(logging.WARNING, "pallas"):
        async with client(fleet, "one", era=era) as one:
            answer = await ask(one, calls(name))
    await until(lambda: any(isinstance(each, RunFinished) for each in fleet.hub.since(since).events))
    events = fleet.hub.since(since).events
    call = await until(lambda: (found := last_call()) is not before and found)
    found = {
        "answer": answer,
        "tools": [(each.phase, each.error) for each in events if isinstance(each, ToolEvent)],
        "requests": [
            (each.method, each.status)
            for each in events
            if isinstance(each, AuthHop) and each.method == "tools/call"
        ],
        "health": (call.ok, call.detail, call.reach),
        "log": [each.getMessage() for each in caplog.records if each.name.startswith("pallas.forward")],
    }
    return dict(json.loads(json.dumps(found, default=str).replace(name, "NAME")))


@pytest.mark.parametrize("era", MODERN_FIRST)
@pytest.mark.parametrize("what", FAULTS)
async def test_a_fault_of_a_server_over_http_shows_as_the_real_one(
    fleet: Fleet, servers: list[Outage], what: FaultKind, era: str, caplog: pytest.LogCaptureFixture
) -> None:
    alpha, bravo = servers
    async with client(fleet, "one", era=era) as one:  # what failed before is over for both
        for server in servers:
            await ask(one, calls(server.name))
    names = {server.name for server in servers}
    await until(
        lambda: all(
            each.last_call and each.last_call.ok for each in downstreams_of(fleet) if each.name in names
        )
    )
    await break_(alpha, what)
    try:
        real = await outcome(fleet, alpha.name, era, caplog)
    finally:
        await break_(alpha, "slow")
    injection = FaultInjection(FaultPlan((FaultRule("bravo__say", what, rate=1.0),)))
    injection.install()
    try:
        found = await outcome(fleet, bravo.name, era, caplog)
    finally:
        injection.uninstall()
    assert found == real


@pytest.mark.parametrize("era", MODERN_FIRST)
@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("401", "Server returned an error response"),
        ("429", "Server returned an error response"),
        ("500", "Server returned an error response"),
        ("dropped", "the connection was closed in the middle of it"),
        ("cut", "the connection was closed in the middle of it"),
        ("garbage", "Failed to parse JSON response"),
    ],
)
async def test_a_program_fails_once_and_answers_the_next_call(
    fleet: Fleet, what: FaultKind, said: str, era: str
) -> None:
    since = fleet.hub.since(0, 100_000).events[-1].seq
    injection = FaultInjection(FaultPlan((FaultRule("echo", what, at=(1,)),)))
    injection.install()
    try:
        async with client(fleet, "one", era=era) as one:
            assert said in await ask(one, calls("echo", "echo", "first"))
            await poll(lambda: ask(one, calls("echo", "echo", "next")), lambda answer: "echo:next" in answer)
    finally:
        injection.uninstall()
    events = [each for each in fleet.hub.since(since).events if isinstance(each, ToolEvent)]
    assert [each.phase for each in events[:2]] == ["started", "failed"]
    assert said in events[1].error


async def test_a_slow_call_is_made_and_one_that_is_cut_was_made(fleet: Fleet, servers: list[Outage]) -> None:
    bravo = servers[1]
    rules = FaultRule("bravo", "slow", at=(1,), seconds=0.01), FaultRule("bravo__*", "cut", at=(2,))
    injection = FaultInjection(FaultPlan((*rules, FaultRule("echo", "slow", at=(1,), seconds=0.01))))
    injection.install()
    try:
        async with client(fleet, "one") as one:
            assert "bravo:x" in await ask(one, calls("bravo"))
            before = bravo.requests
            assert "bravo:x" not in await ask(one, calls("bravo"))
            assert bravo.requests > before
            assert "echo:x" in await ask(one, calls("echo", "echo"))
    finally:
        injection.uninstall()


@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_a_program_that_is_slower_than_it_may_be_fails_after_that_time(
    fleet: Fleet, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    async def pause(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(fault_injection, "_pause", pause)
    rules = FaultRule("echo", "slow", at=(1,), seconds=3600), FaultRule("echo", "slow", at=(2,), seconds=80)
    injection = FaultInjection(FaultPlan(rules))
    injection.install()
    try:
        async with client(fleet, "one", era=era) as one:
            assert f"it did not answer within {LIMIT} s" in await ask(one, calls("echo", "echo"))
            assert "echo:x" in await ask(one, calls("echo", "echo"))
    finally:
        injection.uninstall()
    assert waited == [LIMIT, 80]


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["none", "process"])
async def test_a_fault_of_a_fleet_reaches_its_agents(tmp_path: Path, isolation: str) -> None:
    root = write_project(
        tmp_path, {"one": agent_module("one", ("echo",))}, config=ECHO, keys={"one": {"isolation": isolation}}
    )
    plan = FaultPlan((FaultRule("echo__echo", "500", at=(2,)),))
    async with running(root, faults=plan) as found, client(found, "one") as one:
        answers = [await ask(one, calls("echo", "echo")) for _ in range(3)]
    assert ["echo:x" in answer for answer in answers] == [True, False, True]
