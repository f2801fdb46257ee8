"""Code of an agent that blocks the event loop of the fleet: noticed while it does, and named."""

import asyncio
import threading
import time
from pathlib import Path

import pytest
from mcp import Client
from support.live import BLOCKING, MODERN_FIRST, write_project
from support.offline import offline_project
from support.threads import started
from support.waiting import until

from pallas.fleet.loop_watch import LoopWatch
from pallas.fleet.threaded_fleet import ThreadedFleet
from pallas.model import FleetState, LoopBlocked
from pallas.telemetry.event_hub import EventHub
from pallas.telemetry.trace_context import RunTrace, TraceContext, running

pytestmark = pytest.mark.usefixtures("forked_children")


def script(gate: Path) -> str:
    return f"""
rules:
  - when: {{last: tool}}
    say: done
  - when: {{system: you are slow}}
    call:
      - tool: ponder
        arguments: {{gate: "{gate}"}}
  - say: hello
"""


@pytest.fixture(autouse=True)
def own_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "pallas.log"
    monkeypatch.setenv("PALLAS_LOG_FILE", str(path))
    return path


def told(fleet: ThreadedFleet) -> list[LoopBlocked]:
    """Those of the agent's own line: on a busy machine a library's first import may block as well."""
    events = (event for event in fleet.since(0).events if isinstance(event, LoopBlocked))
    return [event for event in events if event.place.startswith("agents/slow.py")]


@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_the_agent_that_blocks_the_loop_is_named_with_its_line_while_it_does(
    tmp_path: Path, own_log: Path, era: str
) -> None:
    gate = tmp_path / "gate"
    root = offline_project(
        tmp_path / "project", {"slow": BLOCKING, "other": None}, script(gate), top={"loop_lag": 0.2}
    )
    with started(root) as fleet:
        await until(lambda: fleet.snapshot().state is FleetState.RUNNING, timeout=60)
        async with Client(fleet.snapshot().agents[0].url, mode=era) as client:
            call = asyncio.create_task(client.call_tool("send_message", {"message": "go"}))
            await until(lambda: told(fleet) != [], timeout=30)
            # It still holds the loop: the thread beside it is who tells.
            (noticed,) = told(fleet)
            gate.touch()
            assert not (await call).is_error
        await until(lambda: len(told(fleet)) == 2, timeout=30)
        over = told(fleet)[1]
    assert (noticed.agent, noticed.over) == ("slow", False)
    line = BLOCKING.splitlines().index("        time.sleep(0.01)") + 1
    assert noticed.place in (f"agents/slow.py:{line}", f"agents/slow.py:{line - 1}")
    assert "async def ponder" not in noticed.stack
    assert "in ponder" in noticed.stack
    assert over.over
    assert over.agent == "slow"
    assert over.seconds >= noticed.seconds
    assert noticed.seconds >= 0.2
    logged = await asyncio.to_thread(own_log.read_text)
    assert "slow blocks the event loop of all agents" in logged
    assert "isolation: process" in logged


HANDLER = """
import os
import time


async def slow(request):
    while not os.path.exists(request.text):
        time.sleep(0.01)
    return "pondered"
"""


async def test_a_handler_that_blocks_the_loop_is_named_with_its_line_and_a_way_out(
    tmp_path: Path, own_log: Path
) -> None:
    gate = tmp_path / "gate"
    root = write_project(
        tmp_path / "project",
        {"slow": HANDLER},
        keys={"slow": {"kind": "handler", "module": None, "handler": "agents.slow:slow"}},
        top={"loop_lag": 0.2},
    )
    with started(root) as fleet:
        await until(lambda: fleet.snapshot().state is FleetState.RUNNING, timeout=60)
        async with Client(fleet.snapshot().agents[0].url) as client:
            call = asyncio.create_task(client.call_tool("send_message", {"message": str(gate)}))
            await until(lambda: told(fleet) != [], timeout=30)
            (noticed,) = told(fleet)
            gate.touch()
            assert not (await call).is_error
    line = HANDLER.splitlines().index("        time.sleep(0.01)") + 1
    assert noticed.agent == "slow"
    assert noticed.place in (f"agents/slow.py:{line}", f"agents/slow.py:{line - 1}")
    logged = await asyncio.to_thread(own_log.read_text)
    blocks = "slow blocks the event loop of all agents"
    (line_of,) = [each for each in logged.splitlines() if blocks in each and "agents/slow.py" in each]
    assert "use await or asyncio.to_thread" in line_of  # a handler cannot have a process of its own


@pytest.mark.parametrize(
    ("library", "named"), [("site-packages/fast_agent/llm/stream.py", ""), ("site-packages/mine.py", "one")]
)
async def test_an_agent_is_not_named_while_the_answer_of_its_model_is_read(
    tmp_path: Path, library: str, named: str
) -> None:
    hub = EventHub()
    watch = LoopWatch(hub, tmp_path, 0.05)
    watch.start()
    code = compile("while not hub.since(0).events: time.sleep(0.01)", library, "exec")
    with running(RunTrace("r", "one", TraceContext("0" * 32, "0" * 16))):
        exec(code, {"hub": hub, "time": time})
    await until(lambda: len(hub.since(0).events) == 2)
    watch.stop()
    assert [(e.agent, e.place) for e in hub.since(0).events if isinstance(e, LoopBlocked)] == [
        (named, "")
    ] * 2


async def test_it_ends_with_its_fleet(tmp_path: Path) -> None:
    root = offline_project(tmp_path / "project", {"one": None}, "rules:\n  - say: hello\n")
    with started(root) as fleet:
        await until(lambda: fleet.snapshot().state is FleetState.RUNNING, timeout=60)
        assert "loop watch" in {thread.name for thread in threading.enumerate()}
    await until(lambda: "loop watch" not in {thread.name for thread in threading.enumerate()})


async def test_nobody_watches_where_it_is_switched_off(tmp_path: Path) -> None:
    root = offline_project(
        tmp_path / "project", {"one": None}, "rules:\n  - say: hello\n", top={"loop_lag": 0}
    )
    with started(root) as fleet:
        await until(lambda: fleet.snapshot().state is FleetState.RUNNING, timeout=60)
        # That of a fleet before this one may be about to end; one of this fleet would stay.
        await until(lambda: "loop watch" not in {thread.name for thread in threading.enumerate()})
