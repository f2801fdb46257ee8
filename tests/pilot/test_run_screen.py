"""One run on a screen of its own: facts, trace, and the raw exchanges behind it."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest
from support.fake_fleet import NOON, FakeFleet, step_event
from support.shell import screen_text, workbench
from support.waiting import until
from textual.widgets import Input

from pallas.model import (
    Event,
    Exchange,
    Fault,
    FaultType,
    RunFinished,
    RunStarted,
    Step,
    StepAttempt,
    StepDetail,
    StepUsage,
    ToolEvent,
)
from pallas.model.spend_limits import AccountStatus
from pallas_tui.app import Workbench
from pallas_tui.runs.exchange_text import CallExchange, as_json, as_text, pretty, state_of
from pallas_tui.runs.step_text import as_curl
from pallas_tui.screens.help_screen import HelpScreen
from pallas_tui.screens.main_screen import MainScreen
from pallas_tui.screens.run_screen import ExchangeScreen, RunScreen, StepScreen
from pallas_tui.text import clock, duration
from pallas_tui.widgets.feed import FeedPane
from pallas_tui.widgets.feed.run_list import MAX_ROWS
from pallas_tui.widgets.feed.run_pane import RunPane
from pallas_tui.widgets.feed.step_pane import StepPane

SIZE = (100, 40)
TRACE = "ab" * 16
REQUEST = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "send_message"}}
ANSWER = {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "[b]done[/b]"}]}}


def events(outcome: bool = True) -> list[Event]:
    top = {"run_id": "top", "agent": "concierge"}
    call = {"server": "research", "tool": "send_message", "call_id": "c", "span_id": "c1", **top}
    known = {"trace_id": TRACE, "caller": "claude code", "principal": "3fc2aa", "conversation": "inv-0001"}
    said: list[Event] = [
        RunStarted(at=NOON, preview="Which customers?", span_id="s1", **known, **top),
        ToolEvent(at=NOON, phase="started", **call),  # type: ignore[arg-type]
        RunStarted(at=NOON, run_id="mid", agent="research", preview="look", trace_id=TRACE, parent_span="c1"),
    ]
    if outcome:
        over = {"outcome": "ok", "seconds": 1.0, "tokens_in": 120, "tokens_out": 8}
        said += [
            RunFinished(at=NOON + 1, run_id="mid", agent="research", **over),  # type: ignore[arg-type]
            RunFinished(at=NOON + 1, **over, **top),  # type: ignore[arg-type]
        ]
    return said


def exchange(**changes: object) -> Exchange:
    known: dict[str, object] = {
        "run_id": "top",
        "at": NOON,
        "side": "inbound",
        "peer": "claude code",
        "method": "tools/call",
        "request": json.dumps(REQUEST),
        "response": json.dumps(ANSWER),
        "request_headers": (("authorization", "Bearer [key 3fc2aa]"), ("accept", "application/json")),
        "response_headers": (("content-type", "application/json"),),
        "status": 200,
        "seconds": 1.2,
        "span_id": "s1",
    }
    return Exchange(**{**known, **changes})  # type: ignore[arg-type]


def down(**changes: object) -> Exchange:
    plain = {
        "side": "downstream",
        "peer": "docs",
        "status": None,
        "request_headers": (),
        "response_headers": (),
    }
    return exchange(**{**plain, **changes})


async def open_run(app: Workbench, pilot: object, fleet: FakeFleet, run: str = "top") -> RunScreen:
    """The screen of a run, opened from the feed by its key."""
    press = pilot.press  # type: ignore[attr-defined]
    await until(lambda: isinstance(app.focused, Input), pilot)  # type: ignore[arg-type]
    await press("f4")
    pane = app.main.query_one(FeedPane)
    await until(lambda: pane.feed.run(run) is not None, pilot)  # type: ignore[arg-type]
    found = pane.feed.run(run)
    assert found is not None
    pane.runs.go_to(found)
    await press("enter")
    await until(lambda: isinstance(app.screen, RunScreen) and app.screen.query(RunPane), pilot)  # type: ignore[arg-type]
    screen = app.screen
    assert isinstance(screen, RunScreen)
    await until(lambda: "reading" not in screen.query_one(RunPane).rows.remark, pilot)  # type: ignore[arg-type]
    return screen


@pytest.mark.slow
async def test_a_run_shows_its_facts_its_trace_and_its_exchanges() -> None:
    fleet = FakeFleet()
    fleet.wire["top"] = (exchange(), down(seconds=0.4))
    fleet.say(*events())
    app = workbench(fleet)
    async with app.run_test(size=SIZE) as pilot:
        await open_run(app, pilot, fleet)
        await until(lambda: "tools/call to docs" in screen_text(app), pilot)
        text = screen_text(app)
        for words in (
            "concierge",
            "ok after 1.0 s",
            "claude code",
            "key 3fc2aa",
            "inv-0001",
            "120 in, 8 out",
            TRACE,
            "Which customers?",
            "▾ research look",
            "← tools/call from claude code",
            "→ tools/call to docs",
            "HTTP 200",
        ):
            assert words in text, words
        await pilot.press("escape")
        await until(lambda: isinstance(app.screen, MainScreen), pilot)
        assert app.is_running


async def test_a_run_that_another_fleet_began_shows_what_became_of_its_unfinished_calls() -> None:
    fleet = FakeFleet()
    fleet.lost["top"] = ("shop__refund: told the model", "docs__find: called again")
    fleet.say(*events())
    app = workbench(fleet)
    async with app.run_test(size=SIZE) as pilot:
        await open_run(app, pilot, fleet)
        await until(lambda: "docs__find: called again" in screen_text(app), pilot)
        (first,) = (line for line in screen_text(app).splitlines() if "shop__refund" in line)
        assert first.split("lost call", 1)[1].strip() == "shop__refund: told the model"


async def test_a_run_with_limits_shows_what_remains_of_them() -> None:
    fleet = FakeFleet()
    fleet.limits["top"] = (
        AccountStatus("run:top", "tokens", 5_000, 1_200, 0, 3_800),
        AccountStatus("caller:ann", "usd", 5 * 10**9, 10**9, 0, 4 * 10**9),
    )
    fleet.say(*events())
    app = workbench(fleet)
    async with app.run_test(size=SIZE) as pilot:
        await open_run(app, pilot, fleet)
        await until(lambda: "per_run.tokens: 1,200 tokens of 5,000 tokens" in screen_text(app), pilot)
        assert "per_caller.usd_per_day: $1.00 of $5.00, $4.00 left" in screen_text(app)


@pytest.mark.slow
async def test_an_exchange_is_read_as_json_with_its_headers_and_copied_in_both_forms() -> None:
    fleet = FakeFleet()
    fleet.wire["top"] = (exchange(),)
    fleet.say(*events())
    app = workbench(fleet)
    async with app.run_test(size=SIZE) as pilot:
        await open_run(app, pilot, fleet)
        await pilot.press("end")
        await until(lambda: "⏎ open" in screen_text(app).splitlines()[-1], pilot)
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, ExchangeScreen), pilot)
        await until(lambda: "Response" in screen_text(app), pilot)
        text = screen_text(app)
        assert "authorization: Bearer [key 3fc2aa]" in text
        assert '"method": "tools/call",' in text
        assert "[b]done[/b]" in text  # markup is text
        await pilot.press("y")
        await until(lambda: "authorization: Bearer [key 3fc2aa]" in app.clipboard, pilot)
        await pilot.press("c")
        await until(lambda: app.clipboard.startswith("{"), pilot)
        document = json.loads(app.clipboard)
        assert document["response"]["body"] == ANSWER
        assert document["request"]["headers"][0] == ["authorization", "Bearer [key 3fc2aa]"]
        await pilot.press("f1")
        await until(lambda: isinstance(app.screen, HelpScreen), pilot)
        await pilot.press("escape", "escape")
        await until(lambda: isinstance(app.screen, RunScreen), pilot)


async def test_what_cannot_be_read_says_why_and_is_read_again_on_a_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = FakeFleet()
    fleet.say(*events())
    asked: list[str] = []

    async def exchanges(run_id: str) -> tuple[Exchange, ...]:
        asked.append(run_id)
        if len(asked) == 1:
            raise Fault(FaultType.CONFIG, "this fleet does not keep what goes over the wire")
        if len(asked) == 2:
            raise OSError("[red]gone[/red]\x1b[2J")
        return (exchange(),)

    monkeypatch.setattr(fleet, "exchanges", exchanges)
    app = workbench(fleet)
    async with app.run_test(size=SIZE) as pilot:
        await open_run(app, pilot, fleet)
        await until(lambda: "this fleet does not keep what goes over" in screen_text(app), pilot)
        await pilot.press("r")
        await until(lambda: "OSError: [red]gone[/red]␛[2J. r tries again" in screen_text(app), pilot)
        await pilot.press("r")
        await until(lambda: "tools/call from claude code" in screen_text(app), pilot)
        assert asked == ["top"] * 3


async def test_a_fleet_that_does_not_answer_is_given_up_and_the_screen_can_be_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pallas_tui.widgets.feed import run_pane

    fleet = FakeFleet()
    fleet.say(*events())

    async def never(run_id: str) -> tuple[Exchange, ...]:
        await asyncio.Event().wait()
        return ()

    monkeypatch.setattr(fleet, "exchanges", never)
    monkeypatch.setattr(run_pane, "DEADLINE", 0.05)
    app = workbench(fleet)
    async with app.run_test(size=SIZE) as pilot:
        await open_run(app, pilot, fleet)
        await until(lambda: "no answer within" in screen_text(app), pilot)
        await pilot.press("escape")
        await until(lambda: isinstance(app.screen, MainScreen), pilot)


@pytest.mark.slow
async def test_a_run_in_flight_goes_on_on_its_screen_and_its_exchanges_come_at_its_end() -> None:
    fleet = FakeFleet()
    fleet.change("concierge", runs_active=1)
    fleet.say(*events(outcome=False))
    app = workbench(fleet)
    async with app.run_test(size=SIZE) as pilot:
        await open_run(app, pilot, fleet)
        await until(lambda: "running after" in screen_text(app), pilot)
        await until(lambda: "Nothing of it is kept" in screen_text(app), pilot)
        fleet.wire["top"] = (exchange(),)
        fleet.say(*events()[-2:])
        await until(lambda: "ok after 1.0 s" in screen_text(app), pilot)
        await until(lambda: "tools/call from claude code" in screen_text(app), pilot)
        await pilot.press("escape")
        await until(lambda: isinstance(app.screen, MainScreen), pilot)
        assert app.main.query_one(FeedPane).watchers == []


@pytest.mark.slow
async def test_another_run_of_the_trace_and_the_other_panes_are_one_key_away() -> None:
    fleet = FakeFleet()
    fleet.say(*events())
    app = workbench(fleet)
    async with app.run_test(size=SIZE) as pilot:
        screen = await open_run(app, pilot, fleet)
        rows = screen.query_one(RunPane).rows
        while not (hasattr(rows.selected, "run") and rows.selected.run.id == "mid"):
            assert rows.cursor < rows.line_count() - 1
            await pilot.press("down")
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, RunScreen) and app.screen.run.id == "mid", pilot)
        await until(lambda: "concierge (unknown)" in screen_text(app), pilot)
        await pilot.press("t")
        await until(lambda: app.screen is app.main and app.main.current == "credentials", pilot)


@pytest.mark.slow
async def test_of_a_trace_with_very_many_runs_a_bounded_number_of_lines_is_shown_the_own_ones_first() -> None:
    fleet = FakeFleet()
    for number in range(20):
        ids = {"run_id": f"x{number}", "agent": "vision"}
        steps = [step_event(ids["run_id"], each, agent="vision") for each in range(300)]
        fleet.say(RunStarted(at=NOON, preview=f"other {number}", trace_id=TRACE, **ids), *steps)
    fleet.say(*events())
    app = workbench(fleet)
    async with app.run_test(size=SIZE) as pilot:
        screen = await open_run(app, pilot, fleet)
        await until(lambda: "▾ research look" in screen_text(app), pilot)
        rows = screen.query_one(RunPane).rows
        assert MAX_ROWS < rows.line_count() < MAX_ROWS + 40
        await pilot.press("end")
        await until(lambda: "more than 3000 lines, and 10 other runs of it" in screen_text(app), pilot)


# The text of an exchange


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, "HTTP 200"),
        ({"seconds": None, "response": ""}, "waiting"),
        ({"status": 401, "response": "{}"}, "HTTP 401"),
        ({"status": None}, "ok"),
        ({"status": None, "response": ""}, "no answer"),
        ({"response": '{"jsonrpc":"2.0","id":1,"error":{"code":-32600}}'}, "error"),
        ({"response": '{"result": {"isError": true, "content": []}}'}, "tool error"),
    ],
)
def test_how_an_exchange_ended_is_said_in_a_word(changes: dict[str, object], word: str) -> None:
    assert state_of(exchange(**changes)) == word


def test_what_unpacking_json_brings_out_is_made_safe() -> None:
    hostile = '{"text": "\\u202e\\u009b2J\\u001b[2J"}'
    for text in (
        pretty(hostile),
        as_text(CallExchange(exchange(response=hostile), 1.2)),
    ):
        assert not set(text) & set("\u202e\u009b\x1b")
    assert not set(as_json(exchange(response=hostile))) & set("\u009b\x1b")  # what is copied is data
    assert pretty("no json {") == "no json {"
    assert pretty("[" * 100_000).startswith("[[")


def test_a_body_that_was_cut_is_shown_as_it_is_and_says_so() -> None:
    text = as_text(CallExchange(exchange(response='{"result": {"text": "xxx', cut=True), 1.2))
    assert "longer than what is kept" in text
    assert '{"result": {"text": "xxx' in text


def model_step(number: int = 1, **changes: object) -> StepDetail:
    known: dict[str, object] = {
        "run_id": "top",
        "number": number,
        "kind": "model",
        "name": "qwen3",
        "provider": "generic",
        "url": "http://127.0.0.1:8080/v1/chat/completions",
        "started_at": NOON,
        "state": "done",
        "seconds": 2.0,
        "first_token": 0.5,
        "attempts": (StepAttempt(NOON, 503, 0.1, "HTTP 503", 1.0), StepAttempt(NOON + 1, 200, 0.9)),
        "usage": StepUsage(1200, 30, 1000, None, 12),
    }
    step = Step(**{**known, **changes})  # type: ignore[arg-type]
    request = {
        "model": "qwen3",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Which customers? It's urgent"},
        ],
        "tools": [{"type": "function", "function": {"name": "echo__echo", "description": "Say it."}}],
        "max_tokens": 2048,
    }
    answer = {"choices": [{"message": {"content": "Three customers."}}]}
    return StepDetail(
        step,
        json.dumps(request),
        "" if step.seconds is None else json.dumps(answer),
        (("authorization", "Bearer [key 3fc2aa]"), ("content-type", "application/json")),
    )


async def open_steps(app: Workbench, pilot: object, fleet: FakeFleet, number: int) -> RunPane:
    """The screen of the run with the cursor on a step."""
    pane = (await open_run(app, pilot, fleet)).query_one(RunPane)
    await until(lambda: pane.rows.go_to_step(number), pilot)  # type: ignore[arg-type]
    return pane


def usable_keys(app: Workbench) -> set[str]:
    return {key for key, each in app.screen.active_bindings.items() if each.enabled}


@pytest.mark.slow
async def test_a_model_step_shows_what_was_sent_is_searched_and_copied_in_four_forms() -> None:
    fleet = FakeFleet()
    fleet.say(*events())
    fleet.model_steps["top"] = (model_step(1), model_step(2, state="failed", fault="the answer broke off"))
    app = workbench(fleet)
    async with app.run_test(size=SIZE) as pilot:
        await open_steps(app, pilot, fleet, 1)
        assert "1. qwen3  1,200 in, 30 out  2 attempts" in screen_text(app)
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, StepScreen) and "Be brief." in screen_text(app), pilot)
        shown = screen_text(app)
        for text in (
            "generic.qwen3", f"after {duration(0.5)}", "20.0 tokens/s", "1,000 of them cached",
            "12 of them reasoning",
            f"HTTP 503 after {duration(0.1)}, repeated after {duration(1.0)}",
            "user: Which customers?", "echo__echo: Say it.",
            "max_tokens: 2048", "Three customers.", "Request as JSON",
        ):  # fmt: skip
            assert text in shown, shown
        pane = app.screen.query_one(StepPane)
        await pilot.press("slash", *"three", "enter")
        await until(lambda: pane.caption == "2 lines found", pilot)
        first = pane.view.line_number
        await pilot.press("n")
        assert pane.view.line_number > first
        await pilot.press("N")
        assert pane.view.line_number == first
        copied = {}
        assert set("ycmu") <= usable_keys(app)
        for key in "ycmu":
            await pilot.press(key)
            copied[key] = await until(lambda: app.clipboard, pilot)
            app._clipboard = ""
        assert copied["y"].startswith(clock(NOON))
        assert json.loads(copied["c"])["request"]["max_tokens"] == 2048
        said = "system: Be brief.\n\nuser: Which customers? It's urgent\n\nassistant: Three customers."
        assert copied["m"] == said
        assert '-H "authorization: Bearer $GENERIC_API_KEY"' in copied["u"]
        assert "3fc2aa" not in copied["u"]


@pytest.mark.slow
async def test_tab_goes_from_part_to_part() -> None:
    fleet = FakeFleet()
    fleet.say(*events())
    fleet.model_steps["top"] = (model_step(1), model_step(2))
    app = workbench(fleet)
    async with app.run_test(size=SIZE) as pilot:
        await open_steps(app, pilot, fleet, 1)
        rows = app.screen.query_one(RunPane).rows
        await pilot.press("home")
        seen = []
        for key in ("tab", "tab", "tab", "shift+tab"):
            await pilot.press(key)
            seen.append(type(rows.selected).__name__)
        assert seen == ["RunTreeRow", "Fact", "Fact", "RunTreeRow"]


@pytest.mark.slow
async def test_a_step_that_is_under_way_is_followed_to_its_end() -> None:
    fleet = FakeFleet()
    fleet.say(*events(outcome=False))
    open_step = {"state": "begun", "seconds": None, "attempts": (StepAttempt(NOON),), "usage": StepUsage()}
    fleet.model_steps["top"] = (model_step(1, **open_step),)
    app = workbench(fleet)
    async with app.run_test(size=SIZE) as pilot:
        rows = (await open_steps(app, pilot, fleet, 1)).rows
        await pilot.press("enter")
        await until(lambda: "nothing yet" in screen_text(app), pilot)
        fleet.model_steps["top"] = (model_step(1),)
        await until(lambda: "Three customers." in screen_text(app), pilot)
        await pilot.press("escape")
        await until(lambda: rows.run.steps[-1].state == "ok", pilot)


def test_the_curl_command_of_a_step_runs_in_a_shell(tmp_path: Path) -> None:
    detail = model_step(1)
    curl = tmp_path / "curl"
    curl.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\ncat\n')
    curl.chmod(0o700)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "GENERIC_API_KEY": "sk-mine"}
    command = as_curl(detail)
    ran = subprocess.run(
        ["sh", "-c", command], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    url, *rest = ran.stdout.splitlines()
    assert url == detail.step.url
    assert rest[:2] == ["-H", "authorization: Bearer sk-mine"]
    assert rest[-1] == detail.request


def call_step(number: int, name: str, parent: int, kind: str = "tool") -> StepDetail:
    step = Step("top", number, kind, name, NOON + number, "done", seconds=0.2, parent=parent)  # type: ignore[arg-type]
    request = {"name": name, "arguments": {"id": number, "words": ["lamp"]}}
    response = {"content": [{"type": "text", "text": f"shelf {number}\nrow 3"}]}
    return StepDetail(step, json.dumps(request), json.dumps(response))


async def test_calls_of_tools_and_agents_are_below_the_step_that_caused_them() -> None:
    fleet = FakeFleet()
    fleet.say(*events())
    fleet.model_steps["top"] = (
        model_step(1),
        call_step(2, "books__find", 1),
        call_step(3, "research", 1, "agent"),
        model_step(4, parent=3),
    )
    app = workbench(fleet)
    async with app.run_test(size=SIZE) as pilot:
        await open_steps(app, pilot, fleet, 2)
        await until(lambda: "2. books/find" in screen_text(app), pilot)
        lines = screen_text(app).splitlines()
        columns = [
            next(line.index(f"{number}. ") for line in lines if f"{number}. " in line)
            for number in (1, 2, 3, 4)
        ]
        assert [column - columns[0] for column in columns] == [0, 2, 2, 4]
        await pilot.press("enter")
        await until(lambda: "shelf 2" in screen_text(app), pilot)
        text = screen_text(app)
        for words in ("2. books/find", "caused by    step 1", "Arguments", '"lamp"', "Result", "row 3"):
            assert words in text, words
        assert "u" not in usable_keys(app)
        await pilot.press("m")
        await until(lambda: app.clipboard.endswith("shelf 2\nrow 3"), pilot)
        assert app.clipboard.startswith('books/find {"id": 2')
