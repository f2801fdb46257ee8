"""A fleet that is killed at any moment loses nothing that it said was kept, and leaves nothing half done."""

import os
import random
import signal
import sys
from asyncio import StreamReader, create_subprocess_exec, subprocess, timeout
from pathlib import Path

import pytest
from support import mortal_writer
from support.databases import fresh_database
from support.mortal_writer import FOUND, LOOKING
from support.turns import turn

from pallas.ledger import Ledger, open_ledger
from pallas.model import MessageRecord


async def kill_again_and_again(url: str, times: int) -> None:
    """Kill writers, each at another moment, and look at what is left."""
    chance = random.Random(times)
    ledger = await open_ledger(url)
    threads = [(await ledger.threads.create("jarvis", "me")).id for _ in range(4)]
    await ledger.close()
    writer = await create_subprocess_exec(
        sys.executable, mortal_writer.__file__, *threads, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert writer.stdin is not None
    assert writer.stdout is not None
    kept: dict[tuple[str, int], str] = {}
    try:
        for _ in range(times):
            writer.stdin.write(f"{url}\n".encode())
            # From before it has opened the database to the middle of its work.
            await one_life(writer.stdout, chance.choice((0, 0, 1, 2, 3)), kept)
    finally:
        writer.kill()
        await writer.wait()

    assert len(kept) > times / 3
    ledger = await open_ledger(url)
    try:
        await until_recovered(ledger)
        for thread in threads:
            rows = {row.turn_index: row for row in await all_rows(ledger, thread)}
            mine = {index: run for (of, index), run in kept.items() if of == thread}
            for index, run_id in mine.items():
                row = rows[index]
                assert (row.content, row.status, row.run) == (f"answer of {run_id}", "complete", run_id)
            assert {row.status for row in rows.values()} <= {"complete", "error"}
            assert all(
                "stopped in the middle" in row.reason for row in rows.values() if row.status == "error"
            )
            # AG-7: whole turns and nothing else.
            history = (await ledger.threads.history(thread))[0]
            assert len(history) % 4 == 0
            assert all(history[at + 1 : at + 3] == (LOOKING, FOUND) for at in range(0, len(history), 4))
            # The next turn succeeds.
            before = len(history)
            await turn(ledger, thread, f"after-{thread}")
            assert len((await ledger.threads.history(thread))[0]) == before + 2
    finally:
        await ledger.close()


async def one_life(said: StreamReader, enough: int, kept: dict[tuple[str, int], str]) -> None:
    """One child, killed when it has kept so many turns."""
    pid, seen = 0, 0
    async with timeout(60):
        while True:
            word, *rest = (await said.readline()).decode().split()
            if word == "pid":
                pid = int(rest[0])
            elif word == "kept":
                kept[rest[0], int(rest[2])] = rest[1]
                seen += 1
            elif word == "gone":
                return
            if pid and seen >= enough:
                os.kill(pid, signal.SIGKILL)
                pid = 0


async def all_rows(ledger: Ledger, thread: str) -> list[MessageRecord]:
    rows: list[MessageRecord] = []
    cursor = ""
    while True:
        page = await ledger.threads.messages(thread, limit=200, cursor=cursor)
        rows += page.items
        if not (cursor := page.next):
            return rows


async def until_recovered(ledger: Ledger) -> None:
    """A server may notice a moment later that somebody is gone; a file system knows at once."""
    async with timeout(30):
        while (await ledger.runs.list(status="running")).items:
            await ledger.recover()


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_eighty_kills_on_sqlite(tmp_path: Path) -> None:
    # AG-6
    await kill_again_and_again(f"sqlite:///{tmp_path}/ledger.sqlite3", 80)
    # Locks of the dead are not left lying about.
    assert names_in(tmp_path) == ["ledger.sqlite3"]


async def test_kills_on_postgresql(request: pytest.FixtureRequest) -> None:
    # AG-6
    async with fresh_database(request.getfixturevalue("postgres")) as url:
        await kill_again_and_again(url, 15)
