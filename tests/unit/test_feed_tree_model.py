"""The feed as a tree: runs within the calls that asked for them, what is seen of it, and the filter."""

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from support.fake_fleet import NOON, desk, step_event

from pallas.model import (
    Event,
    LoopStopped,
    ModelRetry,
    QuestionAnswered,
    QuestionAsked,
    Rerouted,
    Routed,
    RunContinued,
    RunFinished,
    RunStarted,
    ServerMissing,
    ToolEvent,
)
from pallas_tui.frame import FleetFrame
from pallas_tui.runs.feed_run import MAX_NESTING, FeedRun
from pallas_tui.runs.run_feed import MAX_RUNS, MAX_STEPS, MAX_STEPS_OF_RUN, Feed
from pallas_tui.runs.run_filter import Sieve, parse
from pallas_tui.runs.run_tree import HEAD, RunOutline, recorded_at, rows_of
from pallas_tui.text import ASCII, UNICODE, Glyphs, width_of
from pallas_tui.widgets.feed.feed_view import feed_line, run_details
from pallas_tui.widgets.feed.waterfall import bar, bar_width

TRACE = "ab" * 16


def begin(run: str, agent: str = "concierge", parent: str = "", **more: Any) -> RunStarted:
    more = {"at": NOON, "preview": f"message {run}", "trace_id": TRACE, "span_id": f"s-{run}", **more}
    return RunStarted(run_id=run, agent=agent, parent_span=parent, **more)


def call(run: str, span: str, phase: str = "started", agent: str = "concierge", **more: Any) -> ToolEvent:
    more = {"at": NOON, "server": "research", "tool": "send_message", "call_id": f"{run}.{span}", **more}
    return ToolEvent(run_id=run, agent=agent, phase=phase, span_id=span, **more)  # type: ignore[arg-type]


def end(run: str, agent: str = "concierge", outcome: str = "ok", **more: Any) -> RunFinished:
    return RunFinished(**{"at": NOON + 1, "seconds": 1.0, **more}, run_id=run, agent=agent, outcome=outcome)  # type: ignore[arg-type]


def absorb(feed: Feed, *events: Event, now: float = NOON + 1, dropped: int = 0) -> None:
    feed.absorb(FleetFrame(desk(), events, now, dropped))


def test_a_model_call_that_is_made_again_is_a_line_of_the_run() -> None:
    feed = Feed()
    absorb(
        feed,
        begin("a", "front"),
        step_event("a", 1, agent="front"),
        ModelRetry(run_id="a", agent="front", reason="HTTP 429", retry=2, retries=4, wait=28.0, at=NOON),
        ModelRetry(
            run_id="a",
            agent="front",
            reason="the connection broke off",
            retry=3,
            retries=4,
            wait=1.2,
            characters=812,
            at=NOON,
        ),
    )
    lines = "\n".join(shown(feed, width=160))
    assert "retry 2 of 4 in 28 s: HTTP 429" in lines
    assert "retry 3 of 4 in 1 s: the connection broke off after 812 characters" in lines


def test_a_run_that_another_fleet_left_says_that_it_goes_on_and_what_becomes_of_its_calls() -> None:
    feed = Feed()
    calls = ("shop__refund: fails the run", "docs__read: called again")
    absorb(
        feed, begin("a", "front"), RunContinued(run_id="a", agent="front", attempt=2, calls=calls, at=NOON)
    )
    lines = "\n".join(shown(feed, width=160))
    assert "continued, attempt 2" in lines
    assert "shop__refund: fails the run; docs__read: called again" in lines


@pytest.mark.parametrize("outcome", ["ok", "error", "cancelled"])
def test_steps_that_are_open_when_the_run_ends_end_as_it_does(outcome: str) -> None:
    feed = Feed()
    absorb(feed, begin("a"), step_event("a", 1), call("a", "s1"), end("a", outcome=outcome))
    (run,) = feed.runs
    assert [(each.state, each.ended) for each in run.steps] == [(outcome, NOON + 1)] * 2


def test_who_answers_in_place_of_another_is_a_line_of_the_run() -> None:
    # DR-32
    feed = Feed()
    absorb(
        feed,
        begin("a", "front"),
        Routed(run_id="a", agent="front", to="coder", by="examples", why="like `fix the test`", at=NOON),
        Rerouted(run_id="a", agent="front", asked="openai", to="local", why="503", at=NOON),
    )
    lines = "\n".join(shown(feed, width=160))
    assert "routed to coder by examples: like `fix the test`" in lines
    assert "rerouted from openai to local: 503" in lines


def test_a_server_that_a_run_did_without_is_a_line_of_the_run() -> None:
    feed = Feed()
    missing = ServerMissing(run_id="a", agent="front", server="vault", why="cannot be reached", at=NOON)
    absorb(feed, begin("a", "front"), missing)
    (line,) = [line for line in shown(feed, width=160) if "vault" in line]
    assert "without vault" in line
    assert "cannot be reached" in run_details(feed.roots[0], NOON + 1)


def shown(feed: Feed, sieve: Sieve | None = None, width: int = 80, glyphs: Glyphs = UNICODE) -> list[str]:
    """The lines without the time in front, and without what stands on the right."""
    sieve = sieve or Sieve()
    roots = [run for run in feed.roots if sieve.lets_through(run)]
    outline = RunOutline(roots, _opened, lambda run: rows_of(run, _opened, sieve.lets_through))
    lines = [feed_line(outline.at(index), True, width, NOON + 1, glyphs) for index in range(len(outline))]
    assert all(width_of(line) == width for line in lines)
    return ["".join(text for text, _ in line)[9 : width - 22].rstrip() for line in lines]


def _opened(run: FeedRun) -> bool:
    return True


TREE = [
    "▾ concierge      message top",
    "  ├ research/send_message",
    "  │ └ ▾ research message mid",
    "  │   └ research/send_message",
    "  │     └ ▾ archive message low",
    "  └ docs/search",
]
EVENTS = (
    begin("top"),
    call("top", "c1"),
    begin("mid", "research", "c1"),
    call("mid", "c2", agent="research"),
    begin("low", "archive", "c2"),
    call("top", "c3", server="docs", tool="search"),
)


def test_a_run_stands_below_the_call_that_asked_for_it() -> None:
    feed = Feed()
    absorb(feed, *EVENTS)
    assert shown(feed) == TREE
    assert [run.id for run in feed.roots] == ["top"]
    assert [run.root.id for run in feed.runs] == ["top", "top", "top"]


def test_in_whatever_order_runs_and_calls_come_the_tree_is_the_same() -> None:
    for order in permutations(EVENTS[1:5]):
        feed = Feed()
        absorb(feed, EVENTS[0])
        for event in order:  # each in a frame of its own
            absorb(feed, event)
        absorb(feed, EVENTS[5])
        assert [line.strip() for line in shown(feed)] == [line.strip() for line in TREE], order


def test_a_run_whose_caller_never_comes_stands_on_its_own() -> None:
    feed = Feed()
    absorb(feed, begin("foreign", parent="of-a-stranger"), begin("other"))
    assert [run.id for run in feed.roots] == ["foreign", "other"]
    assert feed.roots[0].parent_span == "of-a-stranger"


def test_a_call_whose_beginning_was_lost_still_takes_its_run_in() -> None:
    feed = Feed()
    absorb(feed, begin("top"), begin("mid", "research", "c1"), dropped=3)
    absorb(feed, call("top", "c1", "completed"))
    assert [run.id for run in feed.roots] == ["top"]


def test_what_a_sub_agent_tells_for_itself_is_not_told_twice() -> None:
    feed = Feed()
    relayed = call("top", "", call_id="top.c1.7", nested=True, server="docs", tool="lookup")
    absorb(feed, begin("top"), call("top", "c1"), relayed)
    # Of an agent elsewhere nothing but that is known.
    assert shown(feed)[1:] == ["  └ research/send_message", "    └ docs/lookup"]
    absorb(feed, begin("mid", "research", "c1"))
    assert shown(feed) == [
        "▾ concierge      message top",
        "  └ research/send_message",
        "    └ ▾ research message mid",
    ]


def test_each_step_stands_below_the_one_that_caused_it_with_its_number_and_duration_of_the_record() -> None:
    feed = Feed()
    tool = {"kind": "tool", "name": "docs__search"}
    two = {**tool, "call_id": "top.2", "span_id": "c2"}
    told = [
        step_event("top", 1, seconds=0.5),
        step_event("top", 2, NOON + 1, parent=1, **two),
        step_event("top", 3, NOON + 1, parent=1, kind="agent", name="child"),
        step_event("top", 4, NOON + 2, parent=3),
        step_event("top", 5, NOON + 3, parent=2, **tool),
        step_event("top", 2, NOON + 1, parent=1, seconds=0.25, **two),
    ]
    # The events of a call come a little before or after its step.
    calls = [
        call("top", "c2", phase, at=NOON + at, call_id="top.2", server="docs", tool="search")
        for phase, at in (("started", 1.0), ("completed", 9.0))
    ]
    for order in ([*told, *calls], [calls[0], *told, calls[1]], [*calls, *told]):
        feed = Feed()
        absorb(feed, begin("top"), *order, now=NOON + 9)
        assert shown(feed)[1:] == [
            "  └ 1. scripted",
            "    ├ 2. docs/search",
            "    │ └ 5. docs/search",
            "    └ 3. agent child",
            "      └ 4. scripted",
        ], order
        run = feed.runs[0]
        took = {step.record.number: step.seconds(NOON + 9) for step in run.steps if step.record}
        assert took == {1: 0.5, 2: 0.25, 3: 8.0, 4: 7.0, 5: 6.0}


def test_what_a_run_recorded_is_learnt_where_its_events_were_lost() -> None:
    feed = Feed()
    absorb(feed, begin("top"), step_event("top", 2, NOON + 1, kind="tool", name="docs__search", parent=1))
    steps = [step_event("top", number, NOON + number - 1, seconds=0.5).step for number in (1, 2, 3)]
    feed.learn(feed.runs[0], steps)
    feed.learn(feed.runs[0], steps)
    assert [line.split()[-2:] for line in shown(feed)[1:]] == [
        ["1.", "scripted"],
        ["2.", "scripted"],
        ["3.", "scripted"],
    ]


def test_every_line_leads_to_a_recorded_step() -> None:
    feed = Feed()
    note = Routed(run_id="top", agent="concierge", to="x", by="y", why="z", at=NOON + 1)
    absorb(
        feed,
        begin("top"),
        step_event("top", 1, seconds=0.5, state="failed", fault="HTTP 500"),
        note,
        step_event("top", 2, NOON + 2, kind="tool", name="docs__search", parent=1, call_id="top.2"),
        call("top", "", call_id="top.2.1", nested=True, at=NOON + 3),
        end("top", outcome="error", fault="UPSTREAM: it failed"),
    )
    rows = rows_of(feed.runs[0], _opened)
    found = [record.number if (record := recorded_at(row)) else 0 for row in rows]
    assert found == [0, 1, 1, 2, 2, 1]


def test_a_run_is_unfolded_with_the_one_it_stands_within() -> None:
    feed = Feed()
    absorb(feed, *EVENTS, end("low", "archive"), end("mid", "research"))
    assert all(feed.is_open(run) for run in feed.runs)
    absorb(feed, end("top"), begin("next"))
    assert [feed.is_open(run) for run in feed.runs] == [False, False, False, True]


def test_a_run_cannot_stand_within_itself_nor_without_end() -> None:
    feed = Feed()
    absorb(feed, begin("a", parent="c-a"), call("a", "c-a"), begin("b", parent="c-a"), call("b", "c-b"))
    absorb(feed, begin("c", parent="c-b"), call("c", "c-a"))
    assert [run.id for run in feed.roots] == ["a"]
    deep = Feed()
    for number in range(100):  # the innermost first
        absorb(deep, begin(f"r{number}", parent=f"c{number + 1}"), call(f"r{number}", f"c{number}"))
    assert max(run.nesting for run in deep.runs) <= MAX_NESTING
    assert sum(1 for root in deep.roots for _ in root.family()) == 100


def test_what_is_kept_is_bounded_and_what_stood_within_something_gone_stands_on_its_own() -> None:
    feed = Feed()
    absorb(feed, begin("top"), call("top", "c1"), begin("mid", "research", "c1"))
    absorb(feed, *(call("top", f"x{number}") for number in range(MAX_STEPS_OF_RUN)))
    assert [run.id for run in feed.roots] == ["top", "mid"]
    absorb(feed, end("top"), end("mid", "research"))
    for number in range(MAX_RUNS + 10):
        absorb(feed, begin(f"p{number}"), call(f"p{number}", f"d{number}"), end(f"p{number}"))
        absorb(feed, begin(f"q{number}", "research", f"d{number}"), end(f"q{number}", "research"))
    absorb(feed, *(begin(f"o{number}", parent=f"never{number}") for number in range(MAX_RUNS + 10)))
    assert len(feed.runs) == MAX_RUNS
    assert len(feed._orphans) <= MAX_RUNS
    assert len(feed._calls) <= sum(len(run.steps) for run in feed.runs) <= MAX_STEPS
    assert all(run.parent is None or feed.run(run.parent.id) is run.parent for run in feed.runs)


def test_the_story_of_a_run_says_who_asked_for_it_and_its_trace(feed: Feed) -> None:
    stories = {run.id: run_details(run, NOON) for run in feed.runs}
    assert "asked by concierge (run top)" in stories["mid"]
    assert "asked by claude code, with key 3fc2" in stories["solo"]
    assert f"trace {TRACE}" in stories["top"]
    assert "asked by" not in stories["top"]


# The filter


@pytest.fixture
def feed() -> Feed:
    feed = Feed()
    absorb(
        feed,
        *EVENTS,
        end("low", "archive", "error", fault="AUTH: the key was refused"),
        begin("solo", "vision", caller="claude code", principal="3fc2", preview="a picture: two words"),
        call("solo", "c8", agent="vision", server="docs", tool="search"),
        end("solo", "vision", "cancelled"),
        LoopStopped(run_id="mid", agent="research", reason="repeat", tool="docs/x", count=5),
    )
    return feed


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("", {"top", "mid", "low", "solo"}),
        ("agent:vision", {"solo"}),
        ("agent:research", {"top", "mid"}),
        ("agent:archive", {"top", "mid", "low"}),
        ("outcome:error", {"top", "mid", "low"}),
        ("outcome:canc", {"solo"}),
        ("outcome:running", {"top", "mid"}),
        ("tool:docs/search", {"top", "solo"}),
        ('caller:"claude code"', {"solo"}),
        ("caller:3FC2", {"solo"}),
        ("caller:research", {"top", "mid", "low"}),
        ("run:sol", {"solo"}),
        ("trace:abab agent:vis", {"solo"}),
        ("trace:ffff", set()),
        ('"two words"', {"solo"}),
        ('"words two"', set()),
        ('"picture:"', {"solo"}),
        ("loop stopped", {"top", "mid"}),
        ("REFUSED", {"top", "mid", "low"}),
        ("-agent:vision", {"top", "mid", "low"}),
        ("-agent:concierge", {"solo"}),
        ("-agent:research", {"top", "solo"}),
        ("tool:docs -outcome:cancelled", {"top"}),
        ("-", set()),
        ("- picture", set()),
    ],
)
def test_a_filter_shows_what_fits_and_what_that_stands_within(feed: Feed, text: str, runs: set[str]) -> None:
    query = parse(text)
    assert query.mistake == ""
    sieve = Sieve(query)
    outline = RunOutline(
        [run for run in feed.roots if sieve.lets_through(run)],
        _opened,
        lambda run: rows_of(run, _opened, sieve.lets_through),
    )
    rows = [outline.at(index) for index in range(len(outline))]
    assert {row.run.id for row in rows if row.place == HEAD} == runs


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("agnt:research", "no field agnt:"),
        ("agent:", "a word is missing after agent:"),
        ("agent: research", "a word is missing after agent:"),
        ("outcome:great", "no outcome great; there are ok, error, cancelled"),
        ('"two words', 'a closing " is missing'),
        ('caller:"two', 'a closing " is missing'),
    ],
)
def test_a_mistake_in_the_filter_is_told_with_the_way_to_mend_it(text: str, told: str) -> None:
    query = parse(text)
    assert told in query.mistake
    assert not query


def test_what_a_filter_found_is_found_anew_when_a_run_changes(feed: Feed) -> None:
    sieve = Sieve(parse("outcome:ok"))
    top = feed.run("top")
    assert top is not None
    assert not sieve.lets_through(top)
    absorb(feed, end("mid", "research"))
    assert sieve.lets_through(top)  # for what stands within it


# Bars


@pytest.mark.parametrize(
    ("span", "drawn"),
    [
        ((0, 10), "██████████"),
        ((0, 5), "█████     "),
        ((2.5, 5), "  ▐██     "),
        ((5, 5.5), "     ▌    "),
        ((5.5, 6), "     ▐    "),
        ((9.99, 10), "         ▐"),
        ((10, 10), "         ▐"),
        ((-5, 20), "██████████"),
        ((50, 60), "         ▐"),
        (None, "          "),
    ],
)
def test_a_bar_says_when_within_the_whole(span: tuple[float, float] | None, drawn: str) -> None:
    assert bar(span, (0, 10), 10, UNICODE) == drawn
    assert bar(span, (0, 10), 10, ASCII).strip(" =") == ""


def test_bars_are_there_where_there_is_room() -> None:
    assert [bar_width(width) for width in (60, 79, 83)] == [0, 0, 0]
    assert all(12 <= bar_width(width) <= 48 for width in range(84, 300))


@pytest.mark.parametrize("width", [40, 60, 80, 84, 120, 200])
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_every_line_of_a_tree_fills_its_width_exactly(feed: Feed, width: int, glyphs: Glyphs) -> None:
    assert len(shown(feed, width=width, glyphs=glyphs)) > len(TREE)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_durations_stand_below_one_another_however_far_in(feed: Feed, width: int) -> None:
    for number in range(8):
        asks = begin(f"n{number}", "an-agent-with-a-name", f"k{number - 1}" if number else "c3")
        absorb(feed, asks, call(f"n{number}", f"k{number}"))
    (top,) = [run for run in feed.roots if run.id == "top"]
    rows = [row for row in rows_of(top, _opened) if row.place >= HEAD]
    lines = ["".join(text for text, _ in feed_line(row, True, width, NOON + 1, UNICODE)) for row in rows]
    assert {line[: width - 12].rstrip()[-2:] for line in lines} == {" s"}
    assert {line.index(" s ", width - 24) for line in lines} == {width - 15}


def test_a_question_to_a_person_is_a_line_until_it_is_answered() -> None:
    feed = Feed()
    asked = QuestionAsked(at=NOON, run_id="a", agent="front", question="q", kind="approval", tool="x__y")
    absorb(feed, begin("a", "front"), asked, replace(asked, relayed=True), asked)
    run = feed.run("a")
    assert run is not None
    (step,) = run.steps
    assert (step.label, step.notice, step.state, step.question) == ("asks: x__y", "waits", "running", "q")
    answered = QuestionAnswered(at=NOON + 4, run_id="a", agent="front", question="q", action="decline")
    absorb(feed, replace(answered, by="control:full"), now=NOON + 5)
    assert (step.label, step.notice) == ("asks: x__y, refused by an operator", "refused")
    assert (step.state, step.seconds(NOON + 9)) == ("error", 4.0)
    absorb(feed, replace(answered, question="lost", action="", by="deadline", reason="expired"))
    assert [each.notice for each in run.steps] == ["refused", "no answer"]
