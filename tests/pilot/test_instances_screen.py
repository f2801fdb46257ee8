"""The instances screen by keyboard, with real registries and real agents."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.echo_agent import EchoAgent
from support.fake_fleet import NOON, FakeFleet
from support.live import ask, client, running, write_project
from support.notices import notices_of
from support.registries import FakeRegistry, HandClock, entry
from support.shell import DrivenWorkbench, screen_text
from support.waiting import until
from textual.pilot import Pilot
from textual.widgets import Input

from pallas_tui.app import Workbench
from pallas_tui.instances import Instances
from pallas_tui.instances.agent_poller import PollPace
from pallas_tui.instances.instance_store import InstanceStore
from pallas_tui.launch import late_panes
from pallas_tui.palette import commands
from pallas_tui.screens.help_screen import HelpScreen
from pallas_tui.screens.record_screens import InstancesScreen
from pallas_tui.screens.sheet_screen import TextScreen
from pallas_tui.settings import Settings
from pallas_tui.widgets.chat import ChatPane
from pallas_tui.widgets.chat.conversation_view import ConversationView
from pallas_tui.widgets.chat.prompt_area import PromptArea
from pallas_tui.widgets.pane import Pane

WIDE = (120, 40)
SMALL = (80, 24)
HOSTILE = "\x1b]52;c;cm0gLXJmIC8=\x07[@click=app.quit]quit[/] \u202egnp.exe"


class Desk(DrivenWorkbench):
    """A workbench with the real chat, and what is looked at most."""

    def __init__(self, app: Workbench, pilot: Pilot[Any], clock: HandClock) -> None:
        super().__init__(app, pilot)
        self.clock = clock

    async def open_instances(self) -> None:
        self.app.main.show("agents")  # out of the prompt, where n is a letter
        await self.pilot.pause()
        await self.press("n")
        await until(lambda: isinstance(self.app.screen, InstancesScreen), self.pilot)

    async def register(self, url: str) -> None:
        await self.press("a")
        line = self.app.screen.query_one("#instance-url", Input)
        await until(lambda: line.has_focus, self.pilot)
        line.value = url
        await self.press("enter")

    async def poll(self) -> None:
        await until(lambda: self.clock.waiting, self.pilot)
        self.clock.turn(60)

    @property
    def conversation(self) -> ConversationView:
        view = self.app.main.query_one(ChatPane)._current
        assert view is not None
        return view

    @property
    def prompt(self) -> PromptArea:
        return self.conversation.query_one(PromptArea)


@asynccontextmanager
async def desk(
    tmp_path: Path, size: tuple[int, int] = WIDE, *, store: InstanceStore | None = None
) -> AsyncIterator[Desk]:
    clock = HandClock()
    log = tmp_path / "pallas.log"
    log.touch()
    app = Workbench(
        FakeFleet,
        name="desk",
        late=late_panes(log),
        settings=Settings("textual-dark", False),
        instances=Instances(store=store, pace=PollPace(clock=clock, wait=clock.wait)),
        clock=lambda: NOON,
    )
    async with app.run_test(size=size) as pilot:
        here = Desk(app, pilot, clock)
        await until(lambda: len(app.main.query(Pane)) == 5 and app.main.query(PromptArea), pilot)
        await here.sees(":24200")
        yield here


@asynccontextmanager
async def served(*agents: EchoAgent, **more: dict[str, Any]) -> AsyncIterator[tuple[str, FakeRegistry]]:
    entries = [entry(f"ns/{agent.name}", agent.url, **more.get(agent.name, {})) for agent in agents]
    registry = FakeRegistry(entries)
    async with registry.serving() as origin:
        yield origin, registry


@pytest.mark.slow
@pytest.mark.parametrize("size", [WIDE, SMALL])
async def test_a_fleet_is_registered_looked_at_attached_talked_to_and_detached(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    # PI-14
    about = {
        "title": "Research Agent",
        "description": "Web search via Argos",
        "icons": [{"src": "/icons/research.svg"}],
        "capabilities": {"model": "qwen3", "vision": False, "context_window": 200000},
    }
    async with (
        EchoAgent("research") as agent,
        served(agent, research=about) as (origin, _),
        desk(tmp_path, size) as here,
    ):
        await here.open_instances()
        await here.sees("No instance is registered", "Press a")
        await here.register(origin)
        await here.sees("not attached", "Research Agent")
        await here.press("down")
        await here.sees("Web search via Argos", "/icons/research.svg", "research", "qwen3, sees no images")
        assert agent.rpc == []  # nothing but the registry was asked

        await here.press("home", "enter")
        await here.sees("attached", "ok")
        await here.press("down", "enter")
        await until(lambda: here.app.screen is here.app.main, here.pilot)
        name = f"research@{origin.removeprefix('http://')}"
        await here.sees(f"Write to {name}")
        here.prompt.insert("hello over there")
        await here.press("enter")
        await here.sees("you said: hello over there")
        assert agent.calls[0]["message"] == "hello over there"

        await here.open_instances()
        await here.sees("attached", "Research Agent")
        await here.press("d")
        await here.sees("not attached")
        await here.press("escape", "f3")
        await here.sees("is not attached any more", "You cannot write now")
        assert here.prompt.disabled
        assert here.conversation.talk._client is None
        assert "you said: hello over there" in screen_text(here.app)


@pytest.mark.slow
async def test_the_health_of_an_attached_agent_blocks_warns_or_lets_one_write(tmp_path: Path) -> None:
    # PI-17
    async with EchoAgent("one") as agent, served(agent) as (origin, _), desk(tmp_path) as here:
        agent.health = {"status": "error", "message": "Argos MCP server unreachable"}
        await here.open_instances()
        await here.register(origin)
        await here.sees("not attached")
        await here.press("enter")
        await here.sees("✖ ns/one", "error")
        await here.press("down")
        await here.sees("Argos MCP server unreachable")
        await here.press("enter")  # it cannot be talked to: the reason in full
        await until(lambda: isinstance(here.app.screen, TextScreen), here.pilot)
        await here.sees("Argos MCP server unreachable", "ns/one")
        await here.press("escape")

        agent.health = {"status": "degraded", "message": "Neo4j connection slow"}
        await here.poll()
        await here.sees("◐ ns/one", "degraded", "Neo4j connection slow")
        await here.press("enter")
        await here.sees("◐ Neo4j connection slow", "Write to one@")
        here.prompt.insert("still there?")
        await here.press("enter")
        await here.sees("you said: still there?")

        agent.health = {"status": "error", "message": "Argos is down again"}
        await here.poll()
        await here.sees("cannot answer: Argos is down again", "You cannot write now")
        assert here.prompt.disabled

        agent.health = {"status": "ok"}
        await here.poll()
        await until(lambda: not here.prompt.disabled, here.pilot)
        text = await here.sees("Write to one@")
        assert "Argos" not in text


@pytest.mark.slow
async def test_attached_agents_stand_in_the_chooser_beside_those_of_the_fleet(tmp_path: Path) -> None:
    async with EchoAgent("elsewhere") as agent, served(agent) as (origin, _), desk(tmp_path) as here:
        instance = await here.app.instances.register(origin)
        await here.app.instances.attach(instance.url)
        await until(lambda: here.app.instances.health(instance.url, "elsewhere"), here.pilot)
        await here.press("ctrl+t", *"where")
        await here.sees(f"● elsewhere@{instance.label}")
        await here.press("enter")
        await here.sees(f"Write to elsewhere@{instance.label}")


@pytest.mark.slow
async def test_a_run_with_a_detached_agent_is_cancelled(tmp_path: Path) -> None:
    # PI-14
    async with EchoAgent("one") as agent, served(agent) as (origin, _), desk(tmp_path) as here:
        instance = await here.app.instances.register(origin)
        await here.app.instances.attach(instance.url)
        await until(lambda: here.app.instances.health(instance.url, "one"), here.pilot)
        here.app.main.open_agent(f"one@{instance.label}")
        await here.sees(f"Write to one@{instance.label}")
        here.prompt.insert("hold on")
        await here.press("enter")
        await here.sees("so far so good")
        await here.app.instances.detach(instance.url)
        await until(lambda: agent.cancelled == 1, here.pilot)
        await here.sees("so far so good", "is not attached any more")


@pytest.mark.slow
async def test_a_mistake_is_told_where_it_was_typed_and_can_be_mended_there(tmp_path: Path) -> None:
    # PI-14
    async with EchoAgent("one") as agent, served(agent) as (origin, _), desk(tmp_path, SMALL) as here:
        await here.open_instances()
        await here.register("nonsense")
        await here.sees("✖ Registry URL 'nonsense': http:// or https:// is missing", "http://nonsense")
        line = here.app.screen.query_one("#instance-url", Input)
        assert line.has_focus
        assert line.value == "nonsense"
        line.value = f"{origin}/nowhere"
        await here.press("enter")
        await here.sees("HTTP", "404")
        line.value = origin
        await here.press("enter")
        await here.sees("ns/one", "not attached")
        assert not line.display
        await here.register(origin)
        await here.sees("is registered already")
        await here.press("escape")
        text = await here.sees("ns/one")
        assert "registered already" not in text


@pytest.mark.slow
async def test_removing_asks_first_and_reading_again_shows_what_changed(tmp_path: Path) -> None:
    async with (
        EchoAgent("one") as one,
        EchoAgent("two") as two,
        served(one) as (origin, registry),
        desk(tmp_path) as here,
    ):
        await here.open_instances()
        await here.register(origin)
        await here.sees("ns/one")
        registry.entries.append(entry("ns/two", two.url, title="The second"))
        await here.press("r")
        await here.sees("The second")
        await here.press("x")
        await here.sees("Remove 127.0.0.1", "yes")
        await here.press("n")
        await until(
            lambda: here.app.focused is not None and here.app.focused.id == "instance-list", here.pilot
        )
        assert here.app.instances.all()
        await here.press("x", "y")
        await here.sees("No instance is registered")
        assert here.app.instances.all() == ()


@pytest.mark.slow
async def test_what_was_registered_and_attached_is_there_at_the_next_start(tmp_path: Path) -> None:
    # PI-14
    store = InstanceStore(tmp_path / "workbench.instances.json")
    async with EchoAgent("one") as agent, served(agent) as (origin, _):
        async with desk(tmp_path, store=store) as here:
            await here.open_instances()
            await here.register(origin)
            await here.sees("not attached")
            await here.press("enter")
            await here.sees("● ns/one", "ok")
        polls = agent.polls
        async with desk(tmp_path, store=store) as here:
            await until(lambda: agent.polls > polls, here.pilot)
            await here.open_instances()
            await here.sees("● ns/one", "attached")


@pytest.mark.slow
async def test_a_broken_file_of_instances_is_told_at_the_start(tmp_path: Path) -> None:
    store = InstanceStore(tmp_path / "workbench.instances.json")
    store.path.write_text("{")
    async with desk(tmp_path, store=store) as here:
        await until(lambda: notices_of(here.app), here.pilot)
        assert "workbench.instances.json" in "".join(one.message for one in notices_of(here.app))


@pytest.mark.slow
async def test_nothing_of_another_fleet_can_drive_the_screen(tmp_path: Path) -> None:
    hostile = {"title": HOSTILE, "description": HOSTILE, "icons": [{"src": HOSTILE}], "version": HOSTILE}
    async with EchoAgent("evil") as agent, served(agent) as (origin, registry), desk(tmp_path) as here:
        agent.health = {"status": "degraded", "message": HOSTILE}
        registry.entries[:] = [entry(f"ns/{HOSTILE}", agent.url, **hostile), entry(HOSTILE, remotes=[])]
        await here.open_instances()
        await here.register(origin)
        await here.sees("1 entry skipped")
        await here.press("enter")
        await here.sees("degraded")
        await here.press("down")
        texts = [await here.sees("␛]52", "[@click=app.quit]quit[/]")]
        await here.press("i")
        await until(lambda: isinstance(here.app.screen, TextScreen), here.pilot)
        texts.append(await here.sees("␛]52"))
        await here.press("escape", "enter")
        texts.append(await here.sees("Write to ", "␛]52"))
        await here.press("ctrl+t")
        texts.append(await here.sees("Talk to"))
        for text in texts:
            assert not {"\x1b", "\x07", "\u202e"} & set(text)
        assert here.app.is_running


@pytest.mark.slow
async def test_every_key_is_in_the_help_and_the_palette_and_escape_goes_back(tmp_path: Path) -> None:
    async with desk(tmp_path, SMALL) as here:
        titles = {command.title for command in commands(here.app, here.app.screen)}
        assert "Instances" in titles
        await here.press("f10")
        await until(lambda: isinstance(here.app.screen, InstancesScreen), here.pilot)
        titles = {command.title for command in commands(here.app, here.app.screen)}
        assert {"Register instance", "Attach instance", "Detach instance", "Remove instance"} <= titles
        await here.press("f1")
        await until(lambda: isinstance(here.app.screen, HelpScreen), here.pilot)
        await here.sees("Fleets that run elsewhere")
        await here.press("escape")
        await until(lambda: isinstance(here.app.screen, InstancesScreen), here.pilot)
        await here.press("slash", *"nothing")
        await here.sees("Nothing matches")
        await here.press("enter", "escape")
        await here.sees("No instance is registered")
        await here.press("escape", "escape", "escape")
        assert here.app.screen is here.app.main


@pytest.mark.slow
async def test_leaving_the_workbench_ends_every_poll(tmp_path: Path) -> None:
    async with EchoAgent("one") as agent, served(agent) as (origin, _):
        async with desk(tmp_path) as here:
            instance = await here.app.instances.register(origin)
            await here.app.instances.attach(instance.url)
            await until(lambda: here.clock.waiting, here.pilot)
        assert here.app.instances.agents() == ()
        assert here.clock.waiting == 0


@pytest.mark.slow
async def test_two_real_fleets_are_attached_and_one_of_them_let_go(tmp_path: Path) -> None:
    # PI-14, PI-17
    first = write_project(tmp_path / "first", {"alpha": None})
    second = write_project(tmp_path / "second", {"beta": None, "broken": "raise SystemExit(3)"})
    async with running(first) as one, running(second) as two, desk(tmp_path) as here:
        await here.open_instances()
        for fleet in (one, two):
            await here.register(fleet.snapshot().registry_url)
            await until(
                lambda fleet=fleet: any(
                    fleet.snapshot().registry_url in each.url for each in here.app.instances.all()
                ),
                here.pilot,
            )
            await here.press("enter")
        await here.sees("● Alpha", "● Beta", "✖ Broken")
        await here.press("d")  # the second one, on which the cursor stands
        await here.sees("● Alpha", "■ Beta", "■ Broken", "not attached")
        names = [agent.name for agent in here.app.instances.agents()]
        assert [name.partition("@")[0] for name in names] == ["alpha"]
        async with client(one, "alpha") as connected:
            assert await ask(connected, "still here")
        await here.press("home", "down", "enter")
        await here.sees(f"Write to {names[0]}")
        here.prompt.insert("a message through the workbench")
        await here.press("enter")
        await until(lambda: len(here.conversation.conversation.entries) == 2, here.pilot)
        assert here.conversation.conversation.entries[1].role == "assistant"
