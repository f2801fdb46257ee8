"""Workers that end as soon as they are started, on the event loop that a fleet has outside of tests."""

from pathlib import Path
from typing import Any

import pytest
from support.live import running, write_project
from support.waiting import until

from pallas.executors.worker.worker_connection import WorkerChild
from pallas.model import AgentState
from pallas.processes import event_loop

ENDS = {
    "silent": ["python", "-c", "raise SystemExit(7)"],
    "true": ["true"],
    "closes": ["sh", "-c", "exec <&-; exit 7"],
    "prints": ["sh", "-c", "echo not-json; echo lost >&2; exit 7"],
}


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["auto", "ndjson"])
def test_a_worker_that_ends_at_once_has_all_its_restarts(tmp_path: Path, dialect: str) -> None:
    # DR-29
    quick = {"crashes": 6, "backoff": 0.05, "backoff_max": 0.05}
    keys: dict[str, dict[str, Any]] = {
        name: {"module": None, "kind": "worker", "command": command, "dialect": dialect, "restart": quick}
        for name, command in ENDS.items()
    }
    root = write_project(tmp_path, dict.fromkeys(keys), keys=keys)

    async def main() -> None:
        async with running(root) as fleet:
            ended = (AgentState.CRASH_LOOP, AgentState.ERROR)
            await until(lambda: all(each.state in ended for each in fleet.agents))
            for agent in fleet.agents:
                assert agent.state is AgentState.CRASH_LOOP, (agent.name, agent.reason)
                assert agent.reason.startswith("6 failures within 60 s"), agent.reason
                assert agent.supervisor.restarts == 5
                assert "Transport" not in agent.reason, agent.reason

    with event_loop.new_runner() as runner:
        runner.run(main())


def test_a_worker_that_is_gone_before_it_is_spoken_to_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # DR-29
    start = WorkerChild.start

    async def started_and_gone(*given: Any) -> WorkerChild:
        process = await start(*given)
        assert await process.wait_gone(60)
        return process

    monkeypatch.setattr(WorkerChild, "start", started_and_gone)
    quick = {"crashes": 2, "backoff": 0.05}
    gone = {"module": None, "kind": "worker", "command": ["sh", "-c", "exit 7"], "restart": quick}
    root = write_project(tmp_path, {"gone": None}, keys={"gone": gone})

    async def main() -> None:
        async with running(root) as fleet:
            (agent,) = fleet.agents
            await until(lambda: agent.state in (AgentState.CRASH_LOOP, AgentState.ERROR))
            assert agent.state is AgentState.CRASH_LOOP, agent.reason
            assert "its worker ended with exit status 7" in agent.reason

    with event_loop.new_runner() as runner:
        runner.run(main())
