"""One tree of steps: each has one number and one duration on every surface."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.fleet_desk import Desk, desk
from support.live import agent_module
from support.offline import offline_project
from support.shell import screen_text

from pallas_tui.runs.feed_run import FeedRun
from pallas_tui.runs.run_tree import HEAD, RunTreeRow
from pallas_tui.screens.main_screen import MainScreen
from pallas_tui.screens.run_screen import ExchangeScreen, RunScreen, StepScreen
from pallas_tui.text import duration
from pallas_tui.widgets.chat.tool_tree import ToolTree
from pallas_tui.widgets.feed.run_list import ListedExchange, RunList
from pallas_tui.widgets.feed.step_pane import StepPane

SCRIPT = """
delay: 0.13
rules:
  - when: {last: user, system: boss}
    call:
      - {tool: echo__echo, arguments: {text: "one"}}
      - {tool: agent__child, arguments: {message: "child two"}}
      - {tool: peer__send_message, arguments: {message: "peer two"}}
      - {tool: friend, arguments: {message: "friend two"}}
  - when: {last: user}
    call: [{tool: echo__echo, arguments: {text: "deep"}}]
  - when: {last: tool}
    say: "Done."
"""
BOSS = """
from fast_agent import FastAgent

fast = FastAgent("boss")


@fast.agent(name="child", instruction="You are the small one.", servers=["echo"])
@fast.agent(
    name="boss", instruction="You are boss.", agents=["child"], servers=["echo", "peer"], default=True
)
async def main() -> None: ...
"""
SIZES = ((80, 24), (120, 40))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return offline_project(
        tmp_path,
        {"boss": BOSS, **{name: agent_module(name, ("echo",)) for name in ("peer", "friend")}},
        SCRIPT,
        peers=("peer",),
        keys={"boss": {"peers": ["friend"], "depends_on": ["peer"]}},
    )


@pytest_asyncio.fixture
async def here(project: Path) -> AsyncIterator[Desk]:
    """The workbench after a question whose answer took a tool, a sub-agent and two agents of the fleet."""
    async with desk(project) as opened:
        await opened.ask("go")
        await opened.until(lambda: not opened.feed.feed.active and len(opened.feed.feed.runs) == 3)
        yield opened


async def resized(here: Desk, size: tuple[int, int]) -> None:
    await here.pilot.resize_terminal(*size)
    await here.until(lambda: here.app.size == size)


def run_list(here: Desk) -> RunList:
    return here.app.screen.query_one(RunList)


async def open_run(here: Desk) -> RunList:
    """The screen of boss's run, opened from the feed by a key."""
    await here.press("f4")
    await here.until(lambda: here.app.focused is here.feed.runs)
    await here.press("home", "enter")
    await here.until(lambda: isinstance(here.app.screen, RunScreen) and run_list(here).exchanges)
    return run_list(here)


async def recorded(here: Desk, run: FeedRun) -> dict[int, tuple[str, str]]:
    """The name and the duration of each step as the fleet recorded it."""
    steps = await here.app.fleet.steps(run.id)  # type: ignore[union-attr]
    slashed = {"tool": lambda name: name.replace("__", "/", 1), "agent": lambda name: f"agent {name}"}
    return {
        step.number: (slashed.get(step.kind, str)(step.name), duration(step.seconds or 0.0)) for step in steps
    }


def texts(view: Any, run: FeedRun) -> dict[int, str]:
    """The line of each numbered step of a run in a list, by its number."""
    found = {}
    for index in range(view.line_count()):
        line = "".join(text for text, _ in view.line_at(index, view.line_width))
        row = view._outline.at(index) if hasattr(view, "_outline") else view._entries[index]
        if isinstance(row, RunTreeRow) and row.run is run and (number := re.search(r"(\d+)\. ", line)):
            found[int(number[1])] = line
    return found


@pytest.mark.slow
async def test_of_a_run_every_surface_shows_the_same_numbers_and_durations(here: Desk) -> None:
    boss, *others = here.feed.feed.runs
    steps = await recorded(here, boss)
    assert [name for name, _ in steps.values()].count("scripted") == 4
    rows = await open_run(here)
    for size in SIZES:
        await resized(here, size)
        for run in (boss, *others):
            known = await recorded(here, run)
            for view in (here.feed.runs, rows):
                lines = texts(view, run)
                assert lines.keys() == known.keys()
                for number, (name, took) in known.items():
                    assert f" {number}. {name} " in lines[number]
                    assert f" {took} " in lines[number], (took, lines[number])
        # An exchange has the number and the duration of its step.
        exchanges = [each.exchange for each in rows._entries if isinstance(each, ListedExchange)]
        numbered = {each.number: each for each in exchanges if each.number}
        assert {steps[number][0] for number in numbered} == {"echo/echo", "peer/send_message"}
        for number, each in numbered.items():
            assert duration(each.seconds or 0.0) == steps[number][1]
            line = next(line for line in screen_lines(rows) if f" {number}. tools/call to " in line)
            assert f" {steps[number][1]} " in line
    async with here.http() as http:
        items = (await http.get(f"/runs/{boss.id}/steps")).json()["items"]
        whole = (await http.get(f"/runs/{boss.id}")).json()
    assert {each["number"]: duration(each["seconds"]) for each in items} == {
        n: took for n, (_, took) in steps.items()
    }
    assert f"outcome       ok after {duration(whole['seconds'])}" in "\n".join(screen_lines(rows))
    said = (await described(here, boss.id)).splitlines()
    for number, (_, took) in steps.items():
        (line,) = [
            each
            for each in said
            if re.match(rf" *{number}( \(called by step \d+\))?  (model|tool|agent) ", each)
        ]
        assert f"; {took}" in line
    assert any(re.fullmatch(rf"Took: +{re.escape(duration(whole['seconds']))}", each) for each in said)


@pytest.mark.slow
async def test_the_chat_shows_the_calls_of_an_answer_as_the_run_recorded_them(here: Desk) -> None:
    boss = here.feed.feed.runs[0]
    steps = await recorded(here, boss)
    took = duration(boss.seconds or 0.0)
    await here.until(lambda: f"{took} · 9 steps · 5 tool calls" in screen_text(here.app))
    await here.press("escape", "t")
    (tree,) = here.view.query(ToolTree)
    await here.until(lambda: tree.has_focus and len(tree.rows) > 4)
    calls = {number: each for number, each in steps.items() if each[0] != "scripted"}
    own = {row.label: row.figures for row in tree.rows if row.node and row.node.record.run_id == boss.id}
    assert {label: figures.split(" · ")[0] for label, figures in own.items()} == {
        f"{number}. {name}": seconds for number, (name, seconds) in calls.items()
    }
    # The call of a sub-agent is below it, and enter shows what was sent and what came back.
    (child,) = [row for row in tree.rows if "agent child" in row.label]
    (deep,) = child.node.children
    assert deep.label == "echo/echo"
    tree._cursor = next(at for at, row in enumerate(tree.rows) if row.node is deep)
    assert "echo:deep" in await opened(here, StepScreen)
    await here.press("escape")
    await here.until(lambda: tree.has_focus)


def screen_lines(rows: RunList) -> list[str]:
    """Every line of the list, also those out of view."""
    indexes = range(rows.line_count())
    return ["".join(text for text, _ in rows.line_at(each, rows.line_width)) + " " for each in indexes]


async def described(here: Desk, run_id: str) -> str:
    """What ``pallas describe run`` prints."""
    command = Path(sys.executable).with_name("pallas")
    where = ("--url", here.fleet.ports.origin)
    run = await asyncio.create_subprocess_exec(str(command), "describe", "run", run_id, *where, stdout=-1)
    async with asyncio.timeout(60):
        said, _ = await run.communicate()
    assert run.returncode == 0
    return said.decode()


async def opened(here: Desk, kind: type[Any]) -> str:
    """Press enter; what the screen of that kind shows once it has something to show."""
    await here.press("enter")
    await here.until(lambda: isinstance(here.app.screen, kind))
    if kind is StepScreen:
        await here.until(lambda: here.app.screen.query_one(StepPane)._detail is not None)
    await here.until(lambda: "reading" not in screen_text(here.app))
    return screen_text(here.app)


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
async def test_enter_leads_from_every_row_of_the_run_screen_to_what_the_model_saw(
    here: Desk, size: tuple[int, int]
) -> None:
    await resized(here, size)
    rows = await open_run(here)
    assert "unknown, unknown" not in screen_text(here.app)
    screen, boss = here.app.screen, here.feed.feed.runs[0]
    # The cursor begins at the first step, which is in view.
    assert "1. scripted" in cursor_line(here)
    assert "You are boss." in await opened(here, StepScreen)
    await here.press("escape")
    seen = set()
    for index, row in enumerate(rows._entries):
        if not isinstance(row, RunTreeRow | ListedExchange):
            continue
        rows.action_move_to(index)
        if isinstance(row, ListedExchange):
            kind: type[Any] = ExchangeScreen
        elif row.place != HEAD or row.run is boss:
            kind = StepScreen
        else:
            continue
        text = await opened(here, kind)
        seen.add(kind)
        if isinstance(row, RunTreeRow) and row.place != HEAD:
            record = row.run.steps[row.place].record
            assert record is not None
            assert f"{record.number}. " in text
        await here.press("escape")
        await here.until(lambda: here.app.screen is screen)
    assert seen == {StepScreen, ExchangeScreen}
    # A fact, a heading and a blank line lead to all details as text.
    await here.press("home", "enter")
    await here.sees("boss run")
    await here.press("escape")
    # The run of another agent is opened, at its first step.
    other = next(
        at for at, row in enumerate(rows._entries) if isinstance(row, RunTreeRow) and row.run is not boss
    )
    rows.action_move_to(other)
    await here.press("enter")
    await here.until(lambda: here.app.screen is not screen and here.app.screen.query(RunList))
    await here.until(lambda: "1. scripted" in cursor_line(here))


def cursor_line(here: Desk) -> str:
    """The line of the run screen on which the cursor is, as it is on the screen."""
    rows = run_list(here)
    return screen_text(here.app).splitlines()[rows.region.y + rows.cursor - rows.scroll_offset.y]


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
async def test_enter_leads_from_every_row_of_the_feed_to_what_the_model_saw(
    here: Desk, size: tuple[int, int]
) -> None:
    await resized(here, size)
    await here.press("f4")
    feed = here.feed.runs
    await here.until(lambda: here.app.focused is feed)
    kinds = set()
    for index in range(feed.line_count()):
        row = feed._outline.at(index)
        if not isinstance(row, RunTreeRow):
            continue
        feed.action_move_to(index)
        kind: type[Any] = RunScreen if row.place == HEAD else StepScreen
        text = await opened(here, kind)
        kinds.add(kind)
        if kind is RunScreen:
            await here.until(lambda: here.app.screen.query(RunList) and "1. scripted" in cursor_line(here))
        else:
            record = row.run.steps[row.place].record
            assert record is not None
            assert f"{record.number}. " in text
        await here.press("escape")
        await here.until(lambda: isinstance(here.app.screen, MainScreen))
    assert kinds == {RunScreen, StepScreen}
