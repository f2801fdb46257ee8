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
from support.mortal_writer import FOUND, LOOKING, go_on_with
from support.turns import all_rows, turn
from support.waiting import poll

from pallas.ledger import Ledger, open_ledger
from pallas.ledger.claims import MAX_DEATHS

MOST_ATTEMPTS = 1 + 3 * (MAX_DEATHS - 1)
"""Deaths are counted anew at each of the three messages that a run has before its answer."""


async def kill_again_and_again(url: str, times: int) -> int:
    """Kill writers, each at another moment, and look at what is left.

    Returns how many runs were answered by another process than the one that began them.
    """
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
    went_on = 0
    try:
        await inherit_all(ledger)
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
            # A run that went on elsewhere is written once, and one that ended each child is given up.
            assert sorted(rows) == list(range(len(rows)))
            whole = [row.run for row in rows.values() if row.status == "complete"]
            assert {whole.count(run_id) for run_id in whole} <= {5}
            for run_id in set(whole):
                found = await ledger.runs.get(run_id)
                assert found is not None
                assert found.status == "ok"
                went_on += found.attempt > 1
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
    return went_on


async def one_life(said: StreamReader, enough: int, kept: dict[tuple[str, int], str]) -> None:
    """One child, killed when it has kept so many turns."""
    pid, seen = 0, 0
    async with timeout(120):
        while True:
            word, *rest = (await said.readline()).decode().split()
            if word == "pid":
                pid = int(rest[0])
            elif word == "kept":
                kept[rest[0], int(rest[2])] = rest[1]
                seen += 1
            elif word == "gone":
                assert int(rest[1]) == signal.SIGKILL, "it ended by itself: its stderr says why"
                return
            if pid and seen >= enough:
                os.kill(pid, signal.SIGKILL)
                pid = 0


async def inherit_all(ledger: Ledger) -> None:
    """Go on with what the last child left, or put it into error.

    A server may notice a moment later that somebody is gone; a file system knows at once.
    """

    async def nothing_is_left() -> bool:
        for claimed in (await ledger.inherit(lambda agent: True)).claimed:
            assert 1 < claimed.record.attempt <= MOST_ATTEMPTS
            await go_on_with(ledger, claimed)
        return not (await ledger.runs.list(status="running")).items

    await poll(nothing_is_left, timeout=90)


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.mark.slow
async def test_eighty_kills_on_sqlite(tmp_path: Path) -> None:
    # AG-6
    assert await kill_again_and_again(f"sqlite:///{tmp_path}/ledger.sqlite3", 80) > 0
    # Locks of the dead are not left lying about.
    assert names_in(tmp_path) == ["ledger.sqlite3"]


@pytest.mark.slow
async def test_kills_on_postgresql(request: pytest.FixtureRequest) -> None:
    # AG-6
    async with fresh_database(request.getfixturevalue("postgres")) as url:
        await kill_again_and_again(url, 15)
