"""Runs are recorded and kept as tests from the workbench, and its screen of tests runs them."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio
from support.fake_fleet import FakeFleet, live
from support.fleet_desk import Desk, desk
from support.notices import notices_of
from support.projects import edited
from support.recorded import close_shelf, recorded_project
from support.shell import line_with, screen_text, sees, workbench
from support.waiting import until
from textual.pilot import Pilot
from textual.widgets import Input

from pallas.model import Fault, FaultType, RecordedRun, Recording, RunFinished, RunStarted
from pallas.recordings.recording_folder import archive_of, read
from pallas_tui.app import Workbench
from pallas_tui.palette import commands
from pallas_tui.screens.agent_test_screens import AgentTestsScreen
from pallas_tui.screens.main_screen import MainScreen
from pallas_tui.screens.pane_screen import SinglePane
from pallas_tui.screens.run_screen import RunScreen
from pallas_tui.targets import RunTarget
from pallas_tui.widgets.agent_tests import AgentTestsPane, agent_tests_pane
from pallas_tui.widgets.dialogs.line_dialog import LineScreen
from pallas_tui.widgets.feed import FeedPane

pytestmark = pytest.mark.usefixtures("forked_children")

WIDE, SMALL = (120, 40), (80, 24)
SIZES = pytest.mark.parametrize("size", [WIDE, SMALL], ids=["120x40", "80x24"])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_tests_pane, "LOOK_EVERY", 0.2)


async def asked(here: Desk, agent: str, text: str) -> None:
    before = len(here.feed.feed.runs)
    async with here.http() as http:
        answer = await http.post(f"/agents/{agent}/chat", json={"message": text})
        assert answer.status_code == 200, answer.text
    await here.until(lambda: len(here.feed.feed.runs) > before and not here.feed.feed.runs[-1].running)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def root(tmp_path_factory: Any) -> Path:
    """A project with three runs that were kept in the workbench, whose model is gone."""
    root = recorded_project(tmp_path_factory.mktemp("kept") / "p")
    async with desk(root) as here:
        await asked(here, "lead", "How many lamps?")
        await here.press("f4", "f")
        lead = next(run for run in here.feed.feed.runs if run.agent == "lead")
        here.feed.reveal(RunTarget(lead.id))
        await here.press("w")
        folder = f"recordings/lead-{lead.id}"
        await told(here.app, here.pilot, f"Recorded into {folder}: 3 runs, ")
        assert (root / folder / "recording.yaml").is_file()
        await keep(here, "lead-how-many-lamps", "lamps")
        await asked(here, "keeper", "hello")
        here.feed.reveal(RunTarget(here.feed.feed.runs[-1].id))
        await here.press("enter")
        await here.until(lambda: isinstance(here.app.screen, RunScreen))
        await keep(here, "keeper-hello", "hello")
        await here.press("s")
        await here.until(lambda: isinstance(here.app.screen, LineScreen))
        here.app.screen.query_one(Input).value = "hello"
        await here.press("enter")
        await here.sees("There is a test hello already")
        here.app.screen.query_one(Input).value = "../up"
        await here.press("enter")
        await here.sees("../up is not a name")
        here.app.screen.query_one(Input).value = "hello-again"
        await here.press("enter")
        await told(here.app, here.pilot, "tests/agents/hello-again.yaml is written")
    close_shelf(root)
    return root


async def keep(here: Desk, default: str, name: str) -> None:
    await here.press("s")
    await name_it(here, default, name)


async def name_it(here: Desk, default: str, name: str) -> None:
    await here.until(lambda: isinstance(here.app.screen, LineScreen))
    line = here.app.screen.query_one(Input)
    assert line.value == default
    line.value = name
    await here.press("enter")
    await told(here.app, here.pilot, f"tests/agents/{name}.yaml is written")


@asynccontextmanager
async def opened(
    root: Path | None, size: tuple[int, int] = WIDE, fleet: FakeFleet | None = None
) -> AsyncIterator[tuple[Workbench, Pilot[Any]]]:
    """The screen of tests of a project, over a fleet that says what it is told to."""
    app = workbench(fleet or FakeFleet(), root=root)
    async with app.run_test(size=size) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("alt+a")  # works while one writes, too
        await until(
            lambda: isinstance(app.screen, AgentTestsScreen) and app.screen.query("#test-details"), pilot
        )
        yield app, pilot


async def told(app: Workbench, pilot: Pilot[Any], text: str) -> None:
    await until(lambda: any(text in notice.message for notice in notices_of(app)), pilot)


@pytest.mark.slow
async def test_the_last_answer_of_the_chat_is_kept_with_a_key(tmp_path: Path) -> None:
    root = recorded_project(tmp_path / "p")
    async with desk(root) as here:
        agent = here.view.conversation.agent
        await here.press("alt+u")  # works while one writes, too
        assert not isinstance(here.app.screen, LineScreen)
        await here.ask("hello")
        await here.ask("hello once more")
        await here.press("alt+u")
        await name_it(here, f"{agent}-hello-once-more", "second")
        await here.press("escape", "k", "k", "k", "k", "s")  # of the question pointed at
        await name_it(here, f"{agent}-hello", "first")
        await here.press("alt+a")
        await here.sees("first", "second", "not run", "2 tests")
        await here.press("a")
        await here.sees("2 passed")
    first, second = (read(root / f"tests/agents/{name}.recording") for name in ("first", "second"))
    assert (first.first.question, first.history) == ("hello", ())
    assert second.first.question == "hello once more"
    assert [each.text for each in second.history] == ["hello", "hello, turn 1"]


@pytest.mark.slow
@SIZES
@pytest.mark.asyncio(loop_scope="module")
async def test_kept_runs_are_listed_run_and_filtered(root: Path, size: tuple[int, int]) -> None:
    async with opened(root, size) as (app, pilot):
        await sees(app, pilot, "hello", "hello-again", "lamps", "not run", "3 tests")
        await pilot.press("down", "enter")
        await sees(app, pilot, "1 passed")
        assert "not run" in line_with(app, "hello-again")  # only the one that was meant
        await pilot.press("slash", *"lamps", "enter")
        await sees(app, pilot, "1 of 3 tests")
        await pilot.press("a")
        await sees(app, pilot, "2 passed")
        await pilot.press("escape", "a")
        await sees(app, pilot, "3 passed", "3 tests")
        assert "running" not in screen_text(app)
        await pilot.press("escape")
        await until(lambda: isinstance(app.screen, MainScreen), pilot)


@pytest.mark.slow
@SIZES
@pytest.mark.asyncio(loop_scope="module")
async def test_a_failure_stands_beside_its_recording(root: Path, size: tuple[int, int]) -> None:
    with edited(root / "agents" / "clerk.py", "You are clerk.", "You are Clark."):
        async with opened(root, size) as (app, pilot):
            await sees(app, pilot, "lamps")
            await pilot.press("a")
            await sees(app, pilot, "1 failed", "2 passed")
            await pilot.press("end")
            await sees(app, pilot, "You are Clark.")
            await pilot.press("o")
            await until(lambda: isinstance(app.screen, SinglePane), pilot)
            text = await sees(app, pilot, "You are Clark.", "How many lamps?", "lead")
            await pilot.press("y")
            await until(lambda: "three lamps, seen" in app.clipboard, pilot)
            assert "Instructions" in text or "Instructions" in app.clipboard
            await pilot.press("escape", "i")
            await sees(app, pilot, "tests/agents/lamps.yaml")


def ran(root: Path) -> FakeFleet:
    """A fleet in whose feed the recorded run of the lead is."""
    (folder,) = (root / "recordings").glob("lead-*")
    fleet = FakeFleet()
    fleet.recordings["run-1"] = read(folder)
    fleet.say(
        RunStarted(run_id="run-1", agent="lead", preview="How many lamps?"),
        RunFinished(run_id="run-1", agent="lead", outcome="ok", seconds=1.0),
    )
    return fleet


@asynccontextmanager
async def in_feed(
    fleet: FakeFleet, root: Path | None, size: tuple[int, int]
) -> AsyncIterator[tuple[Workbench, Pilot[Any]]]:
    """The feed with the cursor on its run."""
    app = workbench(fleet, root=root)
    async with app.run_test(size=size) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("f4")
        await until(lambda: app.main.query_one(FeedPane).check_action("replay", ()) is True, pilot)
        yield app, pilot


@pytest.mark.slow
@SIZES
@pytest.mark.asyncio(loop_scope="module")
async def test_a_run_is_replayed_beside_its_recording(root: Path, size: tuple[int, int]) -> None:
    async with in_feed(ran(root), root, size) as (app, pilot):
        await pilot.press("p")
        await sees(app, pilot, "nothing real is called")
        text = await sees(app, pilot, "the same as the recording: 3 runs, 10 steps", timeout=120)
        assert "- lead run-1  10 steps, 3 runs" in text
        assert "+ replay of lead run-1  10 steps, 3 runs" in text
        with edited(root / "agents" / "clerk.py", "You are clerk.", "You are Clark."):
            await pilot.press("r")
            text = await sees(app, pilot, "clerk is not in the recording", "You are Clark.", timeout=120)
            assert "They differ first at" in text
        await pilot.press("escape", "enter")
        await until(lambda: isinstance(app.screen, RunScreen), pilot)
        await sees(app, pilot, "Exchanges")
        await pilot.press("p")
        await sees(app, pilot, "the same as the recording: 3 runs, 10 steps", timeout=120)


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="module")
async def test_the_recording_of_a_test_is_replayed(root: Path) -> None:
    async with opened(root, SMALL) as (app, pilot):
        await sees(app, pilot, "lamps")
        await pilot.press("end", "p")
        text = await sees(app, pilot, "the same as the recording: 3 runs, 10 steps", timeout=120)
        assert "+ replay of test lamps" in text


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="module")
async def test_a_replay_ends_with_its_screen_and_says_why_it_cannot_be(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(program))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    me = psutil.Process()

    def sleeps() -> list[psutil.Process]:
        return [each for each in me.children() if each.name() == "sleep" and each.is_running()]

    fleet = ran(root)
    async with in_feed(fleet, root, SMALL) as (app, pilot):
        await pilot.press("p")
        await until(sleeps, pilot)
        await pilot.press("r")
        await until(lambda: len(sleeps()) == 1, pilot)
        await pilot.press("escape")
        await until(lambda: isinstance(app.screen, MainScreen) and not sleeps(), pilot)
        await until(lambda: not [*tmp_path.glob("pallas-replay-*")], pilot)
        program.write_text("#!/bin/sh\nprintf 'agents.yaml:3: \\033[2Jno such key' >&2\nexit 2\n")
        await pilot.press("p")
        await sees(app, pilot, "The run could not be replayed", "agents.yaml:3: ␛[2Jno such key")
        fleet.recordings.clear()
        await pilot.press("r")
        await sees(app, pilot, "run not found")
    async with in_feed(ran(root), None, SMALL) as (app, pilot):
        await pilot.press("p")
        await told(app, pilot, "A replay runs the agents of its project")


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="module")
async def test_saved_files_run_what_they_affect_while_watching(root: Path) -> None:
    fleet = FakeFleet()
    fleet.watch()
    async with opened(root, WIDE, fleet) as (app, pilot):
        await sees(app, pilot, "3 tests")
        pane = app.screen.query_one(AgentTestsPane)
        fleet.say(live("clerk", 2))
        await pilot.press("w")
        await sees(app, pilot, "watching")
        assert not pane._book.outcomes
        # Lead asks clerk, keeper asks no other agent.
        fleet.say(live("clerk", 3))
        await sees(app, pilot, "1 passed")
        assert pane._book.outcomes.keys() == {"lamps"}
        fleet.say(live("keeper", 2))
        await sees(app, pilot, "3 passed")
        test = root / "tests" / "agents" / "hello.yaml"
        with edited(test, "contains:", "lacks:"):
            await sees(app, pilot, "1 failed", "2 passed")
        await sees(app, pilot, "3 passed")
        with edited(test, "agent: keeper", "agent: nobody"):
            await sees(app, pilot, "nobody is not an agent of this project", "hello.yaml:")
        await sees(app, pilot, "3 passed")


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="module")
async def test_a_run_of_tests_ends_with_a_key_and_with_the_screen(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(slow))
    me = psutil.Process()

    def sleeps() -> list[psutil.Process]:
        return [each for each in me.children() if each.name() == "sleep" and each.is_running()]

    async with opened(root, SMALL) as (app, pilot):
        await sees(app, pilot, "3 tests")
        for end in ("x", "escape", "ctrl+c"):
            await pilot.press("a")
            await sees(app, pilot, "3 tests running")
            await until(sleeps, pilot)
            await pilot.press("a", "enter")  # one run at a time
            assert len(sleeps()) == 1
            await pilot.press(end)
            await sees(app, pilot, "The run of tests was ended")
            await until(lambda: not sleeps(), pilot)
            assert isinstance(app.screen, AgentTestsScreen)
        await pilot.press("a")
        await until(sleeps, pilot)
        await pilot.press("q")
        await until(lambda: isinstance(app.screen, MainScreen) and not sleeps(), pilot)
        await pilot.press("alt+a")
        await sees(app, pilot, "3 tests")
        await pilot.press("a")
        await until(sleeps, pilot)
    await until(lambda: not sleeps())


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="module")
async def test_a_run_of_tests_without_a_report_says_what_it_complained_of(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nprintf 'agents.yaml:3: \\033[2Jno such key' >&2\nexit 2\n")
    broken.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(broken))
    async with opened(root, SMALL) as (app, pilot):
        await sees(app, pilot, "3 tests")
        await pilot.press("a")
        await sees(app, pilot, "agents.yaml:3: ␛[2Jno such key", "not run")


@pytest.mark.slow
@SIZES
async def test_what_cannot_be_listed_says_why(size: tuple[int, int], tmp_path: Path) -> None:
    async with opened(None, size) as (app, pilot):
        await sees(app, pilot, "Tests are files of a project", "pallas test")
        await pilot.press("a", "enter", "w")  # nothing to run
        await pilot.press("escape")
        await until(lambda: isinstance(app.screen, MainScreen), pilot)
        assert "Tests" in [command.title for command in commands(app, app.screen)]
    async with opened(tmp_path, size) as (app, pilot):
        await sees(app, pilot, "The tests cannot be read:", "agents.yaml")


async def test_what_cannot_be_recorded_says_why_and_a_running_one_is_not_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fleet = FakeFleet()
    fleet.say(RunStarted(run_id="r1", agent="vision", preview="look"))
    app = workbench(fleet)

    async def refuse(run_id: str) -> str:
        await asyncio.sleep(0)
        raise Fault(FaultType.UPSTREAM, "run not found: its steps are no longer stored")

    async def give(run_id: str) -> str:
        recording = Recording(
            "desk", (RecordedRun(run_id, "vision", "look", "seen"),), missing=("a picture",)
        )
        return b64encode(archive_of(recording)).decode()

    fleet.recording = refuse  # type: ignore[method-assign]
    async with app.run_test(size=SMALL) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("f4")
        feed = app.main.query_one(FeedPane)
        await until(lambda: feed.runs.selected is not None, pilot)
        assert feed.check_action("record", ()) is False
        assert feed.check_action("keep", ()) is False
        fleet.say(RunFinished(run_id="r1", agent="vision", outcome="ok", seconds=1.0))
        await until(lambda: feed.check_action("record", ()) is True, pilot)
        await pilot.press("w")
        await told(app, pilot, "run r1: run not found: its steps are no longer stored")
        await pilot.press("s")
        await told(app, pilot, "A test belongs to its project")
        fleet.recording = give  # type: ignore[method-assign]
        folder = tmp_path / "recordings" / "vision-r1"
        folder.mkdir(parents=True)
        (folder / "mine.txt").write_text("mine")
        await pilot.press("w")
        await told(app, pilot, "there is something else in it; choose another folder")
        (folder / "mine.txt").unlink()
        await pilot.press("w")
        await told(app, pilot, f"Recorded into {folder}: 1 run, 0 steps.")
        await told(app, pilot, "Not recorded: a picture")
        assert (folder / "recording.yaml").is_file()
