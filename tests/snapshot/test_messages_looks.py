"""How messages between handlers look: a run of them, one in full, one written, one sent again; and todos."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.fake_fleet import NOON, FakeFleet, agent, desk
from support.letters import RUN, greeting, todo, told
from support.looks import EACH_LOOK, Pictures, in_sizes, in_themes
from support.pane_app import still
from support.shell import IN_ASCII, screen_text, workbench
from support.waiting import until
from textual.pilot import Pilot
from textual.widgets import Input

from pallas.model import AgentDetail, Fault, FaultType, PayloadDetail, ToolOutcome

SCHEMA = (
    '{"type": "object", "title": "Greeting", "required": ["name"], "properties": {'
    '"name": {"type": "string", "description": "Whom to greet"}, '
    '"times": {"type": "integer", "minimum": 1, "default": 1}, "loud": {"type": "boolean"}}}'
)


def fleet(*, ends: bool = True, todos: bool = False) -> FakeFleet:
    agents = (agent("greeter", 24201, version=4), agent("shouter", 24202), agent("research", 24203))
    made = FakeFleet(replace(desk(), agents=agents))
    made.letters[RUN] = greeting()
    payload = PayloadDetail("Greeting", SCHEMA, "<Greeting>\n  <name>text</name>\n</Greeting>")
    made.details["greeter"] = AgentDetail("greeter", payload=payload)
    made.outcome = ToolOutcome(True, "{}", 0.31, ("<Shouted><text>HELLO ADA!</text></Shouted>",))
    made.say(*told(greeting(), ends=ends))
    if todos:
        made.say(
            todo("a", at=NOON - 125),
            todo(
                "b", at=NOON - 70, actor="shouter", wait_for="Review", from_agent="research", description=""
            ),
            todo("a", "raised", at=NOON - 8),
            todo("c", at=NOON - 4_000, actor="research", description="the invoices are to be read first"),
            todo("d", at=NOON - 300),
            todo("d", "closed", at=NOON - 20, was_raised=True),
        )
    return made


def looking(*keys: str, seen: str) -> Callable[[Pilot[Any]], Any]:
    async def before(pilot: Pilot[Any]) -> None:
        app: Any = pilot.app
        await until(lambda: isinstance(app.focused, Input) and ":24200" in screen_text(app), pilot)
        app.main.set_focus(None)
        for key in keys:
            screen = app.screen
            await pilot.press(key)
            if key in ("M", "D", "p", "s"):
                await until(lambda screen=screen: app.screen is not screen, pilot)
        await until(lambda: seen in screen_text(app), pilot)
        still(app)
        app.clear_notifications()
        for _ in range(3):
            await pilot.pause()

    return before


@pytest.mark.slow
async def test_messages(pictures: Pictures) -> None:
    before = looking("M", "home", "down", "down", "down", seen="refused: routing")
    await pictures(workbench(fleet()), before, in_sizes("80x24", "120x40") + in_themes("80x24"))
    await pictures(workbench(fleet()), before, in_sizes("60x20"))


async def test_messages_in_ascii_without_colour(pictures: Pictures, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    before = looking("M", "home", seen="fits Greeting")
    await pictures(workbench(fleet(), settings=IN_ASCII), before)


@pytest.mark.slow
async def test_a_message_in_full(pictures: Pictures) -> None:
    before = looking("M", "home", "down", "enter", seen="<text>hello Ada</text>")
    await pictures(workbench(fleet()), before)


async def test_no_messages_yet(pictures: Pictures) -> None:
    before = looking("M", seen="Escape goes back")
    await pictures(workbench(FakeFleet()), before)


@pytest.mark.slow
async def test_a_message_that_is_written(pictures: Pictures) -> None:
    before = looking("M", "home", "s", seen="Whom to greet")
    await pictures(workbench(fleet()), before)


@pytest.mark.slow
async def test_a_message_that_is_sent_again(pictures: Pictures) -> None:
    before = looking("M", "home", "p", seen="2 lines differ")
    await pictures(workbench(fleet()), before, in_sizes("60x20", "120x40"))


@pytest.mark.slow
async def test_a_message_that_cannot_be_sent_again(pictures: Pictures) -> None:
    made = fleet()
    fault = Fault(FaultType.TIMEOUT, "greeter did not answer within 30 s")
    made.outcome = ToolOutcome(False, "", 30.0, (fault.message,))
    before = looking("M", "home", "p", seen="it failed after 30.0 s")
    await pictures(workbench(made), before)


@pytest.mark.slow
async def test_todos(pictures: Pictures) -> None:
    before = looking("D", seen="raised")
    await pictures(workbench(fleet(ends=False, todos=True)), before, EACH_LOOK)


@pytest.mark.slow
async def test_a_todo_that_is_due_on_the_top_line(pictures: Pictures) -> None:
    before = looking("f4", seen="1 todo")
    app = workbench(fleet(ends=False, todos=True))
    await pictures(app, before, in_sizes("60x20", "120x40"))
