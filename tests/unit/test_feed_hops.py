"""Credentials of hops and stopped loops in the feed: calm, and complete in the story of the run."""

from typing import Any

import pytest
from support.fake_fleet import NOON, desk, step_event

from pallas.model import AuthHop, FleetSnapshot, LoopStopped, RunFinished, RunStarted, ToolEvent
from pallas_tui.frame import FleetFrame
from pallas_tui.runs.run_feed import Feed, FeedRun
from pallas_tui.runs.run_filter import parse
from pallas_tui.runs.run_requests import MAX_REQUESTS
from pallas_tui.text import ASCII, UNICODE, width_of
from pallas_tui.widgets.feed.feed_view import HEAD, RunOutline, feed_line, run_details

START = RunStarted(at=NOON, run_id="r1", agent="research", preview="hello")
END = RunFinished(at=NOON + 2, run_id="r1", agent="research", outcome="ok", seconds=2)


def hop(status: int | None = 200, **changes: Any) -> AuthHop:
    base = {
        "at": NOON + 1,
        "run_id": "r1",
        "agent": "research",
        "downstream": "vault",
        "source": "forwarded",
        "fingerprint": "3fc2",
        "method": "tools/call",
    }
    return AuthHop(**{**base, "status": status, **changes})


def run_of(*events: Any, feed: Feed | None = None, fleet: FleetSnapshot | None = None) -> FeedRun:
    feed = feed or Feed()
    feed.absorb(FleetFrame(fleet or desk(), (START, *events), NOON + 3))
    run = feed.run("r1")
    assert run is not None
    return run


def lines(run: FeedRun, opened: bool, width: int = 80) -> list[str]:
    outline = RunOutline([run], lambda _: opened)
    found = [feed_line(outline.at(index), opened, width, NOON, UNICODE) for index in range(len(outline))]
    return ["".join(text for text, _ in line) for line in found]


@pytest.mark.parametrize(
    "event",
    [
        hop(200),
        hop(202, source="configured"),
        hop(200, source="none", fingerprint=""),
        hop(405, method=""),
        hop(400, method="server/discover"),
        hop(404, method="server/discover"),
        hop(None, method=""),
        hop(200, expires_at=NOON + 60),
    ],
)
def test_a_request_that_went_well_has_no_line_in_the_feed_and_stands_in_the_story(event: AuthHop) -> None:
    run = run_of(event, END)
    assert run.steps == []
    assert len(lines(run, opened=True)) == 1
    story = run_details(run, NOON)
    assert "Requests to downstreams" in story
    assert f"vault {event.method}".strip() in story


@pytest.mark.parametrize(
    ("event", "label", "word"),
    [
        (hop(401), "vault: key 3fc2 forwarded", "HTTP 401"),
        (hop(403, source="configured", fingerprint="aa11"), "vault: key aa11 configured", "HTTP 403"),
        (hop(401, source="none", fingerprint=""), "vault: no credential", "HTTP 401"),
        (hop(503), "vault: key 3fc2 forwarded", "HTTP 503"),
        (hop(None), "vault: key 3fc2 forwarded", "no answer"),
        (hop(200, expires_at=NOON - 5), "vault: key 3fc2 forwarded", "expired"),
    ],
)
def test_a_request_that_went_wrong_has_a_line_that_says_with_which_credential(
    event: AuthHop, label: str, word: str
) -> None:
    run = run_of(event, END)
    (_, line) = lines(run, opened=True)
    assert label in line
    assert line.rstrip().endswith(f"✖ {word}")
    assert parse(f"{word} vault").matches(run)
    assert len(lines(run, opened=False)) == 1


def test_requests_of_one_kind_are_one_line_that_counts_them() -> None:
    run = run_of(*[hop(401)] * 500, hop(401, downstream="docs"), END)
    assert [step.label for step in run.steps] == [
        "vault: key 3fc2 forwarded (500 times)",
        "docs: key 3fc2 forwarded",
    ]
    assert "500 times" in run_details(run, NOON)


def test_requests_that_would_read_the_same_share_a_line_before_the_first_step() -> None:
    key = "3fc29a10" + "0" * 16
    methods = ("server/discover", "tools/list", "prompts/list")
    late = step_event("r1", 1, NOON + 2, agent="research")
    asked = [hop(200, method=method, expires_at=NOON - 5, fingerprint=key) for method in methods]
    run = run_of(*asked, late, END)
    assert [step.title for step in run.steps] == ["vault: key 3fc29a10 forwarded (3 times)", "1. scripted"]
    assert all(f"vault {method}, key {key}" in run_details(run, NOON) for method in methods)


def test_the_story_tells_audience_expiry_and_status_of_every_kind() -> None:
    audience = ("https://vault", "x")
    story = run_details(run_of(hop(200, audience=audience, expires_at=NOON - 60), hop(None), END), NOON)
    assert "vault tools/call, key 3fc2 forwarded, for https://vault, x, expired " in story
    assert ", HTTP 200" in story
    assert "no answer" in story


def test_there_is_an_end_to_the_kinds_that_are_kept() -> None:
    run = run_of(*(hop(401, fingerprint=f"f{number}") for number in range(MAX_REQUESTS + 30)), END)
    assert len(run.steps) == MAX_REQUESTS
    assert "and 30 requests of other kinds" in run_details(run, NOON)


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (("repeat", "docs/search", 5), "loop stopped: docs/search gave the same result 5 times"),
        (("repeat", "", 3), "loop stopped: the same tool gave the same result 3 times"),
        (("iterations", "", 40), "loop stopped after 40 steps, the limit of one run"),
    ],
)
def test_a_loop_that_a_guard_stopped_is_a_warning_also_of_a_folded_run(
    event: tuple[Any, str, int], told: str
) -> None:
    reason, tool, count = event
    call = ToolEvent(
        run_id="r1", agent="research", server="docs", tool="search", phase="started", call_id="c"
    )
    stopped = LoopStopped(run_id="r1", agent="research", reason=reason, tool=tool, count=count)
    run = run_of(call, stopped, END)
    for opened in (True, False):
        assert lines(run, opened)[1].strip() == f"◐ {told}"
    assert told in run_details(run, NOON)
    assert parse("loop stopped").matches(run)


def test_warning_and_fault_stand_together_and_every_line_fills_its_width() -> None:
    stopped = LoopStopped(run_id="r1", agent="research", reason="repeat", tool="docs/" + "x" * 300, count=9)
    failed = RunFinished(
        at=NOON, run_id="r1", agent="research", outcome="error", seconds=2, fault="UPSTREAM: no"
    )
    run = run_of(hop(401), stopped, failed)
    outline = RunOutline([run], lambda _: True)
    assert len(outline) == 4
    assert outline.find(run, HEAD) == 0
    for glyphs in (UNICODE, ASCII):
        for width in (60, 80, 120):
            for index in range(len(outline)):
                assert width_of(feed_line(outline.at(index), True, width, NOON, glyphs)) == width


def test_a_new_request_of_a_known_kind_paints_the_run_anew() -> None:
    feed = Feed()
    run_of(hop(401), feed=feed)
    before = feed.version
    assert feed.absorb(FleetFrame(desk(), (hop(401),), NOON + 4))
    assert feed.version > before
    assert feed.added == 2  # the run and one line


def test_who_called_has_a_column_where_there_is_room() -> None:
    start = RunStarted(at=NOON, run_id="r1", agent="research", preview="hello", caller="inspector")
    feed = Feed()
    feed.absorb(FleetFrame(desk(), (start, END), NOON + 3))
    run = feed.run("r1")
    assert run is not None
    assert "hello" in lines(run, False, 118)[0]
    assert " inspector " in lines(run, False, 118)[0]
    assert "inspector" not in lines(run, False, 88)[0]
