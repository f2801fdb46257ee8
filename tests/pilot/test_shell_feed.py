"""The feed: every call, by call, as it happens, and still while it is read."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.fake_fleet import NOON, FakeFleet, step_event
from support.notices import notices_of
from support.shell import FakeChat, screen_text, workbench
from support.waiting import until
from textual.events import DescendantFocus
from textual.pilot import Pilot
from textual.widgets import Input

from pallas.model import (
    AuthHop,
    Event,
    LoopStopped,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolEvent,
)
from pallas_tui.app import Workbench
from pallas_tui.screens.run_screen import RunScreen
from pallas_tui.screens.sheet_screen import TextScreen
from pallas_tui.widgets.feed import FeedPane
from pallas_tui.widgets.pane import PaneUsed

SMALL = (80, 24)


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


def begin(run: str, preview: str = "hello", name: str = "concierge", at: float = NOON) -> RunStarted:
    return RunStarted(at=at, run_id=run, agent=name, preview=preview)


def end(
    run: str, name: str = "concierge", outcome: str = "ok", fault: str = "", seconds: float = 1.0
) -> RunFinished:
    return RunFinished(at=NOON, run_id=run, agent=name, outcome=outcome, seconds=seconds, fault=fault)  # type: ignore[arg-type]


def call(run: str, phase: str, call_id: str = "c", tool: str = "search", at: float = NOON) -> ToolEvent:
    return ToolEvent(
        at=at, run_id=run, agent="concierge", server="docs", tool=tool, phase=phase, call_id=call_id
    )  # type: ignore[arg-type]


async def feed_of(app: Workbench, pilot: Pilot[int]) -> FeedPane:
    """The feed pane, with the focus in it."""
    await until(lambda: isinstance(app.focused, Input), pilot)
    await pilot.press("f4")
    pane = app.main.query_one(FeedPane)
    await until(lambda: app.focused is pane.runs, pilot)
    return pane


def lines(app: Workbench) -> list[str]:
    """The lines of the feed on screen, without the scrollbar."""
    return [line[:79].rstrip() for line in screen_text(app).splitlines()[2:-1]]


def line_with(app: Workbench, text: str) -> str:
    return next(line for line in lines(app) if text in line)


async def test_an_empty_feed_says_how_to_make_something_happen_and_an_empty_message_that_it_is() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        await feed_of(app, pilot)
        await until(lambda: "Ask an agent something in the chat (2)" in screen_text(app), pilot)
        fleet.say(begin("r", ""), step_event("unseen", 1))
        await until(lambda: "(empty message)" in screen_text(app), pilot)
        assert "(began before the workbench)" in screen_text(app)


async def test_a_call_is_shown_with_its_tools_and_its_running_time_ticks_until_it_ends() -> None:
    fleet, clock = FakeFleet(), Clock()
    app = workbench(fleet, clock=clock)
    async with app.run_test(size=SMALL) as pilot:
        await feed_of(app, pilot)
        fleet.change("concierge", runs_active=1)
        fleet.say(begin("r", "Which customers?"), step_event("r", 1), call("r", "started"))
        await until(lambda: "docs/search" in screen_text(app), pilot)
        head = line_with(app, "Which customers?")
        assert " ".join(head.split()) == "15:06:40 ▾ concierge Which customers? 0 s ▶ running"
        clock.now += 3.1
        await until(lambda: "  3 s ▶ running" in line_with(app, "Which customers?"), pilot)
        assert "  3 s ▶ running" in line_with(app, "docs/search")
        fleet.say(call("r", "completed", at=NOON + 3.1))
        await until(lambda: "3.1 s ● ok" in line_with(app, "docs/search"), pilot)
        clock.now += 5
        await until(lambda: "  8 s ▶ running" in line_with(app, "Which customers?"), pilot)
        assert "3.1 s ● ok" in line_with(app, "docs/search")
        fleet.say(end("r", seconds=8.4))
        await until(lambda: "8.4 s ● ok" in line_with(app, "Which customers?"), pilot)
        columns = {line.index(" s ") for line in lines(app) if " s " in line}
        assert len(columns) == 1  # numbers stand below each other


async def test_a_failed_run_tells_why_even_when_it_is_folded() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        await feed_of(app, pilot)
        fleet.say(
            begin("a"), call("a", "started"), end("a", outcome="error", fault="AUTH: the key was refused")
        )
        fleet.say(begin("b"), end("b"))
        await until(lambda: "✖ error" in screen_text(app), pilot)
        assert "AUTH: the key was refused" in screen_text(app)
        assert "docs/search" not in screen_text(app)


@pytest.mark.slow
async def test_space_folds_and_unfolds_a_run() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        await feed_of(app, pilot)
        fleet.say(begin("a", "first"), call("a", "started"), call("a", "completed"), end("a"))
        fleet.say(begin("b", "second"), end("b"))
        await until(lambda: "second" in screen_text(app), pilot)
        assert "docs/search" not in screen_text(app)
        await pilot.press("up", "space")
        await until(lambda: "docs/search" in screen_text(app), pilot)
        await pilot.press("space")
        await until(lambda: "docs/search" not in screen_text(app), pilot)
        await pilot.press("right")
        await until(lambda: "docs/search" in screen_text(app), pilot)
        await pilot.press("down", "left")
        await until(lambda: "docs/search" not in screen_text(app), pilot)


@pytest.mark.slow
async def test_it_follows_at_the_end() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        await feed_of(app, pilot)
        for number in range(60):
            fleet.say(begin(f"r{number}", f"message {number}"), end(f"r{number}"))
        await until(lambda: "message 59" in screen_text(app), pilot)
        assert "new below" not in screen_text(app)
        assert (
            lines(app)[-1].startswith("15:06:40")
            or lines(app)[-1] == " 15:06:40"
            or "message 59" in lines(app)[-1]
        )


async def test_what_is_being_read_does_not_move_and_the_title_says_how_much_is_new() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        pane = await feed_of(app, pilot)
        for number in range(40):
            fleet.say(begin(f"r{number}", f"message {number}"), end(f"r{number}"))
        fleet.say(begin("long", "the long one"), call("long", "started"))
        await until(lambda: "docs/search" in screen_text(app), pilot)
        await pilot.press("home", "down", "down")
        await until(lambda: "message 0 " in screen_text(app), pilot)
        before = lines(app)
        for number in range(40, 52):
            fleet.say(begin(f"r{number}", f"message {number}"), end(f"r{number}"))
        await until(lambda: "12 new below" in screen_text(app), pilot)
        assert lines(app) == before
        await pilot.press("f")
        await until(lambda: "message 51" in screen_text(app), pilot)
        assert "new below" not in screen_text(app)
        assert pane.runs.follow


async def test_a_run_that_is_being_read_does_not_fold_when_it_ends() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        await feed_of(app, pilot)
        fleet.say(begin("a", "first"), *(call("a", "started", f"c{n}", f"tool{n}") for n in range(5)))
        await until(lambda: "docs/tool4" in screen_text(app), pilot)
        await pilot.press("up", "up")
        fleet.say(end("a"), begin("b", "second"), end("b"))
        await until(lambda: "second" in screen_text(app), pilot)
        assert "docs/tool2" in screen_text(app)
        await pilot.press("f")
        await until(lambda: "docs/tool2" not in screen_text(app), pilot)


@pytest.mark.slow
async def test_old_runs_that_leave_do_not_move_what_is_being_read() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        pane = await feed_of(app, pilot)
        for number in range(500):
            fleet.say(begin(f"r{number}", f"message {number}."), end(f"r{number}"))
        await until(lambda: "message 499." in screen_text(app), pilot)
        await pilot.press("up", *["pageup"] * 3)
        selected = pane.runs.selected
        before = [line.split("message")[1].split()[0] for line in lines(app) if "message" in line]
        for number in range(500, 550):
            fleet.say(begin(f"r{number}", f"message {number}."), end(f"r{number}"))
        await until(lambda: "50 new below" in screen_text(app), pilot)
        after = [line.split("message")[1].split()[0] for line in lines(app) if "message" in line]
        assert after == before
        assert pane.runs.selected is selected


async def test_cancelling_asks_in_place_and_is_passed_on_once() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        pane = await feed_of(app, pilot)
        fleet.change("concierge", runs_active=1)
        fleet.say(begin("r1", "Which customers?"))
        await until(lambda: "x cancel" in screen_text(app).splitlines()[-1], pilot)
        await pilot.press("x")
        await until(lambda: "Cancel the run of concierge: Which customers?" in screen_text(app), pilot)
        await pilot.press("n")
        assert fleet.cancelled == []
        assert app.focused is pane.runs
        await pilot.press("ctrl+k", "y")
        await until(lambda: fleet.cancelled == ["r1"], pilot)
        await until(lambda: "cancelling" in line_with(app, "Which customers?"), pilot)
        await pilot.press("x")
        assert app.main.asking == ""
        fleet.say(end("r1", outcome="cancelled"))
        await until(lambda: "■ cancelled" in line_with(app, "Which customers?"), pilot)
        assert "x cancel" not in screen_text(app)


async def test_a_run_that_ends_while_it_is_asked_about_is_not_cancelled() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        pane = await feed_of(app, pilot)
        fleet.say(begin("r1", "Which customers?"))
        await until(lambda: "x cancel" in screen_text(app).splitlines()[-1], pilot)
        await pilot.press("x")
        await until(lambda: app.main.asking, pilot)
        fleet.say(end("r1"))
        await until(lambda: not app.main.asking and app.focused is pane.runs, pilot)
        told = [notification.message for notification in notices_of(app)]
        assert told == ["The run of concierge is over: there is nothing to cancel."]
        assert fleet.cancelled == []


@pytest.mark.slow
async def test_the_feed_filters_by_words_and_by_agent() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        pane = await feed_of(app, pilot)
        fleet.say(begin("a", "invoices of May"), call("a", "started"), begin("b", "a picture", "vision"))
        await until(lambda: "a picture" in screen_text(app), pilot)
        await pilot.press("slash", *"docs/sea")
        await until(lambda: "a picture" not in screen_text(app), pilot)
        assert "invoices of May" in screen_text(app)
        await pilot.press("ctrl+u", *"agent:vis", "enter")
        await until(lambda: "invoices" not in screen_text(app) and "a picture" in screen_text(app), pilot)
        assert "filter: agent:vis" in screen_text(app).splitlines()[1]
        assert app.focused is pane.runs
        await pilot.press("escape")
        await until(lambda: "invoices of May" in screen_text(app), pilot)


async def test_the_whole_story_of_a_run_can_be_read_and_copied() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        await feed_of(app, pilot)
        failed = replace(call("run-7", "failed"), error="KeyError: 7")
        fleet.say(begin("run-7", "[b]not markup[/b]"), call("run-7", "started"), failed)
        await until(lambda: "docs/search: KeyError: 7" in screen_text(app), pilot)
        fleet.say(
            RunFinished(
                at=NOON,
                run_id="run-7",
                agent="concierge",
                outcome="ok",
                seconds=2,
                tokens_in=120,
                tokens_out=8,
                cost=12_340_000,
                unpriced=1,
            )
        )
        await until(lambda: "2.0 s ● ok" in screen_text(app), pilot)
        assert "$0.0123+ " in screen_text(app)
        await pilot.press("i")
        await until(lambda: isinstance(app.screen, TextScreen), pilot)
        await until(lambda: "120 tokens in, 8 out" in screen_text(app), pilot)
        assert "cost $0.0123+" in screen_text(app)
        assert "[b]not markup[/b]" in screen_text(app)
        await pilot.press("y")
        await until(lambda: "run run-7" in app.clipboard, pilot)


async def test_a_double_click_opens_the_run_it_hits() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        pane = await feed_of(app, pilot)
        fleet.say(begin("a", "first"), call("a", "started"), end("a"), begin("b", "second"), end("b"))
        await until(lambda: "second" in screen_text(app), pilot)
        await pilot.click(pane.runs, offset=(20, 0), times=2)
        await until(lambda: isinstance(app.screen, RunScreen) and app.screen.run.id == "a", pilot)


async def test_the_wheel_stops_following_and_going_back_to_the_end_follows_again() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        pane = await feed_of(app, pilot)
        for number in range(60):
            fleet.say(begin(f"r{number}", f"message {number}"), end(f"r{number}"))
        await until(lambda: "message 59" in screen_text(app), pilot)

        def wheel() -> bool:  # turned as long as the lines that still come in take the view along
            pane.runs.scroll_to(y=10, animate=False)
            return not pane.runs.follow

        await until(wheel, pilot)
        fleet.say(begin("new", "the newest"))
        await until(lambda: "1 new below" in screen_text(app), pilot)
        pane.runs.scroll_end(animate=False)
        await until(lambda: pane.runs.follow, pilot)
        await until(lambda: "the newest" in screen_text(app), pilot)


async def test_events_that_were_missed_are_admitted() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        await feed_of(app, pilot)
        pane = app.main.query_one(FeedPane)
        fleet.say(begin("lost"))
        await until(lambda: pane.feed.active == 1, pilot)
        fleet.say(*(call("x", "started", f"c{n}") for n in range(21_000)))
        await until(lambda: "events missed" in screen_text(app), pilot)
        run = pane.feed.run("lost")
        assert run is not None
        assert run.state == "unknown"


def flood(amount: int) -> Iterator[Event]:
    """As busy a fleet as one can think of: mostly text, some of everything else."""
    for number in range(amount // 100):
        run = f"f{number}"
        yield begin(run, f"flood {number}")
        for piece in range(95):
            yield TextDelta(at=NOON, run_id=run, agent="concierge", text=f"word {piece} ")
        yield step_event(run, 1)
        yield call(run, "started", f"{run}.c")
        yield call(run, "completed", f"{run}.c")
        yield end(run)


@pytest.mark.slow
async def test_two_hundred_thousand_events_make_few_frames_and_starve_nobody() -> None:
    # One frame carries many events, the rest is counted as dropped; keys are served in between.
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=(120, 40)) as pilot:
        pane = await feed_of(app, pilot)
        chat = app.main.query_one(FakeChat)
        events = flood(200_000)
        first = len(chat.frames)
        for turn in range(20):
            for _ in range(10_000):
                fleet.hub.publish(next(events))
            await pilot.press("f3" if turn % 2 else "f4")
        assert app.main.current == "chat"
        await until(lambda: sum(len(f.events) + f.dropped for f in chat.frames[first:]) == 200_000, pilot, 60)
        frames = chat.frames[first:]
        assert len(frames) < 2_000
        assert all(len(frame.events) <= 5_000 for frame in frames)
        sequence = [event.seq for frame in frames for event in frame.events]
        assert sequence == sorted(set(sequence))
        assert len(pane.feed.runs) <= 500
        await pilot.press("f4", "f")
        await until(lambda: "flood 1999" in screen_text(app), pilot)


async def test_a_stopped_loop_and_a_refused_credential_are_seen_and_the_rest_is_in_the_story() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    one = {"run_id": "r1", "agent": "concierge"}
    key = {"downstream": "vault", "source": "forwarded", "fingerprint": "3fc2", "method": "tools/call"}
    async with app.run_test(size=SMALL) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("f4")
        fleet.say(
            begin("r1"),
            AuthHop(at=NOON, status=200, downstream="docs", source="configured", fingerprint="aa11", **one),  # type: ignore[arg-type]
            AuthHop(at=NOON, status=401, **key, **one),  # type: ignore[arg-type]
            LoopStopped(at=NOON, reason="repeat", tool="docs/search", count=5, **one),  # type: ignore[arg-type]
            end("r1"),
        )
        await until(
            lambda: "loop stopped: docs/search gave the same result 5 times" in screen_text(app), pilot
        )
        text = screen_text(app)
        assert "vault: key 3fc2 forwarded" in text
        assert "✖ HTTP 401" in text
        assert "aa11" not in text
        await pilot.press("i")
        await until(lambda: isinstance(app.screen, TextScreen), pilot)
        await until(lambda: "docs, key aa11 configured, HTTP 200" in screen_text(app), pilot)


@pytest.mark.slow
async def test_escape_returns_to_the_pane_and_line_that_a_jump_came_from() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        runs = (await feed_of(app, pilot)).runs
        fleet.say(*(begin(f"r{number}", f"no {number}") for number in range(4)))
        await until(lambda: runs.line_count() >= 4, pilot)
        await pilot.press("home", "down", "l")
        await until(lambda: app.main.current == "logs", pilot)
        runs.action_last()  # the list went on meanwhile
        await pilot.press("escape")
        await until(lambda: app.focused is runs, pilot)
        assert runs.selected is not None and runs.selected.id == "r1"
        # Who goes elsewhere by a key has left the way back.
        await pilot.press("l", "f4", "f5", "escape")
        assert app.main.current == "logs"
        # From the chat too, unless something was written there.
        await pilot.press("f2", "enter")
        await until(lambda: app.main.current == "chat" and isinstance(app.focused, Input), pilot)
        await pilot.press("escape")
        await until(lambda: app.main.current == "agents", pilot)


async def test_a_focus_reported_late_does_not_bring_its_pane_back() -> None:
    app = workbench(FakeFleet())
    async with app.run_test(size=SMALL) as pilot:
        await feed_of(app, pilot)
        await pilot.press("f3")
        await until(lambda: isinstance(app.focused, Input), pilot)
        prompt = app.focused
        assert prompt is not None
        await pilot.press("f4")
        app.main.post_message(DescendantFocus(prompt))
        await pilot.pause()
        assert app.main.current == "feed"


async def test_who_sends_something_does_not_return_to_where_a_jump_came_from() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        runs = (await feed_of(app, pilot)).runs
        fleet.say(begin("r1", "one"))
        await until(lambda: runs.line_count() == 1, pilot)
        await pilot.press("home", "l")
        await until(lambda: app.main.current == "logs", pilot)
        app.main.query_one("#logs").post_message(PaneUsed())
        await pilot.pause()
        await pilot.press("escape")
        assert app.main.current == "logs"
