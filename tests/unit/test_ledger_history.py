"""What a model is shown of a thread: whatever state its rows are in, calls and answers stand together."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples
from support.turns import FOUND, LOOKING, SUMMARY, asked, error, ok, refused, run, said, tool_turn, turn

from pallas.ledger import Ledger, claims, open_ledger
from pallas.ledger.message_rows import images_in
from pallas.ledger.thread_history import CompleteRow, history_of
from pallas.model import Image, Message, RunRecord, ToolCall
from pallas.model.packed import Packed

IDS = st.sampled_from(["", "a", "b", "c"])
CALLS = st.one_of(
    st.none(),
    st.lists(st.fixed_dictionaries({"id": IDS, "name": st.just("s__t")}), max_size=3),
    st.just("rubbish"),
    st.just([1, {"id": 7}]),
)
ROWS = st.lists(
    st.builds(
        CompleteRow,
        turn_index=st.integers(0, 30),
        part=st.integers(0, 30),
        role=st.sampled_from(["system", "user", "assistant", "assistant", "tool", "tool"]),
        content=st.sampled_from(["", "text"]),
        tool_calls=CALLS,
        tool_call_id=IDS,
        tool_ok=st.booleans(),
        run_id=st.sampled_from(["", "r1", "r2"]),
        pictures=st.integers(0, 1),
        images=st.one_of(st.none(), st.just([["QQ==", "image/png"]]), st.just("rubbish"), st.just([[1]])),
        native=st.one_of(st.none(), st.just("{}"), st.just("not json")),
        summary=st.booleans(),
    ),
    max_size=20,
    unique_by=lambda row: row.turn_index,
)


def check_well_formed(messages: Sequence[Message]) -> None:
    """Every call is answered by what follows it at once, once, and nothing else is."""
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        assert message.role != "tool", "an answer without a call"
        if not message.calls:
            continue
        assert message.role == "assistant"
        answered: list[str] = []
        while at < len(messages) and messages[at].role == "tool":
            assert messages[at].answers
            answered += [answer.call_id for answer in messages[at].answers]
            at += 1
        assert sorted(answered) == sorted(call.id for call in message.calls)
        assert len(set(answered)) == len(answered)


@pytest.mark.slow
@given(ROWS)
@examples(200)
def test_rows_in_any_state_make_a_history_that_a_provider_takes(rows: list[CompleteRow]) -> None:
    # AG-7
    check_well_formed([each.message for each in history_of(rows)])


@given(ROWS)
@examples(100)
def test_no_text_of_users_and_assistants_is_lost_with_the_calls(rows: list[CompleteRow]) -> None:
    shown = "".join(each.message.text for each in history_of(rows) if each.message.role != "tool")
    assert shown.count("text") <= sum(row.content == "text" for row in rows)
    if all(row.role == "user" for row in rows):
        assert shown.count("text") == sum(row.content == "text" for row in rows)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "call", "answer", "half", "finish", "fail", "cut", "bury", "claim", "sum"]),
        st.integers(0, 2),
    ),
    max_size=25,
)
TOLD = {"call": LOOKING, "answer": FOUND, "half": replace(FOUND, answers=FOUND.answers[:1])}


@pytest.mark.slow
@given(STEPS)
@examples(30)
def test_whatever_happens_to_runs_in_a_thread_its_history_is_one_that_a_provider_takes(
    steps: list[tuple[str, int]],
) -> None:
    # AG-7
    asyncio.run(live(steps))


async def live(steps: list[tuple[str, int]]) -> None:
    """Do these steps, each by the last run of that number."""
    ledger = await open_ledger("memory")
    try:
        thread = (await ledger.threads.create("jarvis", "me")).id
        runs: dict[int, RunRecord] = {}
        told: list[Message] = []
        holder: RunRecord | None = None
        for count, (step, number) in enumerate(steps):
            before = (await ledger.threads.messages(thread, limit=200)).items
            if step == "begin":
                begun = run(f"{number}-{count}", thread)
                reason = await refused(ledger.threads.begin(thread, begun, asked(), request="{}"))
                assert reason == ("" if holder is None else "busy")
                if holder is None:
                    holder = runs[number] = begun
                    told = [asked()]
            elif step in ("bury", "claim"):
                holder = await end_of_life(ledger, holder, claimed=step == "claim")
                if holder is not None:
                    runs[int(holder.id[0])] = holder
            elif step == "sum":
                shown = len((await ledger.threads.history(thread))[0])
                mine = runs.get(number)
                summarised = ledger.threads.summarise(thread, SUMMARY, min(number, shown), before=mine)
                assert await refused(summarised) == ("" if mine in (None, holder) else "taken_over")
            elif number in runs:
                mine = runs[number]
                if step in TOLD:
                    work: Any = ledger.threads.add_message(thread, mine, TOLD[step])
                    told += [TOLD[step]] if mine == holder else []
                elif step == "finish":
                    work = ledger.threads.finish(thread, ok(mine), [*told, said()])
                else:
                    record = await ledger.runs.get(mine.id)
                    partial = [said("cut")] if step == "cut" else []
                    work = ledger.threads.fail(thread, error(mine), "why", partial)
                reason = await refused(work)
                if mine == holder:
                    assert reason == ""
                    holder = holder if step in TOLD else None
                else:
                    # An answered run takes no second end, and its caller need not know.
                    is_answered = step in ("fail", "cut") and record is not None and record.status == "ok"
                    assert reason == ("" if is_answered else "taken_over")
                    assert (await ledger.threads.messages(thread, limit=200)).items == before
            messages, free = await ledger.threads.history(thread)
            check_well_formed(messages)
            assert free == len((await ledger.threads.messages(thread, limit=200)).items)
    finally:
        await ledger.close()


async def end_of_life(ledger: Ledger, holder: RunRecord | None, *, claimed: bool) -> RunRecord | None:
    """Take the ledger for dead and inherit from it; returns the run that goes on."""
    if not claimed:
        await ledger.database.write(lambda it: claims.bury(it, ledger.life, 1.0))
        return None
    estate = await ledger.database.write(
        lambda it: claims.inherit(it, ledger.life, ledger.life, 1.0, lambda agent: True)
    )
    if holder is None:
        assert estate == claims.Estate()
        return None
    if holder.attempt == claims.MAX_DEATHS:
        assert estate == ((), (holder.id,))
        return None
    assert [each.record for each in estate.claimed] == [replace(holder, attempt=holder.attempt + 1)]
    return estate.claimed[0].record


@pytest.fixture
async def ledger() -> Any:
    opened = await open_ledger("memory")
    yield opened
    await opened.close()


async def test_a_summary_stands_for_what_was_said_before_it(ledger: Ledger) -> None:
    thread = (await ledger.threads.create("jarvis", "me")).id
    await tool_turn(ledger, thread, "r1", "first")
    await turn(ledger, thread, "r2", "second", "two")
    begun = run("r3", thread)
    await ledger.threads.begin(thread, begun, asked("third"))
    # Of six messages that models see four are told by it: the last turn stays.
    assert await ledger.threads.summarise(thread, SUMMARY, 4, before=begun) == 8
    assert (await ledger.threads.history(thread))[0] == (SUMMARY, asked("second"), said("two"))
    await ledger.threads.finish(thread, ok(begun), [asked("third"), said("three")])
    shown = (SUMMARY, asked("second"), said("two"), asked("third"), said("three"))
    assert (await ledger.threads.history(thread))[0] == shown
    rows = (await ledger.threads.messages(thread)).items
    assert len(rows) == 10
    assert [(row.role, row.summary) for row in rows if row.summary] == [("system", True)]
    # And a second one for the first and more.
    again = replace(SUMMARY, text="even more")
    await ledger.threads.summarise(thread, again, 5)
    assert (await ledger.threads.history(thread))[0] == (again,)
    await turn(ledger, thread, "r4", "fourth", "four")
    assert (await ledger.threads.history(thread))[0] == (again, asked("fourth"), said("four"))


async def test_an_executor_that_rewrote_the_conversation_is_followed(ledger: Ledger) -> None:
    thread = (await ledger.threads.create("jarvis", "me")).id
    await turn(ledger, thread, "r1", "first", "one")
    await turn(ledger, thread, "r2", "second", "two")
    begun = run("r3", thread)
    await ledger.threads.begin(thread, begun, asked("third"))
    await ledger.threads.add_message(thread, begun, LOOKING)
    await ledger.threads.add_message(thread, begun, FOUND)
    whole = (SUMMARY, asked("second"), said("two"), asked("third"), LOOKING, FOUND, said("three"))
    index = await ledger.threads.finish(thread, ok(begun), whole, replaces=True)
    assert (await ledger.threads.history(thread))[0] == whole
    rows = (await ledger.threads.messages(thread)).items
    # People see every row, once, and the summary among them.
    assert [row.content for row in rows if row.role in ("user", "system")] == [
        "first",
        "second",
        "third",
        SUMMARY.text,
    ]
    assert rows[-1].turn_index == index
    assert rows[-1].content == "three"


@pytest.mark.parametrize(
    "whole",
    [
        # All of the run but its answer is told by the summary.
        (SUMMARY, said("three")),
        # Nothing of what was said before is left.
        (asked("third"), LOOKING, FOUND, said("three")),
        # It only grew.
        (asked("first"), said("one"), asked("third"), LOOKING, FOUND, said("three")),
        # Something entirely else.
        (asked("other"), said("words"), asked("here"), said("three")),
    ],
    ids=["summarised", "forgotten", "grown", "rewritten"],
)
async def test_any_rewritten_conversation_comes_back_as_it_was_left(
    ledger: Ledger, whole: tuple[Message, ...]
) -> None:
    thread = (await ledger.threads.create("jarvis", "me")).id
    await turn(ledger, thread, "r1", "first", "one")
    begun = run("r3", thread)
    await ledger.threads.begin(thread, begun, asked("third"))
    await ledger.threads.add_message(thread, begun, LOOKING)
    await ledger.threads.add_message(thread, begun, FOUND)
    index = await ledger.threads.finish(thread, ok(begun), whole, replaces=True)
    assert (await ledger.threads.history(thread))[0] == whole
    rows = (await ledger.threads.messages(thread)).items
    assert (rows[-1].turn_index, rows[-1].content) == (index, "three")
    assert {row.status for row in rows} == {"complete"}
    await turn(ledger, thread, "r4", "fourth", "four")
    assert (await ledger.threads.history(thread))[0] == (*whole, asked("fourth"), said("four"))


async def test_what_was_said_elsewhere_comes_before_the_first_question(ledger: Ledger) -> None:
    thread = (await ledger.threads.create("jarvis", "me")).id
    begun = run("r1", thread)
    before = (asked("earlier"), said("elsewhere"))
    assert await ledger.threads.begin(thread, begun, asked("now"), before=before) == 2
    assert (await ledger.threads.history(thread)) == (before, 3)
    await ledger.threads.finish(thread, ok(begun), [asked("now"), said()])
    assert (await ledger.threads.history(thread))[0] == (*before, asked("now"), said())
    record = await ledger.threads.get(thread)
    assert record is not None
    assert record.title == "now"


async def test_a_native_form_goes_with_the_calls_that_it_holds(ledger: Ledger) -> None:
    thread = (await ledger.threads.create("jarvis", "me")).id
    begun = run("r1", thread)
    with_native = replace(LOOKING, native=Packed('{"tool_calls":{"c1":{}}}'))
    await ledger.threads.begin(thread, begun, asked())
    await ledger.threads.finish(thread, ok(begun), [asked(), with_native, said()])
    history = (await ledger.threads.history(thread))[0]
    assert history == (asked(), said("let me look"), said())
    assert history[1].native is None


@pytest.mark.parametrize(
    ("native", "images"),
    [
        (
            '{"content":[{"type":"image","data":"QQ==","mimeType":"image/jpeg"}]}',
            [Image("QQ==", "image/jpeg")],
        ),
        ('{"tool_results":{"c":{"content":[{"type":"image","data":"QQ=="}]}}}', [Image("QQ==", "image/png")]),
        ('{"content":[{"type":"image","data":7}]}', []),
        ('{"content":"text"}', []),
        ("[" * 5_000, []),
        ("nothing", []),
        ("", []),
    ],
)
def test_pictures_are_read_out_of_any_native_form(native: str, images: list[Image]) -> None:
    assert list(images_in(native)) == images


def test_calls_that_were_kept_by_another_release_are_read_as_far_as_they_go() -> None:
    rows = [
        CompleteRow(0, 0, "assistant", "", [{"id": "c", "arguments": "no mapping"}, "what"]),
        CompleteRow(1, 1, "tool", "found", None, "c"),
    ]
    messages = [each.message for each in history_of(rows)]
    assert messages[0].calls == (ToolCall("c", ""),)
    assert messages[1].answers[0].text == "found"
