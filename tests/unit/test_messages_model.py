"""Messages between handlers as the inspector keeps, orders and words them."""

from dataclasses import replace

import pytest
from support.fake_fleet import NOON, FakeFleet, agent, desk
from support.hostile import HOSTILE
from support.letters import RUN, event_of, greeting, letter, passed, todo, told

from pallas.model import (
    AgentDetail,
    BackendChosen,
    Envelope,
    Event,
    PayloadDetail,
    RunStarted,
    ToolEvent,
    ToolOutcome,
)
from pallas_tui.frame import FleetFrame
from pallas_tui.messages import MAX_MESSAGES, MAX_RUNS, MessageBook
from pallas_tui.messages.message_reader import Reader
from pallas_tui.messages.message_replay import message_of, old_reply, refusal_of, replies, run_of, text_of
from pallas_tui.messages.message_tree import HEAD, MessageLines, MessageQuery, answer_to, rows_of
from pallas_tui.messages.reply_difference import difference
from pallas_tui.messages.xml_text import as_text, checked, lines_of, payload_of, pretty, xml_lines
from pallas_tui.runs.run_feed import Feed

SHOUT = "<Shout xmlns=''><text>hello Ada</text></Shout>"


def frame_of(*events: Event) -> FleetFrame:
    return FleetFrame(desk(), events, NOON + 4)


def kept(*letters: Envelope) -> tuple[MessageBook, Feed]:
    book, feed = MessageBook(lambda: None), Feed()
    said = frame_of(*told(letters))
    book.absorb(said)
    feed.absorb(said)
    return book, feed


ALL = MessageQuery()


def words(book: MessageBook, feed: Feed, wanted: MessageQuery = ALL) -> list[str]:
    """Each line as its indentation and its number, a run by its id."""
    rows = rows_of(book, RUN, feed.run(RUN), wanted)
    return ["  " * row.level + (row.run if row.number == HEAD else str(row.number)) for row in rows]


# The tree


def test_messages_stand_as_far_in_as_their_frame_and_runs_below_the_call_that_asked_for_them() -> None:
    # HC-20
    book, feed = kept(*greeting())
    assert words(book, feed) == ["1", "  2", "  3", "4", "5", "  6", f"    {RUN}-llm", "  7", "8", "9"]


def test_the_messages_of_a_handler_that_a_model_asked_for_stand_within_the_models_run() -> None:
    book, feed = kept(*greeting())
    child = {"run_id": "nested", "agent": "shouter"}
    call = {"server": "shouter", "tool": "shouter", "phase": "started", "call_id": "x", "span_id": "x1"}
    said = frame_of(
        ToolEvent(run_id=f"{RUN}-llm", agent="research", **call),  # type: ignore[arg-type]
        RunStarted(preview="SHOUT", parent_span="x1", **child),
        passed(1, "research", "shouter", run="nested", at="n"),
    )
    book.absorb(said)
    feed.absorb(said)
    assert words(book, feed)[5:10] == ["  6", f"    {RUN}-llm", "      nested", "        1", "  7"]


def test_only_what_was_not_delivered_is_left_of_a_list_that_is_filtered() -> None:
    book, feed = kept(*greeting())
    assert words(book, feed, MessageQuery(refused=True)) == ["4"]
    assert words(book, feed, MessageQuery(words=("shouter", "respond"))) == ["  3"]
    assert words(book, feed, MessageQuery(words=("vault", "peers"))) == ["4"]
    assert words(book, feed, MessageQuery(refused=True, words=("nothing",))) == []


def test_what_was_delivered_and_dropped_after_that_is_told_as_dropped() -> None:
    book, _ = kept(*greeting())
    run = book.run(RUN)
    assert run is not None and run.refused == 1
    book.absorb(frame_of(event_of(replace(greeting()[1], outcome="dropped", detail="its frame ended"))))
    told_now = run.get(2)
    assert told_now is not None
    assert (told_now.outcome, told_now.detail, run.refused, len(run)) == ("dropped", "its frame ended", 2, 9)


def test_the_answer_to_a_message_is_what_ended_its_frame() -> None:
    book, _ = kept(*greeting())
    run = book.run(RUN)
    assert run is not None
    answers = {n: found.number for n in range(1, 10) if (found := answer_to(run, greeting()[n - 1]))}
    assert answers == {1: 9, 2: 3, 3: 9, 4: 5, 5: 9, 6: 7, 7: 9, 8: 9}


# What is kept


@pytest.mark.slow
def test_no_more_is_kept_than_the_bounds_say() -> None:
    book = MessageBook(lambda: None)
    for run in range(MAX_RUNS + 5):
        book.absorb(frame_of(passed(1, "a", "b", run=f"r{run}")))
    assert len(book.runs) == MAX_RUNS
    assert book.run("r0") is None and book.run(f"r{MAX_RUNS + 4}") is not None
    one = MessageBook(lambda: None)
    for begin in range(1, MAX_MESSAGES + 2_000, 1_000):
        one.absorb(frame_of(*(passed(number, "a", "b") for number in range(begin, begin + 1_000))))
    run_of_one = one.run(RUN)
    assert run_of_one is not None
    assert len(run_of_one) <= MAX_MESSAGES
    assert run_of_one.left_out >= 2_000
    assert run_of_one.last == MAX_MESSAGES + 2_000


def test_what_comes_from_a_fleet_is_made_safe_once() -> None:
    book = MessageBook(lambda: None)
    book.absorb(frame_of(passed(1, HOSTILE, HOSTILE, payload=HOSTILE, detail=HOSTILE)))
    run = book.run(RUN)
    found = run.get(1) if run is not None else None
    assert found is not None
    for text in (found.sender, found.to, found.payload, found.detail):
        assert text.replace("\u200d", "").isprintable()  # a joiner of two pictures stays


@pytest.mark.slow
async def test_a_run_of_ten_thousand_messages_is_read_page_by_page_and_once() -> None:
    fleet = FakeFleet()
    fleet.letters[RUN] = tuple(letter(number, "a", "b") for number in range(1, 10_001))
    book = MessageBook(lambda: fleet)
    book.absorb(frame_of(*map(event_of, fleet.letters[RUN])))
    reader = Reader(book)
    assert reader.due(RUN, running=False, now=NOON)
    await reader.follow((RUN,), running=False, now=NOON)
    run = book.run(RUN)
    assert run is not None and run.is_whole(1) and run.is_whole(10_000)
    assert not reader.due(RUN, running=False, now=NOON + 60)
    read = [after for _, after in fleet.read_letters]
    assert read == sorted(set(read)) and len(read) <= 21


async def test_a_run_that_goes_on_is_read_once_a_second_from_where_something_is_missing() -> None:
    fleet = FakeFleet()
    fleet.letters[RUN] = greeting()[:4]
    book = MessageBook(lambda: fleet)
    book.absorb(frame_of(*map(event_of, greeting()[:4])))
    reader = Reader(book)
    await reader.follow((RUN,), running=True, now=NOON)
    assert not reader.due(RUN, running=True, now=NOON + 60)  # everything is known
    book.absorb(frame_of(event_of(greeting()[4])))
    assert not reader.due(RUN, running=True, now=NOON + 0.5)
    assert reader.due(RUN, running=True, now=NOON + 1.1)
    fleet.letters[RUN] = greeting()[:5]
    await reader.follow((RUN,), running=True, now=NOON + 1.1)
    assert fleet.read_letters == [(RUN, 0), (RUN, 4)]


async def test_what_the_fleet_no_longer_keeps_is_not_asked_for_again_and_again() -> None:
    fleet = FakeFleet()
    fleet.letters[RUN] = greeting()[6:]
    book = MessageBook(lambda: fleet)
    book.absorb(frame_of(*map(event_of, greeting())))
    reader = Reader(book)
    await reader.follow((RUN,), running=True, now=NOON)
    run = book.run(RUN)
    assert run is not None and run.unread() == 10


async def test_why_messages_cannot_be_read_is_told_in_words() -> None:
    fleet = FakeFleet()
    fleet.can_control = False
    reader = Reader(MessageBook(lambda: fleet))
    await reader.follow((RUN,), running=False, now=NOON)
    assert "full token" in reader.problem
    gone = Reader(MessageBook(lambda: None))
    await gone.one(RUN, 1)
    assert "the fleet is not running" in gone.problem


# Words


def test_a_refusal_is_told_with_all_names_to_the_operator() -> None:
    # HC-12
    text = as_text(greeting()[3])
    for words in ("refused: routing", "greeter has no peer vault", "shouter, research", "greeter → vault"):
        assert words in text
    assert "<text>hello Ada</text>" in text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "fits Note"),
        ({"outcome": "refused", "code": "validation"}, "does not fit Note"),
        ({"outcome": "refused", "code": "routing"}, "not checked: it may not go there"),
        ({"outcome": "dropped"}, "not checked: its frame had ended"),
        ({"payload": "", "route": "end"}, "none: it holds no message"),
    ],
)
def test_what_came_of_the_check_of_the_schema_is_told(changes: dict[str, str], said: str) -> None:
    assert checked(letter(1, "a", "b", **changes)) == said


def test_xml_is_indented_and_stays_text_whatever_stands_in_it() -> None:
    assert pretty("<a><b>1</b></a>") == "<a>\n  <b>1</b>\n</a>"
    assert "\u202e" not in pretty("<a>&#x202e;evil</a>")
    bomb = '<!DOCTYPE a [<!ENTITY x "boom">]><a>&x;</a>'
    assert "boom</a>" not in pretty(bomb)
    for broken in ("<a>", "", "no XML", "<a>\x00</a>"):
        assert pretty(broken) == broken
    assert len(xml_lines("<a>" + "x" * 300_000 + "</a>")) == 2


def test_a_message_without_xml_says_why() -> None:
    bare = replace(greeting()[0], xml="")
    assert any("no longer" in part or "kept" in part for line in lines_of(bare, False) for part, _ in line)
    ended = letter(1, "a", "b", route="end", payload="", xml="")
    assert any("is empty" in part for line in lines_of(ended, False) for part, _ in line)


# Sent again


def test_the_payload_is_cut_out_of_the_envelope_as_it_stands() -> None:
    assert payload_of(greeting()[1]) == SHOUT
    tricky = "<Note xmlns=''><text>&lt;/meta> and &lt;/message></text></Note>"
    assert payload_of(letter(1, "a", "b", body=tricky)) == tricky
    assert payload_of(replace(greeting()[1], cut=True)) == ""
    assert payload_of(replace(greeting()[1], xml="")) == ""


def test_only_a_call_to_an_agent_that_is_there_can_be_sent_again() -> None:
    agents = (agent("greeter", 1), agent("shouter", 2))
    by_route = {each.number: refusal_of(each, agents) for each in greeting()}
    assert by_route[1] == by_route[2] == by_route[8] == ""
    assert "vault is not an agent" in by_route[4]
    assert "replay the call" in by_route[3]
    assert "longer than what is kept" in refusal_of(replace(greeting()[1], cut=True), agents)


def test_a_typed_handler_gets_its_xml_and_any_other_agent_its_text() -> None:
    typed = AgentDetail("shouter", payload=PayloadDetail("Shout"))
    assert message_of(greeting()[1], typed) == SHOUT
    words = letter(1, "a", "b", body="<Text xmlns=''><text>a &lt; b &amp; c</text></Text>")
    assert message_of(words, AgentDetail("research")) == "a < b & c"
    assert text_of("<Other/>") == "<Other/>"


def test_two_replies_are_compared_without_what_only_an_envelope_needs() -> None:
    book, _ = kept(*greeting())
    run = book.run(RUN)
    assert run is not None
    run.merge(greeting())
    answer = old_reply(run, greeting()[1])
    assert answer is not None and answer.number == 3
    same = replies(answer, ToolOutcome(True, "{}", 0.1, ("<Shouted><text>HELLO ADA</text></Shouted>",)))
    assert same.same and difference(same.old, same.new) == []
    other = replies(answer, ToolOutcome(True, "{}", 0.1, ("<Shouted><text>HELLO</text></Shouted>",)))
    assert not other.same
    assert difference(other.old, other.new) == [
        "  <Shouted>",
        "-   <text>HELLO ADA</text>",
        "+   <text>HELLO</text>",
        "  </Shouted>",
    ]
    assert replies(None, ToolOutcome(True, "{}", 0.1, ("x",))).none
    assert not replies(answer, ToolOutcome(False, "", 0.1, ("it failed",))).same


def test_the_run_that_came_of_it_is_a_new_one_of_that_agent() -> None:
    _, feed = kept(*greeting())
    before = frozenset(run.id for run in feed.runs)
    feed.absorb(frame_of(*told(greeting()[:1], run="other"), *told(greeting()[:1], run="another")))
    found = run_of(feed.runs, before, "greeter", "Greet Ada twice")
    assert found is not None and found.id == "other"
    assert run_of(feed.runs, before, "shouter", "x") is None


# The feed


def test_a_refused_message_has_a_line_in_the_feed_and_a_delivered_one_is_the_call_it_is() -> None:
    _, feed = kept(*greeting())
    run = feed.run(RUN)
    assert run is not None
    labels = [step.label for step in run.steps]
    assert labels[:2] == ["shouter/Shout", "greeter to vault refused: routing: greeter has no peer vault: "
                          "its peers are shouter, research"]  # fmt: skip
    assert labels[2] == "research/Text"
    assert len(labels) == 3


def test_messages_of_no_run_make_none_in_the_feed() -> None:
    feed = Feed()
    feed.absorb(frame_of(passed(1, "system", "greeter", run="boot", outcome="refused", detail="why")))
    assert feed.runs == ()


def test_lines_that_come_at_the_end_are_added_to_those_there_are() -> None:
    book = MessageBook(lambda: None)
    book.absorb(frame_of(*(passed(number, "a", "b") for number in (1, 2, 5))))
    lines = MessageLines(book)
    first = lines.of(RUN, None, ALL)
    book.absorb(frame_of(passed(6, "a", "b"), passed(7, "a", "b", outcome="refused")))
    assert lines.of(RUN, None, ALL) is first
    assert [row.number for row in first] == [1, 2, 5, 6, 7]
    book.absorb(frame_of(passed(3, "a", "b")))  # what a gap had swallowed and was read
    assert [row.number for row in lines.of(RUN, None, ALL)] == [1, 2, 3, 5, 6, 7]
    refused = lines.of(RUN, None, MessageQuery(refused=True))
    book.absorb(frame_of(passed(8, "a", "b"), passed(9, "a", "b", outcome="refused")))
    assert lines.of(RUN, None, MessageQuery(refused=True)) is refused
    assert [row.number for row in refused] == [7, 9]


def test_what_answers_a_handlers_question_to_a_model_is_a_line_that_ends_with_it() -> None:
    # HC-27
    feed = Feed()
    of = {"run_id": RUN, "agent": "greeter"}
    asked = BackendChosen(at=NOON, actor="greeter", model="m", backend="east", why="least loaded", **of)
    feed.absorb(frame_of(RunStarted(at=NOON, preview="x", **of), asked))
    run = feed.run(RUN)
    assert run is not None
    (step,) = run.steps
    assert (step.label, step.state) == ("greeter: m of east, least loaded", "running")
    again = replace(asked, backend="west", why="failover", attempt=2, at=NOON + 1)
    feed.absorb(frame_of(replace(asked, at=NOON + 1, outcome="busy", seconds=1.0), again))
    feed.absorb(frame_of(replace(again, at=NOON + 2, outcome="ok", seconds=1.0)))
    assert [(each.state, each.notice, each.seconds(NOON)) for each in run.steps] == [
        ("error", "busy", 1.0),
        ("ok", "", 1.0),
    ]
    assert run.steps[1].label.endswith("(attempt 2)")


def test_a_todo_has_a_line_in_the_feed_as_it_begins_and_as_it_is_due() -> None:
    feed = Feed()
    feed.absorb(frame_of(RunStarted(at=NOON, run_id=RUN, agent="greeter", preview="x")))
    feed.absorb(frame_of(todo("a"), todo("a", "raised"), todo("a", "closed", was_raised=True)))
    run = feed.run(RUN)
    assert run is not None
    assert [step.label.partition(":")[0] for step in run.steps] == [
        "greeter waits for Shouted of shouter",
        "greeter is reminded",
    ]
