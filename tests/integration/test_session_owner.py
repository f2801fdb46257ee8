"""A session stays with the agent that it was opened with, and ends when another one takes its name."""

import asyncio
from pathlib import Path
from typing import Any

import psutil
import pytest
from mcp import Client
from support.bridged import refused, tell
from support.live import MODERN_FIRST, module_fleet, write_project
from support.processes import gone
from support.served import text_of
from support.waiting import until
from support.workers import ACP, SIMPLE

from pallas.fleet.fleet import Fleet
from pallas.handlers import PromptRequest

pytestmark = pytest.mark.asyncio(loop_scope="module")
both_eras = pytest.mark.parametrize("era", MODERN_FIRST)


class Upper:
    """Answers in capital letters, in this process."""

    def __init__(self, name: str) -> None:
        self.id = name

    async def prompt(self, request: PromptRequest) -> str:
        return request.text.upper()


@module_fleet()
def fleet(folder: Path) -> Path:
    def worker(program: Any, mode: str = "") -> dict[str, Any]:
        env = {"PYTHONUNBUFFERED": "1", "WORKER_MODE": mode}
        return {"module": None, "kind": "worker", "command": ["python", str(program)], "env": env}

    keys = {
        "modern": worker(SIMPLE),
        "legacy": worker(SIMPLE),
        "nosession": worker(SIMPLE, "nosession"),
        "login": worker(ACP, "login"),
    }
    return write_project(folder, dict.fromkeys(keys), keys=keys)


def _bridge(fleet: Fleet, era: str) -> Client:
    return Client(f"http://127.0.0.1:{fleet.project.registry_port}/mcp", mode=era)


@both_eras
async def test_an_agent_in_the_process_that_takes_a_workers_id_ends_the_workers_sessions(
    fleet: Fleet, era: str
) -> None:
    # DR-17
    name = "legacy" if era == "legacy" else "modern"
    agent = next(each for each in fleet.agents if each.name == name)
    async with _bridge(fleet, era) as bridge:
        idle, busy = [(await tell(bridge, "sessions_create", agentId=name))["sessionId"] for _ in range(2)]
        assert (await tell(bridge, "sessions_prompt", sessionId=idle, prompt="hello"))["text"] == "1:hello"
        held = asyncio.create_task(bridge.call_tool("sessions_prompt", {"sessionId": busy, "prompt": "hold"}))
        await until(lambda: any(each.status == "busy" for each in fleet.surfaces.sessions.records()))
        pid = agent.executor.pid if agent.executor is not None else None
        assert pid is not None
        worker = psutil.Process(pid)
        await fleet.register(Upper(name))
        await until(lambda: [each.id for each in fleet.surfaces.sessions.records()] == [busy])
        # What runs goes on with the worker; nothing else is asked of whoever has its name now.
        more = {"prompt": "hello", "queue": True}
        assert "is gone" in (await refused(bridge, "sessions_prompt", sessionId=busy, **more))["error"]
        assert not held.done()
        await tell(bridge, "sessions_cancel", sessionId=busy)
        assert '"stopReason": "cancelled"' in text_of(await held)
        await until(lambda: fleet.surfaces.sessions.active == 0 and gone(worker.pid))
        for session in (idle, busy):
            for tool, more in (("sessions_status", {}), ("sessions_prompt", {"prompt": "hello"})):
                body = await refused(bridge, tool, sessionId=session, **more)
                assert (body["data"]["type"], body["data"]["ended"]) == ("UPSTREAM", "agent-gone")
        said = await tell(bridge, "tasks_delegate", agentId=name, prompt="hello")
        assert said["text"] == "HELLO"
    await fleet.unregister(name)


@both_eras
@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [("nosession", "PROTOCOL", "sessionId"), ("login", "AUTH", "has to be logged in")],
)
async def test_a_worker_without_a_session_of_its_own_is_reported_when_one_is_created(
    fleet: Fleet, name: str, kind: str, text: str, era: str
) -> None:
    # DR-28
    async with _bridge(fleet, era) as bridge:
        body = await refused(bridge, "sessions_create", agentId=name)
        assert (body["data"]["type"], text in body["error"]) == (kind, True), body
        assert not fleet.surfaces.sessions.records()
