"""A workbench that is left alone does nothing: no look at the fleet, no cursor drawn again and again."""

import asyncio
from collections import Counter
from dataclasses import replace
from itertools import count

import pytest
from textual.widget import Widget
from textual.widgets import Input

from pallas.model import FleetSnapshot, Notice
from pallas_tui import ui_clock
from pallas_tui.shell import cursor_rest
from tests.support.fake_fleet import FakeFleet
from tests.support.shell import screen_text, workbench
from tests.support.waiting import until

WIDE = (120, 40)


class CountedFleet(FakeFleet):
    """Counts how often its picture was taken."""

    def __init__(self) -> None:
        super().__init__()
        self.pictures = 0

    def snapshot(self) -> FleetSnapshot:
        """The same, counted."""
        self.pictures += 1
        return super().snapshot()


async def test_a_fleet_at_rest_is_looked_at_once_for_each_frame_of_the_idle_screen() -> None:
    fleet, seconds = CountedFleet(), count(step=10)
    app = workbench(fleet, clock=lambda: float(next(seconds)))  # each look is old enough for a frame
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: app.is_at_rest, pilot)
        frames, pictures = app.counts.frames, fleet.pictures
        await until(lambda: app.counts.frames >= frames + 2)
        assert fleet.pictures - pictures <= app.counts.frames - frames + 1
        assert app.is_at_rest


async def test_an_event_of_the_fleet_ends_the_rest_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ui_clock, "IDLE", 3600.0)  # the next look by itself is too far away to show it
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: app.is_at_rest, pilot)
        events = app.counts.events
        await asyncio.to_thread(fleet.say, Notice(level="info", text="one"), Notice(level="info", text="two"))
        await until(lambda: app.counts.events == events + 2, pilot)
        assert not app.is_at_rest
        await until(lambda: app.is_at_rest, pilot)


async def test_another_picture_of_the_fleet_is_seen_without_an_event() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: app.is_at_rest, pilot)
        fleet.current = replace(fleet.current, name="harbour")
        await until(lambda: "harbour" in screen_text(app), pilot)


@pytest.mark.slow
async def test_the_cursor_of_an_idle_workbench_stays_and_a_key_has_it_blink_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cursor_rest, "AFTER", 0.2)
    seconds = count(step=10)
    app = workbench(clock=lambda: float(next(seconds)))
    async with app.run_test(size=WIDE) as pilot:
        prompt = await until(lambda: app.screen.query_one("#prompt", Input), pilot)
        prompt.cursor_blink = True
        prompt.focus()
        await until(lambda: app.is_at_rest and not prompt.cursor_blink, pilot)
        drawn, frames = rendered(monkeypatch), app.counts.frames
        await until(
            lambda: app.counts.frames >= frames + 2, pilot
        )  # two seconds, in which it blinks four times
        assert not drawn["prompt"]
        await pilot.press("a")
        assert prompt.cursor_blink
        assert prompt.value == "a"
        await until(lambda: not prompt.cursor_blink, pilot)


async def test_a_cursor_that_never_blinks_by_the_users_wish_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cursor_rest, "AFTER", 0.1)
    app = workbench()
    async with app.run_test(size=WIDE) as pilot:
        prompt = await until(lambda: app.screen.query_one("#prompt", Input), pilot)
        prompt.focus()
        await until(lambda: app.is_at_rest, pilot)
        await pilot.press("a")
        assert not prompt.cursor_blink


def rendered(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each widget draws lines from now on, by its id."""
    counted: Counter[str] = Counter()
    draw = Widget.render_lines

    def counting(self: Widget, *args: object) -> object:
        counted[self.id or type(self).__name__] += 1
        return draw(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Widget, "render_lines", counting)
    return counted
