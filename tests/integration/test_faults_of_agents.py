"""Faults that are injected into messages to workers and remote agents show as real ones do."""

import asyncio
import json
import logging
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import pytest_asyncio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from support.live import ERAS, MODERN_FIRST, ask, client, running, write_project
from support.outages import Outage, outages
from support.waiting import until
from support.workers import SIMPLE

from pallas.executors.faults import fault_injection
from pallas.executors.faults.fault_injection import FaultInjection, current_injection
from pallas.executors.faults.provider_failures import GARBAGE
from pallas.fleet.fleet import Fleet
from pallas.model import AgentState, AuthHop, RunFinished
from pallas.model.fault_rules import FaultKind, FaultPlan, FaultRule

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def servers() -> AsyncIterator[list[Outage]]:
    async with outages("alpha", "bravo") as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory, servers: list[Outage]) -> AsyncIterator[Fleet]:
    """The remote agents ``alpha`` and ``bravo``, and the worker ``coder``. The rule is for no call."""
    remotes = {each.name: {"module": None, "kind": "remote", "url": each.url} for each in servers}
    command = ["python", str(SIMPLE)]
    restart = {"backoff": 0.05, "backoff_max": 0.05, "crashes": 100}
    coder = {"module": None, "kind": "worker", "command": command, "env": {"PYTHONUNBUFFERED": "1"}}
    keys: dict[str, Any] = {**remotes, "coder": {**coder, "restart": restart}}
    root = write_project(tmp_path_factory.mktemp("agents"), dict.fromkeys(keys), keys=keys)
    async with running(root, faults=FaultPlan((FaultRule("none", "500", at=(1,)),))) as found:
        await until(lambda: all(each.state is AgentState.READY for each in found.agents))
        yield found


@contextmanager
def injected(*rules: FaultRule) -> Iterator[None]:
    before, injection = current_injection(), FaultInjection(FaultPlan(rules))
    assert before is not None
    before.uninstall()
    injection.install()
    try:
        yield
    finally:
        injection.uninstall()
        before.install()


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

    server.refuse = int(what) if what.isdigit() else 0
    server.on_request = server.drop if what == "dropped" else None
    server.answer = {"garbage": garbage, "cut": cut}.get(what)


async def outcome(fleet: Fleet, name: str, era: str, message: str = "x") -> dict[str, Any]:
    """All that is said of a message that fails, without the name of the agent."""
    since = fleet.hub.since(0, 100_000).events[-1].seq
    async with client(fleet, name, era=era) as connected:
        result = await connected.call_tool("send_message", {"message": message})
    await until(lambda: any(isinstance(each, RunFinished) for each in fleet.hub.since(since).events))
    events = fleet.hub.since(since).events
    found = {
        "answer": (result.is_error, "".join(getattr(block, "text", "") for block in result.content)),
        "runs": [(each.outcome, each.fault) for each in events if isinstance(each, RunFinished)],
        "requests": [
            (each.method, each.status)
            for each in events
            if isinstance(each, AuthHop) and each.method == "tools/call"
        ],
    }
    return dict(json.loads(json.dumps(found, default=str).replace(name, "NAME")))


def _portless(found: dict[str, Any], server: Outage) -> dict[str, Any]:
    return dict(json.loads(json.dumps(found).replace(str(server.port), "PORT")))


def pid_of(fleet: Fleet) -> int:
    """The process of the worker."""
    agent = fleet.snapshot().agent("coder")
    assert agent is not None
    assert agent.pid is not None
    return agent.pid


async def is_well(fleet: Fleet, name: str) -> None:
    """Wait until an agent answers again."""

    async def answers() -> bool:
        async with client(fleet, name) as connected:
            result = await connected.call_tool("send_message", {"message": "hello"})
        return not result.is_error

    await until(answers)


@pytest.mark.parametrize("era", MODERN_FIRST)
@pytest.mark.parametrize("what", ["401", "429", "500", "dropped", "garbage", "cut"])
async def test_a_fault_of_a_remote_agent_shows_as_the_real_one(
    fleet: Fleet, servers: list[Outage], what: FaultKind, era: str
) -> None:
    alpha, bravo = servers
    await is_well(fleet, alpha.name)
    await break_(alpha, what)
    try:
        real = await outcome(fleet, alpha.name, era)
    finally:
        await break_(alpha, "slow")
    await is_well(fleet, bravo.name)
    with injected(FaultRule("agent:bravo", what, rate=1.0)):
        found = await outcome(fleet, bravo.name, era)
    assert _portless(found, bravo) == _portless(real, alpha)
    assert found["answer"][0] is True
    await is_well(fleet, bravo.name)


async def test_a_slow_remote_agent_answers_and_one_that_is_cut_was_asked(
    fleet: Fleet, servers: list[Outage], caplog: pytest.LogCaptureFixture
) -> None:
    bravo = servers[1]
    await is_well(fleet, bravo.name)
    rules = FaultRule("agent:*", "slow", at=(1,), seconds=0.01), FaultRule("agent:bravo", "cut", at=(2,))
    with injected(*rules), caplog.at_level(logging.INFO, "pallas"):
        async with client(fleet, "bravo") as connected:
            assert await ask(connected, "x") == "bravo:x"
            before = bravo.requests
            result = await connected.call_tool("send_message", {"message": "x"})
            assert result.is_error
            assert bravo.requests > before
    said = [each.getMessage() for each in caplog.records if each.getMessage().startswith("fault injected")]
    assert said == [
        "fault injected: slow into call 1 of agent:bravo", "fault injected: cut into call 2 of agent:bravo",
    ]  # fmt: skip


@pytest.mark.parametrize("era", MODERN_FIRST)
@pytest.mark.parametrize("what", ["dropped", "cut"])
async def test_a_worker_whose_connection_is_lost_has_crashed_and_is_started_again(
    fleet: Fleet, what: FaultKind, era: str
) -> None:
    await is_well(fleet, "coder")
    pid = pid_of(fleet)
    with injected(FaultRule("agent:coder", what, rate=1.0)):
        found = await outcome(fleet, "coder", era)
    await until(lambda: fleet.snapshot().agent("coder").started_again > 0)  # type: ignore[union-attr]
    await is_well(fleet, "coder")
    now = pid_of(fleet)
    assert now != pid
    # The real one is that it is killed.
    async with client(fleet, "coder", era=era) as connected:
        killed = await killed_while_it_holds(fleet, connected)
    assert found["answer"][1].replace(str(pid), "PID") == killed.replace("coder", "NAME")
    assert "ended by SIGKILL" in killed
    await is_well(fleet, "coder")


async def killed_while_it_holds(fleet: Fleet, connected: Any) -> str:
    """The answer of the worker that is killed in the middle of a message."""
    asking = asyncio.create_task(connected.call_tool("send_message", {"message": "hold"}))
    await until(lambda: fleet.snapshot().agent("coder").runs_active == 1)  # type: ignore[union-attr]
    os.kill(pid_of(fleet), signal.SIGKILL)
    result = await asking
    assert result.is_error
    return "".join(getattr(block, "text", "") for block in result.content)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("garbage", "the worker wrote a line that is not a JSON-RPC message: <html><body>502 "),
        (
            "500",
            " with an error: Internal error: HTTP 500 (injected fault)",
        ),
    ],
)
async def test_a_worker_fails_once_and_answers_the_next_message(
    fleet: Fleet, what: FaultKind, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await is_well(fleet, "coder")
    waited: list[float] = []

    async def pause(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(fault_injection, "_pause", pause)
    rules = FaultRule("agent:coder", what, at=(1,)), FaultRule("agent:coder", "slow", at=(2,), seconds=7)
    pid = pid_of(fleet)
    with injected(*rules):
        found = await outcome(fleet, "coder", ERAS[0], "one")
        assert said in found["answer"][1]
        assert found["runs"][0][0] == "error"
        async with client(fleet, "coder") as connected:
            assert await ask(connected, "two") == "1:two"
    assert waited == [7]
    assert pid_of(fleet) == pid
