"""The fleet as a tree, what is under way in it, and where things are written."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.fake_fleet import NOON, agent, desk

from pallas.model import (
    FAILED_STATES,
    AgentChanged,
    AgentState,
    CallOutcome,
    Downstream,
    Event,
    Health,
    HealthStatus,
    Notice,
    ProbeResult,
    ServerSnapshot,
    Verb,
)
from pallas_tui.agents.fleet_tree import (
    Branch,
    DownstreamLink,
    outline,
    parent_of,
    tone_of_link,
    word_of_link,
)
from pallas_tui.agents.pending_verbs import PATIENCE, UnderWay, can
from pallas_tui.agents.source_line import command, editor_of, place_of
from pallas_tui.state import Tone
from pallas_tui.text import ASCII, UNICODE, width_of
from pallas_tui.widgets.agents.agent_paragraphs import overview
from pallas_tui.widgets.agents.agent_summary import Now, details
from pallas_tui.widgets.agents.agent_view import short, tree_line


def downstream(name: str = "docs", target: str = "http://127.0.0.1:9/mcp", **changes: object) -> Downstream:
    return replace(Downstream(name, "http", target, ProbeResult.OK), **changes)  # type: ignore[arg-type]


def lines(branches: tuple[Branch, ...]) -> list[tuple[str, tuple[bool, ...]]]:
    return [(branch.item.name, branch.last) for branch in branches]


def test_agents_stand_once_below_the_first_that_needs_them() -> None:
    agents = [
        agent("helper", 3),
        agent("top", 1, depends_on=("middle", "helper", "elsewhere")),
        agent("middle", 2, depends_on=("helper",)),
        agent("alone", 4),
    ]
    assert lines(outline(agents)) == [("top", ()), ("middle", (False,)), ("helper", (True,)), ("alone", ())]


def test_whom_an_agent_sends_messages_to_stands_below_it_too() -> None:
    agents = [
        agent("desk", 1, depends_on=("shop",), peers=("offers",)),
        agent("shop", 2),
        agent("offers", 3, peers=("shop", "pricing", "system.todo")),
        agent("pricing", 4),
    ]
    assert lines(outline(agents)) == [
        ("desk", ()),
        ("shop", (False,)),
        ("offers", (True,)),
        ("pricing", (True, True)),
    ]
    shown = details(agents[2], 40, 99, Now(NOON), UNICODE)
    told = "\n".join("".join(part for part, _ in line) for line in shown)
    assert "peers" in told
    assert "shop, pricing, system.todo" in told


def test_nobody_vanishes_from_a_circle() -> None:
    agents = [agent("a", 1, depends_on=("b",)), agent("b", 2, depends_on=("a",))]
    assert sorted(branch.item.name for branch in outline(agents)) == ["a", "b"]


def test_what_an_agent_calls_stands_below_it_before_those_it_needs_and_servers_come_last() -> None:
    server = ServerSnapshot("shop", AgentState.READY, "http://127.0.0.1:9100/mcp")
    agents = [agent("top", 1, depends_on=("low",), downstreams=(downstream(),)), agent("low", 2)]
    assert lines(outline(agents, [server])) == [
        ("top", ()),
        ("docs", (False,)),
        ("low", (True,)),
        ("shop", ()),
    ]


def test_an_agent_that_is_needed_and_called_is_told_once_and_one_that_is_only_called_is_a_delegate() -> None:
    low, far = agent("low", 2), agent("far", 3)
    calls = (
        downstream("l", "http://localhost:2/mcp"),
        downstream("f", far.url),
        downstream("f2", "http://[bad"),
    )
    found = outline([agent("top", 1, depends_on=("low",), downstreams=calls), low, far])
    assert [branch.item.name for branch in found] == ["top", "f", "f2", "low", "far"]
    link = found[1].item
    assert isinstance(link, DownstreamLink)
    assert link.delegate == far


def test_what_is_folded_is_counted_and_left_out() -> None:
    found = outline(desk().agents, folded=frozenset(("concierge",)))
    assert [(branch.item.name, branch.inside, branch.folded) for branch in found] == [
        ("concierge", 5, True),
        ("vision", 0, False),
    ]
    line = "".join(text for text, _ in tree_line(found[0], 40, NOON, UNICODE))
    assert "concierge ▸5" in line


def test_each_line_knows_the_one_it_stands_below() -> None:
    found = outline(desk().agents)
    names = [branch.item.name for branch in found]
    above = [parent_of(found, index) for index in range(len(found))]
    assert [None if index is None else names[index] for index in above] == [
        None,
        "concierge",
        "research",
        "research",
        "concierge",
        "engineering",
        None,
    ]


@pytest.mark.parametrize(
    ("one", "tone", "word"),
    [
        (downstream(), Tone.OK, "ok"),
        (downstream(reach=ProbeResult.UNKNOWN), Tone.STARTING, "?"),
        (downstream(reach=ProbeResult.UNREACHABLE), Tone.ERROR, "down"),
        (downstream(reach=ProbeResult.AUTH_REQUIRED), Tone.DEGRADED, "key"),
        (downstream(last_call=CallOutcome(False, 1, "503", ProbeResult.UNREACHABLE)), Tone.ERROR, "fails"),
        (downstream(last_call=CallOutcome(False, 1, "401", ProbeResult.AUTH_REQUIRED)), Tone.DEGRADED, "key"),
        (downstream(last_call=CallOutcome(False, 1, "own token", ProbeResult.UNKNOWN)), Tone.OK, "ok"),
        (downstream(last_call=CallOutcome(True, 1)), Tone.OK, "ok"),
    ],
)
def test_a_downstream_is_as_bad_as_probe_or_calls_say(one: Downstream, tone: Tone, word: str) -> None:
    link = DownstreamLink("a", one)
    assert (tone_of_link(link), word_of_link(link)) == (tone, word)


def test_a_delegate_is_as_well_as_the_agent_is() -> None:
    sick = agent("b", 2, health=Health(HealthStatus.ERROR, "no key"))
    assert tone_of_link(DownstreamLink("a", downstream(), sick)) is Tone.ERROR


@pytest.mark.parametrize("width", [24, 29, 60, 120])
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_every_line_of_the_tree_fills_its_width_and_details_keep_within_it(
    width: int, glyphs: object
) -> None:
    long = "a-name-that-is-longer-than-any-rail-is-wide-日本語"
    busy = agent(
        long,
        65535,
        runs_active=1234,
        runs_queued=5678,
        latency_p50=0.01,
        latency_p95=5999.0,
        tokens_in=123_456_789,
        tokens_out=9,
        restarts=3,
        source="agents.yaml:12",
        downstreams=(downstream(long), downstream("x", reach=ProbeResult.UNREACHABLE, detail="why " * 40)),
    )
    assert glyphs in (UNICODE, ASCII)
    for branch in (*outline([busy, *desk().agents]), *outline([busy], folded=frozenset((long,)))):
        for asked in ("", "restarting"):
            line = tree_line(branch, width, NOON, UNICODE if glyphs == UNICODE else ASCII, asked)
            assert width_of(line) == width
        for line in details(branch.item, width, 99, Now(NOON, "stopping"), UNICODE):
            assert width_of(line) <= width


def test_numbers_of_the_details_end_in_one_column_whatever_they_are() -> None:
    def column(**figures: object) -> list[int]:
        shown = details(agent("a", 1, **figures), 40, 99, Now(NOON), UNICODE)
        units = (" now", " queued", " p50", " p95", " in", " out")
        texts = ["".join(text for text, _ in line) for line in shown]
        return [text.rindex(unit) for text in texts for unit in units if text.endswith(unit)]

    small = column(latency_p50=0.01, latency_p95=0.02, tokens_in=1, tokens_out=2)
    large = column(runs_active=99, latency_p50=99.0, latency_p95=600.0, tokens_in=12_345_678, tokens_out=5)
    assert len(small) == 6
    assert set(small) == set(large)
    assert len(set(small)) == 1


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (999, "999"), (1_000, "1.0k"), (12_345, "12.3k"), (4_100_000, "4.1M")]
)
def test_counts_are_short(number: int, text: str) -> None:
    assert short(number) == text


# What is under way


def changed(state: AgentState, at: float = NOON + 1, name: str = "a") -> Event:
    return AgentChanged(agent=name, state=state, at=at)


@pytest.mark.parametrize(
    ("verb", "events", "left"),
    [
        ("stop", [changed(AgentState.STOPPING)], "stopping"),
        ("stop", [changed(AgentState.STOPPED)], ""),
        ("start", [changed(AgentState.IMPORTING)], "starting"),
        ("start", [changed(AgentState.READY)], ""),
        ("start", [changed(AgentState.ERROR)], ""),
        ("restart", [changed(AgentState.STOPPED)], "restarting"),
        ("restart", [changed(AgentState.STOPPED), changed(AgentState.READY)], ""),
        ("restart", [changed(AgentState.READY, NOON - 60)], "restarting"),
        ("restart", [changed(AgentState.READY, name="b")], "restarting"),
        ("reload", [Notice(level="error", text="syntax", agent="a", at=NOON + 1)], ""),
        ("reload", [Notice(level="info", text="live", agent="a", at=NOON + 1)], ""),
        ("restart", [Notice(level="info", text="x", agent="a", at=NOON + 1)], "restarting"),
        ("restart", [Notice(level="error", text="x", agent="a", at=NOON + 1)], ""),
    ],
)
def test_what_was_asked_for_is_under_way_until_its_outcome_is_told(
    verb: Verb, events: list[Event], left: str
) -> None:
    under_way = UnderWay()
    under_way.ask("a", verb, NOON)
    assert under_way.take(events, NOON + 2) == []
    assert under_way.doing("a") == left


def test_what_nobody_answers_is_given_up() -> None:
    under_way = UnderWay()
    under_way.ask("a", "stop", NOON)
    assert under_way.take([], NOON + PATIENCE) == []
    assert under_way.take([], NOON + PATIENCE + 1) == ["a"]
    assert under_way.doing("a") == ""


def test_only_what_would_do_something_can_be_asked() -> None:
    able = {
        verb: {state for state in AgentState if can(verb, agent("a", 1, state=state))}
        for verb in ("start", "stop")
    }
    assert able["start"] == {AgentState.STOPPED, *FAILED_STATES}
    assert able["stop"] == set(AgentState) - {AgentState.STOPPED, AgentState.STOPPING}


# Where things are written


def test_a_source_is_a_file_of_the_project_and_no_other(tmp_path: Path) -> None:
    root = tmp_path / "project"
    (root / "agents").mkdir(parents=True)
    (root / "agents.yaml").write_text("x")
    (root / "agents" / "a:b.py").write_text("x")
    (tmp_path / "secret").write_text("x")
    (root / "link").symlink_to(tmp_path / "secret")
    assert place_of("agents.yaml:12", root) == (root / "agents.yaml", 12)
    assert place_of("agents.yaml", root) == (root / "agents.yaml", 1)
    assert place_of("agents/a:b.py:3", root) == (root / "agents" / "a:b.py", 3)
    for source in ("../secret:1", str(tmp_path / "secret"), "link:1", "nothing.py:1", "", "agents"):
        assert place_of(source, root) is None
    assert place_of("agents.yaml:12", None) is None


@pytest.mark.parametrize(
    ("editor", "words"),
    [
        ("vim", ["vim", "+7", "/p/a.py"]),
        ("/usr/bin/nvim -R", ["/usr/bin/nvim", "-R", "+7", "/p/a.py"]),
        ("code", ["code", "--wait", "--goto", "/p/a.py:7"]),
        ("code --wait", ["code", "--wait", "--goto", "/p/a.py:7"]),
        ("hx", ["hx", "/p/a.py:7"]),
        ("subl -w", ["subl", "-w", "/p/a.py:7"]),
        ("something-else --x", ["something-else", "--x", "/p/a.py"]),
    ],
)
def test_editors_are_told_the_line_in_their_own_way(editor: str, words: list[str]) -> None:
    assert command(editor, Path("/p/a.py"), 7) == words


def test_the_settings_editor_comes_before_the_environments() -> None:
    environ = {"VISUAL": "code", "EDITOR": "vi"}
    assert editor_of("hx", environ) == "hx"
    assert editor_of("", environ) == "code"
    assert editor_of("", {"EDITOR": " vi "}) == "vi"
    assert editor_of("", {}) == ""


def test_an_agent_that_takes_no_more_is_busy_in_the_tree() -> None:
    # DR-31
    full = replace(desk().agents[0], full=True, capabilities=("search",))
    (branch,) = outline([full])
    assert "busy" in "".join(text for text, _ in tree_line(branch, 40, NOON, UNICODE))
    told = "\n".join(text for text, _ in overview(full, None, full.name, UNICODE))
    assert "found as    busy" in told
    assert "can do      search" in told


def test_a_start_that_takes_minutes_has_its_time_whole() -> None:
    for seconds, shown in (
        (12, "import 12 s"),
        (186, "for 3:06 min"),
        (5999, "for 99:59 min"),
        (6000, "for 1:40 h"),
    ):
        one = agent("slow", 1, state=AgentState.IMPORTING, since=NOON - seconds)
        line = tree_line(Branch(one), 30, NOON, UNICODE)
        assert "".join(text for text, _ in line).rstrip().endswith(f" {shown}")
