"""How the instances screen looks, and the feed's warnings."""

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from support.fake_fleet import NOON, FakeFleet
from support.looks import Pictures, in_sizes, in_themes
from support.pane_app import still
from support.registries import HandClock, entry
from support.shell import screen_text, workbench
from support.waiting import until
from textual.pilot import Pilot
from textual.widgets import Input

from pallas.model import AuthHop, LoopStopped, RunFinished, RunStarted
from pallas_tui.app import Workbench
from pallas_tui.instances import Instances, RegistryListing
from pallas_tui.instances.agent_poller import PollPace
from pallas_tui.instances.registry_document import read_document
from pallas_tui.screens.record_screens import InstancesScreen
from pallas_tui.settings import Notify, Settings

HEALTH = {
    "research": {"status": "ok"},
    "engineering": {"status": "degraded", "message": "Avg response 12s — Neo4j connection slow"},
    "orchestrator": {"status": "error", "message": "Argos MCP server unreachable"},
}
ABOUT = {
    "research": ("Research Agent", "Web search via Argos and knowledge graph via Neo4j"),
    "engineering": ("Engineering Agent", "Shell access via Kernos and repository management via Gitea"),
    "orchestrator": ("Orchestrator", "Delegates to research and infrastructure"),
}


class Wire:
    """An agent that answers at once."""

    def __init__(self, url: str) -> None:
        self.health = HEALTH.get(url.rpartition("/")[2])

    async def call(self, tool: str, arguments: Any) -> Any:
        if self.health is None:
            await asyncio.Event().wait()
        text = SimpleNamespace(type="text", text=json.dumps(self.health))
        return SimpleNamespace(content=[text], is_error=False)

    async def close(self) -> None: ...


async def read(url: str) -> RegistryListing:
    entries = [
        entry(
            f"ca.helu.ouranos/{name}",
            f"http://puck.incus:2303{number}/{name}",
            title=title,
            description=description,
            version="1.0.0",
            icons=[{"src": f"/icons/{name}.svg"}],
            capabilities={"model": "qwen3-8b-q5", "vision": False, "context_window": 200000},
        )
        for number, (name, (title, description)) in enumerate(ABOUT.items(), 1)
    ]
    if "oberon" in url:
        entries = [entry("ca.helu/nobody-answers"), entry("ca.helu/broken", remotes=[])]
    return read_document({"servers": entries}, url)


def app_with(*, ascii: bool = False) -> Workbench:  # noqa: A002 - as in the settings
    clock = HandClock()
    pace = PollPace(clock=clock, wait=clock.wait)
    instances = Instances(pace=pace, read=read, connect=Wire)
    # What is told above the panes goes by itself, and a picture must not depend on when.
    settings = Settings("textual-dark", ascii=ascii, notify=Notify(agents=False, runs=False))
    return workbench(settings=settings, instances=instances)


async def two_instances(pilot: Pilot[Any]) -> None:
    app: Any = pilot.app
    await until(lambda: isinstance(app.focused, Input) and ":24200" in screen_text(app), pilot)
    for url in ("http://puck.incus:23030", "http://oberon.incus:23030"):
        await app.instances.register(url)
    await app.instances.attach("http://puck.incus:23030/.well-known/mcp/server.json")
    await until(lambda: all(agent.health.checked_at for agent in app.instances.agents()), pilot)
    await pilot.press("f10")
    await until(lambda: isinstance(app.screen, InstancesScreen) and "Orchestrator" in screen_text(app), pilot)


def pressing(*keys: str, seen: str) -> Callable[[Pilot[Any]], Any]:
    async def before(pilot: Pilot[Any]) -> None:
        app: Any = pilot.app
        await two_instances(pilot)
        await pilot.press(*keys)
        await until(lambda: seen in screen_text(app), pilot)
        still(app)
        for _ in range(3):
            await pilot.pause()

    return before


@pytest.mark.slow
async def test_instances_with_their_agents(pictures: Pictures) -> None:
    # PI-14, PI-17
    before = pressing("down", "down", seen="Avg response 12s")
    await pictures(app_with(), before, in_sizes("80x24", "120x40") + in_themes("80x24", "light"))


async def test_an_instance_that_is_not_attached(pictures: Pictures) -> None:
    before = pressing("end", "up", seen="entry 2 (ca.helu/broken)")
    await pictures(app_with(), before)


@pytest.mark.slow
async def test_a_url_that_cannot_be_registered(pictures: Pictures) -> None:
    before = pressing("a", *"puck:23030", "enter", seen="Registry URL")
    await pictures(app_with(), before)


async def test_no_instance_yet_in_ascii_without_colour(
    pictures: Pictures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = app_with(ascii=True)

    async def before(pilot: Pilot[Any]) -> None:
        await until(lambda: isinstance(app.focused, Input) and ":24200" in screen_text(app), pilot)
        await pilot.press("f10")
        await until(lambda: "No instance is registered" in screen_text(app), pilot)
        for _ in range(3):
            await pilot.pause()

    await pictures(app, before)


@pytest.mark.slow
async def test_instances_in_ascii_without_colour(pictures: Pictures, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    before = pressing("down", "down", "down", seen="Argos MCP server unreachable")
    await pictures(app_with(ascii=True), before, size="120x40")


@pytest.mark.slow
async def test_the_feed_with_a_stopped_loop_and_a_refused_key(pictures: Pictures) -> None:
    fleet = FakeFleet()
    one: dict[str, Any] = {"run_id": "r1", "agent": "concierge"}
    key: dict[str, Any] = {"source": "forwarded", "fingerprint": "3fc2", "method": "tools/call"}
    fleet.say(
        RunStarted(at=NOON - 9, preview="Which customers were hit by the May invoice bug?", **one),
        AuthHop(at=NOON - 8, downstream="docs", status=200, **key, **one),
        AuthHop(at=NOON - 7, downstream="vault", status=401, **key, **one),
        AuthHop(at=NOON - 6, downstream="vault", status=401, **key, **one),
        LoopStopped(at=NOON - 5, reason="repeat", tool="vault/lookup", count=5, **one),
        RunFinished(at=NOON - 4, outcome="ok", seconds=5, **one),
    )
    app = workbench(fleet)

    async def before(pilot: Pilot[Any]) -> None:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("f4")
        await until(lambda: "HTTP 401" in screen_text(app), pilot)
        for _ in range(3):
            await pilot.pause()

    await pictures(app, before)
