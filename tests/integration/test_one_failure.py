"""One agent that fails, or has too much to do: every surface says the same of it, within one poll."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from mcp import Client
from prometheus_client.parser import text_string_to_metric_families
from support.bridged import kind_of, refused, tell
from support.live import ERAS, agent_module, client, running
from support.offline import offline_project
from support.served import fault_in, text_of
from support.shell import screen_text, top
from support.virtual import virtual
from support.waiting import until
from support.workers import SIMPLE
from textual.pilot import Pilot

from pallas.cli.app import run
from pallas.fleet.fleet import Fleet
from pallas.fleet.threaded_fleet import ThreadedFleet
from pallas.model import AgentSnapshot, AgentState, FleetState
from pallas_tui.agents.fleet_tree import outline
from pallas_tui.app import Workbench
from pallas_tui.launch import late_panes
from pallas_tui.settings import Settings
from pallas_tui.state import Tone, tone_of
from pallas_tui.text import UNICODE
from pallas_tui.widgets.agents.agent_view import tree_line
from pallas_tui.widgets.tones import STYLES, shape

SCRIPT = """
rules:
  - {when: {last: user}, say: "turn {{ turns }}"}
"""
HANDS = """
import asyncio


async def holds(request):
    await asyncio.Event().wait()
"""
WORKER = {"kind": "worker", "module": None, "command": ["python", str(SIMPLE)], "capabilities": ["digging"]}
FACTS = "io.modelcontextprotocol.registry/publisher-provided"


@dataclass
class Seen:
    """What the surfaces of a fleet say of one of its agents, each asked once."""

    fleet: Fleet
    agent: str

    @asynccontextmanager
    async def bridge(self, era: str = ERAS[0]) -> AsyncIterator[Client]:
        async with virtual(self.fleet, "/mcp", era=era) as door:
            yield door

    @asynccontextmanager
    async def http(self) -> AsyncIterator[httpx2.AsyncClient]:
        async with httpx2.AsyncClient(
            base_url=self.fleet.ports.origin, trust_env=False, timeout=60
        ) as connected:
            yield connected

    async def found(self, era: str = ERAS[0]) -> dict[str, Any]:
        """Its entry in ``agents_discover``."""
        async with self.bridge(era) as door:
            agents = (await tell(door, "agents_discover"))["agents"]
        entry: dict[str, Any] = next(each for each in agents if each["id"] == self.agent)
        return entry

    async def ready(self, era: str = ERAS[0]) -> tuple[int, int]:
        """How many agents ``bridge_health`` says are ready, of how many."""
        async with self.bridge(era) as door:
            agents = (await tell(door, "bridge_health"))["agents"]
        return agents["ready"], agents["total"]

    async def health(self, era: str) -> dict[str, Any]:
        """``get_health`` of its own port."""
        async with client(self.fleet, self.agent, era=era) as connected:
            found: dict[str, Any] = json.loads(text_of(await connected.call_tool("get_health", {})))
        return found

    async def registered(self) -> str:
        """The status of its entry in the registry."""
        async with self.http() as http:
            servers = (await http.get("/v0.1/servers")).json()["servers"]
        metas = {each["server"]["name"].split("/")[1]: each["server"]["_meta"][FACTS] for each in servers}
        status: str = metas[self.agent]["status"]
        return status

    async def counted(self) -> dict[str, float]:
        """Its ``pallas_agent_status``."""
        async with self.http() as http:
            text = (await http.get("/metrics")).text
        return {
            sample.labels["status"]: sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "pallas_agent_status" and sample.labels["agent"] == self.agent
        }

    @property
    def now(self) -> AgentSnapshot:
        """What the fleet itself says."""
        shown = self.fleet.snapshot().agent(self.agent)
        assert shown is not None
        return shown

    async def everywhere(self) -> set[str]:
        """What discovery in both eras, the registry, the metrics and the snapshot have for its status."""
        counted = [status for status, value in (await self.counted()).items() if value]
        found = [(await self.found(era))["status"] for era in ERAS]
        return {*found, await self.registered(), *counted, self.now.availability}


@asynccontextmanager
async def workbench(root: Path) -> AsyncIterator[tuple[Workbench, Pilot[Any], Fleet]]:
    """The workbench over a fleet of the project in its own thread."""
    before, thread = Path.cwd(), ThreadedFleet(root)
    (root / "pallas.log").touch()
    app = Workbench(
        lambda: thread,
        name="test",
        root=root,
        late=late_panes(root / "pallas.log"),
        settings=Settings("textual-dark", False),
        strict=True,
    )
    try:
        async with app.run_test(size=(120, 40)) as pilot:
            await until(lambda: thread.snapshot().state is FleetState.RUNNING, pilot, 60)
            fleet = thread._fleet
            assert fleet is not None
            yield app, pilot, fleet
    finally:
        await asyncio.to_thread(thread.stop, 10)
        os.chdir(before)


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Types a command of ``pallas``: its exit status and what it printed."""
    for name in ("PALLAS_URL", "PALLAS_TOKEN", "PALLAS_CONTROL_TOKEN"):
        monkeypatch.delenv(name, raising=False)

    async def typed(*words: str) -> tuple[int, str]:
        capfd.readouterr()
        status = await asyncio.to_thread(run, list(words))
        return status, "".join(capfd.readouterr())

    return typed


@pytest.mark.slow
async def test_a_worker_that_is_killed_shows_on_every_surface_within_one_poll(
    tmp_path: Path, typed: Callable[..., Any]
) -> None:
    # UN-3, DR-31
    root = offline_project(
        tmp_path / "p",
        {"boss": agent_module("boss"), "coder": None},
        SCRIPT,
        top={"bind": "127.0.0.1"},
        keys={"coder": {**WORKER, "restart": "never"}},
    )
    async with workbench(root) as (app, pilot, fleet):
        seen, well = Seen(fleet, "coder"), shape(Tone.OK, UNICODE)[0]
        assert await seen.everywhere() == {"ready"}
        assert await seen.ready() == (2, 2)
        assert (await seen.health(ERAS[0]))["status"] == "ok"
        await until(lambda: f"{well} coder" in screen_text(app), pilot)
        assert seen.now.pid is not None

        psutil.Process(seen.now.pid).kill()
        await until(lambda: seen.now.state is AgentState.ERROR, pilot)
        # The fleet is in a thread of its own, and may be in the middle of saying so.
        await until(lambda: "SIGKILL" in seen.now.health.message, pilot)

        # From here on each surface is asked once: nothing that it remembers is from before.
        assert await seen.everywhere() == {"unavailable"}
        faults = []
        for era in ERAS:
            health = await seen.health(era)
            assert health["status"] == "error"
            assert "SIGKILL" in health["message"]
            assert "SIGKILL" in (await seen.found(era))["reason"]
            assert await seen.ready(era) == (1, 2)
            async with seen.bridge(era) as door:
                assert (await tell(door, "bridge_health"))["healthy"] is True  # the other one goes on
                faults.append(await refused(door, "tasks_delegate", prompt="x", agentId="coder"))
                faults.append(await refused(door, "sessions_create", agentId="coder"))
            async with client(fleet, "coder", era=era) as connected:
                faults.append(fault_in(await connected.call_tool("send_message", {"message": "x"})))
        async with seen.http() as http:
            for stream in (False, True):
                chat = await http.post("/api/v1/agents/coder/chat", json={"message": "x", "stream": stream})
                assert chat.status_code == 503
                faults.append(chat.json())
            listed = (await http.get("/api/v1/agents/coder")).json()
            assert (listed["state"], listed["health"]) == ("error", "error")
            page = (await http.get("/readyz")).json()
        assert page["agents"]["coder"] == "error"
        assert "SIGKILL" in page["conditions"]["coder"]["reason"]
        assert len({kind_of(each) for each in faults}) == 1
        assert all("SIGKILL" in each["error"] for each in faults)
        status, told = await typed("route", "-p", str(root), "x", "--capability", "digging")
        assert status == 1
        assert "coder (it failed)" in told

        # The badge in the list is red, and the top line says why.
        await until(lambda: f"{shape(Tone.ERROR, UNICODE)[0]} coder" in screen_text(app), pilot)
        assert tone_of(seen.now) is Tone.ERROR
        assert _badge(fleet, "coder") == STYLES[Tone.ERROR]
        await until(lambda: "coder" in top(app) and "error" in top(app), pilot)

        async with client(fleet, "boss") as boss:
            assert text_of(await boss.call_tool("send_message", {"message": "hi"})) == "turn 1"
        assert app.fleet is not None
        app.fleet.control("coder", "start")
        await until(lambda: seen.now.state is AgentState.READY, pilot)
        assert await seen.everywhere() == {"ready"}
        assert await seen.ready() == (2, 2)
        await until(lambda: f"{well} coder" in screen_text(app), pilot)


@pytest.mark.parametrize("agent", ["coder", "hand"])
async def test_an_agent_with_as_much_to_do_as_it_can_is_busy_on_every_surface(
    tmp_path: Path, agent: str
) -> None:
    # DR-31
    hand = {"kind": "handler", "module": None, "handler": "hands:holds", "capacity": 1}
    root = offline_project(
        tmp_path / "p",
        {agent: None},
        SCRIPT,
        keys={agent: {"coder": {**WORKER, "capacity": 1}, "hand": hand}[agent]},
        files={"hands.py": HANDS},
    )
    async with running(root) as fleet:
        seen = Seen(fleet, agent)
        assert await seen.everywhere() == {"ready"}
        async with seen.bridge() as door:
            session = (await tell(door, "sessions_create", agentId=agent))["sessionId"]
            held = asyncio.create_task(tell(door, "sessions_prompt", sessionId=session, prompt="hold"))
            await until(lambda: seen.now.availability == "busy")
            assert await seen.everywhere() == {"busy"}
            assert await seen.ready() == (0, 1)
            assert (await tell(door, "bridge_health"))["healthy"] is True
            (branch,) = outline(fleet.snapshot().agents)
            assert "busy" in "".join(text for text, _ in tree_line(branch, 60, 0.0, UNICODE))
            await tell(door, "sessions_cancel", sessionId=session)
            assert (await held)["stopReason"] == "cancelled"
            await tell(door, "sessions_close", sessionId=session)
        assert await seen.everywhere() == {"ready"}
        assert await seen.ready() == (1, 1)


def _badge(fleet: Fleet, agent: str) -> str:
    """The style of the mark before its name."""
    branch = next(
        each for each in outline(fleet.snapshot().agents) if getattr(each.item, "name", "") == agent
    )
    return tree_line(branch, 60, 0.0, UNICODE)[1][1]
