"""Search in what was said: words of messages and titles, on both databases, whatever a caller writes."""

from pathlib import Path
from typing import Any

import pytest
from alembic import command
from sqlalchemy import Connection, text
from support.turns import asked, ok, run, said, tool_turn, turn

from pallas.ledger import Ledger, open_ledger
from pallas.ledger.database import Database
from pallas.ledger.ledger_address import address_of
from pallas.ledger.migrate import configuration
from pallas.ledger.postgres import PostgresDatabase
from pallas.ledger.sqlite import SqliteDatabase
from pallas.model import Fault, FaultType, NewThread
from pallas.model.ledger_records import MAX_SEARCH
from pallas.model.run_values import PEER


async def told(ledger: Ledger, question: str, answer: str = "hi", **fields: Any) -> str:
    """A thread with one turn."""
    thread = (await ledger.threads.create("jarvis", fields.pop("owner", "me"), **fields)).id
    await turn(ledger, thread, f"r-{thread}", question, answer)
    return thread


async def found(ledger: Ledger, search: str, **more: Any) -> list[str]:
    """The ids of the threads that a search finds."""
    return [each.id for each in (await ledger.threads.list(search=search, **more)).items]


async def test_words_of_questions_answers_and_titles_are_found(ledger: Ledger) -> None:
    lamps = await told(ledger, "Which lamps fit the hallway?", "Two wall lights with a warm tone.")
    deploy = await told(ledger, "Roll out", "See https://ci.example/builds/42-final for the Deployment log.")
    await ledger.threads.rename(deploy, "Release of November")
    assert await found(ledger, "hallway") == [lamps]
    assert await found(ledger, "HALL warm") == []  # not in one message
    assert await found(ledger, "fit  HALLW") == [lamps]  # beginnings of words, in any case
    assert await found(ledger, "ights") == []
    assert await found(ledger, "allway") == [lamps]  # in the title
    assert await found(ledger, "deploy") == [deploy]
    assert await found(ledger, "builds/42-fin") == [deploy]
    assert await found(ledger, "42") == [deploy]
    assert await found(ledger, "lo") == []  # whole words only, if they are so short
    assert await found(ledger, "november rele") == [deploy]
    assert sorted(await found(ledger, "  ")) == sorted([lamps, deploy])
    page = await ledger.threads.list(search="warm")
    assert page.items[0].snippet == "Two wall lights with a warm tone."
    assert (await ledger.threads.list(search="november")).items[0].snippet == ""


async def test_results_of_tools_are_not_searched_and_failed_turns_are(ledger: Ledger) -> None:
    thread = (await ledger.threads.create("jarvis", "me")).id
    await tool_turn(ledger, thread, "r1", "find the invoice")
    assert await found(ledger, "let look") == [thread]
    assert await found(ledger, "two") == []  # only a tool said so
    begun = run("r2", thread)
    await ledger.threads.begin(thread, begun, asked("and the receipt"))
    assert await found(ledger, "receipt") == [thread]
    await ledger.threads.fail(thread, begun, "it broke")
    assert await found(ledger, "receipt") == [thread]


async def test_a_snippet_is_of_the_newest_message_and_cannot_drive_a_terminal(ledger: Ledger) -> None:
    long = "x " * 200 + "the \x1b[31m needle\u202e is\n\nhere " + "y " * 200
    thread = await told(ledger, "an older needle", long)
    (record,) = (await ledger.threads.list(search="needle")).items
    assert record.id == thread
    assert record.snippet.startswith("…")
    assert "needle" in record.snippet
    assert "is here" in record.snippet
    assert record.snippet.replace("…", "").isprintable()
    assert len(record.snippet) <= 200


HOSTILE = [
    '"',
    '""',
    "'",
    "*",
    "a*b",
    "needle*",
    "-needle",
    "NEAR",
    "NEAR(",
    "needle AND",
    "needle OR NOT",
    "content:needle",
    "{content}: needle",
    "^needle",
    "needle + x",
    "needle <-> x",
    "needle:*",
    "!needle & | (",
    "\\",
    "\\'",
    "%",
    "_",
    "; DROP TABLE messages",
    "\0needle",
    "\ud800",
    "\x1b[31m",
    "—",
    "😀",
    "\u0301",
    "x" * MAX_SEARCH,
    "x " * (MAX_SEARCH // 2),
    "价" * MAX_SEARCH,
]


async def test_no_search_is_a_syntax_error(ledger: Ledger) -> None:
    thread = await told(ledger, "the needle")
    for search in HOSTILE:
        assert set(await found(ledger, search)) <= {thread}, search
    for search in ("needle*", "-needle", "^needle", '"needle"', "the (needle)"):
        assert await found(ledger, search) == [thread], search


async def test_a_search_that_is_too_long_is_refused(ledger: Ledger) -> None:
    with pytest.raises(Fault) as caught:
        await ledger.threads.list(search="x" * 10_000)
    assert caught.value.type is FaultType.PROTOCOL
    assert f"at most {MAX_SEARCH}" in caught.value.message


async def test_scripts_without_spaces_are_found_in_the_middle(ledger: Ledger) -> None:
    lamp = await told(ledger, "请问这个台灯的价格是多少?", "这个台灯的价格是三百元。")
    await told(ledger, "今天天气很好")
    assert await found(ledger, "价格") == [lamp]
    assert await found(ledger, "台灯 价格") == [lamp]
    assert await found(ledger, "沙发") == []
    mixed = await told(ledger, "Pallas 的价格 please")
    assert await found(ledger, "please 价格") == [mixed]
    # Quoted for LIKE too.
    assert await found(ledger, "价%格") == []


async def test_only_what_the_viewer_may_see_counts(ledger: Ledger) -> None:
    mine = await told(ledger, "the needle")
    await told(ledger, "the needle", owner="you")
    begun = run("nested", "t-nested", agent="jarvis", surface=PEER)
    await ledger.threads.begin("t-nested", begun, asked("the needle"), new=NewThread(None, PEER))
    await ledger.threads.finish("t-nested", ok(begun), [asked("the needle"), said()])
    assert await found(ledger, "needle", owner="me") == [mine]
    assert len(await found(ledger, "needle")) == 2
    assert await found(ledger, "needle", agent="someone") == []


async def test_pages_of_a_search_miss_nothing_and_repeat_nothing(ledger: Ledger) -> None:
    threads = [await told(ledger, f"needle number {number}") for number in range(7)]
    await told(ledger, "hay")
    seen: list[str] = []
    cursor = ""
    while True:
        page = await ledger.threads.list(search="needle", limit=3, cursor=cursor)
        seen += [each.id for each in page.items]
        if not (cursor := page.next):
            break
    assert seen == threads[::-1]


async def test_what_is_deleted_is_not_found(ledger: Ledger) -> None:
    other = await told(ledger, "the needle again")
    thread = await told(ledger, "the needle")
    await ledger.threads.delete(thread)
    assert await found(ledger, "needle") == [other]
    # SQLite gives the numbers of the last rows again.
    await told(ledger, "hay", "hay")
    assert await found(ledger, "needle") == [other]


BEFORE = """
INSERT INTO agents (id, name, created_at, updated_at) VALUES ('a1', 'jarvis', 1, 1);
INSERT INTO threads (id, agent_id, owner, created_at, updated_at, next_index)
    VALUES ('t1', 'a1', 'me', 1, 1, 1);
INSERT INTO messages (thread_id, turn_index, part, role, content, status, created_at)
    VALUES ('t1', 0, 0, 'user', 'the old needle', 'complete', 1)
"""
# What a release of before writes, as it writes it.
MEANWHILE = """
INSERT INTO messages (thread_id, turn_index, part, role, content, status, created_at)
    VALUES ('t1', 1, 1, 'assistant', 'haystack', 'complete', 2)
"""


async def test_an_older_ledger_is_indexed_and_what_an_older_release_writes_too(
    empty_database_url: str,
) -> None:
    address = address_of(empty_database_url)
    database: Database
    if address.path is not None:
        database = await SqliteDatabase.open(address.path, address.shown)
    else:
        database = await PostgresDatabase.open(address.dsn, address.shown)

    def before(connection: Connection) -> None:
        config = configuration()
        config.attributes["connection"] = connection
        command.upgrade(config, "0014")
        for statement in BEFORE.split(";"):
            connection.execute(text(statement))

    await database.write(before)
    ledger = await open_ledger(empty_database_url)
    try:
        assert await found(ledger, "needle") == ["t1"]
        await database.write(lambda it: it.execute(text(MEANWHILE)).rowcount)
        assert await found(ledger, "haystack") == ["t1"]
        await ledger.threads.delete("t1")
        assert await found(ledger, "needle") == []
    finally:
        await ledger.close()
        await database.close()


async def test_a_python_whose_sqlite_cannot_search_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = ("CREATE VIRTUAL TABLE message_words USING fts5_that_is_missing (content)",)
    monkeypatch.setattr("pallas.ledger.message_search._SQLITE", without)
    with pytest.raises(Fault) as caught:
        await open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite3")
    assert caught.value.type is FaultType.CONFIG
    assert "without FTS5" in caught.value.message
    assert "database_url" in caught.value.message


@pytest.mark.slow
async def test_messages_of_any_length_are_stored(ledger: Ledger) -> None:
    words = " ".join(f"{number:x}" for number in range(60_000))
    thread = await told(ledger, f"beginning {words}", "\U00020000\U00020001 " * 60_000)
    await told(ledger, "x" * 300_000)
    assert await found(ledger, "beginning") == [thread]
