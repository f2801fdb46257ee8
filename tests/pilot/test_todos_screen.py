"""The board of todos, and the count of those that are due on the top line."""

from typing import Any

import pytest
from support.fake_fleet import NOON, FakeFleet
from support.letters import RUN, greeting, todo, told
from support.shell import screen_text, top, workbench
from support.waiting import until
from textual.pilot import Pilot
from textual.widgets import Input

from pallas_tui.app import Workbench
from pallas_tui.screens.main_screen import MainScreen
from pallas_tui.screens.messages_screen import MessagesScreen
from pallas_tui.screens.record_screens import TodosScreen
from pallas_tui.widgets.feed import FeedPane
from pallas_tui.widgets.todos import TodosPane

SIZE = (120, 40)


async def board(app: Workbench, pilot: Pilot[Any]) -> TodosPane:
    await until(lambda: isinstance(app.focused, Input), pilot)
    await pilot.press("alt+d")
    await until(lambda: isinstance(app.screen, TodosScreen) and app.screen.query("#todo-details"), pilot)
    return app.screen.query_one(TodosPane)


async def test_what_is_due_is_counted_on_the_top_line_until_it_is_closed() -> None:
    # HC-35
    fleet = FakeFleet()
    fleet.say(*told(greeting(), ends=False), todo("a"), todo("b"))
    app = workbench(fleet)
    async with app.run_test(size=SIZE) as pilot:
        await until(lambda: app.todos.open == 2, pilot)
        assert "todo" not in top(app)
        fleet.say(todo("a", "raised", at=NOON))
        await until(lambda: "◐ 1 todo raised" in top(app), pilot)
        await pilot.resize_terminal(60, 20)
        await until(lambda: "◐ 1 todo" in top(app), pilot)
        fleet.say(todo("a", "closed", at=NOON, was_raised=True))
        await until(lambda: "todo" not in top(app), pilot)


@pytest.mark.slow
async def test_the_board_follows_and_leads_to_the_run_and_its_messages() -> None:
    fleet = FakeFleet()
    fleet.letters[RUN] = greeting()
    fleet.say(*told(greeting(), ends=False), todo("a"))
    app = workbench(fleet)
    async with app.run_test(size=SIZE) as pilot:
        pane = await board(app, pilot)
        await until(lambda: "waits   greeter" in screen_text(app), pilot)
        assert "Shouted of shouter" in screen_text(app)
        fleet.say(todo("b", at=NOON - 5, actor="shouter"), todo("b", "raised", at=NOON - 1, actor="shouter"))
        await until(lambda: "raised  shouter" in screen_text(app), pilot)
        selected = pane.rows.selected
        assert selected is not None and selected.id == "a"  # where it was
        fleet.say(todo("a", "closed", at=NOON, was_raised=True))
        await until(lambda: "closed  greeter" in screen_text(app), pilot)
        await pilot.press("o")
        await until(lambda: pane.rows.line_count() == 1, pilot)
        await pilot.press("m")
        await until(lambda: isinstance(app.screen, MessagesScreen), pilot)
        await pilot.press("escape")
        await until(lambda: isinstance(app.screen, MainScreen), pilot)
        await board(app, pilot)
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, MainScreen), pilot)
        feed = app.main.query_one(FeedPane)
        await until(lambda: feed.runs.selected is not None and feed.runs.selected.id == RUN, pilot)


async def test_a_board_without_todos_says_where_they_come_from() -> None:
    app = workbench(FakeFleet())
    async with app.run_test(size=(60, 20)) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("alt+d")
        await until(lambda: "No todos yet" in screen_text(app), pilot)
