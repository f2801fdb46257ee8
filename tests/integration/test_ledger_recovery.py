"""What a dead fleet left: another one goes on with it or puts it into error; a living one is left alone."""

import asyncio
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from time import time
from typing import Any

import asyncpg
import pytest
from sqlalchemy import Connection, select, text, update
from support.databases import Server, fresh_database, new_server
from support.turns import FOUND, LOOKING, SUMMARY, asked, error, ok, refused, run, said, tool_turn, turn
from support.waiting import poll, until

from pallas.ledger import Ledger, claims, open_ledger
from pallas.ledger.advisory_locks import SETTLED_SECONDS
from pallas.ledger.claims import MAX_DEATHS, ORPHAN_SECONDS, ClaimedRun, Estate
from pallas.ledger.tables import call_results, lives, tasks, waiting
from pallas.model import (
    Cost,
    EndedRun,
    Fault,
    FaultType,
    Principal,
    RunRecord,
    RunRequest,
    Said,
    Step,
    StoredRequest,
    StoredStep,
    TaskRecord,
)
from pallas.model.codec import encode_sparse

DYING = """
import asyncio, sys, time
from pallas.ledger import open_ledger
from pallas.model import Message, RunRecord, ToolCall

async def main(url, thread):
    ledger = await open_ledger(url)
    begun = RunRecord("killed", "jarvis", "me", thread, started_at=time.time())
    await ledger.threads.begin(thread, begun, Message("user", "question"))
    call = Message("assistant", "", calls=(ToolCall("c1", "s__t"),))
    await ledger.threads.add_message(thread, begun, call)
    await ledger.runs.begin(RunRecord("alone", "jarvis", "me", started_at=time.time()))
    print("in its tool", flush=True)
    await asyncio.sleep(600)

asyncio.run(main(*sys.argv[1:]))
"""

# Says what became of each write once a line comes on stdin; the last one is of a new run.
STOPPED = """
import asyncio, sys, time
from dataclasses import replace
from pallas.ledger import advisory_locks, open_ledger
from pallas.model import Fault, Message, RunRecord, ToolAnswer, ToolCall

async def main(url, thread, other):
    advisory_locks.BEAT_SECONDS = 0.05
    ledger = await open_ledger(url)
    begun = RunRecord("r1", "jarvis", "me", thread, started_at=time.time())
    asked, said = Message("user", "hello"), Message("assistant", "mine")
    looking = Message("assistant", "", calls=(ToolCall("c1", "s__t"),))
    found = Message("tool", "mine", answers=(ToolAnswer("c1", "mine"),))
    await ledger.threads.begin(thread, begun, asked, request="{}")
    await ledger.threads.add_message(thread, begun, looking)
    print("in its tool", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    over = replace(begun, status="ok", finished_at=time.time())
    new = replace(begun, id="r2", thread=other)
    for work in (
        ledger.threads.add_message(thread, begun, found),
        ledger.threads.finish(thread, over, [asked, looking, found, said]),
        ledger.threads.fail(thread, replace(over, status="error"), "why", [said]),
        ledger.threads.begin(other, new, asked),
    ):
        try:
            await work
            print("done", flush=True)
        except Fault as fault:
            print(fault.data.get("reason", fault), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@asynccontextmanager
async def in_its_tool(script: str, *arguments: str) -> AsyncIterator[Process]:
    """Another fleet with a run under way, killed at the end."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        script,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert await line_of(child) == "in its tool"
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def line_of(child: Process) -> str:
    assert child.stdout is not None
    return (await asyncio.wait_for(child.stdout.readline(), 60)).decode().rstrip()


async def killed_in_the_middle(url: str, thread: str) -> None:
    """Another fleet has two runs under way when it is killed."""
    async with in_its_tool(DYING, url, thread) as child:
        child.send_signal(signal.SIGKILL)


async def inherited(ledger: Ledger, serves: Callable[[str], bool] | None, runs: int) -> Estate:
    """What the ledger inherits, once it is so many runs: a server may hear only now that a fleet is gone."""
    found = Estate()

    async def look() -> Estate:
        nonlocal found
        more = await ledger.inherit(serves)
        found = Estate(found.claimed + more.claimed, found.ended + more.ended)
        return found

    return await poll(look, lambda estate: len(estate.claimed) + len(estate.ended) >= runs)


def all_agents(agent: str) -> bool:
    return True


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fleet of PostgreSQL whose lock is free is dead at once, as it is beside a file."""
    monkeypatch.setattr("pallas.ledger.advisory_locks.MISSED_SECONDS", 0.0)
    monkeypatch.setattr("pallas.ledger.advisory_locks.SETTLED_SECONDS", 0.0)


async def left_behind(url: str, *begun: RunRecord, requests: tuple[str | None, ...] = ()) -> None:
    """A fleet ends in the middle of these runs, each in its thread after its first call."""
    ledger = await open_ledger(url)
    for number, each in enumerate(begun):
        request = requests[number] if requests else f'{{"of": "{each.id}"}}'
        await ledger.threads.begin(each.thread, each, asked(), request=request)
        await ledger.threads.add_message(each.thread, each, LOOKING)
    await ledger.close(hand_over=True)


async def threads_of(url: str, number: int, agent: str = "jarvis") -> list[str]:
    ledger = await open_ledger(url)
    made = [(await ledger.threads.create(agent, "me")).id for _ in range(number)]
    await ledger.close()
    return made


async def taken_for_dead(ledger: Ledger, mine: Ledger, serves: Callable[[str], bool] | None) -> Estate:
    """As ``mine.inherit`` where it takes a fleet for dead that lives."""
    return await mine.database.write(
        lambda connection: claims.inherit(connection, ledger.life, mine.life, 1.0, serves)
    )


async def check_recovered(ledger: Ledger, thread: str) -> None:
    rows = (await ledger.threads.messages(thread)).items
    assert [(row.role, row.status) for row in rows[-2:]] == [("user", "error"), ("assistant", "error")]
    assert all(
        "the fleet was stopped in the middle of this turn (found 20" in row.reason for row in rows[-2:]
    )
    for run_id in ("killed", "alone"):
        found = await known(ledger, run_id)
        assert found.status == "error"
        assert found.finished_at is not None
        assert "the fleet was stopped" in found.fault


async def known(ledger: Ledger, run_id: str) -> RunRecord:
    found = await ledger.runs.get(run_id)
    assert found is not None
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("at_once")
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
        # Nothing is stored of how these runs go on, whoever serves their agent.
        estate = await inherited(ledger, all_agents, 2)
        assert (estate.claimed, set(estate.ended)) == ((), {"killed", "alone"})
        await check_recovered(ledger, thread)
        assert len((await ledger.threads.history(thread))[0]) == 4
        assert await turn(ledger, thread, "after") == 8
        assert len((await ledger.threads.history(thread))[0]) == 6
        assert await ledger.inherit(all_agents) == Estate()
    finally:
        await ledger.close()


@pytest.mark.slow
async def test_a_living_fleet_cleans_up_after_another_one_and_leaves_a_third_alone(
    database_url: str,
) -> None:
    survivor = await open_ledger(database_url)
    third = await open_ledger(database_url)
    try:
        ours = {}
        for name, each in (("mine", survivor), ("third", third)):
            thread = (await each.threads.create("jarvis", "me")).id
            ours[name] = run(name, thread)
            await each.threads.begin(thread, ours[name], asked(), request="{}")
        thread = (await survivor.threads.create("jarvis", "me")).id
        await killed_in_the_middle(database_url, thread)
        assert set((await inherited(survivor, all_agents, 2)).ended) == {"killed", "alone"}
        await check_recovered(survivor, thread)
        for name, each in (("mine", survivor), ("third", third)):
            assert (await known(each, name)) == ours[name]
            await each.threads.finish(ours[name].thread, ok(ours[name]), [asked(), said()])
            assert len((await third.threads.history(ours[name].thread))[0]) == 2
    finally:
        await survivor.close()
        await third.close()


async def test_a_fleet_that_stops_leaves_nothing_running(database_url: str) -> None:
    first, second = await open_ledger(database_url), await open_ledger(database_url)
    threads = [(await first.threads.create("jarvis", "me")).id for _ in range(2)]
    for name, thread, each in zip(("r1", "r2"), threads, (first, second), strict=True):
        await each.threads.begin(thread, run(name, thread), asked(), request="{}")
    await first.close()
    assert [(await known(second, each)).status for each in ("r1", "r2")] == ["error", "running"]
    statuses = [[row.status for row in (await second.threads.messages(each)).items] for each in threads]
    assert statuses == [["error"], ["pending"]]
    # It frees the thread, and leaves nothing to inherit.
    assert await turn(second, threads[0], "next") == 2
    assert await second.inherit(all_agents) == Estate()
    await second.close()


@pytest.mark.usefixtures("at_once")
async def test_a_fleet_that_hands_over_leaves_its_runs_to_the_next_one(database_url: str) -> None:
    first, second = await open_ledger(database_url), await open_ledger(database_url)
    try:
        thread = (await first.threads.create("jarvis", "me")).id
        begun = run("r1", thread)
        await first.threads.begin(thread, begun, asked(), request="how it goes on")
        assert await second.inherit(all_agents) == Estate()
        await first.close(hand_over=True)
        assert await known(second, "r1") == begun
        assert await refused(second.threads.begin(thread, run("r2", thread), asked())) == "busy"
        claimed = ClaimedRun(replace(begun, attempt=2), "how it goes on")
        assert await inherited(second, all_agents, 1) == Estate((claimed,))
        assert await known(second, "r1") == claimed.record
        # The life of the first fleet is gone, and nobody inherits from it twice.
        assert await second.database.read(lives_in) == {second.life}
        assert await second.inherit(all_agents) == Estate()
    finally:
        await second.close()
    # The run belonged to the second one, which ended without handing it over.
    third = await open_ledger(database_url)
    assert (await known(third, "r1")).status == "error"
    await third.close()


def lives_in(connection: Connection) -> set[str]:
    return set(connection.execute(select(lives.c.id)).scalars())


@pytest.mark.usefixtures("at_once")
async def test_a_claimed_run_goes_on_from_the_messages_and_results_that_are_stored(database_url: str) -> None:
    ledger = await open_ledger(database_url)
    thread = (await ledger.threads.create("jarvis", "me")).id
    await tool_turn(ledger, thread, "before")
    begun = run("r1", thread)
    await ledger.threads.begin(thread, begun, asked("again"), request='{"of": "r1"}')
    await ledger.threads.add_message(thread, begun, LOOKING)
    await ledger.threads.add_message(thread, begun, FOUND)
    # The second step: of two calls one came back; what came first counts.
    calls = tuple(replace(call, id=f"d{number}") for number, call in enumerate(LOOKING.calls))
    more = replace(LOOKING, text="and again", calls=calls)
    part = await ledger.threads.add_message(thread, begun, more)
    await ledger.threads.keep_result(begun, part, "d0", '{"content": "\\u0000 one"}')
    await ledger.threads.keep_result(begun, part, "d0", "something else")
    await ledger.close(hand_over=True)

    second = await open_ledger(database_url)
    try:
        ((claimed,), ended, _) = await inherited(second, all_agents, 1)
        assert ended == ()
        assert claimed == (replace(begun, attempt=2), '{"of": "r1"}')
        results = {"d0": '{"content": "\\u0000 one"}'}
        so_far = (asked("again"), LOOKING, FOUND, more)
        assert await second.threads.said("r1") == Said(so_far, 5, part, results)
        # A model is shown none of it before the run is over, and the thread takes no other run.
        assert len((await second.threads.history(thread))[0]) == 4
        assert await refused(second.threads.begin(thread, run("r2", thread), asked())) == "busy"

        answers = tuple(replace(answer, call_id=f"d{n}") for n, answer in enumerate(FOUND.answers))
        found = replace(FOUND, answers=answers)
        last = await second.threads.add_message(thread, claimed.record, found)
        # The results are in the message now.
        assert await second.threads.said("r1") == Said((*so_far, found), 5, last, {})
        assert await second.database.read(lambda c: c.execute(select(call_results)).all()) == []
        whole = (*so_far, found, said("there"))
        place = await second.threads.finish(thread, ok(claimed.record), whole)
        assert (await second.threads.history(thread))[0][4:] == whole
        record = await known(second, "r1")
        assert (record.status, record.attempt, record.turn_index) == ("ok", 2, place)
        assert await second.threads.said("r1") is None
    finally:
        await second.close()


@pytest.mark.parametrize("request_text", [None, "{}"], ids=["put-into-error", "claimed"])
async def test_a_run_that_was_taken_over_changes_nothing_any_more(
    database_url: str, request_text: str | None
) -> None:
    first, second = await open_ledger(database_url), await open_ledger(database_url)
    try:
        thread = (await first.threads.create("jarvis", "me")).id
        begun = run("r1", thread)
        await first.threads.begin(thread, begun, asked(), request=request_text)
        await first.threads.add_message(thread, begun, LOOKING)
        assert await first.threads.has(thread, begun)
        estate = await taken_for_dead(first, second, all_agents)
        whole = (asked(), LOOKING, FOUND, said())

        async def check_fenced(*, is_answered: bool = False) -> None:
            before = (await known(second, "r1"), await all_of(second, thread))
            theirs = (asked(), LOOKING, FOUND, said("theirs"))
            for work in (
                first.threads.add_message(thread, begun, FOUND),
                first.threads.finish(thread, ok(begun), theirs),
                first.threads.finish(thread, ok(begun), [SUMMARY, said("theirs")], replaces=True),
                first.threads.summarise(thread, SUMMARY, 0, before=begun),
            ):
                assert await refused(work) == "taken_over"
            for partial in ([], [said("theirs")]):
                # The end of a run that was answered elsewhere is no news, and is not written either.
                failing = first.threads.fail(thread, error(begun), "why", partial)
                assert await refused(failing) == ("" if is_answered else "taken_over")
            assert not await first.threads.has(thread, begun)
            assert (await known(second, "r1"), await all_of(second, thread)) == before

        await check_fenced()
        if not estate.claimed:
            assert estate.ended == ("r1",)
            assert (await known(second, "r1")).status == "error"
            assert await turn(second, thread, "r2") == 3
            await check_fenced()
            return
        (claimed,) = (each.record for each in estate.claimed)
        assert await second.threads.has(thread, claimed)
        assert await second.threads.add_message(thread, claimed, FOUND) == 2
        await check_fenced()
        assert await second.threads.finish(thread, ok(claimed), whole) == 4
        await check_fenced(is_answered=True)
        assert (await second.threads.history(thread))[0] == whole
        assert ((await known(second, "r1")).status, (await known(second, "r1")).fault) == ("ok", "")
    finally:
        await first.close()
        await second.close()


async def all_of(ledger: Ledger, thread: str) -> Any:
    return (
        (await ledger.threads.messages(thread)).items,
        await ledger.threads.history(thread),
        await ledger.threads.get(thread),
    )


async def test_a_run_that_was_taken_over_is_refused_a_message_that_is_there_already(
    database_url: str,
) -> None:
    first, second = await open_ledger(database_url), await open_ledger(database_url)
    try:
        thread = (await first.threads.create("jarvis", "me")).id
        begun = run("r1", thread)
        await first.threads.begin(thread, begun, asked(), request="{}")
        await first.threads.add_message(thread, begun, LOOKING)
        await taken_for_dead(first, second, all_agents)
        # It heard that the write had failed; if it succeeded now, its tools would be called here as well.
        again = first.threads.add_message(thread, begun, LOOKING, again=True)
        assert await refused(again) == "taken_over"
    finally:
        await first.close()
        await second.close()


async def test_a_fleet_that_does_not_know_whether_a_run_began_does_not_end_it_elsewhere(
    database_url: str,
) -> None:
    first, second = await open_ledger(database_url), await open_ledger(database_url)
    try:
        thread = (await first.threads.create("jarvis", "me")).id
        busy, waits = run("r1", thread), run("r2", thread)
        await first.threads.begin(thread, busy, asked(), request="{}")
        await first.threads.wait(thread, waits, "{}")
        estate = await taken_for_dead(first, second, all_agents)
        (queued,) = estate.queued
        await second.threads.finish(thread, ok(estate.claimed[0].record), [asked(), said()])
        assert not await first.runs.is_elsewhere("r2")
        await second.threads.begin(thread, waits, asked(), request="{}", place=queued.position)
        assert await first.runs.is_elsewhere("r2") and not await second.runs.is_elsewhere("r2")
        assert await refused(first.threads.fail(thread, error(waits), "why")) == "taken_over"
        assert await known(second, "r2") == waits
        assert await second.threads.has(thread, waits)
    finally:
        await first.close()
        await second.close()


async def test_a_run_that_waits_for_its_thread_is_found_before_it_begins(ledger: Ledger) -> None:
    thread = (await ledger.threads.create("jarvis", "me")).id
    busy, waits = run("r1", thread), run("r2", thread)
    await ledger.threads.begin(thread, busy, asked(), request="{}")
    request = StoredRequest(RunRequest("jarvis", "hello", principal=Principal("me"), surface="rest"))
    place = await ledger.threads.wait(thread, waits, encode_sparse(request))
    found = await ledger.runs.find("r2")
    assert found is not None
    assert found == RunRecord("r2", "jarvis", "me", thread, "rest", started_at=found.started_at)
    assert await ledger.runs.get("r2") is None
    await ledger.threads.finish(thread, ok(busy), [asked(), said()])
    await ledger.threads.begin(thread, waits, asked(), request="{}", place=place)
    assert await ledger.runs.find("r2") == await ledger.runs.get("r2") == waits
    assert await ledger.runs.find("r3") is None


@pytest.mark.parametrize("end", ["finish", "fail", "inherit"])
async def test_stored_results_of_calls_go_with_the_end_of_their_run(database_url: str, end: str) -> None:
    first, second = await open_ledger(database_url), await open_ledger(database_url)
    try:
        thread = (await first.threads.create("jarvis", "me")).id
        begun = run("r1", thread)
        await first.threads.begin(thread, begun, asked())
        part = await first.threads.add_message(thread, begun, LOOKING)
        await first.threads.keep_result(begun, part, "c1", "{}")
        if end == "finish":
            await first.threads.finish(thread, ok(begun), [asked(), LOOKING, FOUND, said()])
        elif end == "fail":
            await first.threads.fail(thread, error(begun), "why")
        else:
            await taken_for_dead(first, second, all_agents)
        assert (await known(second, "r1")).status != "running"
        assert await second.database.read(lambda c: c.execute(select(call_results)).all()) == []
    finally:
        await first.close()
        await second.close()


async def test_the_progress_of_a_run_that_was_taken_over_is_not_written(database_url: str) -> None:
    first, second = await open_ledger(database_url), await open_ledger(database_url)
    try:
        thread = (await first.threads.create("jarvis", "me")).id
        begun = run("r1", thread)
        await first.threads.begin(thread, begun, asked(), request="{}")
        ((claimed,), _, _) = await taken_for_dead(first, second, all_agents)
        await second.threads.progress([replace(claimed.record, steps=2)])
        await first.threads.progress([replace(begun, steps=7)])
        assert (await known(second, "r1")).steps == 2
    finally:
        await first.close()
        await second.close()


@pytest.mark.usefixtures("at_once")
async def test_a_run_that_ended_so_many_fleets_is_put_into_error(database_url: str) -> None:
    (thread,) = await threads_of(database_url, 1)
    begun = run("r1", thread)
    await left_behind(database_url, begun)
    for attempt in range(2, MAX_DEATHS + 1):
        ledger = await open_ledger(database_url)
        estate = await inherited(ledger, all_agents, 1)
        ((former, _),) = estate.claimed
        assert former == replace(begun, attempt=attempt)
        await ledger.close(hand_over=True)
    ledger = await open_ledger(database_url)
    try:
        assert await inherited(ledger, all_agents, 1) == Estate((), ("r1",))
        record = await known(ledger, "r1")
        assert (record.status, record.attempt) == ("error", MAX_DEATHS)
        assert "; 3 fleets died while they worked on the same step of it" in record.fault
        rows = (await ledger.threads.messages(thread)).items
        assert [(row.status, row.reason) for row in rows] == [("error", record.fault)] * 2
        assert await ledger.threads.said("r1") is None
        # What the last of those fleets says of it, if it lives after all, changes nothing.
        late = replace(former, status="error", fault="late", finished_at=record.started_at + 60.0)
        await ledger.runs.record([EndedRun("r1", late, ())])
        assert await known(ledger, "r1") == record
        with pytest.raises(Fault) as caught:
            await ledger.runs.add_events("r1", [(1, {})], claim=former.claim)
        assert caught.value.data["reason"] == "taken_over"
        assert await turn(ledger, thread, "r2") == 3
    finally:
        await ledger.close()


@pytest.mark.slow
@pytest.mark.usefixtures("at_once")
async def test_a_run_that_gets_on_may_end_any_number_of_fleets(database_url: str) -> None:
    (thread,) = await threads_of(database_url, 1)
    record = run("r1", thread)
    await left_behind(database_url, record)
    for number in range(2 * MAX_DEATHS):
        ledger = await open_ledger(database_url)
        (claimed,) = (await inherited(ledger, all_agents, 1)).claimed
        record = claimed.record
        if number % (MAX_DEATHS - 1) == 0:
            await ledger.threads.add_message(thread, record, LOOKING)
        await ledger.close(hand_over=True)
    assert record.attempt == 2 * MAX_DEATHS + 1


@pytest.mark.usefixtures("at_once")
async def test_a_run_that_is_put_into_error_has_those_it_asked_for_cancelled(database_url: str) -> None:
    first, second, third = [await open_ledger(database_url) for _ in range(3)]
    try:
        thread, other = [(await first.threads.create("jarvis", "me")).id for _ in range(2)]
        await first.threads.begin(thread, run("r1", thread), asked())  # nobody can go on with it
        paid = StoredStep(Step("r1", 1, "model", "m", 1.0, "done", cost=5, unpriced=1))
        await first.runs.record([EndedRun("r1", None, (), [paid])])
        nested = replace(run("r2", other), within="r1")
        await third.threads.begin(other, nested, asked(), request="{}")
        assert (await taken_for_dead(first, second, all_agents)).ended == ("r1",)
        assert await third.runs.mine() == ({"r2"}, {"r2"})
        assert Cost.of(await known(second, "r1")) == Cost(5, 1)
    finally:
        for ledger in (first, second, third):
            await ledger.close()


@pytest.mark.slow
async def test_a_run_whose_agent_nobody_serves_is_left_alone_for_an_hour(database_url: str) -> None:
    threads = await threads_of(database_url, 2)
    orphan, served = run("orphan", threads[0], agent="other"), run("served", threads[1])
    await left_behind(database_url, orphan, served)
    now = orphan.started_at
    ledger = await open_ledger(database_url, clock=lambda: now)
    try:

        def serves(agent: str) -> bool:
            return agent == "jarvis"

        # That the fleet is dead is known: a run of it that has an agent here goes on.
        estate = await inherited(ledger, serves, 1)
        assert [each.record.id for each in estate.claimed] == ["served"]
        assert len(await ledger.database.read(lives_in)) == 2
        now += ORPHAN_SECONDS - 1
        assert await ledger.inherit(serves) == Estate()
        # A program that serves no agents does not decide it either.
        now += 10 * ORPHAN_SECONDS
        assert await ledger.inherit(None) == Estate()
        now -= 10 * ORPHAN_SECONDS
        assert await known(ledger, "orphan") == orphan
        assert (await ledger.threads.messages(threads[0])).items[0].status == "pending"
        now += 1
        assert await ledger.inherit(serves) == Estate((), ("orphan",))
        record = await known(ledger, "orphan")
        assert (record.status, record.attempt) == ("error", 1)
        assert record.fault.endswith("; no fleet serves its agent any more")
        assert await turn(ledger, threads[0], "next") == 3
        assert await ledger.database.read(lives_in) == {ledger.life}
    finally:
        await ledger.close()


@pytest.mark.usefixtures("at_once")
async def test_a_run_that_one_fleet_does_not_serve_is_claimed_by_another_that_does(database_url: str) -> None:
    (thread,) = await threads_of(database_url, 1, "other")
    begun = run("r1", thread, agent="other")
    await left_behind(database_url, begun)
    first, second = await open_ledger(database_url), await open_ledger(database_url)
    try:
        assert await first.inherit(lambda agent: agent == "jarvis") == Estate()
        estate = await inherited(second, lambda agent: agent == "other", 1)
        assert [each.record for each in estate.claimed] == [replace(begun, attempt=2)]
    finally:
        await first.close()
        await second.close()


def waiting_in(connection: Connection) -> list[str]:
    return list(connection.execute(select(waiting.c.run_id)).scalars())


async def test_a_life_stays_while_a_run_of_it_waits_that_the_fleet_that_looks_does_not_serve(
    database_url: str,
) -> None:
    first, second = await open_ledger(database_url), await open_ledger(database_url)
    try:
        thread = (await first.threads.create("jarvis", "me")).id
        busy, waits = run("r1", thread), run("r2", thread)
        await second.threads.begin(thread, busy, asked(), request="{}")
        await first.threads.wait(thread, waits, "{}")

        async def taken(serves: Callable[[str], bool] | None, after: float = 0.0) -> Estate:
            now = time() + after
            return await second.database.write(
                lambda it: claims.inherit(it, first.life, second.life, now, serves)
            )

        for serves in (None, lambda agent: False):
            assert await taken(serves) == Estate()
            # Else each fleet that looks gives it another moment, of those that could take it over too.
            assert await second.database.read(lives_in) == {first.life, second.life}
        (queued,) = (await taken(all_agents)).queued
        assert queued.run_id == "r2"
        assert await second.database.read(lives_in) == {second.life}
        await second.threads.stop_waiting("r2")

        # Nobody serves its agent any more: it must not block its thread for ever.
        await first.threads.wait(thread, run("r3", thread), "{}")
        assert await taken(lambda agent: False, ORPHAN_SECONDS - 60) == Estate()
        assert await second.database.read(waiting_in) == ["r3"]
        assert await taken(lambda agent: False, ORPHAN_SECONDS + 60) == Estate()
        await second.threads.finish(thread, ok(busy), [asked(), said()])
        assert await turn(second, thread, "r4") == 3
    finally:
        await first.close()
        await second.close()


@pytest.mark.slow
@pytest.mark.usefixtures("at_once")
async def test_of_fleets_that_look_at_the_same_time_one_claims_a_run(database_url: str) -> None:
    threads = await threads_of(database_url, 8)
    begun = [run(f"r{number}", thread) for number, thread in enumerate(threads)]
    for each in begun:  # of a fleet each
        await left_behind(database_url, each)
    ledgers = [await open_ledger(database_url) for _ in range(4)]
    try:
        await check_claimed_once(ledgers, begun)
    finally:
        for ledger in ledgers:
            await ledger.close()


async def check_claimed_once(ledgers: list[Ledger], begun: list[RunRecord]) -> None:
    """All ledgers look at the same time, until the runs of dead fleets are claimed."""
    claimed: list[ClaimedRun] = []

    async def look() -> bool:
        for estate in await asyncio.gather(*(each.inherit(all_agents) for each in ledgers)):
            assert estate.ended == ()
            claimed.extend(estate.claimed)
        return len(claimed) >= len(begun)

    await poll(look)
    assert sorted(each.record.id for each in claimed) == [each.id for each in begun]
    for each in begun:
        assert await known(ledgers[0], each.id) == replace(each, attempt=2)


async def test_a_run_that_is_handed_over_goes_on_elsewhere_and_no_fleet_died(database_url: str) -> None:
    ledgers = [await open_ledger(database_url) for _ in range(2)]
    try:
        thread = (await ledgers[0].threads.create("jarvis", "me")).id
        record = run("r1", thread)
        await ledgers[0].threads.begin(thread, record, asked(), request="{}")
        await ledgers[0].tasks.begin(TaskRecord("t1", "jarvis", "me", "working", 1.0, 1.0, run_id="r1"))
        # Fleets may hand it on more often than they may die.
        for number in range(2 * MAX_DEATHS):
            mine, other = ledgers[number % 2], ledgers[(number + 1) % 2]
            assert await other.inherit(all_agents) == Estate()
            await mine.threads.hand_over(record)
            # Its thread stays taken, and a program that serves no agents takes nothing.
            assert await refused(other.threads.begin(thread, run("r2", thread), asked())) == "busy"
            assert await other.inherit(None) == await other.inherit(lambda agent: False) == Estate()
            (claimed,) = (await other.inherit(all_agents)).claimed
            assert claimed.record == replace(record, attempt=record.attempt + 1)
            # It is not handed over again by the fleet that had it.
            await mine.threads.hand_over(record)
            assert await refused(mine.threads.add_message(thread, record, LOOKING)) == "taken_over"
            record = claimed.record
        await ledgers[1].close()  # the last one to hand it over
        found = await ledgers[0].tasks.get("t1")
        assert found is not None
        assert (found.status, await known(ledgers[0], "r1")) == ("working", record)
        await ledgers[0].threads.finish(thread, ok(record), [asked(), said()])
        await ledgers[0].threads.hand_over(record)
        assert (await known(ledgers[0], "r1")).status == "ok"
    finally:
        for ledger in ledgers:
            await ledger.close()


@pytest.mark.slow
async def test_of_fleets_that_find_a_run_that_was_handed_over_one_claims_it(database_url: str) -> None:
    ledgers = [await open_ledger(database_url) for _ in range(5)]
    try:
        begun = []
        for number in range(8):
            thread = (await ledgers[0].threads.create("jarvis", "me")).id
            begun.append(run(f"r{number}", thread))
            await ledgers[0].threads.begin(thread, begun[-1], asked(), request="{}")
        for each in begun:
            await ledgers[0].threads.hand_over(each)
        await check_claimed_once(ledgers[1:], begun)
    finally:
        for ledger in ledgers:
            await ledger.close()


@pytest.mark.slow
@pytest.mark.usefixtures("at_once")
async def test_a_run_that_two_fleets_died_of_may_still_be_handed_over(database_url: str) -> None:
    (thread,) = await threads_of(database_url, 1)
    begun = run("r1", thread)
    await left_behind(database_url, begun)
    for _ in range(MAX_DEATHS - 2):
        ledger = await open_ledger(database_url)
        await inherited(ledger, all_agents, 1)
        await ledger.close(hand_over=True)
    first, second = await open_ledger(database_url), await open_ledger(database_url)
    try:
        ((claimed,), _, _) = await inherited(first, all_agents, 1)
        await first.threads.hand_over(claimed.record)
        # Nobody died of it since: it goes on, and its thread is not taken for ever.
        estate = await second.inherit(all_agents)
        assert [each.record.attempt for each in estate.claimed] == [claimed.record.attempt + 1]
    finally:
        await first.close()
        await second.close()


async def test_a_run_that_was_handed_over_and_whose_agent_nobody_serves_ends_after_an_hour(
    database_url: str,
) -> None:
    now = 1_000_000.0
    ledger = await open_ledger(database_url, clock=lambda: now)
    try:
        thread = (await ledger.threads.create("jarvis", "me")).id
        begun = run("r1", thread, started_at=now)
        await ledger.threads.begin(thread, begun, asked(), request="{}")
        await ledger.threads.hand_over(begun)
        now += ORPHAN_SECONDS - 1
        assert await ledger.inherit(lambda agent: False) == Estate()
        assert (await known(ledger, "r1")).status == "running"
        now += 1
        assert await ledger.inherit(lambda agent: False) == Estate((), ("r1",))
        assert (await known(ledger, "r1")).fault.endswith("; no fleet serves its agent any more")
        assert await turn(ledger, thread, "next") == 2
    finally:
        await ledger.close()


@pytest.mark.usefixtures("at_once")
async def test_tasks_of_claimed_runs_go_along_and_others_fail(database_url: str) -> None:
    first = await open_ledger(database_url)
    begun = [
        run(name, (await first.threads.create(agent, "me")).id, agent=agent)
        for name, agent in (("claimed", "jarvis"), ("left", "other"), ("lost", "jarvis"))
    ]
    for each in begun:
        request = None if each.id == "lost" else "{}"
        await first.threads.begin(each.thread, each, asked(), request=request)
    for name in ("claimed", "left", "lost", ""):
        task = TaskRecord(f"task-{name}", "jarvis", "me", "working", 1.0, 1.0, run_id=name)
        await first.tasks.begin(task)
    await first.close(hand_over=True)

    second = await open_ledger(database_url)
    try:
        estate = await inherited(second, lambda agent: agent == "jarvis", 2)
        assert [each.record.id for each in estate.claimed] == ["claimed"]
        assert estate.ended == ("lost",)
        found = {each.id: each.status for each in (await second.tasks.list()).items}
        assert found == {
            "task-claimed": "working",
            "task-left": "working",
            "task-lost": "failed",
            "task-": "failed",
        }

        def lives_of(connection: Connection) -> dict[str, str]:
            rows = connection.execute(select(tasks.c.id, tasks.c.life).where(tasks.c.status == "working"))
            return {row.id: row.life for row in rows}

        assert await second.database.read(lives_of) == {"task-claimed": second.life, "task-left": first.life}
        # Its end is written by the new fleet.
        done = await second.tasks.get("task-claimed")
        assert done is not None
        await second.tasks.finish(replace(done, status="completed", text="done"))
        done = await second.tasks.get("task-claimed")
        assert done is not None
        assert (done.status, done.text, done.thread) == ("completed", "done", begun[0].thread)
    finally:
        await second.close()


@pytest.mark.usefixtures("at_once")
async def test_a_run_whose_thread_was_deleted_is_not_claimed(
    database_url: str,
) -> None:
    threads = await threads_of(database_url, 2)
    await left_behind(database_url, *(run(f"r{n}", thread) for n, thread in enumerate(threads)))
    ledger = await open_ledger(database_url)
    try:
        await ledger.threads.delete(threads[0])
        estate = await inherited(ledger, all_agents, 1)
        assert [each.record.id for each in estate.claimed] == ["r1"]
        assert await ledger.runs.get("r0") is None
        assert await ledger.threads.said("r0") is None
    finally:
        await ledger.close()


async def test_locks_of_lives_that_never_came_to_anything_are_tidied_away(tmp_path: Path) -> None:
    stray = tmp_path / "l.sqlite3-life-0123456789abcdef"
    stray.touch(0o600)
    other = tmp_path / "l.sqlite3-life-of-somebody-else"
    other.touch(0o600)
    ledger = await open_ledger(f"sqlite:///{tmp_path}/l.sqlite3")
    try:
        assert await ledger.inherit() == Estate()
        assert [stray.exists(), other.exists()] == [False, True]
        assert (tmp_path / f"l.sqlite3-life-{ledger.life}").exists()
    finally:
        await ledger.close()


@pytest.fixture
async def server_url(postgres: Server) -> AsyncIterator[str]:
    """An empty database of PostgreSQL."""
    async with fresh_database(postgres) as url:
        yield url


@pytest.mark.slow
async def test_a_fleet_that_stands_still_is_taken_over_and_writes_nothing_when_it_goes_on(
    server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread, other = await threads_of(server_url, 2)
    ledger = await open_ledger(server_url)
    try:
        async with in_its_tool(STOPPED, server_url, thread, other) as child:
            # It holds its lock and beats.
            assert await ledger.inherit(all_agents) == Estate()
            child.send_signal(signal.SIGSTOP)
            monkeypatch.setattr("pallas.ledger.advisory_locks.STALE_SECONDS", 0.5)
            ((claimed,), ended, _) = await inherited(ledger, all_agents, 1)
            assert (claimed.record.id, claimed.record.attempt, ended) == ("r1", 2, ())
            monkeypatch.undo()
            stored = await ledger.threads.said("r1")
            assert stored is not None
            answer = said("by another fleet")
            before = await all_of(ledger, thread)

            child.send_signal(signal.SIGCONT)
            assert child.stdin is not None
            child.stdin.write(b"go on\n")
            assert [await line_of(child) for _ in range(4)] == ["taken_over"] * 3 + ["done"]
            assert await child.wait() == 0
            assert await all_of(ledger, thread) == before
            assert await known(ledger, "r1") == claimed.record

            whole = [*stored.messages, answer]
            await ledger.threads.finish(thread, ok(claimed.record), whole)
            assert (await ledger.threads.history(thread))[0][-1] == answer
    finally:
        await ledger.close()


@pytest.mark.slow
async def test_a_free_lock_counts_after_missed_beats_and_a_held_one_after_more_of_them(
    server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait_for(**seconds: float) -> None:
        for name, value in seconds.items():
            monkeypatch.setattr(f"pallas.ledger.advisory_locks.{name.upper()}_SECONDS", value)

    never = 10_000.0
    wait_for(beat=never, missed=never, stale=never, settled=0.0, judge=never)
    monkeypatch.setattr("pallas.ledger.lives.LATE_SECONDS", never)
    threads = await threads_of(server_url, 2)
    holds = await open_ledger(server_url)
    await holds.threads.begin(threads[1], run("r2", threads[1]), asked(), request="{}")
    await left_behind(server_url, run("r1", threads[0]))
    ledger = await open_ledger(server_url)
    watcher = await asyncpg.connect(server_url)

    async def locks_held() -> int:
        return int(await watcher.fetchval(LOCKS))

    try:
        assert await ledger.inherit(all_agents) == Estate()
        assert not ledger.is_beat_late
        monkeypatch.setattr("pallas.ledger.lives.LATE_SECONDS", 0.0)
        assert await ledger.inherit(all_agents) == Estate()
        assert ledger.is_beat_late  # it looks again soon
        wait_for(missed=0.0, settled=never)
        assert await ledger.inherit(all_agents) == Estate()
        wait_for(settled=0.0)
        estate = await ledger.inherit(all_agents)
        assert [each.record.id for each in estate.claimed] == ["r1"]
        assert await locks_held() == 2

        wait_for(stale=0.0)
        estate = await ledger.inherit(all_agents)
        assert [each.record.id for each in estate.claimed] == ["r2"]
        # The session that held the lock is ended, so that it holds up nothing.
        await poll(locks_held, lambda held: held <= 1, timeout=30)
    finally:
        await watcher.close()
        await ledger.close()
        await holds.close()


LOCKS = """
SELECT count(*) FROM pg_locks
WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


@pytest.mark.slow
async def test_of_fleets_that_find_a_stale_one_one_claims_its_run(
    server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pallas.ledger.advisory_locks.BEAT_SECONDS", 10_000.0)
    monkeypatch.setattr("pallas.ledger.advisory_locks.JUDGE_SECONDS", 10_000.0)
    monkeypatch.setattr("pallas.ledger.advisory_locks.STALE_SECONDS", 0.0)
    threads = await threads_of(server_url, 6)
    begun = [run(f"r{number}", thread) for number, thread in enumerate(threads)]
    stale = [await open_ledger(server_url) for _ in begun]  # each holds its lock
    fresh = [await open_ledger(server_url) for _ in range(4)]
    try:
        for each, its in zip(begun, stale, strict=True):
            await its.threads.begin(each.thread, each, asked(), request="{}")
        beat = update(lives).where(lives.c.id.in_([each.life for each in fresh])).values(seen=2.0**40)
        await fresh[0].database.write(lambda connection: connection.execute(beat))
        await check_claimed_once(fresh, begun)
    finally:
        for ledger in (*stale, *fresh):
            await ledger.close()


async def test_a_fleet_that_was_taken_for_dead_enrols_again(
    server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pallas.ledger.advisory_locks.BEAT_SECONDS", 0.02)
    first, second = await open_ledger(server_url), await open_ledger(server_url)
    try:
        assert await taken_for_dead(first, second, all_agents) == Estate()
        both = {first.life, second.life}
        await poll(lambda: second.database.read(lives_in), lambda found: found == both, timeout=30)
        # Its new runs are its own.
        thread = (await first.threads.create("jarvis", "me")).id
        begun = run("r1", thread)
        await first.threads.begin(thread, begun, asked(), request="{}")
        assert await second.inherit(all_agents) == Estate()
        await first.threads.finish(thread, ok(begun), [asked(), said()])
    finally:
        await first.close()
        await second.close()


@pytest.fixture
def own_server() -> Iterator[Server]:
    server = new_server()
    yield server
    server.close()


@pytest.mark.slow
async def test_a_server_that_is_started_anew_is_found_again_and_nobody_is_taken_for_dead(
    own_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pallas.ledger.advisory_locks.BEAT_SECONDS", 0.05)
    ledger = await open_ledger(own_server.url())
    try:
        thread = (await ledger.threads.create("jarvis", "me")).id
        begun = run("r1", thread)
        await ledger.threads.begin(thread, begun, asked(), request="{}")
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
        assert await other.inherit(all_agents) == Estate()
        await other.close()
        await ledger.threads.finish(thread, ok(begun), [asked(), said()])
        assert len((await ledger.threads.history(thread))[0]) == 2
    finally:
        await ledger.close()


async def test_a_fleet_that_was_without_its_server_takes_nobody_for_dead_until_others_may_be_back(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pallas.ledger.advisory_locks.BEAT_SECONDS", 0.05)
    monkeypatch.setattr("pallas.ledger.advisory_locks.MISSED_SECONDS", 0.0)
    async with fresh_database(postgres) as url:
        left = await open_ledger(url)
        thread = (await left.threads.create("jarvis", "me")).id
        await left.threads.begin(thread, run("r1", thread), asked(), request="{}")
        await left.close(hand_over=True)
        ledger = await open_ledger(url)
        try:
            locks = ledger._locks
            before = locks._connection  # type: ignore[attr-defined]
            await before.close()  # as if the network had been away
            await until(lambda: locks._connection not in (None, before))  # type: ignore[attr-defined]
            assert await ledger.inherit(all_agents) == Estate()
            monkeypatch.setattr("pallas.ledger.advisory_locks.SETTLED_SECONDS", 0.0)
            assert len((await inherited(ledger, all_agents, 1)).claimed) == 1
        finally:
            await ledger.close()


@asynccontextmanager
async def beside_a_dead_one(server: Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Ledger]:
    """A fleet that does not beat again by itself, and another one that is gone with a run."""
    async with fresh_database(server, is_empty=True) as url:
        (thread,) = await threads_of(url, 1)
        await left_behind(url, run("r1", thread))
        monkeypatch.setattr("pallas.ledger.advisory_locks.BEAT_SECONDS", 3600.0)
        monkeypatch.setattr("pallas.ledger.advisory_locks.JUDGE_SECONDS", 3600.0)
        ledger = await open_ledger(url)
        try:
            yield ledger
        finally:
            await ledger.close()


@pytest.mark.usefixtures("at_once")
async def test_a_fleet_whose_last_beat_is_old_takes_nobody_for_dead(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with beside_a_dead_one(postgres, monkeypatch) as ledger:
        locks: Any = ledger._locks
        (dead,) = await ledger.database.read(lives_in) - {ledger.life}
        # As if it had been stopped, before its look or in it, and had not noticed.
        beat_at, locks._beat_at = locks._beat_at, locks._beat_at - 3600
        assert await ledger.inherit(all_agents) == Estate()
        assert await locks.if_dead(dead, lambda connection: True) is None
        locks._beat_at = beat_at
        assert len((await inherited(ledger, all_agents, 1)).claimed) == 1


@pytest.mark.usefixtures("at_once")
async def test_a_fleet_whose_lock_is_gone_takes_nobody_for_dead(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with beside_a_dead_one(postgres, monkeypatch) as ledger:
        locks: Any = ledger._locks
        # As on a standby that was promoted, on which nobody has a lock yet.
        pid = locks._connection.get_server_pid()
        gone = text("SELECT pg_terminate_backend(:pid)")
        await ledger.database.write(lambda connection: connection.execute(gone, {"pid": pid}).scalar())
        alive = text("SELECT count(*) FROM pg_stat_activity WHERE pid = :pid")

        async def sessions() -> Any:
            return await ledger.database.read(lambda it: it.execute(alive, {"pid": pid}).scalar())

        await poll(sessions, lambda found: found == 0)
        (dead,) = await ledger.database.read(lives_in) - {ledger.life}
        assert locks.may_judge
        assert await locks.if_dead(dead, lambda connection: True) is None
        assert await ledger.inherit(all_agents) == Estate()


UP = "SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())"


@pytest.mark.slow
async def test_a_fleet_that_starts_after_a_failover_gives_the_others_time(own_server: Server) -> None:
    url = own_server.url()
    thread, other = await threads_of(url, 2)
    async with in_its_tool(STOPPED, url, thread, other) as child:
        child.send_signal(signal.SIGKILL)
    own_server.stop()
    own_server.start_as_standby()
    # When it becomes the primary, its start is so long ago that it tells nothing.
    standby = await asyncpg.connect(url)
    await poll(lambda: standby.fetchval(UP), lambda seconds: seconds > SETTLED_SECONDS)
    await standby.close()
    own_server.promote()
    ledger = await open_ledger(url)
    try:
        assert await ledger.inherit(all_agents) == Estate()
        ((claimed,), ended, _) = await inherited(ledger, all_agents, 1)
        assert (claimed.record.id, ended) == ("r1", ())
    finally:
        await ledger.close()


WAITS_FOR_LIVES = """
SELECT count(*) FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND query LIKE '%lives%' AND datname = current_database()
"""


@asynccontextmanager
async def no_write_of_lives(url: str) -> AsyncIterator[asyncpg.Connection]:
    """The database answers, and holds up each beat, as while a primary waits for its standby."""
    holds, watches = await asyncpg.connect(url), await asyncpg.connect(url)
    try:
        async with holds.transaction():
            await holds.execute("LOCK TABLE lives IN EXCLUSIVE MODE")
            yield watches
    finally:
        await holds.close()
        await watches.close()


async def waits_for_lives(connection: asyncpg.Connection) -> bool:
    return bool(await connection.fetchval(WAITS_FOR_LIVES))


@pytest.mark.slow
async def test_a_fleet_whose_lock_is_not_held_again_takes_nobody_for_dead(
    server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MISSED_SECONDS", "SETTLED_SECONDS"):
        monkeypatch.setattr(f"pallas.ledger.advisory_locks.{name}", 0.0)
    (thread,) = await threads_of(server_url, 1)
    await left_behind(server_url, run("r1", thread))
    ledger = await open_ledger(server_url)
    try:
        async with no_write_of_lives(server_url) as watcher:
            await ledger._locks._connection.close()  # type: ignore[attr-defined]
            await poll(lambda: waits_for_lives(watcher), timeout=30)
            assert not ledger._locks.may_judge
            assert await ledger.inherit(all_agents) == Estate()
            # So it is for what began before, and waited for a connection meanwhile.
            dead = await watcher.fetchval("SELECT life FROM runs WHERE id = 'r1'")
            assert await ledger._locks.if_dead(dead, lambda connection: True) is None
        assert len((await inherited(ledger, all_agents, 1)).claimed) == 1
    finally:
        await ledger.close()


async def test_a_fleet_whose_beat_is_held_up_takes_nobody_for_dead(
    server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pallas.ledger.advisory_locks.BEAT_SECONDS", 0.02)
    monkeypatch.setattr("pallas.ledger.advisory_locks.JUDGE_SECONDS", 0.2)
    ledger = await open_ledger(server_url)
    try:
        async with no_write_of_lives(server_url) as watcher:
            await poll(lambda: waits_for_lives(watcher), timeout=30)
            await until(lambda: not ledger._locks.may_judge)
            assert await waits_for_lives(watcher)
        await until(lambda: ledger._locks.may_judge)
    finally:
        await ledger.close()
