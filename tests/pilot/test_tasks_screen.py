"""The screen of durable tasks by keyboard: watched, read, their threads and runs, cancelled, refused."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.echo_agent import EchoAgent
from support.fake_fleet import NOON, FakeFleet, agent
from support.shell import DrivenWorkbench
from support.waiting import until
from textual.pilot import Pilot
from textual.widgets import Input

from pallas.model import (
    Fault,
    FaultType,
    FleetSnapshot,
    FleetState,
    MessageRecord,
    RunStarted,
    TaskChanged,
    TaskRecord,
    ThreadRecord,
)
from pallas_tui.app import Workbench
from pallas_tui.launch import late_panes
from pallas_tui.screens.help_screen import HelpScreen
from pallas_tui.screens.record_screens import TasksScreen
from pallas_tui.screens.sheet_screen import TextScreen
from pallas_tui.settings import Settings
from pallas_tui.widgets.chat.prompt_area import PromptArea
from pallas_tui.widgets.pane import Pane
from pallas_tui.widgets.tasks import TasksPane, tasks_pane

WIDE = (120, 40)
SMALL = (80, 24)
HOSTILE = "\x1b]52;c;cm0gLXJmIC8=\x07[@click=app.quit]quit[/] \u202egnp.exe"


def task(number: int, status: Any = "working", **more: Any) -> TaskRecord:
    at = NOON - 100 * number
    given: dict[str, Any] = {"preview": f"job number {number}", **more}
    return TaskRecord(f"{number:032x}"[::-1], "echo", "anonymous", status, at, at, **given)


class Desk(DrivenWorkbench):
    """A workbench with the real chat over a fleet of one agent."""

    def __init__(self, app: Workbench, pilot: Pilot[Any], fleet: FakeFleet) -> None:
        super().__init__(app, pilot)
        self.fleet = fleet

    async def open_tasks(self) -> TasksPane:
        await self.press("alt+k")  # works while one writes, too
        await self.until(
            lambda: isinstance(self.app.screen, TasksScreen) and self.app.screen.query(TasksPane)
        )
        return self.app.screen.query_one(TasksPane)

    @property
    def reads(self) -> int:
        """How often pages of tasks were asked for."""
        return sum(asked[0] == "tasks" for asked in self.fleet.kept.asked)

    def put(self, *tasks: TaskRecord) -> None:
        """These are so from now on, and the fleet says so."""
        for each in tasks:
            self.fleet.works[each.id] = each
            self.fleet.say(TaskChanged(at=NOON, agent=each.agent, task=each.id[:8], status=each.status))


@asynccontextmanager
async def desk(
    tmp_path: Path,
    size: tuple[int, int] = WIDE,
    *tasks: TaskRecord,
    clock: Callable[[], float] = lambda: NOON,
) -> AsyncIterator[Desk]:
    async with EchoAgent() as server:
        one = agent("echo", server.port, url=server.url)
        fleet = FakeFleet(FleetSnapshot("desk", FleetState.RUNNING, NOON, "http://127.0.0.1:24200", (one,)))
        fleet.works = {each.id: each for each in tasks}
        log = tmp_path / "pallas.log"
        log.touch()
        app = Workbench(
            lambda: fleet,
            name="desk",
            late=late_panes(log),
            settings=Settings("textual-dark", False),
            clock=clock,
            strict=True,
        )
        async with app.run_test(size=size) as pilot:
            here = Desk(app, pilot, fleet)
            await until(lambda: len(app.main.query(Pane)) == 5 and app.main.query(PromptArea), pilot)
            await until(lambda: isinstance(app.focused, PromptArea), pilot)
            yield here


@pytest.mark.slow
@pytest.mark.parametrize("size", [WIDE, SMALL], ids=["120x40", "80x24"])
async def test_tasks_are_listed_and_followed_to_their_end(tmp_path: Path, size: tuple[int, int]) -> None:
    evil = task(3, preview=f"evil {HOSTILE}")
    async with desk(
        tmp_path, size, task(1, progress="echo step 2 (llm)"), task(2, "cancelled"), evil
    ) as here:
        await here.open_tasks()
        text = await here.sees("echo step 2", "cancelled", "evil", "3 tasks", "2 under way")
        assert text.index("echo step 2") < text.index("job number 2") < text.index("evil")
        assert "\x1b" not in text
        assert "\u202e" not in text
        # How far it is stands in no event, and is seen all the same.
        here.fleet.works[task(1).id] = task(1, progress="echo step 3 (tool)")
        await here.sees("echo step 3")
        question = {"q": {"params": {"message": f"Really? {HOSTILE}"}}}
        here.put(replace(task(1, "input_required"), request=question, updated_at=NOON - 5))
        text = await here.sees("asks", "Really?")
        assert "\x1b" not in text
        here.put(replace(task(1, "completed"), text=f"All is well. {HOSTILE}", updated_at=NOON - 1))
        text = await here.sees("done", "All is well.", "1 under way", gone=("Really?",))
        assert "\x1b" not in text
        # A new one is on top, and the cursor stays on what it was on.
        here.put(task(0, preview="the newest"))
        text = await here.sees("the newest", "All is well.", "4 tasks")
        assert text.index("the newest") < text.index("job number 1")


@pytest.mark.slow
async def test_nothing_is_read_while_nobody_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks_pane, "LOOK_EVERY", 0.01)
    async with desk(tmp_path, WIDE, task(1)) as here:
        here.put(*(task(number, "completed") for number in range(1, 50)))
        await here.until(lambda: here.app.tasks.stale)
        assert not here.reads
        pane = await here.open_tasks()
        await here.sees("job number 7")
        await here.press("enter")
        await here.until(lambda: isinstance(here.app.screen, TextScreen))
        before = here.reads
        here.put(task(0))
        await here.until(lambda: here.app.tasks.stale)
        looks: list[bool] = []  # as often as the pane may look itself
        pane.set_interval(tasks_pane.LOOK_EVERY, lambda: looks.append(here.app.tasks.stale))
        await here.until(lambda: len(looks) >= 5)
        assert all(looks)
        assert here.reads == before
        await here.press("escape")
        await here.sees("50 tasks")


@pytest.mark.slow
async def test_a_flood_of_changes_is_read_a_few_times(tmp_path: Path) -> None:
    async with desk(tmp_path, WIDE, *(task(number) for number in range(1, 6))) as here:
        await here.open_tasks()
        await here.sees("5 under way")
        before = here.reads
        for _ in range(200):
            here.put(*(task(number) for number in range(1, 6)))
        here.put(*(task(number, "completed") for number in range(1, 6)))
        await here.sees("5 tasks", gone=("under way",))
        assert here.reads - before < 20


@pytest.mark.slow
async def test_one_is_read_in_full_with_its_answer_or_what_went_wrong(tmp_path: Path) -> None:
    long = "\n".join(f"line {number}" for number in range(200))
    fault = Fault(
        FaultType.UPSTREAM, "the model is busy; ask again", retryable=True, data={"partial": "Half"}
    )
    answered = task(1, "completed", text=long, run_id="f00dfeed" * 2)
    broken = task(2, "failed", fault=fault.to_body())
    async with desk(tmp_path, WIDE, answered, broken) as here:
        await here.open_tasks()
        await here.sees("line 5", "more lines")
        await here.press("enter")
        await here.until(lambda: isinstance(here.app.screen, TextScreen))
        story = here.app.screen
        assert isinstance(story, TextScreen)
        text = story.plain()
        assert "line 199" in text
        assert "f00dfeed…" in text
        assert answered.id not in text  # all of it is a key
        await here.press("escape", "down")
        await here.sees("the model is busy; ask again", "This is temporary", "Text until then: Half")
        await here.press("y")
        await here.until(lambda: here.app.clipboard == broken.id)
        await here.press("question_mark")
        await here.until(lambda: isinstance(here.app.screen, HelpScreen))
        text = await here.sees("Long work that continues")
        await here.press("escape", "escape")
        await here.until(lambda: here.app.screen is here.app.main)


@pytest.mark.slow
async def test_its_thread_is_opened_in_the_chat_and_its_run_in_the_feed(tmp_path: Path) -> None:
    started = RunStarted(
        at=NOON, run_id="run1", agent="echo", trace_id="t", span_id="s", surface="bridge", preview="long work"
    )
    with_both = task(1, "completed", thread="conv-1", run_id="run1")
    async with desk(tmp_path, WIDE, with_both, task(2, "completed")) as here:
        row = MessageRecord(
            "1", "conv-1", 0, "user", "what was said", "complete", run="run1", created_at=NOON
        )
        here.fleet.kept.add(ThreadRecord("conv-1", "echo", "anonymous", "a thread", "bridge"), row)
        here.fleet.say(started)
        await here.open_tasks()
        await here.sees("t thread", "f run")
        await here.press("down")
        await here.sees("job number 2", gone=("t thread", "f run"))
        await here.press("home", "t")
        await here.until(lambda: here.app.screen is here.app.main)
        await here.sees("what was said")
        await here.open_tasks()
        await here.sees("f run")
        await here.press("f")
        await here.until(lambda: here.app.main.current == "feed")
        await here.sees("bridge · long work")
        # A thread that was deleted meanwhile is said in words.
        here.fleet.kept.delete("conv-1")
        await here.open_tasks()
        await here.sees("t thread")
        await here.press("t")
        await here.sees("no such thread")


@pytest.mark.slow
async def test_one_is_cancelled_after_a_question(tmp_path: Path) -> None:
    async with desk(tmp_path, WIDE, task(1), task(2, "completed")) as here:
        await here.open_tasks()
        await here.sees("1 under way")
        await here.press("x")
        await here.sees("Cancel the task of echo: job number 1?")
        await here.press("n")
        assert here.fleet.works[task(1).id].status == "working"
        await here.press("x", "y")
        await here.until(lambda: here.fleet.works[task(1).id].status == "cancelled")
        await here.sees("cancelled", gone=("under way", "x cancel"))
        await here.press("down", "x")  # over: nothing to cancel
        assert here.fleet.works[task(2).id].status == "completed"
        await here.sees("job number 2", gone=("Cancel the task",))


@pytest.mark.slow
async def test_they_are_filtered_and_those_of_one_agent_are_shown(tmp_path: Path) -> None:
    other = replace(task(9, "failed", preview="elsewhere"), agent="other")
    async with desk(tmp_path, WIDE, task(1), task(2, "completed"), other) as here:
        await here.open_tasks()
        await here.sees("elsewhere", "3 tasks")
        await here.press("slash", *"failed")
        await here.sees("elsewhere", "1 of 3 tasks", gone=("job number 1",))
        assert isinstance(here.app.focused, Input)
        await here.press("enter", "o")
        await here.sees("of other", "1 of 1 task")
        await here.press("escape", "o")
        await here.sees("job number 1", "3 tasks")


@pytest.mark.slow
async def test_ten_thousand_are_read_as_far_as_somebody_goes(tmp_path: Path) -> None:
    many = (task(number, "completed") for number in range(1, 10_001))
    async with desk(tmp_path, WIDE, *many) as here:
        pane = await here.open_tasks()
        await here.sees("job number 1 ", "so far")
        assert len(here.app.tasks.listed) <= 300
        await here.press("end")
        await here.until(lambda: len(here.app.tasks.listed) >= 200)
        at = pane.rows.cursor
        further = pane.rows.selected
        assert further is not None
        # What an event tells of one that is far down is told there, with the cursor where it was.
        here.put(replace(further, status="failed"))
        await here.until(lambda: pane.rows.selected is not None and pane.rows.selected.status == "failed")
        assert (pane.rows.cursor, pane.rows.selected.id if pane.rows.selected else "") == (at, further.id)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        Fault(FaultType.CONFIG, "this fleet keeps nothing: it was started without a database"),
        Fault(FaultType.AUTH, "read-only: tasks are shown to whoever holds the full token"),
    ],
    ids=["no ledger", "no right"],
)
async def test_a_fleet_that_shows_none_says_why(tmp_path: Path, fault: Fault) -> None:
    async with desk(tmp_path, WIDE, task(1)) as here:
        here.fleet.kept.problem = fault
        await here.open_tasks()
        await here.sees(fault.message, "r reads again.")
        here.fleet.kept.problem = None
        await here.press("r")
        await here.sees("job number 1", gone=(fault.message,))
        # What was seen stays to be read when the fleet refuses later on, and passes by itself.
        here.fleet.kept.problem = Fault(FaultType.TRANSPORT, "there is no connection now")
        await here.press("r")
        await here.sees("job number 1", "there is no connection now")
        here.fleet.kept.problem = None
        await here.sees("job number 1", gone=("there is no connection now",))


@pytest.mark.slow
async def test_a_fleet_without_tasks_tells_what_they_are(tmp_path: Path) -> None:
    async with desk(tmp_path, SMALL) as here:
        await here.open_tasks()
        await here.sees("No tasks yet.", "tasks_delegate", "Escape goes back.")
        await here.press("K")
        await here.until(lambda: here.app.screen is here.app.main)
