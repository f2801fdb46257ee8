"""What a dead fleet left is put into error by the next one; what a living one does is left alone."""

import asyncio
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.databases import Server, new_server
from support.turns import FOUND, LOOKING, asked, ok, run, said, tool_turn, turn
from support.waiting import until

from pallas.ledger import Ledger, open_ledger
from pallas.model import Fault, FaultType

DYING = """
import asyncio, sys, time
from pallas.ledger import open_ledger
from pallas.model import Message, RunRecord, ToolCall

async def main(url, thread):
    ledger = await open_ledger(url)
    begun = RunRecord("killed", "jarvis", "me", thread, started_at=time.time())
    await ledger.threads.begin(thread, begun, Message("user", "question"))
    call = Message("assistant", "", calls=(ToolCall("c1", "s__t"),))
    await ledger.threads.add_message(thread, "killed", call)
    await ledger.runs.begin(RunRecord("alone", "jarvis", "me", started_at=time.time()))
    print("in its tool", flush=True)
    await asyncio.sleep(600)

asyncio.run(main(*sys.argv[1:]))
"""


async def killed_in_the_middle(url: str, thread: str) -> None:
    """Another fleet has two runs under way when it is killed."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", DYING, url, thread, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    assert await asyncio.wait_for(child.stdout.readline(), 60) == b"in its tool\n"
    child.send_signal(signal.SIGKILL)
    await child.wait()


async def check_recovered(ledger: Ledger, thread: str) -> None:
    rows = (await ledger.threads.messages(thread)).items
    assert [(row.role, row.status) for row in rows[-2:]] == [("user", "error"), ("assistant", "error")]
    assert all(
        "the fleet was stopped in the middle of this turn (found 20" in row.reason for row in rows[-2:]
    )
    for run_id in ("killed", "alone"):
        found = await ledger.runs.get(run_id)
        assert found is not None
        assert found.status == "error"
        assert found.finished_at is not None
        assert "the fleet was stopped" in found.fault


async def test_a_turn_that_was_killed_is_in_error_at_the_next_start_and_the_thread_goes_on(
    database_url: str,
) -> None:
    # AG-6
    first = await open_ledger(database_url)
    thread = (await first.threads.create("jarvis", "me")).id
    await tool_turn(first, thread, "before")
    await first.close()
    await killed_in_the_middle(database_url, thread)

    ledger = await open_ledger(database_url)
    try:
        recovered = set(ledger.recovered)
        # A server may hear only now that the dead one is gone.
        while len(recovered) < 2:
            recovered |= set(await ledger.recover())
        assert recovered == {"killed", "alone"}
        await check_recovered(ledger, thread)
        assert len((await ledger.threads.history(thread))[0]) == 4
        assert await turn(ledger, thread, "after") == 8
        assert len((await ledger.threads.history(thread))[0]) == 6
    finally:
        await ledger.close()


async def test_a_living_fleet_cleans_up_after_another_one_and_leaves_a_third_alone(
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pallas.ledger.ledger._FIRST_LOOKS", (0.05,) * 1000)
    survivor = await open_ledger(database_url)
    third = await open_ledger(database_url)
    try:
        thread = (await survivor.threads.create("jarvis", "me")).id
        mine = {}
        for name, each in (("mine", survivor), ("third", third)):
            mine[name] = run(name, thread)
            await each.threads.begin(thread, mine[name], asked())
        await killed_in_the_middle(database_url, thread)
        async with asyncio.timeout(60):
            while not (await survivor.runs.list(thread=thread, status="error")).items:
                pass
        await check_recovered(survivor, thread)
        for name, each in (("mine", survivor), ("third", third)):
            found = await each.runs.get(name)
            assert found is not None
            assert found.status == "running"
            await each.threads.finish(thread, ok(mine[name]), [asked(), said()])
        assert len((await third.threads.history(thread))[0]) == 4
    finally:
        await survivor.close()
        await third.close()


async def test_a_fleet_that_stops_leaves_nothing_running(database_url: str) -> None:
    first, second = await open_ledger(database_url), await open_ledger(database_url)
    thread = (await first.threads.create("jarvis", "me")).id
    await first.threads.begin(thread, run("r1"), asked())
    await second.threads.begin(thread, run("r2"), asked())
    await first.close()
    found = [(await second.runs.get(each)) for each in ("r1", "r2")]
    assert [each.status for each in found if each is not None] == ["error", "running"]
    assert [row.status for row in (await second.threads.messages(thread)).items] == ["error", "pending"]
    await second.close()


async def test_a_run_that_was_taken_for_dead_and_was_not_ends_as_it_ends(database_url: str) -> None:
    ledger = await open_ledger(database_url)
    try:
        thread = (await ledger.threads.create("jarvis", "me")).id
        begun = run("r1", thread)
        await ledger.threads.begin(thread, begun, asked())
        await ledger.threads.add_message(thread, "r1", LOOKING)
        from pallas.ledger import lives

        await ledger.database.write(lambda connection: lives.bury(connection, ledger.life, 1.0))
        assert (await ledger.threads.history(thread))[0] == ()
        whole = (asked(), LOOKING, FOUND, said())
        await ledger.threads.finish(thread, ok(begun), whole)
        assert (await ledger.threads.history(thread))[0] == whole
        found = await ledger.runs.get("r1")
        assert found is not None
        assert (found.status, found.fault) == ("ok", "")
    finally:
        await ledger.close()


async def test_locks_of_lives_that_never_came_to_anything_are_tidied_away(tmp_path: Path) -> None:
    stray = tmp_path / "l.sqlite3-life-0123456789abcdef"
    stray.touch(0o600)
    ledger = await open_ledger(f"sqlite:///{tmp_path}/l.sqlite3")
    try:
        assert not stray.exists()
        assert (tmp_path / f"l.sqlite3-life-{ledger.life}").exists()
    finally:
        await ledger.close()


@pytest.fixture
def own_server() -> Iterator[Server]:
    server = new_server()
    yield server
    server.close()


async def test_a_server_that_is_started_anew_is_found_again_and_nobody_is_taken_for_dead(
    own_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pallas.ledger.advisory_locks.LOOK_SECONDS", 0.05)
    ledger = await open_ledger(own_server.url())
    try:
        thread = (await ledger.threads.create("jarvis", "me")).id
        begun = run("r1", thread)
        await ledger.threads.begin(thread, begun, asked())
        locks = ledger._locks
        before = locks._connection  # type: ignore[attr-defined]
        await asyncio.to_thread(own_server.stop)
        with pytest.raises(Fault) as caught:
            await ledger.threads.get(thread)
        assert caught.value.type is FaultType.TRANSPORT
        assert "pallas@" not in caught.value.message
        await asyncio.to_thread(own_server.start)
        await until(lambda: locks._connection not in (None, before))  # type: ignore[attr-defined]
        other = await open_ledger(own_server.url())
        assert other.recovered == ()
        await other.close()
        await ledger.threads.finish(thread, ok(begun), [asked(), said()])
        assert len((await ledger.threads.history(thread))[0]) == 2
    finally:
        await ledger.close()
