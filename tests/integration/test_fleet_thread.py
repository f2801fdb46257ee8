"""A fleet in a thread of its own, as the workbench holds it."""

import asyncio
import shutil
import threading
from pathlib import Path

import pytest
from mcp import Client
from support.live import ECHO, agent_module, write_project
from support.ports import is_free
from support.threads import started
from support.waiting import until

from pallas.config import load_project
from pallas.fleet.threaded_fleet import ThreadedFleet
from pallas.model import AgentState, FleetState, RunFinished, RunStarted


@pytest.fixture(autouse=True)
def own_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALLAS_LOG_FILE", str(tmp_path / "pallas.log"))


async def _running(fleet: ThreadedFleet) -> None:
    await until(lambda: fleet.snapshot().state is FleetState.RUNNING, timeout=60)


async def test_it_starts_answers_and_stops_leaving_nothing(tmp_path: Path) -> None:
    write_project(tmp_path, {"one": agent_module("one", ("echo",))}, config=ECHO)
    threads = threading.active_count()
    with started(tmp_path) as fleet:
        assert fleet.snapshot().state is FleetState.STARTING
        await _running(fleet)
        (agent,) = fleet.snapshot().agents
        assert agent.state is AgentState.READY
        assert agent.started_in is not None
        async with Client(agent.url) as client:
            await client.call_tool("send_message", {"message": "hello"})
        await until(lambda: fleet.snapshot().agents[0].runs_total == 1)
        assert fleet.snapshot().agents[0].last_latency is not None
        events = fleet.since(0).events
        assert any(isinstance(event, RunFinished) and event.outcome == "ok" for event in events)
    assert fleet.snapshot().state is FleetState.STOPPED
    assert is_free(agent.port)
    await until(lambda: threading.active_count() <= threads + 1)  # a pool thread of the test's own loop


async def test_a_project_with_mistakes_is_shown_with_all_of_them(tmp_path: Path) -> None:
    (tmp_path / "agents.yaml").write_text("nam: x\nagents:\n  a: {module: nowhere, port: 0}\n")
    with started(tmp_path) as fleet:
        await until(lambda: fleet.snapshot().state is FleetState.FAILED)
        error = fleet.snapshot().error
        assert len(error.splitlines()) >= 4
        assert "agents.yaml:1" in error
        assert fleet.snapshot().agents == ()


async def test_a_port_that_is_taken_is_shown(tmp_path: Path) -> None:
    # PR-8
    root = write_project(tmp_path / "first", {"one": None})
    shutil.copytree(root, tmp_path / "second")  # another project with the same ports
    with started(root) as first:
        await _running(first)
        with started(tmp_path / "second") as second:
            await until(lambda: second.snapshot().state is FleetState.FAILED)
            assert "agent one: port" in second.snapshot().error
            assert "is in use" in second.snapshot().error
        assert first.snapshot().state is FleetState.RUNNING


async def test_an_agent_that_blocks_its_loop_never_blocks_a_reader(tmp_path: Path) -> None:
    blocking = agent_module("blocking").replace(
        "async def main() -> None: ...",
        "async def main() -> None: ...\n\n\nimport time\n\ntime.sleep(0.5)\n",
    )
    write_project(tmp_path, {"blocking": blocking})
    with started(tmp_path) as fleet:
        looks = 0
        while fleet.snapshot().state is not FleetState.RUNNING:
            fleet.since(0)
            looks += 1
            await asyncio.sleep(0.01)
        assert looks > 10


async def test_a_run_is_cancelled_from_another_thread(tmp_path: Path) -> None:
    write_project(tmp_path, {"one": agent_module("one", ("echo",))}, config=ECHO)
    with started(tmp_path) as fleet:
        await _running(fleet)
        async with Client(fleet.snapshot().agents[0].url) as client:
            call = asyncio.create_task(
                client.call_tool("send_message", {"message": '***CALL_TOOL echo__slow {"text": "x"}'})
            )
            run = await until(lambda: next(e for e in fleet.since(0).events if isinstance(e, RunStarted)))
            await until(lambda: fleet.snapshot().agents[0].runs_active == 1)
            fleet.cancel(run.run_id)
            result = await asyncio.wait_for(call, 60)
            assert result.is_error
            assert "cancelled" in repr(result.content)
        fleet.cancel("no such run")


def test_stopping_before_it_started_and_twice_is_harmless(tmp_path: Path) -> None:
    write_project(tmp_path, {"one": None})
    fleet = ThreadedFleet(tmp_path)
    fleet.stop(1)
    with started(tmp_path) as other:
        other.stop(30)
        other.stop(1)
    for agent in load_project(tmp_path).agents.values():
        assert is_free(agent.port)
