"""A caller that gives up, politely or not, ends the work it asked for, and nothing of it stays."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from mcp import Client
from support import raw_client
from support.live import ERAS, agent_module, ask, client, module_fleet
from support.offline import model_record, offline_project
from support.waiting import until

from pallas.fleet.fleet import Fleet
from pallas.model import RunFinished, RunStarted, StepChanged, ToolEvent

SCRIPT = """
rules:
  - when: {last: user, system: You are boss, text: delegate as before}
    call: [{tool: elder_helper__send_message, arguments: {message: "slow tool"}}]
  - when: {last: user, system: You are boss, text: delegate}
    call: [{tool: helper__send_message, arguments: {message: "slow tool"}}]
  - when: {last: user, text: slow tool}
    call: [{tool: echo__slow, arguments: {text: "x"}}]
  - when: {last: user, text: slow model}
    say: "word by word by word by word by word by word by word"
    pace: 30
  - when: {last: user}
    say: "turn {{ turns }}"
"""
KINDS = ("slow tool", "slow model", "delegate")
# The steps of a run that is cancelled in the middle.
_DELEGATED = [
    ("boss", "model", "done"),
    ("boss", "tool", "cancelled"),
    ("helper", "model", "done"),
    ("helper", "tool", "cancelled"),
]
_CUT = {
    "slow tool": [("boss", "model", "done"), ("boss", "tool", "cancelled")],
    "slow model": [("boss", "model", "cancelled")],
    "delegate": _DELEGATED,
    "delegate as before": _DELEGATED,
}
# What an idle instance may hold, and may not: a child with its pipes, two connections with both ends here.
INSTANCE_DESCRIPTORS = 8
INSTANCE_CHILDREN = 1

pytestmark = pytest.mark.asyncio(loop_scope="module")
both_eras = pytest.mark.parametrize("era", ERAS)


@module_fleet()
def fleet(folder: Path) -> Path:
    return offline_project(
        folder,
        {
            "boss": agent_module("boss", ("helper", "elder_helper", "echo")),
            "helper": agent_module("helper", ("echo",)),
            "hasty": agent_module("hasty", ("echo",)),
        },
        SCRIPT,
        peers=("helper",),
        elders=("helper",),
        keys={
            "boss": {"depends_on": ["helper"], "max_instances": 3},
            "helper": {"max_instances": 3},
            "hasty": {"run_timeout": 1},
        },
    )


def _executor(fleet: Fleet, name: str) -> Any:
    return next(agent.executor for agent in fleet.agents if agent.name == name)


def _under_way(fleet: Fleet, since: int, kind: str) -> bool:
    """Whether what was asked for has come as far as it will by itself."""
    events = fleet.hub.since(since).events
    if kind == "slow model":
        return model_record(fleet).active > 0
    agent = "helper" if kind.startswith("delegate") else "boss"
    return any(isinstance(e, ToolEvent) and e.agent == agent and e.tool == "slow" for e in events)


def _outcomes(fleet: Fleet, since: int) -> list[tuple[str, str]]:
    events = fleet.hub.since(since).events
    return sorted((e.agent, e.outcome) for e in events if isinstance(e, RunFinished))


def _steps(fleet: Fleet, since: int) -> list[tuple[str, str, str]]:
    """How each step is at last: agent, kind and state."""
    events = [each for each in fleet.hub.since(since).events if isinstance(each, StepChanged)]
    last = {(each.run_id, each.step.number): each for each in events}
    return sorted((each.agent, each.step.kind, each.step.state) for each in last.values())


def _idle(fleet: Fleet) -> bool:
    """No run, no model call, no instance on its way in or out."""
    pools = [_executor(fleet, agent.name)._pool for agent in fleet.agents]
    return (
        not fleet.kernel._runs
        and model_record(fleet).active == 0
        and not any(pool._tasks or pool.waiting or pool.size != len(pool._idle) for pool in pools)
    )


def _port_is_quiet(fleet: Fleet, name: str) -> bool:
    """Whether no request is served at the agent's port, and no connection is left there."""
    listener = fleet.ports._ports[fleet.project.agents[name].port].listener
    assert listener is not None
    served = listener._server.server_state
    return not served.connections and not served.tasks


@asynccontextmanager
async def _open_sockets(fleet: Fleet, agent: str, era: str, message: str, count: int) -> AsyncIterator[None]:
    """``count`` calls over sockets of our own, cut without a word at the end of the block."""
    url = next(each.url for each in fleet.agents if each.name == agent)
    writers = [await raw_client.call(url, era, message, number % 2) for number in range(count)]
    try:
        yield
    finally:
        for writer in writers:
            writer.transport.abort()


@both_eras
@pytest.mark.parametrize("kind", [*KINDS, "delegate as before"])
async def test_a_cancel_stops_model_tool_and_sub_agent_and_the_next_turn_works(
    fleet: Fleet, era: str, kind: str
) -> None:
    before, handle = fleet.hub.seq, f"cancel-{era}-{kind}".replace(" ", "-")
    async with client(fleet, "boss", era=era) as boss:
        arguments = {"message": kind, "conversation_id": handle}
        call = asyncio.create_task(boss.call_tool("send_message", arguments))
        await until(lambda: _under_way(fleet, before, kind))
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call
        await until(lambda: _idle(fleet))
        expected = [("boss", "cancelled")] + ([("helper", "cancelled")] if "delegate" in kind else [])
        assert _outcomes(fleet, before) == expected
        assert _steps(fleet, before) == _CUT[kind]
        assert await ask(boss, "and now?", conversation_id=handle) == "turn 1"


@pytest.mark.parametrize("kind", [*KINDS, "delegate as before"])
async def test_the_steps_of_a_run_that_an_operator_cancels_say_so(fleet: Fleet, kind: str) -> None:
    before = fleet.hub.seq
    async with client(fleet, "boss") as boss:
        call = asyncio.create_task(boss.call_tool("send_message", {"message": kind}))
        await until(lambda: _under_way(fleet, before, kind))
        started = (each for each in fleet.hub.since(before).events if isinstance(each, RunStarted))
        run = next(each.run_id for each in started if each.agent == "boss")
        assert fleet.kernel.cancel(run)
        await call
    await until(lambda: _idle(fleet))
    assert _steps(fleet, before) == _CUT[kind]


@both_eras
@pytest.mark.parametrize("kind", ["slow tool", "slow model"])
async def test_a_run_past_its_deadline_is_stopped_and_the_next_turn_works(
    fleet: Fleet, era: str, kind: str
) -> None:
    before, handle = fleet.hub.seq, f"hasty-{era}-{kind}".replace(" ", "-")
    async with client(fleet, "hasty", era=era) as hasty:
        result = await hasty.call_tool("send_message", {"message": kind, "conversation_id": handle})
        assert result.is_error
        body = json.loads(result.content[0].text)  # type: ignore[union-attr]
        assert "longer than 1 s and was stopped" in body["error"]
        assert "run_timeout of hasty in agents.yaml" in body["error"]
        assert body["data"] == {"type": "TIMEOUT", "retryable": True, "limit": 1}
        assert body["code"] == -32001
        await until(lambda: _idle(fleet))
        assert _outcomes(fleet, before) == [("hasty", "error")]
        # The second also has to make a new instance: on a busy machine that alone may take longer.
        next_turn = {"message": "and now?", "conversation_id": handle}
        async with asyncio.timeout(60):
            while (result := await hasty.call_tool("send_message", next_turn)).is_error:
                assert "longer than 1 s" in result.content[0].text  # type: ignore[union-attr]
        assert result.content[0].text == "turn 1"  # type: ignore[union-attr]


@both_eras
@pytest.mark.parametrize(("kind", "progress"), [("slow tool", 0), ("slow model", 1), ("delegate", 1)])
async def test_a_client_that_vanishes_cancels_its_run(
    fleet: Fleet, era: str, kind: str, progress: int
) -> None:
    before = fleet.hub.seq
    url = next(each.url for each in fleet.agents if each.name == "boss")
    writer = await raw_client.call(url, era, kind, progress)
    await until(lambda: _under_way(fleet, before, kind))
    writer.transport.abort()
    await until(lambda: ("boss", "cancelled") in _outcomes(fleet, before))
    await until(lambda: _idle(fleet))
    if kind == "delegate":
        assert ("helper", "cancelled") in _outcomes(fleet, before)


def _footprint() -> tuple[int, int]:
    process = psutil.Process()
    return process.num_fds(), len(process.children(recursive=True))


def _sizes(fleet: Fleet) -> list[int]:
    return [_executor(fleet, agent.name)._pool.size for agent in fleet.agents]


async def _ten(callers: Sequence[Client], fleet: Fleet, since: int) -> None:
    calls = [
        asyncio.create_task(callers[number % 2].call_tool("send_message", {"message": KINDS[number % 3]}))
        for number in range(10)
    ]

    def started() -> int:
        events = fleet.hub.since(since).events
        return sum(isinstance(event, RunStarted) and event.agent == "boss" for event in events)

    await until(lambda: started() >= 10)
    await until(lambda: any(isinstance(e, ToolEvent) for e in fleet.hub.since(since).events))
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    await until(lambda: _idle(fleet))


@pytest.mark.slow
async def test_thirty_cancels_leave_descriptors_children_and_instances_as_they_were(fleet: Fleet) -> None:
    async with client(fleet, "boss", era=ERAS[0]) as boss, client(fleet, "boss", era=ERAS[1]) as elder:
        await _ten((boss, elder), fleet, fleet.hub.seq)
        await ask(boss, "warm again")
        await ask(elder, "warm again")
        await until(lambda: _idle(fleet))
        for agent in fleet.agents:
            await _executor(fleet, agent.name)._pool.trim(older_than=0)
        await until(lambda: _idle(fleet))
        descriptors, children = _footprint()
        for _ in range(3):
            await _ten((boss, elder), fleet, fleet.hub.seq)
        assert await ask(boss, "still there?", conversation_id="there") == "turn 1"
        assert await ask(elder, "still there?", conversation_id="there-too") == "turn 1"
        for agent in fleet.agents:
            await _executor(fleet, agent.name)._pool.trim(older_than=0)

        def as_before() -> bool:
            now = _footprint()
            return _idle(fleet) and now[0] <= descriptors and now[1] <= children

        await until(as_before)
        assert all(size <= 1 for size in _sizes(fleet))


@pytest.mark.slow
@both_eras
async def test_abrupt_disconnects_under_load_leave_no_task_lock_session_or_child(
    fleet: Fleet, era: str
) -> None:
    async def burst() -> None:
        before = fleet.hub.seq
        for kind in KINDS:
            async with _open_sockets(fleet, "boss", era, kind, 4):
                await until(
                    lambda: any(
                        isinstance(e, RunStarted) and e.agent == "boss"
                        for e in fleet.hub.since(before).events
                    )
                )
        await until(lambda: _port_is_quiet(fleet, "boss") and _idle(fleet))
        for agent in fleet.agents:
            await _executor(fleet, agent.name)._pool.trim(older_than=0)
        await until(lambda: _idle(fleet))

    await burst()
    (descriptors, children), tasks = _footprint(), len(asyncio.all_tasks())
    for _ in range(3):  # 36 disconnects: one descriptor each, or one child a burst, is more than the margin
        await burst()

    def as_before() -> bool:
        now = _footprint()
        return now[0] <= descriptors + INSTANCE_DESCRIPTORS and now[1] <= children + INSTANCE_CHILDREN

    await until(as_before)
    if era == ERAS[0]:  # a session of the older era lives until it is idle: one task group each
        await until(lambda: len(asyncio.all_tasks()) <= tasks)
    assert not any(each.busy for each in fleet.kernel._conversations["boss"]._all.values())
    async with client(fleet, "boss", era=era) as boss:
        assert await ask(boss, "still there?", conversation_id=f"abrupt-{era}") == "turn 1"
