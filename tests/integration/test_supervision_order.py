"""Who is waited for when a fleet starts, and for what: started, ready, healthy."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.fake_downstreams import FakeDownstream, modern, serving, status
from support.live import write_project
from support.mortal import Fates, mortals, reaches, shown, told
from support.waiting import until

from pallas.config import load_project
from pallas.fleet.fleet import Fleet
from pallas.model import AgentChanged, AgentState, Fault, FaultType, HealthStatus

QUICK = {"restart": {"backoff": 0.05, "crashes": 3}}


def project(root: Path, needs: Any, config: dict[str, Any] | None = None, **more: Any) -> Path:
    """The agent ``one`` needs ``two``."""
    keys = {"one": {"depends_on": needs}, "two": {**QUICK, **more}}
    return write_project(root, {"one": None, "two": None}, keys=keys, config=config)


def first(fleet: Fleet, name: str, state: AgentState) -> AgentChanged:
    return next(
        event
        for event in fleet.hub.since(0).events
        if isinstance(event, AgentChanged) and (event.agent, event.state) == (name, state)
    )


def before(fleet: Fleet, earlier: tuple[str, AgentState], later: tuple[str, AgentState]) -> bool:
    one, other = first(fleet, *earlier), first(fleet, *later)
    return one.seq < other.seq and one.at <= other.at


@asynccontextmanager
async def starting(
    root: Path, fates: dict[str, Fates], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Fleet, asyncio.Task[None]]]:
    """A fleet that has begun to start, and the task that is over when all its agents have settled."""
    begun: asyncio.Future[tuple[Fleet, asyncio.Task[None]]] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()
    start: Callable[[Fleet], Any] = Fleet.start

    async def in_the_background(fleet: Fleet) -> None:
        begun.set_result((fleet, asyncio.create_task(start(fleet))))

    monkeypatch.setattr(Fleet, "start", in_the_background)

    async def hold() -> None:
        async with mortals(root, fates):
            await over.wait()

    holding = asyncio.create_task(hold())
    fleet, settled = await begun
    try:
        yield fleet, settled
    finally:
        settled.cancel()
        await asyncio.wait({settled})
        over.set()
        await holding


async def test_started_waits_for_the_port_and_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PR-5
    going = asyncio.Event()
    root = project(tmp_path, {"two": "started"})
    async with starting(root, {"two": Fates(starts=[going])}, monkeypatch) as (fleet, settled):
        await until(lambda: fleet.agents)
        await reaches(fleet, AgentState.READY)
        assert (shown(fleet, "two").state, shown(fleet, "two").booted) == (AgentState.CONNECTING, True)
        assert not shown(fleet, "two").ready
        going.set()
        await settled
        assert before(fleet, ("one", AgentState.READY), ("two", AgentState.READY))


@pytest.mark.parametrize("needs", [["two"], {"two": "ready"}, {"two": None}], ids=str)
async def test_ready_is_what_a_name_alone_asks_for(
    tmp_path: Path, needs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PR-5
    going = asyncio.Event()
    async with starting(project(tmp_path, needs), {"two": Fates(starts=[going])}, monkeypatch) as (
        fleet,
        settled,
    ):
        await until(lambda: fleet.agents)
        await reaches(fleet, AgentState.CONNECTING, "two")
        assert shown(fleet).state is AgentState.WAITING
        assert not shown(fleet).booted
        going.set()
        await settled
        assert before(fleet, ("two", AgentState.READY), ("one", AgentState.IMPORTING))
        assert told(fleet, "warning") == []


@pytest.mark.slow
async def test_healthy_waits_until_nothing_is_wrong_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PR-5
    fake = FakeDownstream(status(503))
    async with serving(fake) as origin:
        config = {"mcp": {"servers": {"broker": {"url": f"{origin}/mcp"}}}}
        root = project(tmp_path, {"two": {"condition": "healthy"}}, config)
        async with starting(root, {"two": Fates(servers=("broker",))}, monkeypatch) as (fleet, settled):
            await until(lambda: fleet.agents)
            await until(lambda: shown(fleet, "two").health.message == "Unreachable: broker")
            assert (shown(fleet, "two").ready, shown(fleet, "two").healthy) == (True, False)
            assert shown(fleet).state is AgentState.WAITING
            fake.answer = modern
            await settled
            assert shown(fleet, "two").health.status is HealthStatus.OK
            assert shown(fleet).state is AgentState.READY
            assert told(fleet, "warning") == []


async def test_an_agent_that_is_started_again_is_waited_for(tmp_path: Path) -> None:
    # PR-5
    away = [Fault(FaultType.TRANSPORT, "not yet"), Fault(FaultType.TRANSPORT, "not yet")]
    async with mortals(project(tmp_path, ["two"]), {"two": Fates(starts=[*away])}) as fleet:
        assert shown(fleet).state is AgentState.READY
        assert before(fleet, ("two", AgentState.BACKOFF), ("two", AgentState.READY))
        assert before(fleet, ("two", AgentState.READY), ("one", AgentState.IMPORTING))
        assert told(fleet, "warning") == []


async def test_an_agent_in_a_crash_loop_is_not_waited_for(tmp_path: Path) -> None:
    # PR-7
    away = [Fault(FaultType.TRANSPORT, "no broker") for _ in range(3)]
    async with mortals(project(tmp_path, ["two"]), {"two": Fates(starts=[*away])}) as fleet:
        assert shown(fleet, "two").state is AgentState.CRASH_LOOP
        assert shown(fleet).state is AgentState.READY
        (warning,) = told(fleet, "warning")
        assert warning.startswith("one starts without two, which it depends on: 3 failures within 300 s")


@pytest.mark.slow
@pytest.mark.parametrize("condition", ["ready", "healthy"])
async def test_nobody_is_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, condition: str
) -> None:
    # PR-5
    monkeypatch.setattr("pallas.fleet.start_order.READY_TIMEOUT", 2.0)
    fates, reason = Fates(starts=[asyncio.Event()]), "it was not ready within 2 s (connecting)"
    if condition == "healthy":
        fates = Fates(servers=("broker",))
        reason = "it was not healthy within 2 s (Unreachable: broker)"
    config = {"mcp": {"servers": {"broker": {"url": "http://127.0.0.1:9/mcp"}}}}
    root = project(tmp_path, {"two": condition}, config)
    async with starting(root, {"two": fates}, monkeypatch) as (fleet, _):
        await until(lambda: fleet.agents)
        await reaches(fleet, AgentState.READY)
        assert told(fleet, "warning") == [f"one starts without two, which it depends on: {reason}"]


async def test_what_several_agents_need_is_waited_for_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PR-5, PR-6
    names = ("two", "three")
    root = write_project(
        tmp_path, {"one": None, "two": None, "three": None}, keys={"one": {"depends_on": [*names]}}
    )
    fates = {name: Fates(starts=[asyncio.Event()]) for name in names}
    gates = {name: fates[name].starts[0] for name in names}
    async with starting(root, fates, monkeypatch) as (fleet, settled):
        await until(lambda: fleet.agents)
        for name in names:
            await reaches(fleet, AgentState.CONNECTING, name)
        for name in reversed(names):
            gate = gates[name]
            assert isinstance(gate, asyncio.Event)
            assert shown(fleet).state is AgentState.WAITING
            gate.set()
            await reaches(fleet, AgentState.READY, name)
        await settled
        for name in names:
            assert before(fleet, (name, AgentState.READY), ("one", AgentState.IMPORTING))


def test_the_conditions_of_the_files_are_those_of_the_start(tmp_path: Path) -> None:
    config = load_project(project(tmp_path, {"two": "healthy"})).agents["one"]
    assert [(need.name, need.condition) for need in config.needs] == [("two", "healthy")]
