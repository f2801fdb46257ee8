"""Sessions of two fleets on one database: hooks, limits, expiry, and writes whose answer is lost."""

import asyncio
from functools import partial
from typing import Any

import pytest
from sqlalchemy import select
from support.executors import Gate, echo
from support.leased import ME, Clock, Found, Hooked, failed
from support.leased_twice import Fleet, Fleets, fault_of
from support.waiting import until

from pallas.executors import ExecutorInfo
from pallas.ledger import open_ledger, tables
from pallas.model import Fault, FaultType, Params, StoredSession

BROKEN = Fault(FaultType.UPSTREAM, "it broke")
LOST = Fault(FaultType.TRANSPORT, "the database failed")


async def test_each_fleet_that_prompts_a_session_tells_its_agent_of_its_beginning_and_end(
    fleets: Fleets,
) -> None:
    # DR-12, DR-25
    one, two, _ = fleets
    given = {"team": "blue", "runtimeParams": {"temperature": 0.5}}
    made = await one.sessions.create("a", ME, metadata=given)
    assert await two.status(made.id) == "active"
    assert two.executor.told == []
    assert [await each.say(made.id, "hi") for each in (two, two, one)] == ["0:hi", "2:hi", "4:hi"]
    for each in (one, two):
        assert each.executor.told == [("opened", made.id)]
        assert each.executor.metadata == [given]
        assert {turn.params.get("temperature") for turn in each.executor.turns} == {0.5}
    assert await two.sessions.close(made.id, ME, "done")
    closed = ("closed", made.id, "done")
    assert two.executor.told[-1] == closed
    if one.ledger.notes is not None:
        await until(lambda: one.executor.told[-1] == closed)
    assert "Session not found" in (await fault_of(one.status(made.id))).message
    await until(lambda: len(one.executor.told) == 2)
    assert await one.stored() == 0


async def test_an_agent_that_refuses_a_session_of_another_fleet_gets_no_prompt_of_it(fleets: Fleets) -> None:
    # DR-27
    one, two, _ = fleets
    made = await one.sessions.create("a", ME)
    two.executor.refuses = Fault(FaultType.UPSTREAM, "not here")
    assert (await fault_of(two.say(made.id, "hi"))).message == "not here"
    assert two.executor.turns == []
    assert await one.say(made.id, "hi") == "0:hi"


async def test_a_session_that_failed_is_opened_again_at_another_fleet(fleets: Fleets) -> None:
    # DR-10, X18
    one, two, _ = fleets
    made = await one.sessions.create("a", ME, metadata={"runtimeParams": {"temperature": 0.5}})
    await one.say(made.id, "hi")
    one.executor.answer = failed(BROKEN)
    await fault_of(one.say(made.id, "hi"))
    one.executor.answer = echo
    for each in (one, two):
        assert await each.status(made.id) == "failed"
        fault = await fault_of(each.say(made.id, "hi", queue=True))
        assert (fault.data["resume"], fault.data["sessionValid"]) == (made.id, False)
    again = {"resume": made.id, "runtimeParams": {"temperature": 1.0}}
    assert (await two.sessions.create("a", ME, metadata=again)).status == "active"
    assert await one.status(made.id) == "active"
    assert [await each.say(made.id, "on") for each in (one, two)] == ["2:on", "4:on"]
    assert [each.executor.turns[-1].params.get("temperature") for each in (one, two)] == [1.0, 1.0]


async def test_a_session_that_is_used_at_another_fleet_does_not_expire(fleets: Fleets) -> None:
    # DR-13
    one, two, clock = fleets
    made = await one.sessions.create("a", ME)
    for _ in range(4):
        clock.now += 300
        await two.say(made.id, "hi")
        clock.now += 299
        assert await one.sessions.reap() == 0
        assert await one.status(made.id) == "idle"
    gate = Gate()
    two.executor.answer = gate.answer
    asking = asyncio.create_task(two.say(made.id, "hi"))
    await gate.reached.wait()
    clock.now += 4000
    assert [await each.sessions.reap() for each in (one, two)] == [0, 0]
    assert await one.status(made.id) == "busy"  # X17
    gate.open.set()
    assert await asking
    assert await one.sessions.reap() == 1  # it is older than an hour
    assert await two.sessions.reap() == 1
    assert two.executor.told[-1] == ("closed", made.id, "expired")
    assert "Session not found" in (await fault_of(two.status(made.id))).message
    assert await one.stored() == 0


@pytest.mark.parametrize("fleets", [{"kind": "worker"}], indirect=True)
async def test_a_session_that_never_expires_is_forgotten_when_its_fleet_is_gone_and_nobody_uses_it(
    fleets: Fleets,
) -> None:
    one, two, clock = fleets
    made = await one.sessions.create("a", ME)
    clock.now += 20 * 24 * 3600
    assert await two.sessions.reap() == 0
    assert (await two.sessions.status(made.id, ME)).expires_at == 0.0
    await one.sessions.end()
    await one.ledger.close()
    await two.say(made.id, "hi")
    clock.now += 10 * 24 * 3600
    assert await two.sessions.reap() == 0
    clock.now += 10 * 24 * 3600
    assert await two.sessions.reap() == 1
    assert await two.stored() == 0


@pytest.mark.parametrize("fleets", [{"max": 1}], indirect=True)
async def test_each_fleet_counts_the_sessions_that_it_opened(fleets: Fleets) -> None:
    # DR-14
    one, two, _ = fleets
    made = await one.sessions.create("a", ME)
    await two.say(made.id, "hi")
    assert [each.sessions.active for each in (one, two)] == [1, 0]
    other = await two.sessions.create("a", ME)
    assert (await fault_of(two.sessions.create("a", ME))).message == "Session capacity reached"
    await one.sessions.close(other.id, ME)
    if two.ledger.notes is None:
        await two.sessions.reap()
    await until(lambda: two.sessions.active == 0)
    await two.sessions.create("a", ME)


async def test_a_session_stays_with_its_agent_at_any_fleet(fleets: Fleets) -> None:
    # DR-17
    one, two, _ = fleets
    made, other = [await one.sessions.create("a", ME) for _ in range(2)]
    await two.say(made.id, "hi")
    two.add(Found(Hooked(), name="a", kind="handler"))
    await until(lambda: two.executor.told[-1] == ("closed", made.id, "agent-gone"))
    await until(partial(is_gone, one, made.id))
    fault = await fault_of(two.say(other.id, "hi"))
    assert (fault.data["ended"], fault.data["sessionValid"]) == ("agent-gone", False)
    assert await one.say(other.id, "hi") == "0:hi"
    # An agent that is deleted takes its sessions along, and another one of its name has none of them.
    agents = select(tables.agents.c.id).where(tables.agents.c.name == "a")
    (key,) = await one.ledger.database.read(lambda it: it.execute(agents).scalars().all())
    await one.ledger.resources.delete("agent", key)
    assert await is_gone(one, other.id)


async def is_gone(fleet: Fleet, session: str) -> bool:
    try:
        await fleet.status(session)
    except Fault as fault:
        return "Session not found" in fault.message
    return False


async def test_what_is_delegated_is_a_session_that_no_other_fleet_knows(fleets: Fleets) -> None:
    # DR-18
    one, two, _ = fleets
    gate = Gate()
    one.executor.answer = gate.answer
    work = asyncio.create_task(one.sessions.delegate("hi", ME))
    await gate.reached.wait()
    (record,) = one.sessions.records()
    assert await is_gone(two, record.id)
    assert await two.stored() == 0
    gate.open.set()
    assert (await work).result is not None


async def test_a_prompt_whose_beginning_or_end_is_not_known_to_be_stored_leaves_the_session_usable(
    fleets: Fleets, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, _ = fleets
    made = await one.sessions.create("a", ME)
    claim = one.ledger.sessions.claim

    async def lost(*given: str) -> None:
        await claim(*given)
        raise LOST

    monkeypatch.setattr(one.ledger.sessions, "claim", lost)
    fault = await fault_of(one.say(made.id, "hi"))
    assert (fault.message, fault.retryable, fault.data["sessionValid"]) == (LOST.message, True, True)
    assert await two.say(made.id, "hi", queue=True) == "0:hi"
    monkeypatch.undo()

    async def away(*_: Any) -> None:
        raise LOST

    monkeypatch.setattr(one.ledger.sessions, "save", away)
    assert await one.say(made.id, "hi") == "2:hi"
    assert await two.say(made.id, "hi") == "4:hi"  # its run is over, so it is not busy
    assert await one.sessions.reap() == 0
    monkeypatch.undo()
    assert await one.sessions.reap() == 0
    assert (await two.sessions.status(made.id, ME)).turns >= 2


async def test_a_session_that_cannot_be_stored_is_neither_opened_nor_closed(
    fleets: Fleets, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, _ = fleets
    made = await one.sessions.create("a", ME)

    async def away(*_: Any) -> None:
        raise LOST

    for name in ("put", "delete"):
        monkeypatch.setattr(one.ledger.sessions, name, away)
    assert (await fault_of(one.sessions.create("a", ME))).retryable
    await until(lambda: [each[0] for each in one.executor.told] == ["opened", "opened", "closed"])
    assert (await fault_of(one.sessions.close(made.id, ME))).retryable
    assert [await each.status(made.id) for each in (one, two)] == ["active", "active"]
    assert one.sessions.active == 1


@pytest.mark.parametrize("is_noticed", [False, True])
async def test_a_prompt_of_a_fleet_that_died_before_its_run_began_keeps_nobody_waiting(
    fleets: Fleets, is_noticed: bool
) -> None:
    one, two, _ = fleets
    made = await one.sessions.create("a", ME)
    await one.ledger.sessions.claim(made.id, "r1")
    assert "is busy" in (await fault_of(two.say(made.id, "hi"))).message
    await one.sessions.end()
    await one.ledger.close()
    if is_noticed:
        await two.ledger.inherit()
    assert await two.status(made.id) == "idle"
    assert await two.say(made.id, "hi") == "0:hi"


async def test_a_prompt_waits_for_that_of_another_fleet_no_longer_than_its_caller(
    fleets: Fleets, monkeypatch: pytest.MonkeyPatch
) -> None:
    # DR-15
    one, two, _ = fleets
    gate = Gate()
    one.executor.answer = gate.answer
    made = await one.sessions.create("a", ME)
    asking = asyncio.create_task(one.say(made.id, "hi"))
    await gate.reached.wait()
    fault = await fault_of(two.say(made.id, "more", queue=True, timeout=0.2))
    assert (fault.type, fault.data["sessionValid"]) == (FaultType.TIMEOUT, True)
    claim, claims = two.ledger.sessions.claim, []

    async def noted(session: str, run_id: str) -> StoredSession | None:
        found = await claim(session, run_id)
        claims.append(found is not None and found.run == run_id)
        return found

    monkeypatch.setattr(two.ledger.sessions, "claim", noted)
    waiting = asyncio.create_task(two.say(made.id, "more", queue=True))
    await until(lambda: len(claims) >= 2)
    assert not any(claims)
    gate.open.set()
    assert [await asking, await waiting] == ["0:hi", "2:more"]
    assert claims.count(True) == 1


async def test_a_prompt_that_no_thread_keeps_is_alone_too_and_can_be_cancelled(fleets: Fleets) -> None:
    # DR-11, DR-16
    one, two, _ = fleets
    gate = Gate()
    for each in (one, two):
        each.executor.info = ExecutorInfo(keeps_history=False)
    one.executor.answer = gate.answer
    made = await one.sessions.create("a", ME)
    asking = asyncio.create_task(one.sessions.prompt(made.id, "hi", ME))
    await gate.reached.wait()
    assert "is busy" in (await fault_of(two.say(made.id, "hi"))).message
    if two.ledger.notes is not None:  # two fleets on a file tell each other only of runs with a thread
        assert await two.sessions.cancel(made.id, ME)
        assert (await asking).stop_reason == "cancelled"
    gate.open.set()
    await asking
    assert await two.say(made.id, "hi") == "0:hi"


async def test_a_single_fleet_on_a_file_stores_its_sessions_only_now_and_again(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, clock, done = f"sqlite:///{tmp_path}/ledger.sqlite3", Clock(), []
    ledger = await open_ledger(url, clock=clock)
    fleet = Fleet(ledger, clock)
    for name in ("put", "get", "claim", "save", "delete", "is_cancelled", "ask_cancel"):
        original = getattr(ledger.sessions, name)

        async def noted(*given: Any, name: str = name, original: Any = original) -> Any:
            done.append(name)
            return await original(*given)

        monkeypatch.setattr(ledger.sessions, name, noted)
    made, other = [await fleet.sessions.create("a", ME) for _ in range(2)]
    for number in range(3):
        assert await fleet.say(made.id, "hi") == f"{2 * number}:hi"
        assert await fleet.status(made.id) == "idle"
        assert not await fleet.sessions.cancel(made.id, ME)
    clock.now += 500
    await fleet.say(made.id, "hi", params=Params({"temperature": 0.5}))
    await fleet.sessions.close(other.id, ME)
    assert done == ["put", "put", "delete"]
    await fleet.sessions.end()
    assert done[3:] == ["save"]
    assert fleet.executor.told[-1] == ("closed", made.id, "shutdown")
    assert (await fault_of(fleet.status(made.id))).retryable
    await ledger.close()
    clock.now += 500
    ledger = await open_ledger(url, clock=clock)
    again = Fleet(ledger, clock)
    record = await again.sessions.status(made.id, ME)
    assert (record.status, record.turns) == ("idle", 4)
    assert await again.say(made.id, "on") == "8:on"
    assert again.sessions.active == 0
    await ledger.close()
