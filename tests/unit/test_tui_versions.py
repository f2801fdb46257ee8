"""What the workbench keeps of edits and blocked loops: bounded, in words, and with the signs of a diff."""

from dataclasses import replace

import pytest
from support.fake_fleet import FILE, INSTRUCTION, NEW_TOOL, NOON, TOOL, FakeFleet, agent, failed, live

from pallas.model import AgentChanged, AgentState, Change, Event, LoopBlocked, Reloaded
from pallas_tui.frame import FleetFrame
from pallas_tui.runs.feed_remark import remark_of
from pallas_tui.runs.run_feed import MAX_REMARKS, Feed
from pallas_tui.runs.run_filter import fits_remark, parse
from pallas_tui.state import Tone, again_in, stages_of, tone_of
from pallas_tui.supervision import History, Versions
from pallas_tui.supervision.agent_versions import MAX_AGENTS, MAX_ATTEMPTS, MAX_TEXT
from pallas_tui.supervision.fleet_trouble import trouble_of
from pallas_tui.supervision.reload_history import MAX_BLOCKS, PATIENCE, Blocks
from pallas_tui.supervision.reload_words import sentence, tally
from pallas_tui.supervision.version_diff import paragraphs, place_to_open, plain
from pallas_tui.text import ASCII, UNICODE
from pallas_tui.widgets.tones import STYLES, shape

LIVE = {"research": 3, "vision": 1}


def frame(*events: Event, dropped: int = 0, fleet: FakeFleet | None = None) -> FleetFrame:
    return FleetFrame((fleet or FakeFleet()).current, events, NOON, dropped)


# Bounds


def test_of_each_agent_the_last_attempts_are_kept() -> None:
    versions = Versions()
    versions.absorb([live("research", number) for number in range(1, MAX_ATTEMPTS + 11)], LIVE)
    versions.absorb([live("vision", 1)], LIVE)
    kept = [attempt.version for attempt in versions.of("research")]
    assert kept == list(range(MAX_ATTEMPTS + 10, 10, -1))
    assert len(versions.of()) == MAX_ATTEMPTS + 1
    assert versions.count == MAX_ATTEMPTS + 11


def test_agents_come_and_go_without_end_and_the_eldest_are_forgotten() -> None:
    versions = Versions()
    events = [live(f"agent-{number}", 1, at=NOON + number) for number in range(MAX_AGENTS + 5)]
    versions.absorb(events, {})
    assert not versions.of("agent-4")
    assert versions.of("agent-5")
    assert len(versions.of()) == MAX_AGENTS


def test_the_text_of_all_differences_has_a_limit_and_the_newest_is_always_kept() -> None:
    versions = Versions()
    large = Change("file", "changed", "a.py", diff="+" * (MAX_TEXT // 3))
    versions.absorb([live("research", number, large) for number in range(1, 6)], LIVE)
    assert [attempt.version for attempt in versions.of("research")] == [5, 4]
    versions.absorb([live("vision", 6, replace(large, diff="+" * 2 * MAX_TEXT))], LIVE)
    assert [attempt.version for attempt in versions.of()] == [6]


def test_lines_between_the_runs_are_bounded() -> None:
    feed = Feed()
    for number in range(MAX_REMARKS + 7):
        feed.absorb(frame(live("research", number, seq=number)))
    assert len(feed.remarks) == MAX_REMARKS
    assert feed.added == MAX_REMARKS + 7


def test_blocked_loops_are_bounded_and_their_end_takes_the_place_of_their_beginning() -> None:
    blocks = Blocks()
    begun = LoopBlocked(at=NOON, seconds=1.0, agent="research")
    for _ in range(MAX_BLOCKS + 5):
        blocks.absorb([begun, replace(begun, seconds=3.0, over=True)], NOON)
    assert len(blocks.last) == MAX_BLOCKS
    assert {event.over for event in blocks.last} == {True}
    assert blocks.open == ()


@pytest.mark.parametrize(("later", "lost"), [(PATIENCE + 1, False), (1.0, True)])
def test_a_block_whose_end_was_lost_does_not_stay_for_ever(later: float, lost: bool) -> None:
    blocks = Blocks()
    blocks.absorb([LoopBlocked(at=NOON, seconds=1.0, agent="research")], NOON)
    assert blocks.open
    blocks.absorb([], NOON + later, lost)
    assert blocks.open == ()


# Broken edits


def test_a_broken_edit_stays_until_something_came_after_it() -> None:
    for after in (live("research", 4), Reloaded(at=NOON, agent="research", outcome="unchanged", version=3)):
        versions = Versions()
        versions.absorb([failed("research", 3)], LIVE)
        broken = versions.broken("research")
        assert broken is not None
        assert (broken.version, broken.answers) == (4, 3)
        versions.absorb([live("vision", 2)], LIVE)
        assert versions.broken("research") is broken
        versions.absorb([after], LIVE)
        assert versions.broken("research") is None


def test_an_agent_that_starts_anew_or_is_gone_has_no_broken_edit() -> None:
    versions = Versions()
    versions.absorb([failed("research", 3)], LIVE)
    started = AgentChanged(at=NOON + 1, agent="research", state=AgentState.READY)
    assert versions.absorb([started], LIVE)
    assert versions.broken("research") is None
    versions.absorb([failed("research", 3)], LIVE)
    versions.absorb([], {"vision": 1})
    assert versions.all_broken == ()


def test_what_failed_as_a_whole_is_told_by_its_agents() -> None:
    versions = Versions()
    whole = Reloaded(at=NOON, outcome="failed", error="not reloaded: research")
    versions.absorb([failed("research", 3), whole], LIVE)
    assert [attempt.event.agent for attempt in versions.all_broken] == ["research"]


def test_a_rollback_holds_until_the_next_version() -> None:
    versions = Versions()
    versions.absorb([live("research", 4), live("research", 3, rolled_back=True)], LIVE)
    assert versions.rolled_back("research", 3)
    versions.absorb([failed("research", 3)], LIVE)
    assert versions.rolled_back("research", 3)
    versions.absorb([live("research", 5)], LIVE)
    assert not versions.rolled_back("research", 5)


# Words


@pytest.mark.parametrize(
    ("event", "answers", "words"),
    [
        (live("a", 4, INSTRUCTION, TOOL, NEW_TOOL, FILE), 4, "a v4 live in 0.3 s: instruction, 2 tools"),
        (live("a", 4, FILE), 4, "a v4 live in 0.3 s: 1 file"),
        (live("a", 4, Change("config", "changed", "title")), 4, "a v4 live in 0.3 s: title"),
        (live("a", 3, TOOL, rolled_back=True), 3, "a rolled back to v3 in 0.3 s: 1 tool"),
        (live("a", 1, Change("agent", "added", "a")), 1, "a is new, live in 0.3 s"),
        (live("", 0, Change("agent", "removed", "b")), 0, "project reloaded in 0.3 s: b removed"),
        (live("", 0, files=("x/m.yaml",)), 0, "project reloaded in 0.3 s: m.yaml"),
        (failed("a", 3, place="a.py:2", error="a.py:2: E: no"), 3, "a v4 failed, v3 answers: a.py:2: E: no"),
        (
            failed("a", 0, place="", error=""),
            0,
            "a failed, the previous version answers: the log has the reason",
        ),
        (failed("", 0, place="y:1", error="no"), 0, "project failed, nothing changed: y:1: no"),
        (Reloaded(agent="a", outcome="unchanged"), 2, "a: saved, no difference"),
    ],
)
def test_an_edit_in_a_line(event: Reloaded, answers: int, words: str) -> None:
    assert sentence(event, answers) == words


def test_many_keys_are_counted_and_few_are_named() -> None:
    keys = [Change("config", "changed", name) for name in ("title", "retries", "port")]
    assert tally(keys[:2]) == "title, retries"
    assert tally(keys) == "3 keys"


def test_a_difference_reads_without_colours() -> None:
    text = plain(live("research", 4, FILE, TOOL, NEW_TOOL, INSTRUCTION))
    for line in ("  -Answer at length.", "  +Answer in one sentence.", "~ send_message", "+ docs/fetch"):
        assert line in text.splitlines(), line
    heads = [text.index(f"\n{word}\n") for word in ("instruction", "tools", "files")]
    assert heads == sorted(heads)
    styled = dict(paragraphs(live("research", 4, INSTRUCTION)))
    assert styled["  +Answer in one sentence."] == "$text-success"
    assert styled["  -Answer at length."] == "$text-error"


def test_a_failure_tells_its_place_error_and_traceback_once_each() -> None:
    event = failed("a", 3, place="a.py:2", error="a.py:2: E: no", story="a.py:2: E: no\n\nTraceback\n  x")
    text = plain(event, 3)
    assert text.count("E: no") == 1
    assert text.index("a.py:2\n") < text.index("E: no") < text.index("v3 answers") < text.index("Traceback")


@pytest.mark.parametrize(
    ("event", "place"),
    [
        (failed("research", 3), "desk/agents/research.py:12"),
        (live("research", 3, INSTRUCTION, FILE), "desk/agents/research.py:11"),
        (live("research", 3, TOOL), "desk/agents/research.py"),
        (live("research", 3, replace(FILE, kind="removed"), files=()), ""),
        (live("research", 3, replace(FILE, diff="@@ nonsense"), files=()), "desk/agents/research.py"),
    ],
)
def test_the_place_that_an_editor_opens(event: Reloaded, place: str) -> None:
    assert place_to_open(event) == place


def test_a_filter_of_the_feed_looks_through_lines_that_are_no_runs() -> None:
    remark = remark_of(live("research", 4, INSTRUCTION), {})
    assert remark is not None
    fits = {
        text: fits_remark(parse(text), remark)
        for text in ("", "v4", "instruction", "agent:rese", "agent:vision", "-research", "run:1", "-tool:x")
    }
    assert fits == {
        "": True,
        "v4": True,
        "instruction": True,
        "agent:rese": True,
        "agent:vision": False,
        "-research": False,
        "run:1": False,
        "-tool:x": True,
    }


# What stands wrong


def test_the_worst_stands_first_and_the_others_are_counted() -> None:
    fleet, history = FakeFleet(), History()
    history.absorb(frame(failed("research", 1)))
    assert trouble_of(fleet.current, history) is not None
    fleet.change("vision", state=AgentState.CRASH_LOOP, crashes=5, since=NOON)
    told = trouble_of(fleet.current, history)
    assert told is not None
    assert told.text == "(+1) vision is in a crash loop: 5 crashes"
    history.absorb(frame(LoopBlocked(at=NOON, seconds=2.0, agent="research", place="a/b.py:4")))
    told = trouble_of(fleet.current, history)
    assert told is not None
    assert told.text.startswith("(+2) research blocks the loop: 2 s, b.py:4")
    assert trouble_of(FakeFleet().current, History()) is None


def test_each_tone_has_a_style_and_a_shape_of_its_own_in_unicode_and_in_ascii() -> None:
    for glyphs in (UNICODE, ASCII):
        assert len({shape(tone, glyphs)[0] for tone in Tone}) == len(Tone)
    assert set(STYLES) == set(Tone)


def test_booted_ready_and_healthy_are_told_apart() -> None:
    found = {
        stages_of(agent("a", 1)),
        stages_of(agent("a", 1, state=AgentState.ERROR)),
        stages_of(agent("a", 1, state=AgentState.WAITING, booted=False)),
        stages_of(FakeFleet().current.agents[2]),
    }
    assert found == {
        "booted, ready, healthy",
        "booted, not ready",
        "not booted",
        "booted, ready, not healthy",
    }


def test_a_countdown_never_goes_below_zero_and_is_there_only_in_backoff() -> None:
    waiting = agent("a", 1, state=AgentState.BACKOFF, restart_at=NOON + 3.2)
    assert again_in(waiting, NOON) == "again in 4 s"
    assert again_in(waiting, NOON + 60) == "again in 0 s"
    assert again_in(replace(waiting, state=AgentState.READY), NOON) == ""
    assert tone_of(waiting) is Tone.BACKOFF
