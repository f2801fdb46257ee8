"""A pane that breaks is replaced by words about it; what breaks the workbench itself is written down."""

import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.fake_fleet import NOON, FakeFleet
from support.notices import noticed
from support.shell import FakeChat, FakeLogs, screen_text, workbench
from support.waiting import until
from textual.events import AppFocus
from textual.pilot import WaitForScreenTimeout
from textual.widgets import Input, Static

from pallas.model import RunStarted
from pallas_tui.app import Workbench
from pallas_tui.screens.main_screen import BrokenPane, LatePane
from pallas_tui.screens.sheet_screen import Sheet
from pallas_tui.settings import Settings
from pallas_tui.widgets.feed import FeedPane
from pallas_tui.widgets.pane import Pane

WIDE = (120, 40)
SMALL = (80, 24)
SECRET = "sk-thisisaverysecretkey123456"


class Faulty(Static, can_focus=True):
    """Breaks where it is told to."""

    BINDINGS = [("x", "explode", "explode")]  # noqa: RUF012 - Textual's class variable

    def __init__(self) -> None:
        super().__init__("all is well")
        self.where = ""

    def render(self) -> Any:
        """Break while painting."""
        if self.where == "render":
            raise RuntimeError(f"render with {SECRET}")
        return super().render()

    def on_focus(self) -> None:
        """Break in a handler."""
        if self.where == "handler":
            raise RuntimeError(f"handler with {SECRET}")

    def action_explode(self) -> None:
        """Break in an action."""
        raise RuntimeError(f"action with {SECRET}")

    async def work(self) -> None:
        """Break in a worker."""
        raise RuntimeError(f"worker with {SECRET}")


class FaultyPane(FakeLogs):
    """A log that breaks where it is told to."""

    absorbing = ""

    def compose(self) -> Any:
        yield Faulty()

    def absorb(self, frame: Any) -> None:
        """Break while frames come."""
        if self.absorbing:
            raise RuntimeError(f"absorb with {SECRET}")

    def show_pane(self) -> None:
        """Break while it comes into view."""
        super().show_pane()
        if self.absorbing == "show":
            raise RuntimeError(f"show with {SECRET}")


def faulty(fleet: FakeFleet | None = None, **more: Any) -> Workbench:
    fleet = fleet or FakeFleet()
    late = (LatePane("chat", "Chat", FakeChat), LatePane("logs", "Logs", more.pop("make", FaultyPane)))
    settings = Settings("textual-dark", False)
    return Workbench(lambda: fleet, name="desk", late=late, settings=settings, clock=lambda: NOON, **more)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["absorb", "handler", "render", "worker", "show"])
@pytest.mark.parametrize("size", [WIDE, SMALL])
async def test_a_pane_that_breaks_says_so_and_the_rest_works_on(
    where: str, size: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    fleet = FakeFleet()
    app = faulty(fleet)
    async with app.run_test(size=size) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        pane = app.main.query_one(FaultyPane)
        if where == "show":
            pane.absorbing = "show"
        await pilot.press("f4", "f5") if where != "handler" else None
        if where == "absorb":
            pane.absorbing = "yes"
            fleet.change("vision", runs_total=3)
        elif where == "worker":
            widget = pane.query_one(Faulty)
            widget.run_worker(widget.work())
        elif where != "show":
            pane.query_one(Faulty).where = where
            if where == "handler":
                await pilot.press("f5")
            for widget in pane.query(Faulty):
                widget.refresh()
        await until(
            lambda: f"This pane failed: RuntimeError: {where} with [redacted]" in screen_text(app), pilot
        )
        assert SECRET not in screen_text(app)
        # The others go on: frames come, panes change, nothing quits.
        fleet.change("vision", runs_active=7)
        await until(lambda: "7 runs" in screen_text(app).splitlines()[0], pilot)
        await pilot.press("f4")
        await until(lambda: "No calls yet" in screen_text(app), pilot)
        await pilot.press("f5")
        card = app.main.query_one(BrokenPane)
        await until(lambda: app.focused is card, pilot)
        await pilot.press("f1")
        await until(lambda: "failed with an error" in screen_text(app), pilot)
        await pilot.press("escape")
        await until(lambda: app.screen is app.main, pilot)
        # A copy of the report, with the traceback and without the secret.
        await pilot.press("y")
        await until(lambda: "Traceback" in app.clipboard, pilot)
        assert SECRET not in app.clipboard
        assert f"RuntimeError: {where} with [redacted]" in app.clipboard
        assert "test_error_boundary.py" in app.clipboard
        # And a new one.
        await pilot.press("r")
        await until(lambda: app.main.query("FaultyPane") and "all is well" in screen_text(app), pilot)
        assert app.return_value is None
    assert any("in the logs pane" in record.getMessage() for record in caplog.records)


@pytest.mark.slow
async def test_a_feed_made_anew_knows_the_runs_that_the_fleet_remembers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = FakeFleet()
    app = workbench(fleet, strict=False)
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        fleet.say(
            *(RunStarted(at=NOON, run_id=f"r{n}", agent="vision", preview=f"no {n}") for n in range(40))
        )
        await until(lambda: "no 39" in screen_text(app), pilot)
        right = FeedPane.absorb
        monkeypatch.setattr(FeedPane, "absorb", lambda self, frame: 1 / 0)
        fleet.change("vision", runs_active=1)
        await until(lambda: "This pane failed: ZeroDivisionError" in screen_text(app), pilot)
        monkeypatch.setattr(FeedPane, "absorb", right)
        fleet.say(RunStarted(at=NOON, run_id="later", agent="vision", preview="while it was broken"))
        await pilot.press("f4", "r")
        await until(lambda: "while it was broken" in screen_text(app), pilot)
        feed = app.main.query_one(FeedPane).feed
        assert len(feed.runs) == 41


@pytest.mark.slow
async def test_a_pane_that_breaks_again_when_it_is_made_anew_says_so_again() -> None:
    made: list[Pane] = []

    def make() -> Pane:
        if made:
            raise ImportError("no module named there")
        made.append(FaultyPane())
        return made[0]

    fleet = FakeFleet()
    app = faulty(fleet, make=make)
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("f5")
        app.main.query_one(FaultyPane).absorbing = "yes"
        fleet.change("vision", runs_total=3)
        await until(lambda: app.main.query(BrokenPane), pilot)
        await pilot.press("f5", "r")
        await until(lambda: "ImportError: no module named there" in screen_text(app), pilot)
        made.clear()
        await pilot.press("f5", "r")
        await until(lambda: "all is well" in screen_text(app), pilot)


async def test_a_pane_that_cannot_even_be_made_leaves_the_others_standing() -> None:
    def make() -> Pane:
        raise ImportError("libthing.so is missing")

    app = faulty(make=make)
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("f5")
        await until(
            lambda: "This pane failed: ImportError: libthing.so is missing" in screen_text(app), pilot
        )


async def test_an_action_that_fails_is_told_and_ends_nothing() -> None:
    app = faulty()
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("f5")
        await until(lambda: isinstance(app.focused, Faulty), pilot)
        await pilot.press("x")
        assert SECRET not in await noticed(app, pilot, "“explode” did not work")
        assert "all is well" in screen_text(app)


class FaultySheet(Sheet):
    """Breaks in a handler of its own, or in that of a widget in it."""

    def body(self) -> Iterator[Faulty]:
        yield Faulty()

    def on_app_focus(self) -> None:
        """Break."""
        raise RuntimeError(f"focus with {SECRET}")


@pytest.mark.parametrize("inside", [True, False])
async def test_a_sheet_that_breaks_is_closed(inside: bool) -> None:
    app = faulty()
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        app.push_screen(FaultySheet("sheet"))
        await until(lambda: "all is well" in screen_text(app), pilot)
        if inside:
            app.screen.query_one(Faulty).where = "handler"
            app.screen.query_one(Faulty).focus()
        else:
            app.screen.post_message(AppFocus())
        # Without the pilot, which waits for what is dead.
        await until(lambda: app.screen is app.main)
        assert SECRET not in await noticed(app, pilot, "That failed and was closed")
        with suppress(WaitForScreenTimeout):  # a notice that goes meanwhile answers the pilot never
            await pilot.press("f4")
        await until(lambda: app.main.current == "feed", pilot)
        assert app.is_running


async def test_what_breaks_the_workbench_itself_is_written_down_for_its_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = faulty(reports=tmp_path / "crashes")
    with caplog.at_level(logging.CRITICAL), pytest.raises(RuntimeError):
        async with app.run_test(size=WIDE) as pilot:
            await until(lambda: isinstance(app.focused, Input), pilot)
            await pilot.press("f4", "f5")

            def broken(*_: object) -> None:
                password = SECRET  # a local variable, which no report may show
                raise RuntimeError(f"of its own, token={SECRET}" if password else "")

            app.call_later(broken)
            await until(lambda: app.failure is not None, pilot)
            await until(lambda: not app.is_running, pilot)
    assert isinstance(app.failure, RuntimeError)
    assert app.report is not None
    text = app.report.read_text()
    assert app.report.stat().st_mode & 0o777 == 0o600
    assert "RuntimeError: of its own" in text
    assert "Last actions\n  show\n  show" in text
    assert "textual" in text
    assert SECRET not in text
    assert app.return_code == 1
