"""A verdict on a save in the workbench: the line that tells of it, the list of verdicts, and one run."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.control import FULL, READ, serving
from support.fake_fleet import NOON, FakeFleet, held
from support.fleet_desk import desk
from support.gated import CountedJudge, gated_project
from support.live import write_project
from support.notices import notices_of
from support.pane_app import still
from support.reloading import module
from support.shell import line_with, screen_text, sees, workbench
from support.waiting import until
from textual.pilot import Pilot
from textual.widgets import Input

from pallas.agent_tests.agent_test_file import FOLDER
from pallas.model import RunVerdict, VerdictProgress, VerdictReached
from pallas.model.verdict import counts_of, sorted_runs
from pallas.recordings.recording_folder import read
from pallas_tui.app import Workbench
from pallas_tui.remote.remote_fleet import RemoteFleet
from pallas_tui.remote.token_source import TokenSource
from pallas_tui.runs.verdict_tones import SAME_FOR
from pallas_tui.screens.help_screen import HelpScreen
from pallas_tui.screens.pane_screen import SinglePane
from pallas_tui.screens.verdict_screens import JudgedRunScreen, VerdictsScreen
from pallas_tui.widgets.verdicts.verdict_lists import JudgedRunLines, VerdictLines

WIDE, SMALL = (120, 40), (80, 24)
SIZES = pytest.mark.parametrize("size", [WIDE, SMALL], ids=["120x40", "80x24"])
BEFORE = "You answer questions.\nAnswer at length.\nBe kind."
AFTER = "You answer questions.\nAnswer in one sentence.\nBe kind."
WHAT = "another model request: messages[0].content"
OTHER = RunVerdict(
    "lamps", "test", "concierge", "other words", "step 1 of research", WHAT, '"Answer at"', '"Answer in"',
    ("research",), 0.2, BEFORE, AFTER,
)  # fmt: skip
LOST = RunVerdict(
    "refund",
    "test",
    "research",
    "other tool calls",
    "step 1 of research",
    "the tool find is not offered any more",
)
OF_LEDGER = replace(OTHER, name="3f1c9a0e7b52", source="run", agent="research")
SAME = RunVerdict("hello", "test", "research", "same", seconds=0.1)


def verdict(*runs: RunVerdict, at: float = NOON, **more: Any) -> VerdictReached:
    given = {"files": ("desk/agents/research.py",), "seconds": 0.7 + at - NOON, **more}
    return VerdictReached(
        at=at, agents=("research",), runs=sorted_runs(runs), counts=counts_of(runs), **given
    )


def progress(judged: int = 0, differing: int = 0) -> VerdictProgress:
    return VerdictProgress(("research",), 4, judged=judged, differing=differing)


@asynccontextmanager
async def started(
    fleet: FakeFleet, size: tuple[int, int] = WIDE, **more: Any
) -> AsyncIterator[tuple[Workbench, Pilot[Any]]]:
    app = workbench(fleet, **more)
    async with app.run_test(size=size) as pilot:
        await until(lambda: isinstance(app.focused, Input) and ":24200" in screen_text(app), pilot)
        still(app)
        yield app, pilot


def has_line(app: Workbench) -> bool:
    return bool(app.main.query_one("#verdict-line").display)


@SIZES
async def test_a_line_tells_how_far_a_verdict_is_and_what_was_found_until_one_has_looked(
    size: tuple[int, int],
) -> None:
    fleet = FakeFleet()
    async with started(fleet, size) as (app, pilot):
        assert not has_line(app)
        fleet.watch(judging=progress())
        await sees(app, pilot, "◌ judging 4 runs of research…")
        fleet.watch(judging=progress(2, 1))
        await sees(app, pilot, "judging 4 runs of research: 2 known, 1 not the same…")
        fleet.watch()
        fleet.say(verdict(SAME, OTHER, OF_LEDGER))
        text = await sees(app, pilot, "◐ saved research.py: 1 same, 2 other words", "V alt+j shows it")
        assert app.focused is app.main.query_one("#prompt")
        assert "judging" not in text
        fleet.say(verdict(LOST, SAME, at=NOON + 1))
        await sees(app, pilot, "✖ saved research.py: 1 same, 1 other tool calls")
        await pilot.press("alt+j")
        await until(lambda: isinstance(app.screen, VerdictsScreen), pilot)
        await pilot.press("escape")
        await until(lambda: app.screen is app.main and not has_line(app), pilot)


async def test_that_all_is_the_same_is_said_for_some_seconds() -> None:
    fleet, now = FakeFleet(), [NOON]
    async with started(fleet, clock=lambda: now[0]) as (app, pilot):
        fleet.say(verdict(SAME, at=NOON - 3600))  # its clock is another one
        await sees(app, pilot, "● 1 run goes as recorded")
        now[0] += SAME_FOR
        await until(lambda: not has_line(app), pilot)


async def test_versions_that_wait_are_named_until_they_are_let_through() -> None:
    fleet = FakeFleet()
    fleet.change("research", version=1)
    async with started(fleet) as (app, pilot):
        fleet.say(verdict(OTHER, SAME, is_held=True))
        await sees(app, pilot, "◐ saved research.py: 1 same, 1 other words")  # what waits is not known yet
        fleet.watch(held=("research",))
        fleet.say(held("research", 1))
        await sees(app, pilot, "◐ held: research waits: 1 of 1 run would go differently")
        await pilot.press("alt+j")
        await sees(app, pilot, "held · research.py", "r let through")
        await pilot.press("escape")
        await until(lambda: app.screen is app.main, pilot)
        assert has_line(app)
        await pilot.press("alt+j", "r")
        await until(lambda: fleet.controlled == [("research", "reload")], pilot)
        fleet.watch()
        await sees(app, pilot, "⏎ open", gone=("r let through",))
        await pilot.press("escape")
        await until(lambda: app.screen is app.main and not has_line(app), pilot)


async def test_without_a_verdict_the_screen_says_what_one_is_and_why_there_is_none() -> None:
    fleet = FakeFleet()
    async with started(fleet, SMALL) as (app, pilot):
        await pilot.press("f2", "V")
        await sees(
            app, pilot, "No verdict yet", "Keep a run first: s on it in the feed", "does not watch its files"
        )
        fleet.watch()
        await sees(app, pilot, "No verdict yet", gone=("does not watch",))
        fleet.watch(judging=progress())
        await sees(app, pilot, "judging 4 runs of research…", gone=("No verdict yet",))
        fleet.watch()
        fleet.say(
            verdict(problem="recorded runs could not be judged: tests/agents/x.yaml:3: ask: is missing")
        )
        await sees(app, pilot, "no verdict: recorded runs could not be judged: tests/agents/x.yaml:3")
        await pilot.press("question_mark")
        await until(lambda: isinstance(app.screen, HelpScreen), pilot)
        await sees(app, pilot, "other tool calls")


@SIZES
async def test_the_saves_are_listed_with_their_runs_and_each_run_with_its_difference(
    size: tuple[int, int], tmp_path: Path
) -> None:
    fleet = FakeFleet()
    root = write_project(tmp_path, {"research": None, "concierge": None})
    (root / FOLDER).mkdir(parents=True)
    (root / FOLDER / "lamps.yaml").write_text("agent: concierge\nask: How many?\n")
    async with started(fleet, size, root=root) as (app, pilot):
        fleet.say(verdict(SAME), verdict(SAME, OTHER, LOST, OF_LEDGER, at=NOON + 60))
        await pilot.press("alt+j")
        await sees(app, pilot, "15:07:40 ✖ research.py", "15:06:40 ● research.py", "3 of 4 differ")
        runs = app.screen.query_one(JudgedRunLines)
        assert app.focused is runs
        assert [run.name for run in runs.rows] == ["lamps", "refund", "3f1c9a0e7b52", "hello"]
        assert "◐ other words" in line_with(app, "lamps  ")
        await pilot.press("slash", *"tool calls", "enter")
        await sees(app, pilot, "1 of 4 runs", "refund", gone=("3f1c9a0e7b52",))
        await pilot.press("escape", "tab", "down")
        await sees(app, pilot, "hello", gone=("refund",))
        fleet.say(verdict(OTHER, at=NOON + 90))  # the one that is looked at stays
        await sees(app, pilot, "15:08:10", "hello", gone=("lamps  ",))
        assert app.screen.query_one(VerdictLines).cursor == 2
        await pilot.press("home", "enter", "enter")
        await until(lambda: isinstance(app.screen, JudgedRunScreen), pilot)
        await sees(
            app,
            pilot,
            "step 1 of research: another model request: messages[0].content",
            "Answer [-at length-]{+in one sentence+}.",
            "Answer at length.",
            "desk/agents/research.py, at 15:08:10",
            "tests/agents/lamps.yaml:1",
        )
        await pilot.press("y")
        await until(lambda: "{+in one sentence+}" in app.clipboard, pilot)
        await pilot.press("o")
        await until(lambda: isinstance(app.screen, SinglePane) and "Recording" in screen_text(app), pilot)
        await pilot.press("escape", "escape", "tab", "down", "tab", "down", "down", "o")
        await until(lambda: app.screen is app.main and app.main.current == "feed", pilot)


async def test_the_line_in_the_feed_opens_its_verdict_and_a_click_on_the_line_below_the_newest() -> None:
    fleet = FakeFleet()
    async with started(fleet) as (app, pilot):
        fleet.say(verdict(LOST), verdict(SAME, at=NOON + 60))
        await sees(app, pilot, "● 1 run goes as recorded")
        await pilot.press("f4", "home", "enter")
        await sees(app, pilot, "other tool calls", "refund")
        assert app.screen.query_one(VerdictLines).cursor == 1
        await pilot.press("escape")
        fleet.say(verdict(OTHER, at=NOON + 90))
        await sees(app, pilot, "saved research.py: 1 other words")
        await pilot.click("#verdict-line")
        await until(lambda: isinstance(app.screen, VerdictsScreen), pilot)
        await sees(app, pilot, "lamps", "15:08:10")


async def told(app: Workbench, pilot: Pilot[Any], text: str) -> None:
    await until(lambda: any(text in notice.message for notice in notices_of(app)), pilot)


def attached(url: str, token: str) -> tuple[Workbench, RemoteFleet]:
    fleet = RemoteFleet(url, TokenSource(url, token))
    return workbench(lambda: fleet), fleet


@pytest.mark.parametrize("token", [FULL, READ], ids=["full", "read"])
async def test_an_attached_workbench_knows_the_verdict_from_before_and_hears_new_ones(
    token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    there = FakeFleet()
    there.judged.append(verdict(OTHER, is_held=True))
    there.watch(held=("research",))
    async with serving(there) as served:
        app, fleet = attached(served.url, token)
        try:
            async with app.run_test(size=WIDE) as pilot:
                await until(lambda: isinstance(app.focused, Input), pilot)
                if token == FULL:
                    await sees(app, pilot, "held: research waits: 1 of 1 run would go differently")
                    await pilot.press("alt+j", "enter")
                    await sees(
                        app, pilot, "Answer [-at length-]{+in one sentence+}.", "in the folder of the project"
                    )
                    assert "e edit" not in screen_text(app)  # its files are elsewhere
                    assert "r let through" in screen_text(app)
                    await pilot.press("escape", "escape")
                there.watch(judging=progress(1))
                await sees(app, pilot, "judging 4 runs of research: 1 known…")
                there.watch()
                there.say(verdict(LOST, SAME, at=NOON + 60))
                await sees(app, pilot, "saved research.py: 1 same, 1 other tool calls")
                await pilot.press("alt+j")
                await sees(app, pilot, "15:07:40", "refund")
                assert len(app.verdicts.saves) == (2 if token == FULL else 1)
                # a token that may only look gets no texts
                assert ("find is not offered" in screen_text(app)) == (token == FULL)
        finally:
            fleet.stop(10)


@pytest.mark.slow
@pytest.mark.usefixtures("forked_children")
async def test_a_save_is_judged_held_back_let_through_and_its_test_kept_again(tmp_path: Path) -> None:
    root = await gated_project(tmp_path / "p")
    async with desk(root, watch=True, judge=CountedJudge()) as here:
        await here.until(lambda: here.app.verdicts.is_watched)
        (root / "agents" / "desk.py").write_text(module("desk", "Birch."))
        await here.sees("held: desk waits: 2 of 2 runs would go differently")
        await here.press("alt+j")
        await here.sees("other words", "hello", "through", "2 of 2 differ")
        await here.press("enter")
        await here.sees("what differs", "[-Apple-]{+Birch+}.", "tests/agents/hello.yaml:1", "r let through")
        await here.press("s")
        await told(here.app, here.pilot, "r lets the new version through first")
        await here.press("r")
        await here.sees("o recorded", gone=("r let through",))
        await here.press("s")
        await told(here.app, here.pilot, "Ask desk first, as the test does: hello")
        async with here.http() as http:
            answer = await http.post("/agents/desk/chat", json={"message": "hello"})
            assert answer.status_code == 200, answer.text
        await here.until(lambda: here.feed.feed.runs and not here.feed.feed.runs[-1].running)
        await here.press("s")
        await here.sees("Write the test hello, and what it expects, again from the run of desk at")
        await here.press("y")
        await told(here.app, here.pilot, "tests/agents/hello.yaml is written")
        assert read(root / FOLDER / "hello.recording").first.answer == "Birch. 1"
        await here.press("escape", "escape")
        await here.until(lambda: here.app.screen is here.app.main and not has_line(here.app))
