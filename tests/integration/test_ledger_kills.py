"""A fleet that is killed at any moment loses nothing that it said was kept, and leaves nothing half done."""

import os
import random
import signal
import sys
from asyncio import StreamReader, create_subprocess_exec, subprocess, timeout
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import func, select
from support.databases import fresh_database
from support.deadly_writes import ANY, PHASES, Instant
from support.mortal_writer import FOUND, LOOKING, begin_queued, go_on_with
from support.turns import all_rows, turn
from support.waiting import poll

from pallas.ledger import Ledger, open_ledger
from pallas.ledger.claims import MAX_DEATHS
from pallas.ledger.tables import waiting

KILLS = int(os.environ.get("PALLAS_KILLS", "150"))
MESSAGES = int(os.environ.get("PALLAS_MESSAGES", "0"))
"""How many are said to be stored, about; a turn has five."""
MOST_ATTEMPTS = 2 + 3 * (MAX_DEATHS - 1)
"""Deaths are counted anew at each of the three messages that a run has before its answer. One that was handed
over has an attempt more.
"""
_WAITING = select(func.count()).select_from(waiting)
WRITES = 12
"""Writes of a turn, about."""


def instants(times: int, turns: int, killed: Counter[tuple[str, str]]) -> Iterator[Instant | None]:
    """When each child dies: before or after any of its writes, or the one at which the fewest died; None is
    a moment that is chosen from outside.
    """
    chance = random.Random(times)
    for number in range(times):
        phase = PHASES[number // 3 % 2]
        known = [write for write, of in killed if of in PHASES]
        if number % 3 == 0:
            yield None
        elif number % 3 == 1 or not known:
            yield Instant(ANY, phase, chance.randint(1, WRITES * (turns + 3)))
        else:
            rarest = min(sorted(set(known)), key=lambda write: killed[write, phase])
            yield Instant(rarest, phase, chance.randint(1, turns + 1))


async def kill_again_and_again(url: str, times: int, messages: int = 0) -> int:
    """Kill writers, each at another moment, and look at what is left.

    Returns how many runs were answered by another process than the one that began them.
    """
    turns = messages // 5 // times
    chance = random.Random(times)
    ledger = await open_ledger(url)
    # Of many messages, so many are in one thread as people write.
    count = max(4, min(64, messages // 5_000))
    threads = [(await ledger.threads.create("jarvis", "me")).id for _ in range(count)]
    await ledger.close()
    writer = await create_subprocess_exec(
        *(sys.executable, "-m", "support.mortal_writer", *threads),
        cwd=Path(__file__).parent.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert writer.stdin is not None
    assert writer.stdout is not None
    kept: dict[tuple[str, int], str] = {}
    killed: Counter[tuple[str, str]] = Counter()
    try:
        for at in instants(times, turns, killed):
            # From before it has opened the database to the middle of its work.
            enough = turns + (chance.choice((0, 0, 1, 2, 3)) if at is None else 25)
            writer.stdin.write(f"{url} {at.to_text() if at is not None else ''}\n".encode())
            await one_life(writer.stdout, enough, kept, killed)
    finally:
        writer.kill()
        await writer.wait()

    assert len(kept) > times / 3
    told = [f"{number:6} {phase} {write}" for (write, phase), number in sorted(killed.items())]
    print("\n".join((f"{times} kills, {5 * len(kept)} messages said to be stored", *told)))
    assert all(killed["COMMIT", phase] for phase in PHASES)
    if times >= 1_000:
        assert all(killed[write, phase] for write, _ in set(killed) for phase in PHASES)
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


async def one_life(
    said: StreamReader, enough: int, kept: dict[tuple[str, int], str], killed: Counter[tuple[str, str]]
) -> None:
    """One child, killed when it has kept so many turns if it has not killed itself before that."""
    pid, seen = 0, 0
    async with timeout(120):
        while True:
            word, *rest = (await said.readline()).decode().split()
            if word == "pid":
                pid = int(rest[0])
            elif word == "kept":
                kept[rest[0], int(rest[2])] = rest[1]
                seen += 1
            elif word == "killed":
                killed[rest[0], rest[1]] += 1
                pid = 0
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
        estate = await ledger.inherit(lambda agent: True)
        for claimed in estate.claimed:
            assert 1 < claimed.record.attempt <= MOST_ATTEMPTS
            await go_on_with(ledger, claimed)
        for queued in sorted(estate.queued, key=lambda each: each.position):
            await begin_queued(ledger, queued)
        is_any_waiting = await ledger.database.read(lambda connection: connection.scalar(_WAITING))
        return not is_any_waiting and not (await ledger.runs.list(status="running")).items

    await poll(nothing_is_left, timeout=90)


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.mark.slow
@pytest.mark.timeout(7_200)
async def test_kills_at_any_write_on_sqlite(tmp_path: Path) -> None:
    # AG-6
    assert await kill_again_and_again(f"sqlite:///{tmp_path}/ledger.sqlite3", KILLS, MESSAGES) > 0
    # Locks of the dead are not left lying about.
    assert names_in(tmp_path) == ["ledger.sqlite3"]


@pytest.mark.slow
@pytest.mark.timeout(7_200)
async def test_kills_at_any_write_on_postgresql(request: pytest.FixtureRequest) -> None:
    # AG-6
    async with fresh_database(request.getfixturevalue("postgres")) as url:
        await kill_again_and_again(url, KILLS // 5, MESSAGES // 5)
