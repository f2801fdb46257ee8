"""What a ledger forgets by itself: events and runs that nobody can ask for by a thread, after two weeks."""

from dataclasses import replace
from pathlib import Path

from pallas.ledger import open_ledger
from pallas.ledger.ledger import KEEP_SECONDS, prune
from pallas.model import EndedRun, Message, NewThread, RunRecord
from pallas.model.run_values import PEER

DAY = 24 * 3600.0


async def test_old_events_and_loose_runs_go_and_threads_stay(tmp_path: Path) -> None:
    now = 1_000 * DAY
    ledger = await open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite3", clock=lambda: now)
    try:
        thread = await ledger.threads.create("echo", "anonymous")
        old, young = now - KEEP_SECONDS - DAY, now - DAY
        for number in range(5):
            for at in (old + number, young + number):
                kept = RunRecord(f"kept-{at}", "echo", "anonymous", thread.id, started_at=at)
                await ledger.threads.begin(thread.id, kept, Message("user", "hi"))
                await ledger.threads.finish(
                    thread.id,
                    replace(kept, status="ok"),
                    (Message("user", "hi"), Message("assistant", "ho")),
                )
                loose = RunRecord(f"loose-{at}", "echo", "anonymous", status="ok", started_at=at)
                events = [(1, {"type": "RunStarted"}), (2, {"type": "RunFinished"})]
                await ledger.runs.record([EndedRun(kept.id, None, events), EndedRun(loose.id, loose, events)])

        steps = 0
        while await ledger.database.write(lambda connection: prune(connection, now, limit=3)):
            steps += 1
        assert steps == 3, "ten old runs, three at a time"

        runs = {run.id for run in (await ledger.runs.list(limit=100)).items}
        assert {run for run in runs if run.startswith("loose")} == {f"loose-{young + n}" for n in range(5)}
        assert len([run for run in runs if run.startswith("kept")]) == 10
        assert await ledger.runs.events(f"kept-{old}") == []
        assert len(await ledger.runs.events(f"kept-{young}")) == 2
        assert len((await ledger.threads.messages(thread.id, limit=200)).items) == 20
        assert not await ledger.database.write(lambda connection: prune(connection, now)), "nothing is left"
    finally:
        await ledger.close()


async def test_events_of_a_run_that_is_gone_are_not_kept(tmp_path: Path) -> None:
    ledger = await open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite3")
    try:
        await ledger.runs.record([EndedRun("nobody", None, [(1, {"type": "RunStarted"})])])
        assert await ledger.runs.events("nobody") == []
    finally:
        await ledger.close()


async def test_threads_of_nested_runs_are_in_no_list_and_go_with_their_runs(tmp_path: Path) -> None:
    now = at = 1_000 * DAY
    ledger = await open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite3", clock=lambda: at)
    try:
        old, young = now - KEEP_SECONDS - DAY, now - DAY
        for name, surface, at in (("a", PEER, old), ("b", PEER, young), ("c", "mcp", old)):
            nested = RunRecord(name, "echo", "anonymous", name, surface, started_at=at)
            await ledger.threads.begin(name, nested, Message("user", "hi"), new=NewThread(None, surface))
            answered = (Message("user", "hi"), Message("assistant", "ho"))
            await ledger.threads.finish(name, replace(nested, status="ok"), answered)
        assert [each.id for each in (await ledger.threads.list()).items] == ["c"]
        await ledger.database.write(lambda connection: prune(connection, now))
        there = [name for name in "abc" if await ledger.threads.get(name) is not None]
        assert there == ["b", "c"]
        assert {run.id for run in (await ledger.runs.list()).items} == {"b", "c"}
    finally:
        await ledger.close()
