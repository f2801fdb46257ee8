"""Rows of a thread as messages, tabs that are kept, and what the feed says of where runs came from."""

from pathlib import Path
from typing import Any

from support.fake_fleet import NOON, desk

from pallas.model import (
    Compacted,
    Image,
    MessageRecord,
    Page,
    RunFinished,
    RunStarted,
    ThreadRecord,
    ToolCall,
)
from pallas_tui.chat.conversation import KEEP, ChatConversation
from pallas_tui.chat.stored_thread import StoredThread, entries_of
from pallas_tui.chat.tab_store import MAX_TABS, SavedTab, SavedTabs
from pallas_tui.frame import FleetFrame
from pallas_tui.json_file import JsonFile
from pallas_tui.runs.run_feed import Feed
from pallas_tui.runs.run_filter import parse
from pallas_tui.widgets.feed.feed_view import run_details
from pallas_tui.widgets.feed.run_list import facts_of

HOSTILE = "\x1b]52;c;cm0gLXJmIC8=\x07\u202egnp.exe"


def row(index: int, role: Any, content: str = "", **more: Any) -> MessageRecord:
    given: dict[str, Any] = {"status": "complete", "run": "r1", "created_at": NOON + index, **more}
    return MessageRecord(f"m{index}", "t", index, role, content, **given)


def told(rows: list[MessageRecord]) -> list[tuple[str, str, str]]:
    return [(entry.role, entry.text, entry.cut) for entry in entries_of(rows, "research")]


def test_an_answer_with_all_its_rounds_is_one_message() -> None:
    calls = (ToolCall("a", "docs__search", {"q": 1}), ToolCall("b", "docs__read"), ToolCall("c", "shop__buy"))
    found = entries_of(
        [
            row(0, "user", "find it"),
            row(1, "assistant", "Looking.", tool_calls=calls[:2]),
            row(2, "tool", "3 found", tool_call_id="a"),
            row(3, "tool", f"text {HOSTILE}", tool_call_id="b"),
            row(4, "assistant", "And more.", tool_calls=calls[2:]),
            row(5, "assistant", "Done."),
        ],
        "research",
    )
    assert [(entry.role, entry.text) for entry in found] == [
        ("user", "find it"),
        ("assistant", "Looking.\n\nAnd more.\n\nDone."),
    ]
    answer = found[1]
    assert (answer.tools, answer.run_id, answer.cut) == (3, "r1", "")
    assert answer.tree is not None
    assert [part.text or (part.first, part.end) for part in answer.parts] == [
        *("Looking.", (0, 2)),
        *("And more.", (2, None)),
        "Done.",
    ]
    nodes = answer.tree.root.children
    assert [(node.label, node.state) for node in nodes] == [
        ("docs/search", "ok"),
        ("docs/read", "ok"),
        ("shop/buy", "unknown"),
    ]
    assert nodes[0].arguments == '{\n  "q": 1\n}'
    assert "\x1b" not in nodes[1].result


def test_a_call_that_failed_is_shown_as_such() -> None:
    calls = (ToolCall("a", "docs__search"), ToolCall("b", "docs__read"), ToolCall("c", "docs__list"))
    (answer,) = entries_of(
        [
            row(0, "assistant", tool_calls=calls),
            row(1, "tool", "found", tool_call_id="a"),
            row(2, "tool", "no such file", tool_call_id="b", tool_ok=False),
        ],
        "research",
    )
    assert answer.tree is not None
    assert [node.state for node in answer.tree.root.children] == ["ok", "error", "unknown"]


def test_what_went_wrong_is_told_with_its_reason_and_what_goes_on_as_such() -> None:
    wrong = {"status": "error", "reason": f"the fleet was killed {HOSTILE}"}
    rows = [
        row(0, "user", "one", run="r1", **wrong),
        row(1, "assistant", "so far", run="r1", **wrong),
        row(2, "user", "two", run="r2", status="pending"),
        row(3, "assistant", "under way", run="r2", status="pending"),
    ]
    roles = [(role, cut) for role, _, cut in told(rows)]
    assert roles == [
        ("user", ""),
        ("assistant", "broke off"),
        ("error", ""),
        ("user", ""),
        ("assistant", "not finished"),
        ("note", ""),
    ]
    assert "\x1b" not in str(told(rows))
    assert told([row(0, "user", "x", status="error")])[1][1] == "It failed; no reason was stored."


def test_a_summary_and_pictures_are_shown() -> None:
    found = entries_of(
        [
            row(0, "system", "It was about lamps.", summary=True),
            row(1, "user", "", images=(Image("!", "x/y"),)),
        ],
        "research",
    )
    assert found[0].role == "note"
    assert found[0].text.endswith("It was about lamps.")
    assert [one.name for one in found[1].attachments] == ["image 1 (x/y)"]


async def test_a_turn_that_a_page_cuts_is_read_whole() -> None:
    rows = [row(n, "user" if n % 2 == 0 else "assistant", f"{n}", run=f"r{n // 2}") for n in range(12)]
    rows += [row(12, "user", "q"), *(row(n, "assistant", f"part {n}") for n in range(13, 30))]
    asked: list[tuple[int, str]] = []

    async def fetch(limit: int, cursor: str) -> Page[MessageRecord]:
        asked.append((limit, cursor))
        start = int(cursor or 0)
        newest = rows[::-1]
        end = start + limit
        return Page(tuple(newest[start:end]), str(end) if end < len(newest) else "")

    thread = StoredThread(ThreadRecord("t", "research", "anonymous"), fetch)
    first = await thread.older(5)
    # Of the page in which its question stands also what was asked before it, and no half of that.
    assert [each.turn_index for each in first] == list(range(10, 30))
    assert len(asked) == 4
    assert [each.turn_index for each in await thread.older(5)] == [6, 7, 8, 9]
    rest = await thread.older(20)
    assert [each.turn_index for each in rest] == [0, 1, 2, 3, 4, 5]
    assert thread.complete
    assert await thread.older(5) == []


async def test_older_messages_come_back_one_part_after_the_other() -> None:
    async def fetch(limit: int, cursor: str) -> Page[MessageRecord]:
        return Page((row(1, "assistant", "stored answer"), row(0, "user", "stored question")), "")

    conversation = ChatConversation("research")
    conversation.open(StoredThread(ThreadRecord("t", "research", "anonymous"), fetch))
    for number in range(KEEP + 10):
        conversation.note(f"note {number}", NOON)
    assert len(conversation.entries) == KEEP
    while await conversation.read_older():
        pass
    texts = [entry.text for entry in conversation.transcript]
    assert texts[:3] == ["stored question", "stored answer", "note 0"]
    assert len(texts) == KEEP + 12
    assert not conversation.more_above
    assert conversation.pruned == 0


async def test_an_answer_in_progress_is_read_until_it_is_there() -> None:
    pending: dict[str, Any] = {"status": "pending", "run": "r2"}
    rows = [row(0, "user", "first"), row(1, "assistant", "one"), row(2, "user", "second", **pending)]

    async def fetch(limit: int, cursor: str) -> Page[MessageRecord]:
        return Page(tuple(rows[::-1][:limit]), "")

    def shown() -> list[tuple[str, str]]:
        return [(entry.role, entry.text) for entry in conversation.entries]

    changes: list[int] = []
    conversation = ChatConversation("research", changed=lambda: changes.append(1))
    conversation.open(StoredThread(ThreadRecord("t", "research", "anonymous"), fetch))
    await conversation.read_older()
    before = shown()
    assert before[2:] == [("user", "second"), ("note", "This is still being answered.")]
    assert conversation.in_progress == "r2"
    rows.append(row(3, "assistant", "partly", **pending))
    await conversation.read_answer_again()
    assert shown() == [*before[:3], ("assistant", "partly"), before[3]]
    changes.clear()
    await conversation.read_answer_again()
    assert not changes
    rows[2:] = [row(2, "user", "second", run="r2"), row(3, "assistant", "partly, then whole", run="r2")]
    await conversation.read_answer_again()
    assert shown() == [*before[:3], ("assistant", "partly, then whole")]
    assert conversation.in_progress == ""


async def test_an_answer_in_progress_is_left_alone_once_another_question_is_asked() -> None:
    rows = [row(0, "user", "first", status="pending")]

    async def fetch(limit: int, cursor: str) -> Page[MessageRecord]:
        if conversation.entries:
            conversation.begin("second", (), NOON)
            rows[:] = [row(0, "user", "first"), row(1, "assistant", "one")]
        return Page(tuple(rows[::-1]), "")

    conversation = ChatConversation("research")
    conversation.open(StoredThread(ThreadRecord("t", "research", "anonymous"), fetch))
    await conversation.read_older()
    await conversation.read_answer_again()
    assert [entry.text for entry in conversation.entries][-1] == "second"
    assert conversation.in_progress == ""


def test_the_tabs_of_each_fleet_are_kept_on_their_own(tmp_path: Path) -> None:
    file = JsonFile(tmp_path / "tabs.json")
    tabs = tuple(SavedTab("research", f"conv-{number}", f"name {number}") for number in range(MAX_TABS + 5))
    SavedTabs(file, "one").keep(tabs, MAX_TABS + 4)
    SavedTabs(file, "two").keep(tabs[:2], 1)
    found, front = SavedTabs(file, "one").load()
    assert found == tabs[5:]
    assert found[front] == tabs[-1]
    assert SavedTabs(file, "two").load() == (tabs[:2], 1)
    SavedTabs(file, "two").keep((), 0)
    assert SavedTabs(file, "two").load() == ((), 0)
    assert (tmp_path / "tabs.json").stat().st_mode & 0o077 == 0


def test_a_file_of_tabs_that_is_none_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "tabs.json"
    for text in ("[", "[]", '{"one": 3}', '{"one": {"tabs": [1, {"agent": ""}], "front": 9}}'):
        path.write_text(text)
        assert SavedTabs(JsonFile(path), "one").load() == ((), 0)


def test_a_run_tells_its_surface_who_asked_and_what_it_had_written() -> None:
    feed = Feed()
    one: dict[str, Any] = {"run_id": "r1", "agent": "research"}
    feed.absorb(
        FleetFrame(
            desk(),
            (
                RunStarted(
                    at=NOON,
                    preview="hi",
                    surface="rest",
                    identity="token:ci",
                    principal="9f31",
                    caller="curl",
                    thread="conv-abcd",
                    **one,
                ),
                Compacted(at=NOON, messages=40, before=90_000, after=12_000, window=100_000, **one),
                RunFinished(
                    at=NOON, outcome="cancelled", seconds=1, fault="cancelled", partial="Acme was", **one
                ),
            ),
            NOON,
        )
    )
    run = feed.run("r1")
    assert run is not None
    facts = {fact.name: fact.value for fact in facts_of(run, NOON)}
    assert facts["surface"] == "rest"
    assert facts["principal"] == "token:ci, key 9f31"
    assert facts["thread"] == "conv-abcd"
    assert facts["had written"] == "Acme was"
    assert run.asked_by == "rest curl"
    assert run.ending == "cancelled (had written: Acme was)"
    assert [step.label for step in run.steps] == [
        "40 older messages in a summary now: about 90.0k tokens were 12.0k"
    ]
    story = run_details(run, NOON)
    assert "over rest, as token:ci, with key 9f31" in story
    assert "Its text until it was cut short:\nAcme was" in story
    for query, fits in (("surface:rest", True), ("surface:mcp", False), ("caller:token:ci", True)):
        assert parse(query).matches(run) is fits, query


def test_tabs_that_were_noted_last_are_written_by_whichever_thread_writes_last(tmp_path: Path) -> None:
    file = JsonFile(tmp_path / "tabs.json")
    saved, one, two = SavedTabs(file, "k"), SavedTab("a", "conv-1"), SavedTab("a", "conv-2")
    assert saved.lacks((one,)) and not saved.lacks(())
    saved.note((one,), 0)
    saved.keep((one, two), 1)
    saved.write()  # that of the first note, in a thread that came late
    assert SavedTabs(file, "k").load() == ((one, two), 1)
    assert not saved.lacks((two, one))
    assert not SavedTabs().lacks((one,))
