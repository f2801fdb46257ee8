"""What the shell shows, as values: no screen, no clock."""

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.fake_fleet import NOON, FakeFleet, agent, desk, step_event

from pallas.model import (
    AgentChanged,
    AgentState,
    CallOutcome,
    Downstream,
    Event,
    FleetChanged,
    FleetState,
    Health,
    HealthChanged,
    HealthStatus,
    Notice,
    ProbeResult,
    RunFinished,
    RunStarted,
    ServerSnapshot,
    TextDelta,
    ToolEvent,
)
from pallas_tui.agents.fleet_tree import outline
from pallas_tui.frame import FleetFrame
from pallas_tui.runs.run_feed import MAX_RUNS, MAX_STEPS, MAX_STEPS_OF_RUN, Feed
from pallas_tui.state import EventSummary, Tone, can_answer, reason_of, state_text, summarise, tone_of
from pallas_tui.text import (
    ASCII,
    UNICODE,
    clock,
    count,
    duration,
    fit,
    joined,
    right,
    since,
    width_of,
    wrapped,
)
from pallas_tui.ui_clock import BATCH, IDLE, LATELY, QUIET, STILL, UiClock
from pallas_tui.widgets.agents.agent_summary import Now, details
from pallas_tui.widgets.agents.agent_view import tree_line
from pallas_tui.widgets.feed.feed_view import RunOutline, feed_line


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def frame(*events: Event, now: float = NOON, dropped: int = 0, **active: int) -> FleetFrame:
    """A frame of the desk fleet; ``active`` gives runs in flight by agent."""
    snapshot = desk()
    agents = tuple(replace(one, runs_active=active.get(one.name, 0)) for one in snapshot.agents)
    return FleetFrame(replace(snapshot, agents=agents), events, now, dropped)


def started(run: str, name: str = "concierge", at: float = NOON, preview: str = "hello") -> RunStarted:
    return RunStarted(at=at, run_id=run, agent=name, preview=preview)


def finished(run: str, name: str = "concierge", at: float = NOON, **fields: object) -> RunFinished:
    return RunFinished(at=at, run_id=run, agent=name, **{"outcome": "ok", "seconds": 1.0, **fields})  # type: ignore[arg-type]


def tool(
    run: str, phase: str, call: str = "c1", at: float = NOON, nested: bool = False, server: str = "docs"
) -> ToolEvent:
    return ToolEvent(
        at=at,
        run_id=run,
        agent="concierge",
        server=server,
        tool="search",
        phase=phase,  # type: ignore[arg-type]
        call_id=call,
        nested=nested,
    )


# Agents


@pytest.mark.parametrize(
    ("state", "health", "tone", "answers"),
    [
        (AgentState.WAITING, HealthStatus.ERROR, Tone.STARTING, False),
        (AgentState.IMPORTING, HealthStatus.OK, Tone.STARTING, False),
        (AgentState.CONNECTING, HealthStatus.OK, Tone.STARTING, False),
        (AgentState.READY, HealthStatus.OK, Tone.OK, True),
        (AgentState.READY, HealthStatus.DEGRADED, Tone.DEGRADED, True),
        (AgentState.READY, HealthStatus.ERROR, Tone.ERROR, False),
        (AgentState.ERROR, HealthStatus.OK, Tone.ERROR, False),
        (AgentState.STOPPED, HealthStatus.OK, Tone.STOPPED, False),
    ],
)
def test_an_agent_has_one_tone_and_input_is_closed_unless_it_is_ready_and_without_error(
    state: AgentState, health: HealthStatus, tone: Tone, answers: bool
) -> None:
    one = agent("a", 1, state=state, health=Health(health, "why"))
    assert (tone_of(one), can_answer(one)) == (tone, answers)


def test_the_reason_is_the_health_message_or_the_first_line_of_the_error() -> None:
    # PI-17
    degraded = agent("a", 1, health=Health(HealthStatus.DEGRADED, "tickets: connection refused"))
    failed = agent("a", 1, state=AgentState.ERROR, error="\n  no module named x\nTraceback\n  more")
    assert reason_of(degraded) == "tickets: connection refused"
    assert reason_of(failed) == "no module named x"
    assert reason_of(agent("a", 1)) == ""


def test_the_story_of_an_agent_tells_the_whole_error_and_every_downstream() -> None:
    research = desk().agents[1]
    story = state_text(replace(research, state=AgentState.ERROR, error="first\n  second"))
    assert "first\n  second" in story
    assert "vault (http http://127.0.0.1:9001/mcp): auth required: 401" in story


def test_the_story_of_an_agent_tells_the_last_call_that_failed() -> None:
    shop = Downstream("shop", "http", "http://x/mcp", ProbeResult.OK)
    good, bad = CallOutcome(True, 1.0), CallOutcome(False, 1.0, "HTTP 503", ProbeResult.UNREACHABLE)
    for call, said in ((None, "ok"), (good, "ok"), (bad, "ok; last call: HTTP 503")):
        story = state_text(agent("a", 1, downstreams=(replace(shop, last_call=call),)))
        assert story.endswith(f"shop (http http://x/mcp): {said}")


# The top line


def test_the_summary_counts_agents_by_tone_and_runs() -> None:
    summary = summarise(frame(concierge=2, research=1))
    assert summary.tones == ((Tone.OK, 3), (Tone.DEGRADED, 1))
    assert (summary.agents, summary.runs_text, summary.registry_port) == (4, "3 runs", 24200)


def test_the_headline_is_the_last_thing_worth_telling_and_stays_until_the_next() -> None:
    told = summarise(frame(Notice(at=NOON, level="info", text="first"), finished("r"), started("s")))
    assert told.last_event == EventSummary(NOON, "concierge answered in 1.0 s")
    assert summarise(frame(started("t")), told.last_event).last_event == told.last_event


@pytest.mark.parametrize(
    ("event", "text", "level"),
    [
        (AgentChanged(agent="research", state=AgentState.READY), "research ready in 0.8 s", "info"),
        (AgentChanged(agent="x", state=AgentState.ERROR, detail="no fast"), "x failed: no fast", "error"),
        (AgentChanged(agent="x", state=AgentState.IMPORTING), "x importing", "info"),
        (
            HealthChanged(agent="x", health=Health(HealthStatus.DEGRADED, "docs down")),
            "x is degraded: docs down",
            "warning",
        ),
        (HealthChanged(agent="x", health=Health(HealthStatus.OK)), "x is ok", "info"),
        (
            finished("r", outcome="error", fault="TIMEOUT: slow"),
            "concierge could not answer: TIMEOUT: slow",
            "error",
        ),
        (finished("r", outcome="cancelled"), "concierge was cancelled", "warning"),
        (Notice(level="warning", text="port 1 is busy", agent="x"), "x: port 1 is busy", "warning"),
        (Notice(level="error", text="x: reload failed: y", agent="x"), "x: reload failed: y", "error"),
        (FleetChanged(state=FleetState.FAILED, detail="bad"), "fleet failed: bad", "error"),
    ],
)
def test_each_event_says_what_it_means_to_somebody_who_looks_elsewhere(
    event: Event, text: str, level: str
) -> None:
    last_event = summarise(frame(event)).last_event
    assert last_event is not None
    assert (last_event.text, last_event.level) == (text, level)


def test_a_registry_address_that_is_none_is_left_out() -> None:
    assert summarise(FleetFrame(replace(desk(), registry_url="http://[bad"), (), NOON)).registry_port is None
    assert summarise(FleetFrame(replace(desk(), registry_url=""), (), NOON)).registry_port is None


# The feed


def test_a_call_is_paired_with_its_end_and_keeps_its_time() -> None:
    feed = Feed()
    feed.absorb(frame(started("r"), tool("r", "started", "a", NOON), tool("r", "started", "b", NOON + 1)))
    feed.absorb(frame(tool("r", "completed", "b", NOON + 3), tool("r", "failed", "a", NOON + 4)))
    first, second = feed.runs[0].steps
    assert (first.state, first.seconds(NOON + 99)) == ("error", 4.0)
    assert (second.state, second.seconds(NOON + 99)) == ("ok", 2.0)


def test_a_running_call_goes_on_counting_and_an_ended_run_does_not() -> None:
    feed = Feed()
    feed.absorb(frame(started("r"), tool("r", "started")))
    run = feed.runs[0]
    assert (run.elapsed(NOON + 2), run.steps[0].seconds(NOON + 2)) == (2.0, 2.0)
    feed.absorb(frame(finished("r", at=NOON + 3, seconds=3.0, outcome="cancelled")))
    assert run.elapsed(NOON + 50) == 3.0
    assert (run.steps[0].state, run.steps[0].seconds(NOON + 50)) == ("cancelled", 3.0)
    assert feed.active == 0


def test_a_lost_beginning_is_shown_without_inventing_times() -> None:
    feed = Feed()
    feed.absorb(frame(tool("r", "completed", "never-seen"), finished("r", at=NOON + 9, seconds=4.0)))
    run = feed.runs[0]
    assert run.steps[0].seconds(NOON) is None
    assert (run.state, run.elapsed(NOON)) == ("ok", 4.0)


def test_after_a_gap_runs_of_idle_agents_are_not_left_running() -> None:
    feed = Feed()
    feed.absorb(frame(started("gone"), started("alive", "research"), concierge=1, research=1))
    feed.absorb(frame(dropped=7, research=1))
    assert [(run.id, run.state) for run in feed.runs] == [("gone", "unknown"), ("alive", "running")]
    assert (feed.lost, feed.active) == (7, 1)
    feed.absorb(frame(finished("gone", seconds=2.0), finished("alive", "research")))
    assert [run.state for run in feed.runs] == ["ok", "ok"]
    assert feed.active == 0


def test_runs_stay_unfolded_until_the_next_calls_come() -> None:
    feed = Feed()
    feed.absorb(frame(started("a"), started("b", "research"), finished("b", "research"), finished("a")))
    assert [feed.is_open(run) for run in feed.runs] == [True, True]
    feed.absorb(frame(started("c")))
    assert [feed.is_open(run) for run in feed.runs] == [False, False, True]


def test_the_feed_keeps_a_bounded_number_of_runs_and_the_running_ones_longest() -> None:
    feed = Feed()
    feed.absorb(frame(started("long")))
    for number in range(MAX_RUNS + 100):
        feed.absorb(frame(started(f"r{number}"), finished(f"r{number}")))
    assert len(feed.runs) == MAX_RUNS
    assert feed.runs[0].id == "long"
    assert feed.runs[-1].id == f"r{MAX_RUNS + 99}"
    assert feed.active == 1


def test_the_feed_keeps_a_bounded_number_of_steps_of_a_run_and_in_all() -> None:
    feed = Feed()
    for run in range(14):
        feed.absorb(
            frame(started(f"r{run}"), *(step_event(f"r{run}", n) for n in range(MAX_STEPS_OF_RUN + 500)))
        )
    kept = [len(run.steps) for run in feed.runs]
    assert max(kept) <= MAX_STEPS_OF_RUN
    assert sum(kept) <= MAX_STEPS
    assert all(len(run.steps) + run.left_out == MAX_STEPS_OF_RUN + 500 for run in feed.runs)
    assert feed.runs[-1].steps[-1].title == f"{MAX_STEPS_OF_RUN + 499}. scripted"


def test_streamed_text_does_not_touch_the_feed() -> None:
    feed = Feed()
    feed.absorb(frame(started("r")))
    before = feed.version
    assert not feed.absorb(frame(*(TextDelta(run_id="r", agent="concierge", text="x") for _ in range(100))))
    assert feed.version == before


# The pump


def test_every_event_comes_once_and_in_order_and_an_idle_fleet_is_told_once_a_second() -> None:
    fleet, now = FakeFleet(), NOON
    pump = UiClock(fleet, lambda: now)
    assert pump.read() is not None
    assert pump.read() is None
    now += IDLE / 2
    assert pump.read() is None
    fleet.say(started("a"), started("b"))
    second = pump.read()
    assert second is not None
    assert [event.run_id for event in second.events if isinstance(event, RunStarted)] == ["a", "b"]
    now += IDLE
    third = pump.read()
    assert third is not None
    assert (third.events, third.now) == ((), now)


def test_a_fleet_in_which_nothing_changes_is_told_every_five_seconds_after_a_while() -> None:
    fleet, now = FakeFleet(), NOON
    pump = UiClock(fleet, lambda: now)

    def frames(seconds: int) -> int:
        nonlocal now
        made = 0
        for _ in range(seconds):
            now += IDLE
            made += pump.read() is not None
        return made

    assert pump.read() is not None
    assert frames(int(LATELY)) == LATELY - 1
    assert frames(60) == 60 / STILL
    fleet.change("vision", state=AgentState.BACKOFF, restart_at=now + 60)
    assert frames(60) == 60  # the seconds until then are shown


def test_that_health_was_looked_at_is_no_change() -> None:
    fleet, now = FakeFleet(), NOON
    pump = UiClock(fleet, lambda: now)
    first = pump.read()
    health = next(each.health for each in fleet.current.agents if each.name == "vision")
    for second in range(QUIET + 1):
        fleet.change("vision", health=replace(health, checked_at=NOON + second))
        assert pump.read() is None
    assert pump.at_rest
    now += STILL
    frame = pump.read()
    assert first is not None
    assert frame is not None
    assert frame.snapshot is first.snapshot
    fleet.change("vision", health=replace(health, status=HealthStatus.ERROR))
    now += IDLE
    frame = pump.read()
    assert frame is not None
    assert frame.snapshot == fleet.current


def test_a_run_in_flight_keeps_the_time_moving() -> None:
    fleet = FakeFleet()
    pump = UiClock(fleet, lambda: NOON)
    fleet.change("vision", runs_active=1)
    assert all(pump.read() is not None for _ in range(3))


def test_what_the_ring_lost_is_told() -> None:
    fleet = FakeFleet()
    pump = UiClock(fleet, lambda: NOON)
    for _ in range(25_000):
        fleet.say(Notice(level="info", text="x"))
    frames = [pump.read() for _ in range(20_000 // BATCH)]
    assert [read.dropped for read in frames if read is not None] == [5_000] + [0] * (len(frames) - 1)
    assert sum(len(read.events) for read in frames if read is not None) == 20_000


def test_another_fleet_is_read_from_its_beginning() -> None:
    first, second = FakeFleet(), FakeFleet()
    first.say(*(Notice(level="info", text="x") for _ in range(9)))
    second.say(Notice(level="info", text="new"))
    pump = UiClock(first, lambda: NOON)
    pump.read()
    pump.attach(second)
    read = pump.read()
    assert read is not None
    assert [event.text for event in read.events if isinstance(event, Notice)] == ["new"]


# Words and numbers


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"),
        (0.0404, "40 ms"),
        (0.0996, "0.1 s"),
        (3.14, "3.1 s"),
        (99.94, "99.9 s"),
        (99.96, "1:39 min"),
        (125, "2:05 min"),
        (5999.9, "99:59 min"),
        (6000, "1:40 h"),
        (-3, "0 ms"),
    ],
)
def test_durations_have_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_running_duration_has_whole_seconds() -> None:
    assert duration(0.04, running=True) == "0 s"


def test_times_are_local_and_say_the_day_when_it_was_not_today() -> None:
    assert clock(NOON) == "15:06:40"
    assert since(NOON - 60, NOON) == "15:05"
    assert since(NOON - 86_400, NOON) == "14 Jun 15:06"
    assert since(0.0, NOON) == ""


def test_only_words_that_there_are_are_joined_by_dots() -> None:
    assert joined(["", "3 runs", "", "1 failed"], UNICODE) == "3 runs · 1 failed"
    assert joined(iter(["3 runs", "1 failed"]), ASCII) == "3 runs - 1 failed"
    assert joined(["", ""], UNICODE) == ""


def test_columns_count_cells_not_characters() -> None:
    assert fit("日本語です", 7) == "日本語…"
    assert fit("日本語", 7) == "日本語 "
    assert fit("abc", 5) == "abc  "
    assert fit("abc", 0) == ""
    assert right("日本", 6) == "  日本"


def test_long_words_are_broken_and_line_breaks_stay() -> None:
    assert wrapped("one two three\n\nx" + "y" * 10, 8) == ["one two", "three", "", "xyyyyyyy", "yyy"]
    assert (count(1, "run"), count(2, "run"), count(0, "run is", "runs are")) == (
        "1 run",
        "2 runs",
        "0 runs are",
    )


# Lines


@pytest.mark.parametrize("width", [40, 80, 123])
def test_every_line_of_the_feed_fills_its_width_exactly(width: int) -> None:
    feed = Feed()
    for number, outcome in enumerate(("ok", "error", "cancelled")):
        run = f"r{number}"
        feed.absorb(
            frame(started(run, preview="長い" * 60), step_event(run, 1), tool(run, "started", nested=True))
        )
        feed.absorb(frame(finished(run, outcome=outcome, fault="why " * 60 if outcome == "error" else "")))
    feed.absorb(frame(started("live", name="an-agent-with-quite-a-long-name"), concierge=1))
    feed.mark_cancelling("live")
    outline = RunOutline(feed.runs, lambda run: True)
    for index in range(len(outline)):
        assert width_of(feed_line(outline.at(index), True, width, NOON + 3600, UNICODE)) == width


@pytest.mark.parametrize("width", [26, 31, 60])
def test_every_line_of_the_agents_fills_its_width_exactly(width: int) -> None:
    agents = (*desk().agents, agent("a-name-that-is-longer-than-any-rail-is-wide", 65535, runs_active=1234))
    agents += tuple(agent(f"s-{state}", 1, state=state, since=NOON - 3600) for state in AgentState)
    servers = [ServerSnapshot(f"v-{state}", state, "http://127.0.0.1:9100/mcp", 17) for state in AgentState]
    for branch in outline(agents, servers):
        for asked in ("", "restart"):
            assert width_of(tree_line(branch, width, NOON, UNICODE, asked)) == width
        for line in details(branch.item, width, 99, Now(NOON), UNICODE):
            assert width_of(line) <= width


def test_details_that_are_too_long_say_so_in_their_last_line() -> None:
    lines = details(desk().agents[1], 30, 6, Now(NOON), UNICODE)
    assert len(lines) == 6
    assert lines[-1][0][0] == "i"
    assert "more lines" in lines[-1][1][0]


def test_a_server_that_failed_tells_why() -> None:
    server = ServerSnapshot(
        "shop", AgentState.ERROR, "http://127.0.0.1:9100/mcp", None, "exited with 3\nlast words"
    )
    assert (tone_of(server), reason_of(server)) == (Tone.ERROR, "exited with 3")
    assert "last words" in state_text(server)
    shown = "\n".join(
        "".join(text for text, _ in line) for line in details(server, 40, 30, Now(NOON), UNICODE)
    )
    assert "a server of the project" in shown


def test_a_line_is_found_again_after_lines_came_above_it() -> None:
    feed = Feed()
    feed.absorb(frame(started("a"), tool("a", "started", "1"), tool("a", "started", "2"), started("b")))
    outline = RunOutline(feed.runs, lambda run: True)
    assert [getattr(outline.at(index), "place", None) for index in range(len(outline))] == [-1, 0, 1, -1]
    first, second = feed.runs
    assert (outline.find(first, 1), outline.find(second, -1)) == (2, 3)
    folded = RunOutline((first,), lambda run: False)
    assert (folded.find(first, 1), folded.find(second, -1)) == (0, None)


@pytest.mark.parametrize(
    ("width", "begins"),
    [
        (70, "Which customers were"),
        (80, "Which customers were"),
        (130, "earlier · Which customers were hit"),
    ],
)
def test_words_before_a_message_leave_it_room(width: int, begins: str) -> None:
    feed = Feed()
    question = "Which customers were hit by the May invoice bug, and what did they buy?"
    feed.absorb(frame(started("r", preview=question), finished("r")))
    (run,) = feed.runs
    run.is_before, run.surface = True, "rest"
    line = feed_line(RunOutline(feed.runs, lambda run: True).at(0), True, width, NOON, UNICODE)
    assert any(text.startswith(begins) for text, _ in line), line


def test_the_lines_of_the_tree_go_on_where_more_is_to_come() -> None:
    feed = Feed()
    parents = (0, 1, 2, 3, 1, 0)
    feed.absorb(frame(started("r"), *(step_event("r", n, parent=p) for n, p in enumerate(parents, 1))))
    outline = RunOutline(feed.runs, lambda run: True)
    trees = [feed_line(outline.at(index), True, 80, NOON, UNICODE)[1][0] for index in range(1, 7)]
    assert [tree.rstrip() for tree in trees] == ["  ├", "  │ ├", "  │ │ └", "  │ │   └", "  │ └", "  └"]
