"""Threads on SQLite and PostgreSQL: what was said is there, in order, once, and as a model may have it."""

from dataclasses import replace

import pytest
from support.turns import FOUND, LOOKING, SUMMARY, asked, error, ok, refused, run, said, tool_turn, turn

from pallas.ledger import Ledger, open_ledger
from pallas.model import Fault, FaultType, Image, Message, NewThread, RunRecord, ToolAnswer
from pallas.model.packed import Packed
from pallas.model.run_values import PEER, ROUTER


async def new_thread(ledger: Ledger, **fields: str) -> str:
    return (await ledger.threads.create("jarvis", "me", **fields)).id


async def test_a_turn_is_pending_while_it_lasts_and_complete_after(ledger: Ledger) -> None:
    # AG-5
    thread = await new_thread(ledger)
    begun = run("r1", thread)
    assert await ledger.threads.begin(thread, begun, asked("find it")) == 0
    await ledger.threads.add_message(thread, begun, LOOKING)
    await ledger.threads.add_message(thread, begun, FOUND)
    page = await ledger.threads.messages(thread)
    assert [row.status for row in page.items] == ["pending"] * 4
    assert await ledger.threads.history(thread) == ((), 4)
    assert (await ledger.runs.get("r1")) == begun

    over = ok(begun, tokens_in=10, tokens_out=20)
    whole = [asked("find it"), LOOKING, FOUND, said("there")]
    assert await ledger.threads.finish(thread, over, whole) == 4
    rows = (await ledger.threads.messages(thread)).items
    assert [(row.turn_index, row.role, row.status, row.tool_call_id) for row in rows] == [
        (0, "user", "complete", ""),
        (1, "assistant", "complete", ""),
        (2, "tool", "complete", "c1"),
        (3, "tool", "complete", "c2"),
        (4, "assistant", "complete", ""),
    ]
    assert rows[1].tool_calls == LOOKING.calls
    assert [row.content for row in rows] == ["find it", "let me look", "one", "two", "there"]
    assert await ledger.threads.history(thread) == (tuple(whole), 5)
    assert await ledger.runs.get("r1") == replace(over, turn_index=4)
    record = await ledger.threads.get(thread)
    assert record is not None
    assert (record.title, record.messages, record.last_turn_at is not None) == ("find it", 5, True)


async def test_a_thread_is_created_with_its_first_turn_or_not_at_all(ledger: Ledger) -> None:
    new = NewThread("my-own", "rest")
    assert await ledger.threads.begin("t1", run("r1", "t1"), asked("find it"), new=new) == 0
    record = await ledger.threads.find("jarvis", "my-own")
    assert record is not None
    assert (record.id, record.owner, record.origin, record.title) == ("t1", "me", "rest", "find it")
    begun = await ledger.runs.get("r1")
    assert begun is not None
    assert (begun.thread, begun.status) == ("t1", "running")
    # The id of the thread, its handle, the id of the run.
    for thread, handle, run_id in (("t1", "other", "r2"), ("t2", "my-own", "r2"), ("t2", "other", "r1")):
        with pytest.raises(Fault) as refused:
            await ledger.threads.begin(thread, run(run_id), asked(), new=NewThread(handle, ""))
        assert refused.value.data["reason"] == "conflict"
        assert await ledger.threads.get("t2") is None
        assert await ledger.runs.get("r2") is None
    assert (await ledger.threads.messages("t1")).items[-1].turn_index == 0


async def test_what_was_not_told_on_the_way_is_added_at_the_end(ledger: Ledger) -> None:
    thread = await new_thread(ledger)
    begun = run("r1", thread)
    await ledger.threads.begin(thread, begun, asked())
    await ledger.threads.add_message(thread, begun, LOOKING)
    whole = (asked(), LOOKING, FOUND, said())
    assert await ledger.threads.finish(thread, ok(begun), whole) == 4
    assert (await ledger.threads.history(thread))[0] == whole


async def test_a_gap_in_what_was_told_is_mended(ledger: Ledger) -> None:
    thread = await new_thread(ledger)
    begun = run("r1", thread)
    await ledger.threads.begin(thread, begun, asked())
    # The message with the calls could not be written down.
    await ledger.threads.add_message(thread, begun, FOUND)
    whole = (asked(), LOOKING, FOUND, said())
    await ledger.threads.finish(thread, ok(begun), whole)
    assert (await ledger.threads.history(thread))[0] == whole
    indexes = [row.turn_index for row in (await ledger.threads.messages(thread)).items]
    assert indexes == sorted(set(indexes))


async def test_a_turn_that_did_not_begin_cannot_finish_and_its_failure_is_recorded(ledger: Ledger) -> None:
    thread = await new_thread(ledger)
    never = run("r1", thread)
    for work in (
        ledger.threads.add_message(thread, never, LOOKING),
        ledger.threads.finish(thread, ok(never), [asked(), said()]),
        ledger.threads.finish(thread, ok(never), [SUMMARY, said()], replaces=True),
        ledger.threads.summarise(thread, SUMMARY, 0, before=never),
    ):
        assert await refused(work) == "taken_over"
    assert (await ledger.threads.messages(thread)).items == ()
    assert await ledger.runs.get("r1") is None

    await ledger.threads.fail(thread, error(never), "why", [asked(), said("half")])
    found = await ledger.runs.get("r1")
    assert found is not None
    assert (found.status, found.fault, found.thread, found.turn_index) == ("error", "it broke", thread, 1)
    assert (await ledger.threads.history(thread))[0] == (asked(), said("half"))


async def test_a_thread_has_one_run_at_a_time(ledger: Ledger) -> None:
    # AG-19: the other one is refused at once; it does not wait.
    thread = await new_thread(ledger)
    first, second = run("r1", thread), run("r2", thread)
    for number, end in enumerate(("finish", "fail", "cut")):
        mine, other = replace(first, id=f"mine{number}"), replace(second, id=f"other{number}")
        before = await ledger.threads.get(thread)
        assert before is not None
        await ledger.threads.begin(thread, mine, asked())
        rows = (await ledger.threads.messages(thread)).items
        with pytest.raises(Fault) as busy:
            await ledger.threads.begin(thread, other, asked("me too"), before=[said("earlier")])
        assert (busy.value.type, busy.value.data["reason"]) == (FaultType.TRANSPORT, "busy")
        assert await refused(ledger.threads.add_message(thread, other, said())) == "taken_over"
        assert await ledger.runs.get(other.id) is None
        assert (await ledger.threads.messages(thread)).items == rows
        assert [await ledger.threads.has(thread, each) for each in (mine, other)] == [True, False]

        if end == "finish":
            await ledger.threads.finish(thread, ok(mine), [asked(), said()])
        else:
            await ledger.threads.fail(thread, error(mine), "why", [said("half")] if end == "cut" else [])
        # It is over: it writes nothing more, and the next one may begin.
        assert not await ledger.threads.has(thread, mine)
        assert await refused(ledger.threads.add_message(thread, mine, said())) == "taken_over"
        assert await refused(ledger.threads.finish(thread, ok(mine), [asked(), said()])) == "taken_over"
        await ledger.threads.begin(thread, other, asked("me too"))
        await ledger.threads.finish(thread, ok(other), [asked("me too"), said()])


async def test_a_message_that_is_written_again_is_stored_once(ledger: Ledger) -> None:
    thread = await new_thread(ledger)
    begun = run("r1", thread)
    await ledger.threads.begin(thread, begun, asked())
    # The first write failed before it was done.
    assert await ledger.threads.add_message(thread, begun, LOOKING, again=True) == 1
    # It was done, and only its caller was told that it failed.
    assert await ledger.threads.add_message(thread, begun, LOOKING, again=True) == 1
    assert await ledger.threads.add_message(thread, begun, FOUND) == 2
    assert await ledger.threads.add_message(thread, begun, FOUND, again=True) == 2
    # The same words in the next step are another message.
    assert await ledger.threads.add_message(thread, begun, LOOKING, again=True) == 4
    assert [row.turn_index for row in (await ledger.threads.messages(thread)).items] == [0, 1, 2, 3, 4]
    stored = await ledger.threads.said("r1")
    assert stored is not None
    assert stored.messages == (asked(), LOOKING, FOUND, LOOKING)


async def test_a_fault_in_the_third_round_puts_every_pending_row_into_error(ledger: Ledger) -> None:
    # AG-5
    thread = await new_thread(ledger)
    await tool_turn(ledger, thread, "r0")
    begun = run("r1", thread)
    await ledger.threads.begin(thread, begun, asked("again"))
    for number in range(3):
        calls = tuple(replace(call, id=f"{number}{call.id}") for call in LOOKING.calls)
        answers = tuple(replace(answer, call_id=f"{number}{answer.call_id}") for answer in FOUND.answers)
        await ledger.threads.add_message(thread, begun, replace(LOOKING, calls=calls))
        if number < 2:
            await ledger.threads.add_message(thread, begun, replace(FOUND, answers=answers))
    await ledger.threads.fail(thread, error(begun), "the model said 500")
    rows = (await ledger.threads.messages(thread)).items
    assert [row.status for row in rows] == ["complete"] * 5 + ["error"] * 8
    assert {row.reason for row in rows[5:]} == {"the model said 500"}
    found = await ledger.runs.get("r1")
    assert found is not None
    assert (found.status, found.fault) == ("error", "it broke")
    # AG-7: and the next turn goes on from what was whole.
    assert [message.text for message in (await ledger.threads.history(thread))[0]] == [
        "find it",
        "let me look",
        "one\ntwo",
        "there",
    ]
    assert await turn(ledger, thread, "r2") == 14


async def test_what_a_run_had_written_when_it_was_cut_short_stands_behind_its_question(
    ledger: Ledger,
) -> None:
    thread = await new_thread(ledger)
    begun = run("r1", thread)
    await ledger.threads.begin(thread, begun, asked())
    await ledger.threads.add_message(thread, begun, LOOKING)
    half = said("half [cut short]")
    await ledger.threads.fail(thread, replace(error(begun), status="cancelled"), "cancelled", [half])
    assert (await ledger.threads.history(thread))[0] == (asked(), half)
    rows = (await ledger.threads.messages(thread)).items
    assert [(row.status, row.reason) for row in rows] == [
        ("complete", ""),
        ("error", "cancelled"),
        ("complete", ""),
    ]
    found = await ledger.runs.get("r1")
    assert found is not None
    assert (found.status, found.turn_index) == ("cancelled", 2)


async def test_pictures_and_the_native_form_come_back(ledger: Ledger) -> None:
    thread = await new_thread(ledger)
    blocks = '{"type":"text","text":"see"},{"type":"image","data":"QUJD","mimeType":"image/png"}'
    native = '{"role":"user","content":[' + blocks + "]}"
    picture = Image("QUJD", "image/png")
    with_native = Message("user", "see", (picture,), Packed(native))
    without = Message("user", "see too", (picture,))
    begun = run("r1", thread)
    await ledger.threads.begin(thread, begun, with_native)
    await ledger.threads.finish(thread, ok(begun), [with_native, said()])
    begun = run("r2", thread)
    await ledger.threads.begin(thread, begun, without)
    await ledger.threads.finish(thread, ok(begun), [without, said()])
    rows = (await ledger.threads.messages(thread)).items
    assert [row.images for row in rows] == [(picture,), (), (picture,), ()]
    history = (await ledger.threads.history(thread))[0]
    assert history == (with_native, said(), without, said())
    assert history[0].native == Packed(native)
    assert history[2].native is None


async def test_any_text_can_be_kept_and_asked_for(ledger: Ledger) -> None:
    thread = await new_thread(ledger, title="nul \0 and \ud800 half")
    strange = "a\0b \ud800 \U0001f600 " + "x" * (8 * 1024 * 1024)
    begun = run("r\0", thread)
    await ledger.threads.begin(thread, begun, asked("\0"))
    answers = (ToolAnswer("c1", "\0"), ToolAnswer("c2", "\udfff"))
    found = replace(FOUND, answers=answers)
    await ledger.threads.finish(thread, ok(begun), [asked("\0"), LOOKING, found, said(strange)])
    rows = (await ledger.threads.messages(thread)).items
    assert rows[0].content == "\\x00"
    assert rows[-1].content == strange.replace("\0", "\\x00").replace("\ud800", "\\ud800")
    assert len((await ledger.threads.history(thread))[0]) == 4
    for hostile in ("\0", "\ud800", "' OR 1=1 --", "%", ""):
        assert await ledger.threads.get(hostile) is None
        assert await ledger.threads.find(hostile, hostile) is None
        assert await ledger.runs.get(hostile) is None
        assert (await ledger.threads.list(owner=hostile, agent=hostile)).items == ()


async def test_a_thread_is_found_by_its_id_and_by_the_callers_handle(ledger: Ledger) -> None:
    made = await ledger.threads.create("jarvis", "me", handle="mine", origin="mcp")
    given = await ledger.threads.create("jarvis", "me", id="conv-" + "a" * 24, title="a title")
    other = await ledger.threads.create("research", "me", handle="mine")
    assert await ledger.threads.find("jarvis", "mine") == made
    assert await ledger.threads.find("jarvis", made.id) == made
    assert await ledger.threads.find("research", "mine") == other
    assert await ledger.threads.find("research", made.id) is None
    assert await ledger.threads.find("nobody", "mine") is None
    assert await ledger.threads.get(given.id) == given
    for again in ({"handle": "mine"}, {"id": given.id}):
        with pytest.raises(Fault) as caught:
            await ledger.threads.create("jarvis", "you", **again)  # type: ignore[arg-type]
        assert caught.value.data["reason"] == "conflict"


async def test_a_thread_that_is_not_there_is_not_found(ledger: Ledger) -> None:
    for verb in (
        ledger.threads.history("none"),
        ledger.threads.messages("none"),
        ledger.threads.rename("none", "x"),
        ledger.threads.delete("none"),
        ledger.threads.begin("none", run("r1"), asked()),
        ledger.threads.add_message("none", run("r1"), said()),
        ledger.threads.finish("none", ok(run("r1")), [asked(), said()]),
        ledger.threads.fail("none", error(run("r1")), "why"),
        ledger.threads.summarise("none", said(), 1),
    ):
        with pytest.raises(Fault) as caught:
            await verb
        assert caught.value.data["reason"] == "not_found"
    assert await ledger.runs.get("r1") is None


async def test_a_deleted_thread_takes_the_threads_of_nested_runs_along(ledger: Ledger) -> None:
    for name, within, origin in (
        ("top", "", "mcp"),
        ("below", "top", PEER),
        ("deep", "below", PEER),
        ("routed", "top", ROUTER),
        ("called", "top", "mcp"),
        ("other", "elsewhere", PEER),
    ):
        begun = RunRecord(name, "jarvis", "me", surface=origin, started_at=1.0, within=within)
        await ledger.threads.begin(f"thread {name}", begun, asked(), new=NewThread(None, origin))
    await ledger.threads.delete("thread top")
    there = [
        name
        for name in ("below", "deep", "routed", "called", "other")
        if await ledger.threads.get(f"thread {name}")
    ]
    assert there == ["called", "other"]
    assert {run.id for run in (await ledger.runs.list()).items} == {"called", "other"}


async def test_a_deleted_thread_takes_its_messages_and_runs_along(ledger: Ledger) -> None:
    thread, other = await new_thread(ledger), await new_thread(ledger)
    await tool_turn(ledger, thread, "r1")
    await tool_turn(ledger, other, "r2")
    await ledger.runs.add_events("r1", [(1, {"a": 1})])
    await ledger.threads.delete(thread)
    assert await ledger.threads.get(thread) is None
    assert await ledger.runs.get("r1") is None
    assert list(await ledger.runs.events("r1")) == []
    assert (await ledger.threads.messages(other)).items != ()


async def test_lists_come_in_pages_that_miss_nothing_and_repeat_nothing(ledger: Ledger) -> None:
    ids = []
    for number in range(7):
        agent, owner = ("jarvis", "research")[number % 2], ("me", "you")[number % 3 == 0]
        ids.append((await ledger.threads.create(agent, owner)).id)
        await turn(ledger, ids[-1], f"r{number}")
    found: list[str] = []
    cursor = ""
    while True:
        page = await ledger.threads.list(limit=2, cursor=cursor)
        found += [item.id for item in page.items]
        if not (cursor := page.next):
            break
    assert found == ids[::-1]
    mine = (await ledger.threads.list(agent="jarvis", owner="me")).items
    assert [item.id for item in mine] == [ids[4], ids[2]]
    # The one that was used last comes first.
    await turn(ledger, ids[0], "again")
    assert (await ledger.threads.list(limit=1)).items[0].id == ids[0]

    runs: list[str] = []
    cursor = ""
    while True:
        some = await ledger.runs.list(limit=3, cursor=cursor, status="ok")
        runs += [item.id for item in some.items]
        if not (cursor := some.next):
            break
    assert runs == ["again", *(f"r{number}" for number in range(6, -1, -1))]
    assert [item.id for item in (await ledger.runs.list(thread=ids[0], owner="me")).items] == ["again", "r0"]
    assert (await ledger.runs.list(status="running")).items == ()


async def test_messages_come_in_pages_from_either_end(ledger: Ledger) -> None:
    thread = await new_thread(ledger)
    for number in range(5):
        await turn(ledger, thread, f"r{number}", f"q{number}", f"a{number}")
    for newest_first in (False, True):
        found: list[int] = []
        cursor = ""
        while True:
            page = await ledger.threads.messages(thread, limit=3, cursor=cursor, newest_first=newest_first)
            found += [row.turn_index for row in page.items]
            if not (cursor := page.next):
                break
        assert found == (list(range(9, -1, -1)) if newest_first else list(range(10)))
    assert [await ledger.threads.text_at(thread, place) for place in (0, 3, 10)] == ["q0", "a1", ""]


@pytest.mark.parametrize("cursor", ["rubbish", "é", "W10", "WyJ0aHJlYWRzIiwgMSwgMl0", "A" * 5000, "bnVsbA"])
async def test_a_bad_cursor_or_limit_is_told(ledger: Ledger, cursor: str) -> None:
    thread = await new_thread(ledger)
    for verb in (
        ledger.threads.list(cursor=cursor),
        ledger.runs.list(cursor=cursor),
        ledger.threads.messages(thread, cursor=cursor),
        ledger.threads.list(limit=0),
        ledger.threads.messages(thread, limit=201),
        ledger.runs.list(limit=-1),
    ):
        with pytest.raises(Fault) as caught:
            await verb
        assert caught.value.type is FaultType.PROTOCOL


async def test_events_and_keys_of_runs(ledger: Ledger) -> None:
    await ledger.runs.begin(run("r1"))
    delta = {"type": "text", "delta": "\0\u094d\u200c\ufe0f"}
    await ledger.runs.add_events("r1", [(1, delta), (2, {"n": float("inf")})])
    # A piece of a text stays as it is, but for what a database refuses.
    assert (await ledger.runs.events("r1", limit=1))[0][1]["delta"] == "\\x00\u094d\u200c\ufe0f"
    await ledger.runs.add_events("r1", [(2, {"other": True}), (3, {"x": [1]})])
    events = list(await ledger.runs.events("r1", after=1))
    assert events == [(2, {"n": None}), (3, {"x": [1]})]
    assert len(await ledger.runs.events("r1", limit=1)) == 1
    with pytest.raises(Fault) as caught:
        await ledger.runs.add_events("none", [(1, {})])
    assert caught.value.data["reason"] == "not_found"
    await ledger.runs.begin(run("r3", claim="mine"))
    with pytest.raises(Fault) as caught:
        await ledger.runs.add_events("r3", [(1, {})], claim="theirs")
    assert caught.value.data["reason"] == "taken_over"
    await ledger.runs.add_events("r3", [(4, {})], claim="mine")
    assert await ledger.runs.events("r3") == [(4, {})]

    assert await ledger.runs.claim_key("me", "k", "r1", "digest") == "r1"
    assert await ledger.runs.claim_key("me", "k", "r2", "digest") == "r1"
    assert await ledger.runs.claim_key("you", "k", "r2", "other") == "r2"
    with pytest.raises(Fault) as caught:
        await ledger.runs.claim_key("me", "k", "r3", "something else")
    assert caught.value.data["reason"] == "conflict"
    await ledger.runs.finish(ok(run("r1"), partial="half"))
    found = await ledger.runs.get("r1")
    assert found is not None
    assert (found.status, found.partial, found.thread) == ("ok", "half", "")


async def test_an_idempotency_key_counts_for_a_day(database_url: str) -> None:
    now = 1_000_000.0
    ledger = await open_ledger(database_url, clock=lambda: now)
    try:
        assert await ledger.runs.claim_key("me", "k", "r1", "one") == "r1"
        now += 25 * 3600
        assert await ledger.runs.claim_key("me", "k", "r2", "two") == "r2"
    finally:
        await ledger.close()


async def test_what_was_said_outlasts_the_fleet(database_url: str) -> None:
    first = await open_ledger(database_url)
    thread = await new_thread(first)
    await tool_turn(first, thread, "r1")
    before = await first.threads.history(thread)
    await first.close()
    await first.close()
    for verb in (first.threads.get(thread), first.threads.rename(thread, "too late")):
        with pytest.raises(Fault, match="is closed: the fleet is stopping"):
            await verb
    second = await open_ledger(database_url)
    try:
        assert await second.threads.history(thread) == before
        assert second.salt == first.salt
        assert len(second.salt) == 32
        assert second.life != first.life
    finally:
        await second.close()


async def test_in_memory_everything_works_and_nothing_stays() -> None:
    first = await open_ledger("memory")
    thread = await new_thread(first)
    await tool_turn(first, thread, "r1")
    assert len((await first.threads.history(thread))[0]) == 4
    second = await open_ledger("memory")
    assert await second.threads.get(thread) is None
    await first.close()
    await second.close()
