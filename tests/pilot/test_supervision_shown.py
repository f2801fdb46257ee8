"""Supervision in the workbench: backoff, crash loops, blocked loops, the drain, leaving."""

from dataclasses import replace
from typing import Any

import pytest
from support.chat import Chat, chat, server
from support.fake_fleet import NOON, FakeFleet, agent
from support.shell import line_with, screen_text, top, workbench
from support.waiting import until
from textual.pilot import Pilot
from textual.widgets import Input

from pallas.model import (
    AgentChanged,
    AgentState,
    FleetState,
    Health,
    HealthStatus,
    LoopBlocked,
    ServerSnapshot,
)
from pallas_tui.app import Workbench
from pallas_tui.screens.sheet_screen import TextScreen
from pallas_tui.settings import Settings

assert chat
assert server

WIDE = (120, 40)
SMALL = (80, 24)
STACK = 'File "desk/tools.py", line 40, in lookup\n    time.sleep(10)  # [not markup]'


class Clock:
    """Time that goes on when a test says so."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


async def ready(app: Workbench, pilot: Pilot[Any]) -> None:
    await until(lambda: isinstance(app.focused, Input) and ":24200" in top(app), pilot)


async def test_an_agent_in_backoff_counts_down_and_comes_back() -> None:
    fleet, clock = FakeFleet(), Clock()
    app = workbench(fleet, clock=clock)
    async with app.run_test(size=WIDE) as pilot:
        await ready(app, pilot)
        fleet.change(
            "research",
            state=AgentState.BACKOFF,
            restart_at=NOON + 8,
            crashes=2,
            restarts=1,
            error="exited with status 139\nand more",
        )
        fleet.say(AgentChanged(agent="research", state=AgentState.BACKOFF, detail="exited with status 139"))
        await until(lambda: "again in 8 s" in line_with(app, "├ ◷ research"), pilot)
        await until(lambda: "research starts again soon: ex" in top(app), pilot)
        # No event and no change of the snapshot: the pump alone moves the figure.
        clock.now += 5
        await until(lambda: "again in 3 s" in line_with(app, "├ ◷ research"), pilot)
        await pilot.press("f2", "down")
        await until(lambda: "failed, again in 3 s" in screen_text(app), pilot)
        shown = screen_text(app)
        assert "exited with status 139" in shown
        assert "crashes         2 lately" in shown
        assert "stage   booted, not ready" in shown
        fleet.change("research", state=AgentState.READY, restart_at=None, error="")
        await until(lambda: ":24202" in line_with(app, "├ ● research"), pilot)


@pytest.mark.slow
async def test_a_crash_loop_is_loud_everywhere_until_it_is_over() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await ready(app, pilot)
        fleet.change("vision", state=AgentState.CRASH_LOOP, crashes=5, error="segmentation fault", since=NOON)
        fleet.say(
            AgentChanged(agent="vision", state=AgentState.CRASH_LOOP, detail="5 crashes in 60 s", at=NOON)
        )
        await until(lambda: "crash-loop" in line_with(app, "▲ vision"), pilot)
        await until(lambda: "✖ vision is in a crash loop: 5 crashes" in top(app), pilot)
        assert "▲ 1" in top(app)
        await until(lambda: "is in a crash loop: 5 crashes in 60 s" in line_with(app, "15:06:40 ▲"), pilot)
        await pilot.press("f2", "end", "enter")
        await until(lambda: isinstance(app.screen, TextScreen), pilot)
        await until(lambda: "It failed too often" in screen_text(app), pilot)
        await pilot.press("escape", "s")
        await until(lambda: fleet.controlled == [("vision", "start")], pilot)
        fleet.change("vision", state=AgentState.READY, crashes=0, error="")
        fleet.say(AgentChanged(agent="vision", state=AgentState.READY))
        await until(lambda: "crash loop" not in top(app) and "● vision" in screen_text(app), pilot)


async def test_in_ascii_each_state_has_a_character_of_its_own() -> None:
    fleet = FakeFleet()
    app = workbench(fleet, settings=Settings("textual-dark", ascii=True))
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input) and ":24202" in screen_text(app), pilot)
        fleet.change("vision", state=AgentState.CRASH_LOOP, crashes=5)
        fleet.change("research", state=AgentState.BACKOFF, restart_at=NOON + 4)
        fleet.change("engineering", state=AgentState.ERROR, error="no key")
        await until(lambda: "crash-loop" in line_with(app, "! vision"), pilot)
        assert "again in 4 s" in line_with(app, "% research")
        assert "failed" in line_with(app, "x engineering")
        assert screen_text(app).isascii()


@pytest.mark.slow
async def test_a_program_of_the_project_is_supervised_as_visibly_as_an_agent() -> None:
    fleet = FakeFleet()
    shop = ServerSnapshot(
        "shop",
        AgentState.BACKOFF,
        "http://127.0.0.1:24280/mcp",
        4711,
        "exited with status 3",
        since=NOON - 60,
        restarts=4,
        crashes=2,
        restart_at=NOON + 2,
    )
    fleet.current = replace(fleet.current, servers=(shop,))
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        await ready(app, pilot)
        await pilot.press("f2", "end")
        await until(
            lambda: any(
                "◷ shop" in line and "again in 2 s" in line for line in screen_text(app).splitlines()
            ),
            pilot,
        )
        shown = screen_text(app)
        for words in ("exited with status 3", "process 4711", "restarts        4", "crashes         2"):
            assert words in shown, words
        fleet.current = replace(fleet.current, servers=(replace(shop, state=AgentState.CRASH_LOOP),))
        await until(lambda: "✖ shop is in a crash loop: 2 crashes" in top(app), pilot)
        await pilot.press("enter")
        await until(lambda: "4 restarts, 2 crashes" in screen_text(app), pilot)


async def test_isolation_and_process_are_told_of_an_agent_that_has_its_own() -> None:
    fleet = FakeFleet()
    fleet.change("vision", isolation="process", pid=4711, restarts=3)
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        await ready(app, pilot)
        await pilot.press("f2", "end")
        await until(lambda: "process its own, 4711" in screen_text(app), pilot)
        await pilot.press("d")
        await until(lambda: "a process of its own, 4711" in screen_text(app), pilot)


async def test_a_dependant_is_degraded_with_the_reason() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        await ready(app, pilot)
        fleet.change("research", state=AgentState.CRASH_LOOP, crashes=5)
        health = Health(HealthStatus.DEGRADED, "research: is in a crash loop", NOON, NOON)
        fleet.change("concierge", health=health)
        await pilot.press("f2")
        await until(lambda: "◐ concierge" in screen_text(app), pilot)
        assert "research: is in a crash loop" in screen_text(app)


async def test_a_blocked_loop_is_told_while_it_lasts_and_its_stack_can_be_read() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await ready(app, pilot)
        blocked = LoopBlocked(at=NOON, seconds=2.1, agent="research", place="desk/tools.py:40", stack=STACK)
        fleet.say(blocked)
        await until(
            lambda: "✖ research blocks the loop: 2 s, tools.py:40; isolation: process" in top(app), pilot
        )
        assert "blocks the event loop for 2.1 s at desk/tools.py:40" in line_with(app, "15:06:40 ◐ research")
        await pilot.press("f2", "down")
        await until(lambda: "`isolation: process` gives" in screen_text(app), pilot)
        fleet.say(replace(blocked, at=NOON + 8, seconds=10.0, over=True))
        await until(
            lambda: "blocked the event loop for 10.0 s" in line_with(app, "15:06:40 ◐ research"), pilot
        )
        assert "✖" not in top(app)
        assert screen_text(app).count("15:06:4") == 1  # the end took the place of the beginning
        await pilot.press("f4", "enter")
        await until(lambda: isinstance(app.screen, TextScreen), pilot)
        await until(lambda: "time.sleep(10)  # [not markup]" in screen_text(app), pilot)
        assert "It is over." in screen_text(app)
        assert "isolation: process" in screen_text(app)


@pytest.mark.slow
async def test_a_draining_fleet_says_so_with_its_runs_in_flight() -> None:
    fleet = FakeFleet()
    fleet.change("research", runs_active=2)
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        await ready(app, pilot)
        fleet.current = replace(fleet.current, state=FleetState.DRAINING)
        await until(lambda: "draining, 2 runs in flight" in top(app), pilot)
        fleet.change("research", runs_active=0)
        await until(lambda: "in flight" not in top(app) and "draining" in top(app), pilot)


async def test_quitting_names_whose_runs_are_in_flight_and_the_second_time_quits_at_once() -> None:
    fleet = FakeFleet()
    fleet.change("research", runs_active=2)
    fleet.change("vision", runs_active=1)
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await ready(app, pilot)
        await pilot.press("ctrl+q")
        told = "3 runs are in flight and will be cancelled. Quit? (research 2, vision 1)"
        await until(lambda: told in screen_text(app).splitlines()[-1], pilot)
        await pilot.press("ctrl+q")
        await until(lambda: app.return_value == 0, pilot)


async def test_another_question_that_stands_is_no_answer_to_quitting() -> None:
    fleet = FakeFleet()
    fleet.change("concierge", runs_active=1)
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await ready(app, pilot)
        await pilot.press("f2", "x")
        await until(lambda: app.main.asking.startswith("Stop concierge?"), pilot)
        await pilot.press("ctrl+q")
        await until(lambda: "Quit? (concierge)" in app.main.asking, pilot)
        assert app.return_value is None
        assert fleet.controlled == []


async def test_a_setting_leaves_without_a_question() -> None:
    fleet = FakeFleet()
    fleet.change("research", runs_active=2)
    app = workbench(fleet, settings=Settings("textual-dark", ascii=False, ask_quit=False))
    async with app.run_test(size=WIDE) as pilot:
        await ready(app, pilot)
        await pilot.press("ctrl+q")
        await until(lambda: app.return_value == 0, pilot)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"state": AgentState.BACKOFF, "restart_at": NOON + 4}, "failed and is started again in 4 s"),
        (
            {"state": AgentState.CRASH_LOOP, "error": "segmentation fault"},
            "in a crash loop and is not restarted",
        ),
    ],
)
async def test_a_conversation_says_why_one_cannot_write_and_keeps_what_was_written(
    chat: Chat, changes: dict[str, Any], words: str
) -> None:
    await chat.until(lambda: not chat.prompt.disabled)
    chat.prompt.insert("half a question")
    chat.app.feed(chat.snapshot(**changes))
    await chat.until(lambda: words in chat.app.screen_text().replace("\n", " "))
    waits = changes["state"] is AgentState.BACKOFF  # what is written is sent after the restart
    assert chat.prompt.disabled is not waits
    assert chat.prompt.text == "half a question"
    chat.app.feed(chat.snapshot())
    await chat.until(lambda: not chat.prompt.disabled and chat.prompt.has_focus)
    assert chat.prompt.text == "half a question"
    assert words not in chat.app.screen_text()


@pytest.mark.slow
async def test_a_conversation_with_an_agent_that_is_gone_stays_and_goes_on_when_it_is_back(
    chat: Chat,
) -> None:
    await chat.until(lambda: not chat.prompt.disabled)
    await chat.ask("hello")
    chat.app.feed(agent("other", 1))
    await chat.until(lambda: "There is no agent echo in this fleet any more." in chat.app.screen_text())
    assert "The conversation continues" in chat.app.screen_text().replace("\n", " ")
    assert "hello" in chat.app.screen_text()
    chat.app.feed(chat.snapshot())
    await chat.until(lambda: not chat.prompt.disabled)
    await chat.ask("and again")
