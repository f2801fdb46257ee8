"""The inspector of messages: opened from the feed, live, filtered, opened in full, written and sent again."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from support.fake_fleet import NOON, FakeFleet, agent, desk
from support.letters import RUN, event_of, greeting, letter, passed, told
from support.notices import notices_of
from support.shell import screen_text, workbench
from support.waiting import until
from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from pallas.model import AgentDetail, Fault, FaultType, PayloadDetail, RunFinished, RunStarted, ToolOutcome
from pallas_tui.app import Workbench
from pallas_tui.messages.message_tree import HEAD
from pallas_tui.screens.help_screen import HelpScreen
from pallas_tui.screens.main_screen import MainScreen
from pallas_tui.screens.messages_screen import EnvelopeScreen, MessagesScreen, ReplayScreen, SendScreen
from pallas_tui.widgets.feed import FeedPane
from pallas_tui.widgets.messages import MessagesPane
from pallas_tui.widgets.messages.send_pane import SendPane

SIZE = (120, 40)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": "Greeting",
    "properties": {
        "name": {"type": "string", "description": "Whom to greet"},
        "times": {"type": "integer", "minimum": 1},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"price": {"type": "number"}}}},
    },
    "required": ["name"],
}
EXAMPLE = "<Greeting>\n  <name>text</name>\n</Greeting>"


def made(*, ends: bool = True) -> FakeFleet:
    names = ("greeter", "shouter", "research")
    agents = tuple(agent(name, 24201 + place, version=4) for place, name in enumerate(names))
    fleet = FakeFleet(replace(desk(), agents=agents))
    fleet.letters[RUN] = greeting()
    payload = PayloadDetail("Greeting", json.dumps(SCHEMA), EXAMPLE)
    fleet.details["greeter"] = AgentDetail("greeter", "agents.yaml:3", "handlers.py:8", payload=payload)
    fleet.details["shouter"] = AgentDetail("shouter", payload=PayloadDetail("Shout"))
    fleet.say(*told(greeting(), ends=ends))
    return fleet


async def opened(app: Workbench, pilot: Pilot[Any], *keys: str) -> MessagesPane:
    """The inspector of the run, from the feed."""
    await until(lambda: isinstance(app.focused, Input), pilot)
    await pilot.press("f4")
    feed = app.main.query_one(FeedPane)
    await until(lambda: feed.feed.run(RUN) is not None, pilot)
    run = feed.feed.run(RUN)
    assert run is not None
    feed.runs.go_to(run)
    await pilot.press("m")
    await until(lambda: isinstance(app.screen, MessagesScreen) and app.screen.query("#message-text"), pilot)
    pane = app.screen.query_one(MessagesPane)
    await until(lambda: pane.view.line_count() > 0, pilot)
    await pilot.press(*keys)
    return pane


async def at(pane: MessagesPane, pilot: Pilot[Any], number: int, run: str = RUN) -> None:
    """Put the cursor on a message."""
    place = pane.view.find((run, number))
    assert place is not None
    pane.view.action_move_to(place)
    await until(lambda: pane.view.selected is None or pane.view.selected.number == number, pilot)


async def test_a_run_shows_its_messages_as_one_tree_with_the_runs_of_other_agents_in_it() -> None:
    app = workbench(made())
    async with app.run_test(size=SIZE) as pilot:
        pane = await opened(app, pilot)
        text = screen_text(app)
        for words in (
            "1 call    ● system.caller → greeter  Greeting",
            "2 call    ● │ greeter → shouter  Shout",
            "3 respond ● │ shouter → greeter  Shouted",
            "4 call    ✖ greeter → vault  routing",
            "run     ● │ │ research Who is Ada?",
            "9 messages · 1 not delivered",
        ):
            assert words in text, words
        await until(lambda: "Ada &amp; Grace" in screen_text(app) or pane.view.cursor, pilot)
        await pilot.press("escape")
        await until(lambda: isinstance(app.screen, MainScreen), pilot)


async def test_why_a_message_was_refused_stands_beside_it_with_all_names() -> None:
    # HC-12
    app = workbench(made())
    async with app.run_test(size=SIZE) as pilot:
        pane = await opened(app, pilot)
        await at(pane, pilot, 4)
        await until(lambda: "<text>hello Ada</text>" in screen_text(app), pilot)
        text = screen_text(app)
        for words in ("refused: routing", "greeter has no peer vault", "are shouter, research", "schema"):
            assert words in text, words
        await pilot.press("o")
        await until(lambda: pane.view.line_count() == 1, pilot)
        assert "refused only" in screen_text(app)
        await pilot.press("o")
        await until(lambda: pane.view.line_count() == 10, pilot)


@pytest.mark.slow
async def test_messages_come_in_while_the_run_goes_on_and_the_list_follows_at_its_end() -> None:
    fleet = made(ends=False)
    fleet.hub.publish(RunStarted(at=NOON, run_id="live", agent="greeter", preview="live"))
    app = workbench(fleet)
    async with app.run_test(size=SIZE) as pilot:
        pane = await opened(app, pilot)
        await pilot.press("end")
        for number in (10, 11, 12):
            fleet.say(passed(number, "greeter", "shouter", at="z", parent="a"))
        await until(lambda: pane.view.selected is not None and pane.view.selected.number == 12, pilot)
        await pilot.press("home")
        fleet.say(passed(13, "greeter", "shouter", at="z", parent="a"))
        await until(lambda: pane.view.find((RUN, 13)) is not None, pilot)
        selected = pane.view.selected
        assert selected is not None and selected.number == 1


@pytest.mark.slow
async def test_what_is_told_of_a_run_below_goes_on_while_it_runs_and_when_it_ends() -> None:
    below, fleet = f"{RUN}-llm", FakeFleet(made().current)
    fleet.letters[RUN] = greeting()
    said = told(greeting(), ends=False)
    ended = next(each for each in said if isinstance(each, RunFinished) and each.run_id == below)
    fleet.say(*(each for each in said if each is not ended))
    now = [NOON + 2]
    app = workbench(fleet, clock=lambda: now[0])
    async with app.run_test(size=SIZE) as pilot:
        pane = await opened(app, pilot)
        place = pane.view.find((below, HEAD))
        assert place is not None
        pane.view.action_move_to(place)
        await until(lambda: "running, 1 s" in screen_text(app), pilot)
        now[0] = NOON + 5
        await until(lambda: "running, 4 s" in screen_text(app), pilot)
        fleet.say(ended)
        await until(lambda: "state   ok, 1.9 s" in screen_text(app), pilot)


@pytest.mark.slow
async def test_a_filter_looks_in_everything_and_escape_takes_it_away() -> None:
    app = workbench(made())
    async with app.run_test(size=SIZE) as pilot:
        pane = await opened(app, pilot)
        await pilot.press("slash", *"shouted")
        await until(lambda: [row.number for row in pane.view.rows] == [3, 9], pilot)
        await pilot.press("enter", "escape")
        await until(lambda: pane.view.line_count() == 10, pilot)
        assert isinstance(app.screen, MessagesScreen)


@pytest.mark.slow
async def test_a_message_opens_in_full_and_a_run_among_them_opens_in_the_feed() -> None:
    app = workbench(made())
    async with app.run_test(size=SIZE) as pilot:
        pane = await opened(app, pilot)
        await at(pane, pilot, 2)
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, EnvelopeScreen), pilot)
        await until(lambda: "<text>hello Ada</text>" in screen_text(app), pilot)
        await pilot.press("escape")
        await until(lambda: isinstance(app.screen, MessagesScreen), pilot)
        pane.view.action_move_to(6)
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, MainScreen), pilot)
        feed = app.main.query_one(FeedPane)
        await until(lambda: feed.runs.selected is not None and feed.runs.selected.id == f"{RUN}-llm", pilot)


async def test_the_run_before_and_the_next_are_one_key_away() -> None:
    fleet = made()
    fleet.letters["other"] = greeting("other")
    fleet.say(*told(greeting("other"), run="other"))
    app = workbench(fleet)
    async with app.run_test(size=SIZE) as pilot:
        pane = await opened(app, pilot)
        await pilot.press("right_square_bracket")
        await until(lambda: pane.run_id == "other" and pane.view.line_count() == 10, pilot)
        # Both runs have as many messages: the title is another one all the same.
        await until(lambda: "greeter other" in screen_text(app).splitlines()[0], pilot)
        await pilot.press("left_square_bracket")
        await until(lambda: pane.run_id == RUN and pane.view.rows[0].run == RUN, pilot)


async def test_what_cannot_be_read_is_told_and_read_again_by_a_key() -> None:
    fleet = made()
    fleet.can_control = False
    app = workbench(fleet)
    async with app.run_test(size=SIZE) as pilot:
        await opened(app, pilot)
        await until(lambda: "r tries again" in screen_text(app), pilot)
        assert "full token" in screen_text(app)
        fleet.can_control = True
        await pilot.press("r")
        await until(lambda: "r tries again" not in screen_text(app), pilot)


async def test_without_messages_it_says_how_there_are_some() -> None:
    app = workbench(FakeFleet())
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("alt+m")
        await until(lambda: "No messages yet" in screen_text(app), pilot)
        await pilot.press("f1")
        await until(lambda: isinstance(app.screen, HelpScreen), pilot)
        assert "Every message between the handlers" in screen_text(app)


async def test_the_first_messages_of_all_come_in_where_one_waits_for_them() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("alt+m")
        await until(lambda: "No messages yet" in screen_text(app), pilot)
        fleet.letters[RUN] = greeting()
        fleet.say(*told(greeting(), ends=True))
        await until(
            lambda: "greeter" in screen_text(app) and "No messages yet" not in screen_text(app), pilot
        )
        await until(lambda: f"greeter {RUN}" in screen_text(app).splitlines()[0], pilot)


@pytest.mark.slow
async def test_ten_thousand_messages_are_a_list_in_which_only_what_is_seen_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = made()
    fleet.letters[RUN] = tuple(letter(number, "greeter", "shouter") for number in range(1, 10_001))
    app = workbench(fleet)
    async with app.run_test(size=SIZE) as pilot:
        pane = await opened(app, pilot)
        await until(lambda: pane.view.line_count() == 10_001, pilot)
        await pilot.press("end", "up")  # the last line is a run whose call is no longer kept
        await until(lambda: pane.view.selected is not None and pane.view.selected.number == 10_000, pilot)
        made_lines: list[int] = []
        plain = pane.view.line_at
        monkeypatch.setattr(pane.view, "line_at", lambda i, w: (made_lines.append(i), plain(i, w))[1])
        await pilot.press("up")
        await pilot.pause()
        assert 0 < len(made_lines) < 400  # the lines in view, a few times at most


# Writing


async def send_screen(app: Workbench, pilot: Pilot[Any]) -> SendPane:
    await opened(app, pilot, "home", "s")
    await until(lambda: isinstance(app.screen, SendScreen) and app.screen.query(SendPane), pilot)
    pane = app.screen.query_one(SendPane)
    await until(lambda: pane.writing, pilot)
    return pane


@pytest.mark.slow
async def test_a_message_is_written_in_a_form_made_from_the_schema_of_the_handler() -> None:
    fleet = made()
    fleet.outcome = ToolOutcome(True, "{}", 0.2, ("<Shouted><text>HELLO</text></Shouted>",))
    app = workbench(fleet)
    async with app.run_test(size=SIZE) as pilot:
        await send_screen(app, pilot)
        await pilot.press(*"Ada", "enter", "c")
        await until(lambda: fleet.called, pilot)
        ((name, server, tool, arguments, bearer),) = fleet.called
        assert (name, server, tool, bearer) == ("greeter", "", "send_message", None)
        assert arguments["message"] == '{"name": "Ada"}'  # in one line, as it stands in the feed
        await until(lambda: "<text>HELLO</text>" in screen_text(app), pilot)


@pytest.mark.slow
async def test_a_form_that_is_long_in_coming_says_what_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, answers = made(), asyncio.Event()
    describe = fleet.describe

    async def later(name: str) -> AgentDetail:
        await answers.wait()
        return await describe(name)

    monkeypatch.setattr(fleet, "describe", later)
    app = workbench(fleet)
    notify, said = app.notify, list[str]()
    monkeypatch.setattr(app, "notify", lambda text, **how: said.append(text) or notify(text, **how))
    async with app.run_test(size=SIZE) as pilot:
        await opened(app, pilot, "home", "s")
        await until(lambda: said == ["greeter is asked what it takes."], pilot)
        answers.set()
        await until(lambda: isinstance(app.screen, SendScreen), pilot)


@pytest.mark.slow
async def test_a_form_that_comes_while_something_else_is_read_stays_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet, answers, asked = made(), asyncio.Event(), asyncio.Event()
    describe = fleet.describe

    async def later(name: str) -> AgentDetail:
        asked.set()
        await answers.wait()
        return await describe(name)

    monkeypatch.setattr(fleet, "describe", later)
    app = workbench(fleet)
    async with app.run_test(size=SIZE) as pilot:
        await opened(app, pilot, "home", "s")
        await until(asked.is_set, pilot)
        await pilot.press("f1")
        await until(lambda: isinstance(app.screen, HelpScreen), pilot)
        answers.set()
        await until(lambda: not any(worker.group == "look up" for worker in app.workers), pilot)
        await pilot.pause()
        assert isinstance(app.screen, HelpScreen)


@pytest.mark.slow
async def test_a_message_is_written_as_json_or_as_xml_just_as_well() -> None:
    fleet = made()
    app = workbench(fleet)
    async with app.run_test(size=SIZE) as pilot:
        pane = await send_screen(app, pilot)
        await pilot.press("escape", "2")
        pane.query_one("#tool-json", TextArea).load_text('{"name": "Grace", "times": 2}')
        await pilot.press("ctrl+r")
        await until(lambda: len(fleet.called) == 1, pilot)
        await until(lambda: not pane._calling, pilot)
        await pilot.press("escape", "3")
        area = pane.query_one("#tool-xml", TextArea)
        await until(lambda: area.has_focus, pilot)
        assert area.text == EXAMPLE
        area.load_text("<Greeting><name>Ada</name></Greeting>")
        await pilot.press("ctrl+r")
        await until(lambda: len(fleet.called) == 2, pilot)
    assert json.loads(fleet.called[0][3]["message"]) == {"name": "Grace", "times": 2}
    assert fleet.called[1][3]["message"] == "<Greeting><name>Ada</name></Greeting>"


@pytest.mark.slow
async def test_what_the_fleet_refuses_is_told_at_its_field() -> None:
    fault = Fault(FaultType.PROTOCOL, "times: more than 9", data={"system": "validation", "field": "times"})
    fleet = made()
    fleet.outcome = ToolOutcome(False, "{}", 0.1, (json.dumps(fault.to_body()),))
    app = workbench(fleet)
    async with app.run_test(size=SIZE) as pilot:
        pane = await send_screen(app, pilot)
        await pilot.press(*"Ada", "enter")
        pane.form.set(("times",), 99)
        pane.form_changed()
        await pilot.press("c")
        await until(lambda: "times: more than 9" in screen_text(app), pilot)
        selected = pane.fields.selected
        assert selected is not None and selected.path == ("times",)
        pane.form.set(("times",), 3)
        pane.form_changed()
        await until(lambda: "times: more than 9" not in screen_text(app), pilot)


@pytest.mark.slow
async def test_a_form_follows_its_handler_over_a_reload_and_keeps_what_was_written() -> None:
    fleet = made()
    app = workbench(fleet)
    async with app.run_test(size=SIZE) as pilot:
        pane = await send_screen(app, pilot)
        await pilot.press(*"Ada", "enter")
        await until(lambda: not pane.writing, pilot)
        properties = {**SCHEMA["properties"], "tone": {"type": "string"}}
        payload = PayloadDetail("Greeting", json.dumps({**SCHEMA, "properties": properties}), "<Greeting/>")
        fleet.details["greeter"] = replace(fleet.details["greeter"], payload=payload)
        fleet.reload("greeter", 5)
        await until(lambda: "tone" in [row.label for row in pane.fields.rows], pilot)
        assert pane.form.value == {"name": "Ada"}
        assert "takes another Greeting now; what you wrote stays" in "".join(
            each.message for each in notices_of(app)
        )
        await pilot.press("3")
        area = pane.query_one("#tool-xml", TextArea)
        await until(lambda: area.has_focus and area.text == "<Greeting/>", pilot)
        area.load_text("<Greeting><name>Grace</name></Greeting>")
        await pilot.press("escape", "2")
        pane.query_one("#tool-json", TextArea).load_text('{"name": "Grace",')
        await until(lambda: pane.form.raw_mistake, pilot)
        fleet.details["greeter"] = replace(
            fleet.details["greeter"], payload=replace(payload, input_schema=json.dumps(SCHEMA))
        )
        fleet.reload("greeter", 6)
        await until(lambda: "tone" not in pane.form.root_shape.properties, pilot)
        assert pane.form.raw == '{"name": "Grace",' and pane.form.raw_mistake
        assert area.text == "<Greeting><name>Grace</name></Greeting>"


@pytest.mark.slow
async def test_the_titles_of_a_form_can_be_clicked_and_none_is_pushed_out() -> None:
    app = workbench(made())
    async with app.run_test(size=SIZE) as pilot:
        await send_screen(app, pilot)
        await pilot.press(*"Ada", "enter")
        assert "Greeting to greeter" in screen_text(app).splitlines()[0]
        await pilot.click("#tool-pane-title", offset=(12, 0))
        await until(lambda: app.screen.query_one("#tool-json").has_focus, pilot)
        await pilot.resize_terminal(60, 20)
        await until(lambda: screen_text(app).splitlines()[0].split()[-2:] == ["About", "greeter"], pilot)


@pytest.mark.slow
async def test_a_run_that_was_refused_before_it_became_a_message_says_why_it_has_none() -> None:
    fleet = made()
    fleet.say(
        RunStarted(at=NOON + 9, run_id="refused", agent="greeter", preview="{"),
        RunFinished(
            at=NOON + 9, run_id="refused", agent="greeter", outcome="error", seconds=0.1, fault="no times"
        ),
    )
    app = workbench(fleet)
    async with app.run_test(size=SIZE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await until(lambda: app.main.query_one(FeedPane).feed.run("refused") is not None, pilot)
        app.open_messages("refused")
        await until(lambda: "It failed: no times" in screen_text(app), pilot)
        assert "A payload that does not fit its recipient" in screen_text(app)


async def test_an_agent_that_no_handler_wrote_to_says_so_in_its_own_words() -> None:
    fleet = made()
    fleet.change("shouter", kind="handler")
    app = workbench(FakeFleet(fleet.current))
    async with app.run_test(size=SIZE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        app.open_messages(agent="research")
        app.open_messages(agent="shouter")
        await until(lambda: len(notices_of(app)) == 2, pilot)
        assert [each.message for each in notices_of(app)] == [
            "No handler has written to research yet: only handlers exchange messages.",
            "No messages of shouter yet; w writes one.",
        ]


# Sent again


@pytest.mark.slow
async def test_a_message_is_sent_again_and_both_runs_stand_beside_each_other_with_their_difference() -> None:
    fleet = made()
    fleet.outcome = ToolOutcome(True, "{}", 0.3, ("<Shouted><text>HELLO ADA!</text></Shouted>",))
    answered = fleet.call_tool

    async def call_tool(*given: Any, **more: Any) -> ToolOutcome:
        run_id = f"again{len(fleet.called)}"
        fleet.letters[run_id] = greeting(run_id)[:1]
        fleet.say(
            RunStarted(at=NOON + 9, run_id=run_id, agent="greeter", preview="<Greeting"),
            event_of(fleet.letters[run_id][0]),
        )
        return await answered(*given, **more)

    fleet.call_tool = call_tool  # type: ignore[method-assign]
    app = workbench(fleet)
    async with app.run_test(size=SIZE) as pilot:
        await opened(app, pilot, "home", "p")
        await until(lambda: isinstance(app.screen, ReplayScreen), pilot)
        await until(lambda: "another reply after 0.3 s: 2 lines differ" in screen_text(app), pilot)
        await until(lambda: "run again0" in screen_text(app), pilot)
        text = screen_text(app)
        for words in ("-   <text>HELLO ADA</text>", "+   <text>HELLO ADA!</text>", "greeter v4", "then"):
            assert words in text, words
        sent = fleet.called[0][3]["message"]
        assert sent.startswith("<Greeting") and "Ada &amp; Grace" in sent
        fleet.outcome = ToolOutcome(True, "{}", 0.3, ("<Shouted><text>HELLO ADA</text></Shouted>",))
        await pilot.press("r")
        await until(lambda: "the same reply" in screen_text(app) and "run again1" in screen_text(app), pilot)
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, MessagesScreen), pilot)
        await until(lambda: app.screen.query_one(MessagesPane).run_id == "again1", pilot)
        assert [isinstance(each, MessagesScreen) for each in app.screen_stack].count(True) == 1


async def test_what_cannot_be_sent_again_says_why() -> None:
    app = workbench(made())
    async with app.run_test(size=SIZE) as pilot:
        pane = await opened(app, pilot)
        await at(pane, pilot, 4)
        await pilot.press("p")
        await until(lambda: any("vault is not an agent" in each.message for each in notices_of(app)), pilot)
        assert isinstance(app.screen, MessagesScreen)


@pytest.mark.slow
async def test_a_list_that_cannot_be_seen_does_nothing_until_it_can() -> None:
    fleet = made(ends=False)
    app = workbench(fleet)
    async with app.run_test(size=SIZE) as pilot:
        pane = await opened(app, pilot)
        await at(pane, pilot, 2)
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, EnvelopeScreen), pilot)
        await until(lambda: not pane._reader.busy, pilot)
        before = pane.view.line_count()
        fleet.say(passed(10, "greeter", "shouter", at="z", parent="a"))
        messages = app.messages.run(RUN)
        await until(lambda: messages is not None and messages.last == 10, pilot)
        app._beat()
        assert pane.view.line_count() == before
        await pilot.press("escape")
        await until(lambda: pane.view.find((RUN, 10)) is not None, pilot)
        selected = pane.view.selected
        assert selected is not None and selected.number == 2
