"""The end of a fleet whose agents of every kind are busy for callers of its bridge."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import httpx2
import psutil
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from support import pallas_process
from support.live import ERAS, running
from support.offline import offline_project
from support.processes import gone
from support.remotes import other
from support.served import served, text_of
from support.waiting import until
from support.workers import SIMPLE

from pallas.cli.exit_status import CUT
from pallas.fleet import shutdown
from pallas.fleet.fleet import Fleet

SCRIPT = """
rules:
  - {when: {text: hold}, delay: 60, say: "late"}
"""
HANDS = '''
import asyncio


async def holds(request):
    """Never ends by itself."""
    await asyncio.Event().wait()


class Stubborn:
    """Neither ends when it is cancelled nor lets its session go."""

    id = "bad"

    async def prompt(self, request):
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            await asyncio.sleep(600)

    async def on_session_close(self, session, reason):
        await asyncio.sleep(600)


BAD = Stubborn()
'''
WORKER = {"kind": "worker", "module": None, "command": ["python", str(SIMPLE)]}
# What each is asked that keeps it busy; the worker ``stays`` heeds no signal, either.
BUSY = {
    "boss": "hold",
    "coder": "hold",
    "stays": "stubborn",
    "hand": "hold",
    "bad": "hold",
    "far": "wait",
    "front": "stubborn",
}
LONG = 120
"""Seconds within which twenty callers ask, or read their answers."""
PATIENT = {
    "pallas.cli.served_fleet.PATIENCE": LONG,
    "pallas.fleet.fleet.STOP_WITHIN": LONG,
    "pallas.fleet.shutdown.STOP_TIMEOUT": LONG,
    "pallas.fleet.shutdown.HELPERS_TIMEOUT": LONG,
}
"""A fleet that stops waits until ``Stubborn`` has had its time; meanwhile callers read their answers."""
PROMPTS = 20
ROUTED = sum(list(BUSY)[number % len(BUSY)] == "front" for number in range(PROMPTS))


def project(root: Path, url: str) -> Path:
    """An agent of every kind. One worker needs the other, and the router both: three layers."""
    return offline_project(
        root,
        dict.fromkeys(BUSY),
        SCRIPT,
        top={"bind": "127.0.0.1", "drain_timeout": 0.5, "sessions": {"concurrent": 2 * PROMPTS}},
        keys={
            "coder": WORKER,
            "stays": {**WORKER, "env": {"WORKER_MODE": "stays"}, "depends_on": ["coder"]},
            "hand": {"kind": "handler", "module": None, "handler": "hands:holds"},
            "bad": {"kind": "handler", "module": None, "handler": "hands:BAD"},
            "far": {"kind": "remote", "module": None, "url": url},
            "front": {"kind": "router", "module": None, "agents": ["stays", "hand"], "fallback": "stays"},
        },
        files={"hands.py": HANDS},
    )


async def prompted(url: str, number: int) -> dict[str, Any]:
    """What a caller of the bridge gets as the answer to its prompt."""
    agent, text = list(BUSY.items())[number % len(BUSY)]
    async with (
        create_mcp_http_client() as http,
        Client(streamable_http_client(url, http_client=http), mode=ERAS[number % 2]) as client,
    ):
        if number % 3:
            made = json.loads(text_of(await client.call_tool("sessions_create", {"agentId": agent})))
            given = {"sessionId": made["sessionId"], "prompt": text}
            result = await client.call_tool("sessions_prompt", given)
        else:
            result = await client.call_tool("tasks_delegate", {"prompt": text, "agentId": agent})
        body: dict[str, Any] = json.loads(text_of(result))
        return body


@asynccontextmanager
async def busy(url: str, counted: Callable[[], Awaitable[int]]) -> AsyncIterator[set[asyncio.Task[Any]]]:
    """``PROMPTS`` callers of the bridge at ``url``, all of them waiting for an answer."""
    callers = {asyncio.create_task(prompted(url, number)) for number in range(PROMPTS)}
    try:
        async with asyncio.timeout(LONG):
            while await counted() < PROMPTS:
                assert not any(each.done() for each in callers), [each for each in callers if each.done()]
                await asyncio.sleep(0.05)
        yield callers
    finally:
        for each in callers:
            each.cancel()
        await asyncio.wait(callers, timeout=LONG)


def wait_for_readers(fleet: Fleet, callers: set[asyncio.Task[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Once its runs are cut short, the fleet's end and its clock stand still until all callers know."""
    waited, close = 0.0, fleet.kernel.close

    async def closed(**limits: float) -> int:
        nonlocal waited
        cut, began = await close(**limits), monotonic()
        await asyncio.wait(callers, timeout=LONG)
        waited = monotonic() - began
        return cut

    monkeypatch.setattr(fleet.kernel, "close", closed)
    monkeypatch.setattr(shutdown, "monotonic", lambda: monotonic() - waited)


def below() -> set[psutil.Process]:
    """The processes below this one."""
    return {each for each in pallas_process.below() if not gone(each.pid)}


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_every_caller_is_told_and_nothing_is_left_however_long_a_part_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PR-33, DR-16
    children, tasks = below(), asyncio.all_tasks()
    async with other() as there, AsyncExitStack() as stack:
        around = asyncio.all_tasks()
        fleet = await stack.enter_async_context(running(project(tmp_path / "p", there.url)))

        async def in_flight() -> int:
            # The runs that a router asks for are beside those of its callers.
            return sum(run.agent != "stays" or run.surface != "router" for run in fleet.kernel.in_flight)

        async with busy(f"{fleet.ports.origin}/mcp", in_flight) as callers:
            wait_for_readers(fleet, callers, monkeypatch)
            await fleet.stop()
            done, late = await asyncio.wait(callers, timeout=LONG)
            assert not late
            for each in done:
                assert "the fleet is stopping" in each.result()["error"]
        assert below() <= children
        # One of the web server's is for good, whoever was served.
        await until(
            lambda: (
                not [
                    each
                    for each in asyncio.all_tasks() - around - tasks
                    if "_shutdown_watcher" not in str(each.get_coro())
                ]
            )
        )
        for agent in fleet.agents:
            with pytest.raises(httpx2.ConnectError):
                async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
                    await http.get(agent.url)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_signal_in_the_middle_of_it_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    # PR-33, DR-28
    async with other() as there:
        root = project(tmp_path / "p", there.url)
        with served(root, constants=PATIENT) as fleet:
            await fleet.says("] running")
            async with httpx2.AsyncClient(base_url=fleet.registry, trust_env=False, timeout=LONG) as http:

                async def in_flight() -> int:
                    lines = (await http.get("/metrics")).text.splitlines()
                    found = [line for line in lines if line.startswith("pallas_runs_in_flight{")]
                    # The runs that the router asks for are beside those of its callers.
                    return sum(int(float(line.split()[-1])) for line in found) - ROUTED

                async with busy(f"{fleet.registry}/mcp", in_flight) as callers:
                    workers = fleet.children()
                    assert len(workers) >= 4  # two workers, each below a keeper
                    fleet.send(number)
                    assert await fleet.ended(timeout=2 * LONG) == (
                        CUT if number is signal.SIGTERM else -signal.SIGKILL
                    ), fleet.err
                    await until(lambda: all(map(gone, workers)))
                    done, late = await asyncio.wait(callers, timeout=LONG)
                    assert not late
                    if number is signal.SIGTERM:
                        told = [each.result()["error"] for each in done if each.exception() is None]
                        assert len(told) == PROMPTS and all("the fleet is stopping" in each for each in told)
