"""A failover lost a claim, so two fleets have the same attempt of a run: only the last one writes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Connection, delete, insert, select, text, update
from support.turns import FOUND, LOOKING, SUMMARY, asked, error, ok, refused, run, said, turn

from pallas.ledger import Ledger, claims, open_ledger
from pallas.ledger.tables import call_results, messages, runs, threads
from pallas.model import Principal, RunRecord
from pallas.runs.conversations import Conversation
from pallas.runs.ledger_writes import LedgerWrites
from pallas.runs.run import ActiveRun, Stats
from pallas.runs.turn_writer import TurnWriter
from pallas.telemetry.event_hub import EventHub

WHOLE = (asked(), LOOKING, FOUND, said())
_WRITTEN = (threads, runs, messages, call_results)


class Fleets(NamedTuple):
    """Two fleets with the same attempt. The first does not know that its claim is lost."""

    loser: Ledger
    lost: RunRecord
    owner: Ledger
    owned: RunRecord

    async def written(self) -> Any:
        """All rows that a turn writes."""
        return await self.owner.database.read(_rows)


def _rows(connection: Connection) -> Any:
    return [[tuple(row) for row in connection.execute(select(table))] for table in _WRITTEN]


async def claimed_by(fleet: Ledger, dead: str) -> RunRecord:
    """The one run of that life, which is taken for dead."""
    estate = await fleet.database.write(
        lambda connection: claims.inherit(connection, dead, fleet.life, 1.0, lambda agent: True)
    )
    (claimed,) = estate.claimed
    return claimed.record


async def restored(fleet: Ledger, before: Sequence[Any]) -> None:
    """The rows of runs and threads are as they were: a standby did not have the last transactions."""

    def work(connection: Connection) -> None:
        for table, rows in zip((threads, runs), before, strict=False):
            for row in rows:
                values = dict(zip(table.c.keys(), row, strict=True))
                connection.execute(update(table).where(table.c.id == values["id"]).values(values))

    await fleet.database.write(work)


@asynccontextmanager
async def failed_over(url: str, *, is_same: bool) -> AsyncIterator[Fleets]:
    """A fleet claims a run, a failover loses that, and another one, or the same again, claims it."""
    first, second, third = [await open_ledger(url) for _ in range(3)]
    try:
        thread = (await first.threads.create("jarvis", "me")).id
        begun = run("r1", thread)
        await first.threads.begin(thread, begun, asked(), request="{}")
        await first.threads.add_message(thread, begun, LOOKING)
        before = await first.database.read(_rows)
        lost = await claimed_by(second, first.life)
        assert await second.threads.has(thread, lost)
        await restored(second, before)
        owner = second if is_same else third
        owned = await claimed_by(owner, first.life)
        assert (lost.id, lost.attempt) == (owned.id, owned.attempt) == ("r1", 2)
        yield Fleets(second, lost, owner, owned)
    finally:
        for each in (first, second, third):
            await each.close()


@pytest.fixture(params=["another", "the-same"])
async def fleets(request: pytest.FixtureRequest, database_url: str) -> AsyncIterator[Fleets]:
    async with failed_over(database_url, is_same=request.param == "the-same") as found:
        yield found


async def test_a_fleet_whose_claim_was_lost_writes_nothing_any_more(fleets: Fleets) -> None:
    mine, lost, thread = fleets.loser.threads, fleets.lost, fleets.lost.thread
    theirs = (asked(), LOOKING, FOUND, said("theirs"))

    async def check_fenced() -> None:
        before = await fleets.written()
        for work in (
            mine.add_message(thread, lost, FOUND),
            mine.add_message(thread, lost, LOOKING, again=True),
            mine.finish(thread, ok(lost), theirs),
            mine.finish(thread, ok(lost), [SUMMARY, said("theirs")], replaces=True),
            mine.summarise(thread, SUMMARY, 0, before=lost),
            mine.fail(thread, error(lost), "why"),
            mine.fail(thread, error(lost), "why", [said("theirs")]),
        ):
            assert await refused(work) == "taken_over"
        await mine.keep_result(lost, 1, "c1", '"theirs"')
        await mine.progress([replace(lost, seconds=99.0, steps=99, tools=99)])
        await mine.hand_over(lost)
        assert not await mine.has(thread, lost)
        assert await fleets.written() == before

    await check_fenced()
    await fleets.owner.threads.keep_result(fleets.owned, 1, "c1", '"mine"')
    await fleets.owner.threads.progress([replace(fleets.owned, steps=3)])
    await check_fenced()
    await fleets.owner.threads.add_message(thread, fleets.owned, FOUND)
    await check_fenced()


async def test_the_fleet_that_claimed_it_last_goes_on(fleets: Fleets) -> None:
    mine, owned, thread = fleets.owner.threads, fleets.owned, fleets.owned.thread
    assert await mine.has(thread, owned)
    await mine.keep_result(owned, 1, "c1", '"mine"')
    await mine.progress([replace(owned, steps=3)])
    progressed = await fleets.owner.runs.get("r1")
    so_far = await mine.said("r1")
    assert progressed is not None and so_far is not None
    assert (progressed.steps, so_far.results) == (3, {"c1": '"mine"'})
    await mine.hand_over(owned)
    again = await claimed_by(fleets.loser, claims.NOBODY)
    assert (again.attempt, again.claim in ("", owned.claim, fleets.lost.claim)) == (3, False)
    assert not await mine.has(thread, owned)
    theirs = fleets.loser.threads
    await theirs.add_message(thread, again, FOUND)
    await theirs.finish(thread, ok(again), WHOLE)
    assert (await theirs.history(thread))[0] == WHOLE
    assert await turn(fleets.owner, thread, "r2") > 0


async def test_a_tool_is_called_for_the_claim_that_counts(fleets: Fleets) -> None:
    cut = []
    for fleet, record in ((fleets.loser, fleets.lost), (fleets.owner, fleets.owned)):
        active = ActiveRun("r1", "jarvis", EventHub(), Stats())
        so_far = await fleet.threads.said("r1")
        assert so_far is not None
        active.go_on(record, so_far)
        active.thread = record.thread
        # Its beats do not say whether the run is still its own.
        asks: Any = SimpleNamespace(threads=fleet.threads, is_fresh=False, times_lost=0)
        writes = LedgerWrites(asks, EventHub(), lambda _: None)
        conversation = Conversation(record.thread, Principal("me"))
        writer = TurnWriter(writes, asks, conversation, active.record, active)
        active.start(writer.still_ours())  # type: ignore[arg-type]
        assert active.task is not None
        await asyncio.wait({active.task}, timeout=60)
        cut.append(active.goes_on_elsewhere)
    assert cut == [True, False]


async def test_a_run_that_another_fleet_began_again_is_not_written_by_the_first(database_url: str) -> None:
    first, second = await open_ledger(database_url), await open_ledger(database_url)
    try:
        thread = (await first.threads.create("jarvis", "me")).id
        lost, owned = (
            replace(ActiveRun("r1", "jarvis", EventHub(), Stats()).record, thread=thread) for _ in range(2)
        )
        before = await first.database.read(_rows)
        await first.threads.begin(thread, lost, asked(), request="{}")
        # A failover loses that the run began; it waited, and another fleet begins it in its place.
        await first.database.write(lambda it: it.execute(delete(runs)).rowcount)
        await first.database.write(lambda it: it.execute(delete(messages)).rowcount)
        await restored(first, before)
        await second.threads.begin(thread, owned, asked(), request="{}")
        written = await second.database.read(_rows)
        assert not await first.threads.has(thread, lost)
        for work in (
            first.threads.add_message(thread, lost, LOOKING),
            first.threads.finish(thread, ok(lost), [asked(), said("theirs")]),
            first.threads.fail(thread, error(lost), "why"),
        ):
            assert await refused(work) == "taken_over"
        await first.threads.progress([replace(lost, steps=99)])
        await first.threads.hand_over(lost)
        assert await second.database.read(_rows) == written
        await second.threads.add_message(thread, owned, LOOKING)
        await second.threads.add_message(thread, owned, FOUND)
        await second.threads.finish(thread, ok(owned), WHOLE)
        assert (await second.threads.history(thread))[0] == WHOLE
    finally:
        await first.close()
        await second.close()


class OldFleet:
    """What a fleet of a release without claims writes, whose rows and conditions do not name them."""

    def __init__(self, ledger: Ledger, life: str) -> None:
        self.life = life
        self._database = ledger.database

    async def _changed(self, statement: str, **values: object) -> bool:
        def work(connection: Connection) -> bool:
            return connection.execute(text(statement), {"life": self.life, **values}).rowcount == 1

        return await self._database.write(work)

    async def begin(self, thread: str, run_id: str) -> None:
        """Begin a run with its question."""
        take = (
            "UPDATE threads SET run_id = :run, attempt = 1, next_index = next_index + 1 "
            "WHERE id = :thread AND run_id = ''"
        )
        assert await self._changed(take, thread=thread, run=run_id)

        def work(connection: Connection) -> None:
            free = connection.execute(select(threads.c.next_index).where(threads.c.id == thread)).scalar_one()
            row = {"thread_id": thread, "turn_index": free - 1, "part": free - 1, "role": "user"}
            connection.execute(
                insert(messages).values(
                    **row, content="hello", status="pending", run_id=run_id, created_at=1.0
                )
            )

        await self._database.write(work)
        begun = (
            "INSERT INTO runs (id, agent, owner, thread_id, status, life, started_at, request) "
            "VALUES (:run, 'jarvis', 'me', :thread, 'running', :life, 1, '{}')"
        )
        assert await self._changed(begun, thread=thread, run=run_id)

    async def claim(self, thread: str, run_id: str, attempt: int) -> bool:
        """Take a run of that attempt over."""
        of_thread = (
            "UPDATE threads SET attempt = attempt + 1 "
            "WHERE id = :thread AND run_id = :run AND attempt = :attempt"
        )
        of_run = "UPDATE runs SET attempt = attempt + 1, life = :life WHERE id = :run"
        values = {"run": run_id, "attempt": attempt}
        return await self._changed(of_thread, thread=thread, **values) and await self._changed(
            of_run, run=run_id
        )

    async def writes(self, thread: str, run_id: str, attempt: int) -> bool:
        """Whether the thread takes a message of that attempt."""
        take = (
            "UPDATE threads SET updated_at = updated_at + 1 "
            "WHERE id = :thread AND run_id = :run AND attempt = :attempt"
        )
        return await self._changed(take, thread=thread, run=run_id, attempt=attempt)


async def test_runs_of_fleets_of_an_older_release_go_on_in_both(ledger: Ledger) -> None:
    old = OldFleet(ledger, "f" * 16)
    thread = (await ledger.threads.create("jarvis", "me")).id
    # A run of ours leaves its claim in the thread.
    begun = replace(run("r1", thread), claim="c1")
    await ledger.threads.begin(thread, begun, asked())
    await ledger.threads.finish(thread, ok(begun), [asked(), said()])

    await old.begin(thread, "r2")
    assert await old.writes(thread, "r2", 1)
    claimed = await claimed_by(ledger, old.life)
    assert (claimed.attempt, claimed.claim != "") == (2, True)
    assert not await old.writes(thread, "r2", 1)
    await ledger.threads.add_message(thread, claimed, LOOKING)
    # It takes our run over, as after we were stopped.
    assert await old.claim(thread, "r2", 2)
    assert not await ledger.threads.has(thread, claimed)
    assert await refused(ledger.threads.add_message(thread, claimed, FOUND)) == "taken_over"
    assert await old.writes(thread, "r2", 3)
    again = await claimed_by(ledger, old.life)
    assert again.attempt == 4
    assert not await old.writes(thread, "r2", 3)
    assert await ledger.threads.has(thread, again)
    await ledger.threads.add_message(thread, again, FOUND)
    await ledger.threads.finish(thread, ok(again), WHOLE)
    assert (await ledger.threads.history(thread))[0][2:] == WHOLE


async def test_a_claim_that_an_older_release_repeats_after_a_failover_fences_ours(database_url: str) -> None:
    first, second = await open_ledger(database_url), await open_ledger(database_url)
    old = OldFleet(first, "f" * 16)
    try:
        thread = (await first.threads.create("jarvis", "me")).id
        begun = replace(run("r1", thread), claim="c1")
        await first.threads.begin(thread, begun, asked(), request="{}")
        before = await first.database.read(_rows)
        lost = await claimed_by(second, first.life)
        await restored(second, before)
        assert await old.claim(thread, "r1", 1)
        assert await refused(second.threads.add_message(thread, lost, LOOKING)) == "taken_over"
        assert not await second.threads.has(thread, lost)
        assert await old.writes(thread, "r1", 2)
    finally:
        await first.close()
        await second.close()
