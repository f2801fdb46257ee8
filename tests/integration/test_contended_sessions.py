"""Sessions that two fleets use, close, store and expire at the same moment."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from support.executors import Gate
from support.leased import ME, failed
from support.leased_twice import Fleet, Fleets, fault_of
from support.waiting import until

from pallas.model import Fault, FaultType, RunResult, StoredSession
from pallas.sessions import session_hooks
from pallas.sessions.lease import SessionLease


async def test_what_a_fleet_stores_late_leaves_the_prompt_of_another_alone(fleets: Fleets) -> None:
    # DR-11
    one, two, _ = fleets
    made = await one.sessions.create("a", ME)
    known = await one.ledger.sessions.get(made.id)
    assert known is not None
    late = replace(known, turns=3)
    await two.ledger.sessions.claim(made.id, "r1")
    await one.ledger.sessions.save([(late, "")])
    busy = await two.ledger.sessions.get(made.id)
    assert busy is not None
    assert (busy.run, busy.turns) == ("r1", 0)
    await two.ledger.sessions.free(made.id, "r1")
    await one.ledger.sessions.save([(late, "")])
    assert await two.ledger.sessions.get(made.id) == late


async def opening(fleet: Fleet, session: str) -> tuple[asyncio.Task[RunResult], asyncio.Event]:
    """A prompt whose session the agent here has not opened yet, and what opens it."""
    opens = fleet.executor.opens = asyncio.Event()
    asking = asyncio.create_task(fleet.sessions.prompt(session, "hi", ME))
    await until(lambda: fleet.executor.told)
    return asking, opens


async def test_a_prompt_that_is_cancelled_while_its_agent_opens_the_session_does_not_run(
    fleets: Fleets,
) -> None:
    # DR-16
    one, two, _ = fleets
    made = await one.sessions.create("a", ME)
    asking, opens = await opening(two, made.id)
    assert await two.sessions.cancel(made.id, ME)
    opens.set()
    assert (await asking).stop_reason == "cancelled"
    assert two.executor.turns == []
    assert await one.say(made.id, "hi") == "0:hi"


@pytest.mark.parametrize("reason", ["done", "shutdown"])
async def test_a_session_that_ends_while_an_agent_opens_it_runs_no_prompt_and_is_closed_there_once(
    fleets: Fleets, reason: str
) -> None:
    # DR-12, DR-25
    one, two, _ = fleets
    made = await one.sessions.create("a", ME)
    asking, opens = await opening(two, made.id)
    if reason == "shutdown":
        await two.sessions.end()
        opens.set()
        assert (await fault_of(asking)).retryable
    else:
        closing = asyncio.create_task(two.sessions.close(made.id, ME, reason))
        await until(lambda: not two.sessions.records())
        opens.set()
        assert (await asking).stop_reason == "cancelled"
        assert await closing
    await until(lambda: len(two.executor.told) > 1)
    await two.sessions.end()
    assert two.executor.told == [("opened", made.id), ("closed", made.id, reason)]
    assert two.executor.turns == []


async def test_a_session_that_a_run_and_a_prompt_begin_at_once_is_opened_once(
    fleets: Fleets, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, _ = fleets
    made = await one.sessions.create("a", ME)
    begin, begun = session_hooks.begin, []

    async def noted(lease: SessionLease) -> None:
        begun.append(lease)
        await begin(lease)

    monkeypatch.setattr(session_hooks, "begin", noted)
    asking, opens = await opening(two, made.id)
    taking_over = asyncio.create_task(two.sessions.begin(made.id))
    await until(lambda: len(begun) == 2)
    opens.set()
    assert (await asking).text == "0:hi"
    await taking_over
    assert two.executor.told == [("opened", made.id)]


async def test_an_agent_that_refuses_to_open_a_session_again_is_not_told_twice_that_it_is_closed(
    fleets: Fleets,
) -> None:
    # DR-10, DR-27
    one, _, _ = fleets
    made = await one.sessions.create("a", ME)
    one.executor.answer = failed(Fault(FaultType.UPSTREAM, "it broke"))
    await fault_of(one.say(made.id, "hi"))
    one.executor.refuses = Fault(FaultType.UPSTREAM, "not now")
    again = {"resume": made.id}
    for _ in range(2):
        assert (await fault_of(one.sessions.create("a", ME, metadata=again))).message == "not now"
    assert await one.sessions.close(made.id, ME)
    opened = ("opened", made.id)
    assert one.executor.told == [opened, ("closed", made.id, "reopened"), opened, opened]


async def test_a_session_that_ends_before_it_fails_to_be_stored_is_closed_at_its_agent(
    fleets: Fleets, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _, _ = fleets
    storing, fails = asyncio.Event(), asyncio.Event()

    async def away(_: StoredSession) -> None:
        storing.set()
        await fails.wait()
        raise Fault(FaultType.TRANSPORT, "the database failed")

    monkeypatch.setattr(one.ledger.sessions, "put", away)
    creating = asyncio.create_task(one.sessions.create("a", ME))
    await storing.wait()
    session = one.executor.told[0][1]
    await one.sessions.close(session, ME)
    fails.set()
    assert (await fault_of(creating)).message == "the database failed"
    await until(lambda: one.executor.told == [("opened", session), ("closed", session, "closed")])


@pytest.mark.parametrize("fleets", [{"max": 2}], indirect=True)
async def test_a_session_that_is_refused_has_others_expire_only_if_they_are_due_and_waits_for_no_hook(
    fleets: Fleets, monkeypatch: pytest.MonkeyPatch
) -> None:
    # DR-13, DR-14
    one, _, clock = fleets
    expire, expired, closes = one.ledger.sessions.expire, [], asyncio.Event()

    async def noted(*given: Any, **more: Any) -> None:
        expired.append(given)
        await expire(*given, **more)

    async def closed(*_: str) -> None:
        await closes.wait()

    monkeypatch.setattr(one.ledger.sessions, "expire", noted)
    monkeypatch.setattr(one.executor, "session_closed", closed)
    monkeypatch.setattr(session_hooks, "HOOK_SECONDS", 3600)
    made = await one.sessions.create("a", ME)
    clock.now += 300
    await one.sessions.create("a", ME)
    assert (await fault_of(one.sessions.create("a", ME))).message == "Session capacity reached"
    assert expired == []
    clock.now += 300
    async with asyncio.timeout(60):
        await one.sessions.create("a", ME)
    assert (len(expired), one.sessions.active) == (1, 2)
    assert "Session not found" in (await fault_of(one.status(made.id))).message
    closes.set()


@pytest.mark.parametrize("is_late", [False, True])
async def test_what_was_read_before_a_prompt_was_stored_does_not_replace_what_came_of_it(
    fleets: Fleets, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    # DR-10
    one, _, _ = fleets
    made = await one.sessions.create("a", ME)
    one.executor.answer = failed(Fault(FaultType.INTERNAL, "it broke"))
    get, save = one.ledger.sessions.get, one.ledger.sessions.save
    saving, saves, read, returns = (asyncio.Event() for _ in range(4))

    async def slow_save(changed: Iterable[tuple[StoredSession, str]]) -> None:
        saving.set()
        await saves.wait()
        await save(changed)

    async def slow_get(session: str) -> StoredSession | None:
        found = await get(session)
        read.set()
        await returns.wait()
        return found

    monkeypatch.setattr(one.ledger.sessions, "save", slow_save)
    asking = asyncio.create_task(fault_of(one.say(made.id, "hi")))
    await saving.wait()
    monkeypatch.setattr(one.ledger.sessions, "get", slow_get)
    looking = asyncio.create_task(one.status(made.id))
    await read.wait()
    if is_late:
        saves.set()
        await asking
    returns.set()
    await looking
    saves.set()
    await asking
    assert [each.status for each in one.sessions.records()] == ["failed"]
    assert await one.status(made.id) == "failed"


@pytest.mark.parametrize("is_asked_for", [False, True])
async def test_a_session_with_a_prompt_from_before_there_was_another_fleet_does_not_expire_there(
    fleets: Fleets, is_asked_for: bool
) -> None:
    # DR-11, X17
    one, two, clock = fleets
    gate = Gate()
    one.executor.answer = gate.answer
    one.ledger.has_others = False
    made = await one.sessions.create("a", ME)
    asking = asyncio.create_task(one.say(made.id, "hi"))
    await gate.reached.wait()
    one.ledger.has_others = True
    clock.now += 4000
    await two.sessions.reap()
    if is_asked_for:
        assert await one.status(made.id) == "busy"
    else:
        assert await one.sessions.reap() == 0
    assert await two.status(made.id) == "busy"
    assert "is busy" in (await fault_of(two.say(made.id, "more"))).message
    assert await two.sessions.reap() == 0
    gate.open.set()
    assert await asking == "0:hi"
    assert await two.stored() == 1
    assert await one.sessions.reap() == 1
    assert await two.stored() == 0


async def test_a_session_with_a_prompt_from_before_there_was_another_fleet_is_closed_there(
    fleets: Fleets,
) -> None:
    # DR-12
    one, two, _ = fleets
    gate = Gate()
    one.executor.answer = gate.answer
    one.ledger.has_others = False
    made = await one.sessions.create("a", ME)
    asking = asyncio.create_task(one.sessions.prompt(made.id, "hi", ME))
    await gate.reached.wait()
    one.ledger.has_others = True
    assert await two.sessions.close(made.id, ME)
    assert "Session not found" in (await fault_of(one.status(made.id))).message
    assert (await asking).stop_reason == "cancelled"
    assert await two.stored() == 0
