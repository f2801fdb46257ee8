"""Real agents that fail and are started again: stdio servers that hang, harnesses that end."""

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest
from support import pallas_process
from support.live import MODERN_FIRST, agent_module, ask, client, running, write_project
from support.mortal import moves, reaches, shown
from support.processes import below
from support.waiting import poll, until

from pallas.fleet.fleet import Fleet
from pallas.model import ANONYMOUS, AgentState, Fault, FaultType

ERA = pytest.mark.parametrize("era", MODERN_FIRST)
QUICK = {"restart": {"backoff": 0.05, "crashes": 3}}
# Says nothing at its first start, and is an ordinary server from the second on.
HANGS_ONCE = """
import pathlib, sys, time
marker = pathlib.Path("was_here")
if not marker.exists():
    marker.write_text("")
    time.sleep(600)
exec(pathlib.Path("echo_server.py").read_text())
"""
SETTINGS = {"mcp": {"servers": {"echo": {"command": "python", "args": ["hangs_once.py"]}}}}


@pytest.mark.slow
async def test_a_stdio_server_that_hangs_fails_no_start_and_its_next_process_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PI-12
    monkeypatch.setattr("pallas.executors.fastagent.connect_plan.CONNECT_SECONDS", 6)
    monkeypatch.setattr("pallas.downstreams.connection.START_SECONDS", 8)
    root = write_project(
        tmp_path,
        {"one": agent_module("one", ("echo",))},
        keys={"one": {"start_timeout": 120}},
        config=SETTINGS,
        files={"hangs_once.py": HANGS_ONCE},
    )
    async with running(root) as fleet, client(fleet, "one") as caller:
        assert moves(fleet) == [AgentState.IMPORTING, AgentState.CONNECTING, AgentState.READY]
        assert await ask(caller, "hi") == "hi"
        call = '***CALL_TOOL echo__echo {"text": "hi"}'
        # It is connected beside the runs.
        await poll(lambda: ask(caller, call), lambda answer: "echo:hi" in answer)
        # That of the attempt that was given up is gone.
        await until(lambda: len(_servers("hangs_once.py")) == 1)


@ERA
async def test_a_harness_that_ends_is_entered_again_and_conversations_go_on(
    tmp_path: Path, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pallas.executors.fastagent.fastagent_executor._TRIM_EVERY", 0.05)
    root = write_project(
        tmp_path,
        {"one": agent_module("one", ("echo",))},
        keys={"one": QUICK},
        config={"mcp": {"servers": {"echo": {"command": "python", "args": ["echo_server.py"]}}}},
    )
    async with running(root) as fleet, client(fleet, "one", era=era) as caller:
        assert await ask(caller, "before", conversation_id="c") == "before"
        slow = asyncio.create_task(
            caller.call_tool("send_message", {"message": '***CALL_TOOL echo__slow {"text": "x"}'})
        )
        await until(lambda: shown(fleet).runs_active == 1)
        before, version = _servers("echo_server.py"), shown(fleet).version
        mark = fleet.hub.seq
        _break_harness(fleet, monkeypatch)
        result = await asyncio.wait_for(slow, 60)
        body: dict[str, Any] = json.loads(result.content[0].text)  # type: ignore[union-attr]
        assert body["error"].startswith("one failed while it answered this: its harness ended; the log")
        assert (body["data"]["type"], body["data"]["retryable"]) == ("TRANSPORT", True)
        await until(lambda: AgentState.BACKOFF in moves(fleet, after=mark))
        await reaches(fleet, AgentState.READY)
        assert await ask(caller, "after", conversation_id="c") == "after"
        assert shown(fleet).version == version
        await until(lambda: not any(child.is_running() for child in before))
        said = await fleet.kernel.open("one", "c", None, ANONYMOUS)
        assert [message.text for message in said] == ["before", "before", "after", "after"]


async def test_a_broken_edit_does_not_keep_a_crashed_agent_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pallas.executors.fastagent.fastagent_executor._TRIM_EVERY", 0.05)
    root = write_project(tmp_path, {"one": None}, keys={"one": QUICK})
    async with running(root) as fleet, client(fleet, "one") as caller:
        (root / "agents" / "one.py").write_text("this is not python(")
        _break_harness(fleet, monkeypatch)
        await until(lambda: shown(fleet).started_again == 1)
        await reaches(fleet, AgentState.READY)
        assert await ask(caller, "hello") == "hello"


async def test_an_agent_whose_provider_is_away_at_the_start_comes_up_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pallas.executors.fastagent import fastagent_executor as executor

    enter, failures = executor.FastAgentExecutor._own_harness, [1, 2]

    async def entered(self: Any, started: asyncio.Future[None]) -> None:
        if failures:
            failures.pop()
            started.set_exception(Fault(FaultType.UPSTREAM, "the broker does not answer", retryable=True))
            return
        await enter(self, started)

    monkeypatch.setattr(executor.FastAgentExecutor, "_own_harness", entered)
    root = write_project(tmp_path, {"one": None}, keys={"one": QUICK})
    async with running(root) as fleet, client(fleet, "one") as caller:
        await reaches(fleet, AgentState.READY)
        assert moves(fleet).count(AgentState.BACKOFF) == 2
        assert await ask(caller, "hello") == "hello"


def test_a_headless_fleet_says_what_fails_and_when_it_is_started_again(tmp_path: Path) -> None:
    keys = {"one": {"restart": {"backoff": 0.05, "crashes": 2}, "start_timeout": 0.1}}
    endless = "import time\n\nwhile True:\n    time.sleep(0.01)\n"
    root = write_project(tmp_path, {"one": endless}, keys=keys, top={"bind": "127.0.0.1"})
    process = pallas_process.start(
        cwd=root,
        env={**os.environ, "PALLAS_LOG_FILE": str(root / "pallas.log")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stderr is not None
        loop = next(line for line in process.stderr if "crash loop" in line)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=90)
    finally:
        process.kill()
        process.wait()
    assert loop.startswith("[test] error: one: crash loop: 2 failures within 300 s, the last: it was still ")
    assert loop.rstrip().endswith("; correct that and start it again")
    assert "crash loop" not in out + err  # once
    (failed,) = [line for line in out.splitlines() if "it is started again in 0.0" in line]
    assert failed.startswith(
        "[test] one: it was still importing after 0.1 s; see what it waits for, or raise"
    )
    assert failed.endswith("(failure 1 of 2 within 300 s)")
    assert process.returncode == 0
    assert "Traceback" not in out + err


def _servers(script: str) -> list[psutil.Process]:
    return below(os.getpid(), script)


def _break_harness(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness of the agent ends by itself, with an error that nobody expects."""
    executor: Any = fleet.agents[0].executor

    async def broken(*_: Any) -> None:
        raise RuntimeError("the harness is broken")

    monkeypatch.setattr(executor._pool, "trim", broken)
