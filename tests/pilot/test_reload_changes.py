"""A saved edit in the workbench: seen, live, broken, looked at, rolled back; and nobody is disturbed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.fake_fleet import FILE, INSTRUCTION, NEW_TOOL, NOON, TOOL, FakeFleet, failed, held, live
from support.live import write_project
from support.notices import notices_of
from support.pane_app import still
from support.shell import FakeChat, line_with, screen_text, top, workbench
from support.waiting import until
from textual.pilot import Pilot
from textual.widgets import Input

from pallas.model import (
    AgentChanged,
    AgentState,
    Change,
    Fault,
    FaultType,
    ModelCalls,
    Notice,
    Reloaded,
    RunVerdict,
    VerdictReached,
)
from pallas.model.verdict import verdict_text
from pallas_tui.app import Workbench
from pallas_tui.screens.agent_screen import ChangesScreen
from pallas_tui.screens.verdict_screens import VerdictsScreen
from pallas_tui.settings import Settings
from pallas_tui.widgets.agents import AgentsPane
from pallas_tui.widgets.changes import ChangesPane
from pallas_tui.widgets.feed import FeedPane
from pallas_tui.widgets.text_lines import TextLines

WIDE = (120, 40)
SMALL = (80, 24)


async def ready(app: Workbench, pilot: Pilot[Any]) -> None:
    await until(lambda: isinstance(app.focused, Input) and ":24200" in top(app), pilot)
    still(app)


async def test_what_is_saved_is_told_calmly_and_marks_the_agent_whose_version_is_being_made() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await ready(app, pilot)
        fleet.watch(waiting=("desk/agents/research.py",))
        await until(lambda: "↻ saved research.py…" in top(app), pilot)
        fleet.watch(reloading=("research",))
        await until(lambda: "reloading" in line_with(app, "├ ↻ research"), pilot)
        assert "↻ reloading research…" in top(app)
        fleet.watch()
        await until(lambda: "├ ● research" in screen_text(app) and "↻" not in top(app), pilot)


@pytest.mark.slow
async def test_a_live_version_has_a_line_in_the_feed_that_opens_what_is_different() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await ready(app, pilot)
        fleet.reload("research", 4, INSTRUCTION, TOOL, NEW_TOOL, FILE)
        await until(lambda: "research v4 live in 0.3 s: instruc" in top(app), pilot)
        await until(lambda: "v4 live in 0.3 s: instruction, 2 tools" in line_with(app, "15:06:40 ↻"), pilot)
        await pilot.press("f4", "enter")
        await until(lambda: isinstance(app.screen, ChangesScreen), pilot)
        await until(lambda: "+Answer in one sentence." in screen_text(app), pilot)
        shown = screen_text(app)
        assert "saved: desk/agents/research.py" in shown
        for line in (
            "-Answer at length.",
            "+Name the invoice. [not markup]",
            "~ send_message",
            "+ docs/fetch",
        ):
            assert line in shown, line
        assert '+ {"message": {"type": "string"}, "urgent": {"type": "boolean"}}' in shown
        assert '- {"message": {"type": "string"}}' in shown
        assert shown.index("instruction") < shown.index("send_message") < shown.index("+ docs/fetch")
        await pilot.press("y")
        await until(lambda: "+Name the invoice. [not markup]" in app.clipboard, pilot)
        assert app.clipboard.index("+ docs/fetch") < app.clipboard.index("+tools = [serach]")
        await pilot.press("escape")
        await until(lambda: app.screen is app.main, pilot)
        assert app.main.current == "feed"


async def test_what_makes_no_difference_is_told_but_has_no_line_in_the_feed() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await ready(app, pilot)
        fleet.say(Reloaded(at=NOON, agent="research", outcome="unchanged", version=3))
        await until(lambda: "research: saved, no difference" in top(app), pilot)
        assert app.main.query_one(FeedPane).feed.remarks == ()


async def test_a_verdict_has_a_line_in_the_feed_with_the_first_difference() -> None:
    run = RunVerdict("lamps", "test", "research", "other words", "step 1", "temperature", "0", "1")
    verdict = VerdictReached(
        at=NOON, agents=("research",), files=(FILE.name,), runs=(run,), counts={"other words": 1, "same": 3}
    )
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await ready(app, pilot)
        fleet.say(verdict)
        await until(lambda: app.main.query_one(FeedPane).feed.remarks, pilot)
        (remark,) = app.main.query_one(FeedPane).feed.remarks
        assert remark.text == f"saved {FILE.name}: {verdict_text(verdict)}"
        await until(lambda: "1 other words" in line_with(app, "15:06:40 ◐"), pilot)
        await pilot.press("f4", "enter")
        await until(lambda: isinstance(app.screen, VerdictsScreen), pilot)
        await until(lambda: "step 1: temperature is 1, and was 0" in screen_text(app), pilot)
        await pilot.press("escape")
        await until(lambda: app.screen is app.main, pilot)


async def test_one_key_asks_models_for_a_verdict_that_says_what_that_takes() -> None:
    run = RunVerdict("lamps", "test", "research", "other words", "step 1", "temperature", "0", "1")
    verdict = VerdictReached(
        at=NOON,
        agents=("research",),
        runs=(run,),
        counts={"other words": 1},
        live="can ask",
        estimate=ModelCalls(3, 2_100_000),
    )
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await ready(app, pilot)
        fleet.say(verdict)
        await until(lambda: app.main.query_one(FeedPane).feed.remarks, pilot)
        await until(lambda: "1 other words" in line_with(app, "15:06:40 ◐"), pilot)
        await until(lambda: "1 other words; $ asks models: 3 model calls, $0.0021" in screen_text(app), pilot)
        await pilot.press("f4", "enter")
        await until(lambda: isinstance(app.screen, VerdictsScreen), pilot)
        assert "$ asks models: 3 model calls, $0.0021" in screen_text(app)
        await pilot.press("$")
        await until(lambda: fleet.models_asked == 1, pilot)
        asked = ModelCalls(3, 2_100_000)
        said = replace(run, word="fails", what="expected: a price", request=run.why, asked=asked)
        fleet.say(replace(verdict, live="asked", seconds=2.0, counts={"fails": 1}, runs=(said,)))
        # It is the same save, with what models said.
        await until(lambda: "1 fails" in screen_text(app), pilot)
        assert "1 other words" not in screen_text(app)
        await pilot.press("enter")
        await until(
            lambda: "3 model calls, $0.0021, since step 1: temperature is 1" in screen_text(app), pilot
        )
        await pilot.press("escape")
        await until(lambda: isinstance(app.screen, VerdictsScreen), pilot)
        await pilot.press("escape")
        await until(lambda: app.screen is app.main, pilot)
        fleet.refusal = Fault(FaultType.CONFIG, "models are not asked: that is under way")
        await pilot.press("$")
        await until(lambda: any("that is under way" in each.message for each in notices_of(app)), pilot)


async def test_a_broken_edit_is_loud_until_the_next_live_version_and_disturbs_nobody() -> None:
    fleet = FakeFleet()
    fleet.change("research", version=3)
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await ready(app, pilot)
        prompt = app.query_one("#prompt", Input)
        prompt.value = "half a question"
        fleet.say(failed("research", 3, FILE))
        told = "✖ research v4 research.py:12: NameError"
        await until(lambda: told in top(app), pilot)
        assert "├ ● research ✖  :24202" in screen_text(app)
        assert "failed, v3 answers: desk/agents/research.py:12: NameErr" in line_with(app, "15:06:40 ✖")
        # Whatever else happens, it stays on the top line, and the one who writes goes on writing.
        fleet.say(live("vision", 2))
        await until(lambda: "vision" in line_with(app, "15:06:40 ↻"), pilot)
        assert told in top(app)
        await pilot.press(*" C")
        assert app.focused is prompt
        assert prompt.value == "half a question C"
        assert app.screen is app.main
        assert not app._notifications
        fleet.reload("research", 4, FILE)
        await until(lambda: "✖" not in screen_text(app).replace("15:06:40 ✖", ""), pilot)
        assert "research ✖" not in screen_text(app)
        assert prompt.value == "half a question C"


async def test_the_details_of_an_agent_say_which_version_answers_and_which_failed_and_where() -> None:
    fleet = FakeFleet()
    fleet.change("research", version=3, previous=2)
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        await ready(app, pilot)
        fleet.say(failed("research", 4))
        await pilot.press("f2", "down")
        await until(lambda: "v3 answers · v4 failed" in screen_text(app), pilot)
        assert "desk/agents/research.py:12: NameError" in screen_text(app).replace("\n", " ")
        await pilot.press("d")
        await until(lambda: "v3 answers, v4 failed" in screen_text(app), pilot)
        assert "version     v3, v2 before" in screen_text(app)
        await pilot.press("c")
        await until(lambda: isinstance(app.screen, ChangesScreen), pilot)
        await until(lambda: "v3 answers as before. Fix the file and save it." in screen_text(app), pilot)
        await pilot.press("escape", "escape")
        await until(lambda: app.screen is app.main, pilot)
        fleet.say(Reloaded(at=NOON, agent="research", outcome="unchanged", version=3))
        await until(lambda: "v4 failed" not in screen_text(app), pilot)


async def test_a_failed_version_shows_place_traceback_and_what_would_have_changed() -> None:
    fleet = FakeFleet()
    fleet.change("research", version=3)
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await ready(app, pilot)
        fleet.say(failed("research", 4, INSTRUCTION))
        await pilot.press("f2", "C")
        await until(lambda: "Changes of the failed edit" in screen_text(app), pilot)
        shown = screen_text(app)
        places = [
            shown.index(words)
            for words in ("line 12, in <module>", "Changes of the failed edit", "-Answer at")
        ]
        assert places == sorted(places)
        assert "research v4 failed" in shown


async def test_a_mistake_in_the_project_is_told_without_an_agent_and_goes_when_its_file_is_mended() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await ready(app, pilot)
        wrong = "agents.yaml: agents.research.port: must be a number"
        broken = failed("", 0, files=("agents.yaml",), place="agents.yaml:7", error=wrong, story="")
        fleet.say(broken)
        await until(lambda: "✖ project agents.yaml:7: agents" in top(app), pilot)
        assert "failed, nothing changed: agents.yaml:7" in line_with(app, "15:06:40 ✖")
        fleet.say(live("research", 2, files=("agents.yaml",)))
        await until(lambda: "research v2 live" in top(app), pilot)


@pytest.mark.slow
async def test_the_list_goes_along_at_the_newest_and_stays_where_somebody_reads() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await ready(app, pilot)
        for version in (2, 3, 4):
            fleet.reload("research", version, INSTRUCTION)
        await pilot.press("f2", "down", "c")
        await until(lambda: isinstance(app.screen, ChangesScreen), pilot)
        pane = app.screen.query_one(ChangesPane)
        await until(lambda: pane.versions.line_count() == 3, pilot)
        fleet.reload("research", 5, NEW_TOOL)
        await until(lambda: "research v5 live" in screen_text(app), pilot)
        await pilot.press("down", "down")
        await until(lambda: "research v3 live" in screen_text(app), pilot)
        fleet.reload("research", 6, TOOL)
        await until(lambda: "3 newer ones above" in screen_text(app), pilot)
        assert pane.versions.selected is not None
        assert pane.versions.selected.event.version == 3
        assert "research v3 live" in screen_text(app)
        # Those of another agent are not among them, until one asks for all.
        fleet.reload("vision", 2, TOOL)
        await pilot.press("a")
        await until(lambda: "vision" in line_with(app, "v2"), pilot)
        assert pane.versions.line_count() == 6
        assert pane.versions.selected.event.version == 3


@pytest.mark.slow
async def test_a_long_difference_scrolls_by_keys_and_escape_leaves_from_there_too() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        await ready(app, pilot)
        diff = "@@ -1 +1,300 @@\n" + "\n".join(f"+line {number} of it" for number in range(300))
        fleet.reload("research", 2, Change("instruction", "changed", diff=diff))
        await pilot.press("f2", "down", "c")
        await until(lambda: "+line 0 of it" in screen_text(app), pilot)
        await pilot.press("enter", "end")
        await until(lambda: "+line 299 of it" in screen_text(app), pilot)
        assert isinstance(app.focused, TextLines)
        await pilot.press("escape")
        await until(lambda: app.screen is app.main, pilot)


@pytest.mark.slow
async def test_e_opens_the_file_at_the_line_that_failed_or_that_is_different(
    tmp_path: Path, monkeypatch: Any
) -> None:
    file = tmp_path / "desk" / "agents" / "research.py"
    file.parent.mkdir(parents=True)
    file.write_text("import shop\n" * 20)
    opened: list[str] = []
    monkeypatch.setattr(
        "pallas_tui.widgets.changes.changes_pane.open_source", lambda app, source: opened.append(source) or ""
    )
    fleet = FakeFleet()
    app = workbench(fleet, root=tmp_path)
    async with app.run_test(size=WIDE) as pilot:
        await ready(app, pilot)
        fleet.reload("research", 2, INSTRUCTION, FILE)
        fleet.say(failed("research", 3))
        await pilot.press("f2", "C")
        await until(lambda: isinstance(app.screen, ChangesScreen), pilot)
        await until(lambda: "failed" in screen_text(app), pilot)
        await pilot.press("e", "down", "e")
        await until(lambda: len(opened) == 2, pilot)
        assert opened == ["desk/agents/research.py:12", "desk/agents/research.py:11"]


@pytest.mark.slow
async def test_rolling_back_names_both_versions_first_and_shows_that_it_was_done() -> None:
    fleet = FakeFleet()
    fleet.change("research", version=4, previous=3)
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await ready(app, pilot)
        await pilot.press("f2", "down", "B")
        await until(lambda: "Roll research back to v3, from v4?" in screen_text(app).splitlines()[-1], pilot)
        await pilot.press("n")
        assert fleet.controlled == []
        await pilot.press("B", "y")
        await until(lambda: fleet.controlled == [("research", "rollback")], pilot)
        await until(lambda: "rolling back" in line_with(app, "↻ research"), pilot)
        fleet.change("research", version=3, previous=4)
        fleet.say(live("research", 3, INSTRUCTION, rolled_back=True))
        await until(lambda: "research rolled back to v3 in 0.3 s" in top(app), pilot)
        await until(lambda: "version v3 (rolled back)" in screen_text(app), pilot)
        await until(lambda: "● research ↺" in screen_text(app), pilot)
        assert "├ ● research" in screen_text(app)


async def test_without_a_version_before_a_rollback_is_refused_in_words() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await ready(app, pilot)
        await pilot.press("f2", "down", "B")
        words = "There is no version of research before the one that answers."
        await until(lambda: any(words in note.message for note in notices_of(app)), pilot)
        assert fleet.controlled == []
        assert not app.main.asking


async def test_watching_is_paused_and_resumed_and_the_top_line_says_how_many_files_wait() -> None:
    fleet = FakeFleet()
    fleet.watch()
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        await ready(app, pilot)
        await pilot.press("f2", "W")
        await until(lambda: fleet.fleet_controlled == ["pause"], pilot)
        await until(lambda: "watch paused" in top(app), pilot)
        fleet.watch("paused", waiting=("a.py", "b.py", "agents.yaml"), outdated=("research",))
        await until(lambda: "watch paused · 3 files waiting" in top(app), pilot)
        await until(lambda: "● research ≠v1" in screen_text(app), pilot)
        await pilot.press("U", "W")
        await until(lambda: fleet.fleet_controlled == ["pause", "reload", "resume"], pilot)
        await until(lambda: "paused" not in top(app), pilot)
        await pilot.resize_terminal(60, 20)
        fleet.watch("paused", waiting=("a.py",))
        await until(lambda: "paused · 1" in top(app), pilot)


async def test_the_top_line_says_as_long_as_faults_are_injected() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        await ready(app, pilot)
        assert "faults" not in top(app)
        fleet.current = replace(fleet.current, faults="429 to gpt-5 at call 1 (faults.yaml)")
        await until(lambda: "◐ faults" in top(app), pilot)
        fleet.say(
            Notice(level="info", text="a longer piece of news, which takes all that is left of the line")
        )
        fleet.watch("paused", waiting=("a.py", "b.py"))
        await until(lambda: "paused" in top(app) and "◐ faults" in top(app), pilot)
        await pilot.resize_terminal(60, 20)
        await until(lambda: "◐ faults" in top(app) and "paused · 2" in top(app), pilot)
        fleet.current = replace(fleet.current, faults="")
        await until(lambda: "faults" not in top(app), pilot)


@pytest.mark.slow
async def test_a_fleet_that_nobody_watches_or_that_may_only_be_looked_at_refuses_in_words() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await ready(app, pilot)
        await pilot.press("f2", "W")
        await until(lambda: any("--watch" in note.message for note in notices_of(app)), pilot)
        fleet.watch()
        fleet.can_control = False
        await pilot.press("W", "U")
        told = lambda: [note.message for note in notices_of(app) if "may only read" in note.message]  # noqa: E731
        await until(lambda: len(told()) == 2, pilot)
        assert fleet.fleet_controlled == []


@pytest.mark.slow
async def test_every_pane_copes_with_an_agent_that_goes_and_one_that_comes() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await ready(app, pilot)
        await pilot.press("f2", "end", "d")
        await until(lambda: "booted, ready, healthy" in screen_text(app), pilot)
        fleet.remove("vision")
        fleet.say(Reloaded(at=NOON, outcome="live", changes=(Change("agent", "removed", "vision"),)))
        await until(lambda: "vision is no longer in the fleet." in screen_text(app), pilot)
        await pilot.press("r")
        await until(lambda: any("no longer in the fleet" in note.message for note in notices_of(app)), pilot)
        assert fleet.controlled == []
        await pilot.press("escape")
        await until(lambda: "reloaded in 0 ms: vision removed" in screen_text(app), pilot)
        assert ":24204" not in screen_text(app)
        from support.fake_fleet import agent

        fleet.add(agent("billing", 24210))
        fleet.say(live("billing", 1, Change("agent", "added")))
        await until(lambda: "billing is new, live in 0.3 s" in top(app), pilot)
        assert ":24210" in screen_text(app)
        names = {entity.title for entity in app.main.query_one(AgentsPane).entities()}
        assert "billing" in names
        assert "vision" not in names
        assert app.main.query_one(FakeChat).is_showing


async def test_an_agent_without_a_port_of_its_own_shows_its_url() -> None:
    fleet = FakeFleet()
    url = "http://127.0.0.1:24200/agents/vision/mcp"
    fleet.change("vision", port=0, url=url)
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        await ready(app, pilot)
        await pilot.press("f2", "end")
        await until(lambda: url in screen_text(app), pilot)
        assert any("● vision" in line and ":24200" in line for line in screen_text(app).splitlines())


async def test_marks_of_versions_are_ascii_where_that_is_wanted() -> None:
    fleet = FakeFleet()
    app = workbench(fleet, settings=Settings("textual-dark", ascii=True))
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input) and ":24202" in screen_text(app), pilot)
        fleet.reload("research", 2, INSTRUCTION)
        fleet.reload("research", 1, INSTRUCTION, rolled_back=True)
        fleet.say(failed("research", 3))
        await until(lambda: "research x" in screen_text(app), pilot)
        await pilot.press("f2", "C")
        await until(lambda: "& research" in screen_text(app), pilot)
        assert screen_text(app).isascii()


@pytest.mark.slow
async def test_an_edit_that_tests_hold_back_is_seen_and_one_key_lets_it_through(tmp_path: Path) -> None:
    root = write_project(tmp_path, {"research": None})
    (root / "tests" / "agents").mkdir(parents=True)
    (root / "tests" / "agents" / "two-refunds.yaml").write_text("agent: research\nask: Refund, please.\n")
    fleet = FakeFleet()
    fleet.change("research", version=3, previous=2)
    app = workbench(fleet, root=root)
    async with app.run_test(size=WIDE) as pilot:
        await ready(app, pilot)
        fleet.watch(testing=("research",))
        await until(lambda: "testing" in line_with(app, "├ ↻ research"), pilot)
        assert "↻ testing research…" in top(app)
        fleet.watch(held=("research",))
        fleet.say(held("research", 3, FILE))
        await until(lambda: "◐ research v4 held back: 1 of 5 runs" in top(app), pilot)
        assert "├ ● research ◐" in screen_text(app)
        assert "v4 held back, v3 answers: 1 of 5 runs" in line_with(app, "15:06:40 ◐")
        await pilot.press("f2", "down")
        await until(lambda: "v3 answers · v4 held back" in screen_text(app), pilot)
        assert "r lets it through" in screen_text(app)
        await pilot.press("d")
        await until(lambda: "v3 answers, v4 held back" in screen_text(app), pilot)
        await pilot.press("c")
        await until(lambda: isinstance(app.screen, ChangesScreen), pilot)
        await until(lambda: "held back" in screen_text(app), pilot)
        for line in ("A shows the tests; r lets it through.", "What would change", "+tools = [serach]"):
            assert line in screen_text(app), line
        await pilot.press("escape", "escape", "A")
        await until(lambda: "1 failed" in screen_text(app), pilot)
        await until(lambda: '"You are Clark."' in screen_text(app), pilot)
        await pilot.press("escape")
        await until(lambda: app.screen is app.main, pilot)
        await pilot.press("r")
        await until(lambda: fleet.controlled == [("research", "reload")], pilot)
        fleet.say(AgentChanged(at=NOON + 1, agent="research", state=AgentState.READY))
        fleet.say(live("vision", 2))
        await until(lambda: "vision" in line_with(app, "15:06:40 ↻"), pilot)
        assert "◐ research v4 held back" in top(app)  # it crashed, and runs as before
        fleet.watch()
        fleet.reload("research", 4, FILE)
        await until(lambda: "held back" not in top(app) and "research ◐" not in screen_text(app), pilot)
