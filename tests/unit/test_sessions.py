"""Sessions: leases on threads, from their opening to their end."""

import asyncio
import random
from collections.abc import Mapping
from typing import Any

import pytest
from support.clocks import expire, put_forward
from support.executors import FakeExecutor, Gate, echo
from support.leased import ME, YOU, Found, Hooked, House, down, failed
from support.waiting import until

from pallas.executors import Emit, ExecutorInfo, ExecutorTurn, TurnResult
from pallas.model import (
    Fault,
    FaultType,
    Params,
    Principal,
    ProviderFacts,
    RunStarted,
    SessionChanged,
    TextDelta,
)
from pallas.model.refusals import REASON
from pallas.sessions import Sessions, session_hooks

BROKEN = Fault(FaultType.UPSTREAM, "it broke")


def one(answer: Any = echo, **limits: Any) -> tuple[House, Hooked]:
    executor = Hooked(answer)
    return House(Found(executor, name="a"), **limits), executor


async def fault_of(work: Any) -> Fault:
    with pytest.raises(Fault) as caught:
        await work
    return caught.value


async def test_a_session_is_active_then_busy_then_idle() -> None:
    # DR-9
    gate = Gate()
    house, _ = one(gate.answer)
    made = await house.sessions.create(None, ME)
    assert len(made.id) == 32
    assert int(made.id, 16) >= 0
    assert (made.agent, made.status, made.created_at) == ("a", "active", house.clock.now)
    prompt = asyncio.create_task(house.sessions.prompt(made.id, "hi", ME))
    await gate.reached.wait()
    assert (await house.sessions.status(made.id, ME)).status == "busy"
    house.clock.now += 5
    gate.open.set()
    assert (await prompt).text == "0:hi"
    after = await house.sessions.status(made.id, ME)
    assert (after.status, after.turns, after.last_activity_at) == ("idle", 1, house.clock.now)
    assert house.states() == ["active", "busy", "idle"]
    told = [each.session for each in house.hub.since(0).events if isinstance(each, SessionChanged)]
    assert set(told) == {made.id[:8]}


async def test_its_prompts_are_one_conversation_that_its_owner_can_go_on_with_elsewhere() -> None:
    # C11
    house, executor = one()
    made = await house.sessions.create("a", ME)
    first = await house.sessions.prompt(made.id, "one", ME)
    second = await house.sessions.prompt(made.id, "two", ME)
    assert (first.text, second.text) == ("0:one", "2:two")
    assert {turn.session for turn in executor.turns} == {made.id}
    assert await house.sessions.close(made.id, ME)
    said = await house.kernel.open("a", first.conversation, None, ME)
    assert [each.text for each in said] == ["one", "0:one", "two", "2:two"]
    assert executor.released == [first.conversation]
    started = [each for each in house.hub.since(0).events if isinstance(each, RunStarted)]
    assert {each.surface for each in started} == {"bridge"}


async def test_an_agent_that_breaks_fails_its_session_until_that_is_opened_again() -> None:
    # DR-9 DR-10 X18
    house, executor = one()
    made = await house.sessions.create("a", ME)
    first = await house.sessions.prompt(made.id, "one", ME)
    executor.answer = failed(BROKEN)
    fault = await fault_of(house.sessions.prompt(made.id, "two", ME))
    assert (fault.message, fault.data["sessionValid"]) == ("it broke", False)
    broken = await house.sessions.status(made.id, ME)
    assert (broken.status, broken.reason) == ("failed", "it broke")
    executor.answer = echo
    refused = await fault_of(house.sessions.prompt(made.id, "three", ME))
    assert refused.data["sessionValid"] is False
    assert '{"resume": "' + made.id + '"}' in refused.message
    assert len(executor.turns) == 2
    other = await fault_of(house.sessions.create("a", YOU, metadata={"resume": made.id}))
    assert other.message.startswith(f"Session not found: {made.id} was opened with another identity")
    again = await house.sessions.create("a", ME, metadata={"resume": made.id})
    assert (again.id, again.status) == (made.id, "active")
    third = await house.sessions.prompt(made.id, "three", ME)
    assert third.conversation == first.conversation
    assert third.text == "2:three"
    assert [each[0] for each in executor.told] == ["opened", "closed", "opened"]
    assert house.states()[-4:] == ["failed", "active", "busy", "idle"]


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (failed(Fault(FaultType.INTERNAL, "x")), "failed"),
        (failed(Fault(FaultType.PROTOCOL, "x")), "failed"),
        (failed(RuntimeError("x")), "failed"),  # type: ignore[arg-type]
        (failed(Fault(FaultType.UPSTREAM, "over its limit", retryable=True)), "idle"),
        (failed(Fault(FaultType.TRANSPORT, "x")), "idle"),
        (failed(Fault(FaultType.TIMEOUT, "x")), "idle"),
        (failed(Fault(FaultType.AUTH, "x")), "idle"),
        (failed(Fault(FaultType.CONFIG, "x")), "idle"),
        (failed(Fault(FaultType.PROTOCOL, "top_k: no", data={"key": "top_k"})), "idle"),
    ],
)
async def test_what_only_refuses_a_prompt_or_may_pass_leaves_the_session_as_it_is(
    answer: Any, status: str
) -> None:
    house, _ = one(answer)
    made = await house.sessions.create("a", ME)
    fault = await fault_of(house.sessions.prompt(made.id, "hi", ME))
    assert (await house.sessions.status(made.id, ME)).status == status
    assert fault.data["sessionValid"] is (status == "idle")


async def test_an_agent_that_is_down_refuses_and_its_session_goes_on_when_it_is_back() -> None:
    # DR-17
    house, _ = one()
    made = await house.sessions.create("a", ME)
    await house.sessions.prompt(made.id, "one", ME)
    agent = house.agents[0]
    house.add(Found(Hooked(), name="other"))
    down(agent)
    fault = await fault_of(house.sessions.prompt(made.id, "two", ME))
    assert (fault.type, fault.data["sessionValid"]) == (FaultType.UPSTREAM, True)
    assert "a cannot answer: it broke" in fault.message
    agent.state = agent.state.READY
    assert (await house.sessions.prompt(made.id, "two", ME)).text == "2:two"


async def test_another_agent_of_its_name_never_answers_in_its_place() -> None:
    # DR-17
    worker = Hooked()
    house = House(Found(worker, name="a", kind="worker"))
    made = await house.sessions.create("a", ME)
    house.add(Found(Hooked(), name="a", kind="handler"))
    fault = await fault_of(house.sessions.prompt(made.id, "hi", ME))
    assert (fault.type, fault.data["sessionValid"], fault.data["ended"]) == (
        FaultType.UPSTREAM,
        False,
        "agent-gone",
    )
    await until(lambda: worker.told[-1] == ("closed", made.id, "agent-gone"))
    assert house.sessions.active == 0


async def test_the_kind_of_an_agent_that_changes_in_its_place_ends_its_sessions() -> None:
    # DR-17
    house, executor = one()
    made = await house.sessions.create("a", ME)
    house.agents[0].kind = "worker"
    house.directory.invalidate()
    fault = await fault_of(house.sessions.prompt(made.id, "hi", ME))
    assert fault.data["sessionValid"] is False
    assert "another one of that name never answers" in fault.message
    assert executor.turns == []


async def test_a_session_ends_with_its_agent_and_a_busy_one_when_its_prompt_is_over() -> None:
    gate = Gate()
    house, executor = one(gate.answer)
    idle = await house.sessions.create("a", ME)
    busy = await house.sessions.create("a", ME)
    prompt = asyncio.create_task(house.sessions.prompt(busy.id, "hi", ME))
    await gate.reached.wait()
    house.remove(house.agents[0])
    await until(lambda: ("closed", idle.id, "agent-gone") in executor.told)
    assert house.sessions.of("a") == 1
    gate.open.set()
    assert (await prompt).text == "0:hi"
    await until(lambda: ("closed", busy.id, "agent-gone") in executor.told)
    assert house.sessions.active == 0


@pytest.mark.parametrize("kind", ["llm", "worker"])
async def test_a_busy_session_refuses_a_second_prompt_and_the_first_goes_on(kind: Any) -> None:
    # DR-11 X19
    gate = Gate()
    house = House(Found(FakeExecutor(gate.answer), name="a", kind=kind))
    made = await house.sessions.create("a", ME)
    first = asyncio.create_task(house.sessions.prompt(made.id, "one", ME))
    await gate.reached.wait()
    fault = await fault_of(house.sessions.prompt(made.id, "two", ME))
    assert fault.message == f"Session {made.id} is busy — concurrent prompts not allowed"
    assert fault.data["sessionValid"] is True
    gate.open.set()
    assert (await first).text == "0:one"


async def test_who_asks_for_it_waits_for_the_prompt_before() -> None:
    # C19
    gate = Gate()
    house, _ = one(gate.answer)
    made = await house.sessions.create("a", ME)
    first = asyncio.create_task(house.sessions.prompt(made.id, "one", ME))
    await gate.reached.wait()
    second = asyncio.create_task(house.sessions.prompt(made.id, "two", ME, queue=True))
    late = await fault_of(house.sessions.prompt(made.id, "late", ME, queue=True, timeout=0.01))
    assert (late.type, late.data["sessionValid"]) == (FaultType.TIMEOUT, True)
    gate.open.set()
    assert ((await first).text, (await second).text) == ("0:one", "2:two")


async def test_closing_runs_the_hook_once_and_afterwards_there_is_no_such_session() -> None:
    # DR-12
    house, executor = one()
    made = await house.sessions.create("a", ME)
    assert not await house.sessions.close(made.id, YOU)
    closings = [house.sessions.close(made.id, ME, "had enough") for _ in range(3)]
    assert await asyncio.gather(*closings) == [True, False, False]
    assert not await house.sessions.close("0" * 32, ME)
    assert executor.told == [("opened", made.id), ("closed", made.id, "had enough")]
    with pytest.raises(Fault) as caught:
        await house.sessions.status(made.id, ME)
    fault = caught.value
    assert (fault.type, fault.message) == (FaultType.UPSTREAM, f"Session not found: {made.id}")
    assert (fault.data["sessionValid"], fault.data[REASON]) == (False, "not_found")
    assert fault.data["ended"] == "had enough"
    assert house.states() == ["active", "closed"]


async def test_a_session_that_ends_for_two_reasons_at_once_is_closed_for_the_first() -> None:
    # DR-12
    house, executor = one()
    made = await house.sessions.create("a", ME)
    table = house.sessions._table
    lease = table.all[made.id]
    await asyncio.wait({table.end(lease, "expired"), table.end(lease, "shutdown")})
    assert executor.told == [("opened", made.id), ("closed", made.id, "expired")]
    assert house.states() == ["active", "closed"]


@pytest.mark.parametrize("steps", range(8))
async def test_a_session_that_is_closed_just_as_it_opens_is_closed_once(steps: int) -> None:
    # DR-12
    house, executor = one()
    opens = asyncio.Event()
    told = executor.session_opened

    async def opened(session: str, metadata: Mapping[str, Any]) -> None:
        await told(session, metadata)
        await opens.wait()

    executor.session_opened = opened  # type: ignore[method-assign]
    opening = asyncio.create_task(house.sessions.create("a", ME))
    await until(lambda: executor.told)
    session = executor.told[0][1]
    opens.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    assert await house.sessions.close(session, ME, "at once")
    await asyncio.wait({opening})
    await until(lambda: len(executor.told) > 1)
    await house.sessions.end()
    assert executor.told == [("opened", session), ("closed", session, "at once")]


async def test_a_session_that_is_closed_while_it_is_busy_ends_its_prompt_first() -> None:
    gate = Gate()
    house, executor = one(gate.answer)
    made = await house.sessions.create("a", ME)
    prompt = asyncio.create_task(house.sessions.prompt(made.id, "hi", ME))
    await gate.reached.wait()
    waiting = asyncio.create_task(house.sessions.prompt(made.id, "more", ME, queue=True))
    await until(lambda: house.sessions.records()[0].status == "busy")
    await asyncio.sleep(0)
    assert await house.sessions.close(made.id, ME)
    assert (await prompt).stop_reason == "cancelled"
    assert "Session not found" in (await fault_of(waiting)).message
    assert gate.cancelled
    assert executor.told[-1] == ("closed", made.id, "closed")


async def test_an_executor_that_refuses_a_session_leaves_none_behind() -> None:
    house, executor = one()
    executor.refuses = RuntimeError("no \x1b[2Jroom")
    fault = await fault_of(house.sessions.create("a", ME))
    assert fault.type is FaultType.UPSTREAM
    assert "RuntimeError" in fault.cause
    assert "\x1b" not in fault.message + fault.cause
    executor.refuses = Fault(FaultType.AUTH, "not you")
    assert (await fault_of(house.sessions.create("a", ME))).type is FaultType.AUTH
    assert (house.sessions.active, house.sessions.records(), house.states()) == (0, (), [])


async def test_an_executor_that_fails_to_close_a_session_does_not_keep_it() -> None:
    house, executor = one()
    executor.fails = RuntimeError("no")
    made = await house.sessions.create("a", ME)
    assert await house.sessions.close(made.id, ME)
    assert house.sessions.active == 0


async def test_an_executor_whose_hooks_hang_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    house, executor = one()

    async def hangs(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(session_hooks, "HOOK_SECONDS", 0.01)
    made = await house.sessions.create("a", ME)
    executor.session_closed = hangs  # type: ignore[method-assign]
    assert await house.sessions.close(made.id, ME)
    monkeypatch.setattr(session_hooks, "OPEN_SECONDS", 0.01)
    executor.session_opened = hangs  # type: ignore[method-assign]
    fault = await fault_of(house.sessions.create("a", ME))
    assert (fault.type, fault.retryable, house.sessions.active) == (FaultType.TIMEOUT, True, 0)


async def test_cancelling_ends_the_prompt_with_what_was_written_and_tells_the_executor() -> None:
    # DR-16 X19
    gate = Gate()

    async def writes(turn: ExecutorTurn, emit: Emit) -> TurnResult:
        emit(TextDelta(run_id=turn.run_id, agent="a", text="half an ans"))
        return await gate.answer(turn, emit)

    house, executor = one(writes)
    made = await house.sessions.create("a", ME)
    assert not await house.sessions.cancel(made.id, ME)
    prompt = asyncio.create_task(house.sessions.prompt(made.id, "hi", ME))
    await gate.reached.wait()
    assert not await house.sessions.cancel(made.id, ME, "another-run")
    assert "Session not found" in (await fault_of(house.sessions.cancel(made.id, YOU))).message
    assert await house.sessions.cancel(made.id, ME, executor.turns[0].run_id)
    result = await prompt
    assert (result.stop_reason, result.text, gate.cancelled) == ("cancelled", "half an ans", True)
    assert result.run_id == executor.turns[0].run_id
    assert executor.told == [("opened", made.id), ("cancelled", made.id)]
    executor.answer = echo
    assert (await house.sessions.prompt(made.id, "go on", ME)).text.endswith(":go on")
    assert not await house.sessions.cancel(made.id, ME)


async def test_a_caller_that_goes_away_cancels_its_prompt_and_leaves_the_session_idle() -> None:
    gate = Gate()
    house, _ = one(gate.answer)
    made = await house.sessions.create("a", ME)
    prompt = asyncio.create_task(house.sessions.prompt(made.id, "hi", ME))
    await gate.reached.wait()
    prompt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await prompt
    await until(lambda: gate.cancelled)
    assert (await house.sessions.status(made.id, ME)).status == "idle"


async def test_a_deadline_of_the_caller_ends_the_work_and_tells_what_was_written() -> None:
    # DR-15 X16
    gate = Gate()

    async def writes(turn: ExecutorTurn, emit: Emit) -> TurnResult:
        emit(TextDelta(run_id=turn.run_id, agent="a", text="so far"))
        return await gate.answer(turn, emit)

    house, _ = one(writes)
    made = await house.sessions.create("a", ME)
    prompt = asyncio.create_task(house.sessions.prompt(made.id, "hi", ME, timeout=50))
    await gate.reached.wait()
    expire(house.kernel.in_flight)
    fault = await fault_of(prompt)
    assert (fault.type, fault.code, fault.retryable) == (FaultType.TIMEOUT, -32001, True)
    assert "the 50 s that its caller gave it" in fault.message
    assert (fault.data["partial"], fault.data["sessionValid"]) == ("so far", True)
    assert gate.cancelled
    assert (await house.sessions.status(made.id, ME)).status == "idle"


async def test_a_deadline_holds_though_what_is_cancelled_takes_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # DR-15
    reached, ended = asyncio.Event(), asyncio.Event()

    async def clings(turn: ExecutorTurn, emit: Emit) -> TurnResult:
        reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            await ended.wait()
        return await echo(turn, emit)

    house, _ = one(clings)
    made = await house.sessions.create("a", ME)
    prompt = asyncio.create_task(house.sessions.prompt(made.id, "hi", ME, timeout=50))
    await reached.wait()
    put_forward(60, monkeypatch)
    fault = await fault_of(prompt)
    assert fault.type is FaultType.TIMEOUT
    assert len(house.kernel.in_flight) == 1
    ended.set()
    await until(lambda: not house.kernel.in_flight)


async def test_idle_and_old_sessions_expire_and_a_busy_one_never_does() -> None:
    # DR-13 X17
    gate = Gate()
    house, executor = one(gate.answer, idle=600.0, ttl=3600.0)
    idle = await house.sessions.create("a", ME)
    busy = await house.sessions.create("a", ME)
    assert idle.expires_at == house.clock.now + 600
    prompt = asyncio.create_task(house.sessions.prompt(busy.id, "hi", ME))
    await gate.reached.wait()
    house.clock.now += 4000
    assert await house.sessions.reap() == 1
    assert executor.told[-1] == ("closed", idle.id, "expired")
    assert (await house.sessions.status(busy.id, ME)).status == "busy"
    gate.open.set()
    assert (await prompt).text == "0:hi"
    assert await house.sessions.reap() == 1
    assert executor.told[-1] == ("closed", busy.id, "expired")
    closings = [each for each in executor.told if each[0] == "closed"]
    assert len(closings) == 2


async def test_one_that_is_used_lives_until_its_time_is_up() -> None:
    # DR-13
    house, executor = one(idle=600.0, ttl=3600.0)
    made = await house.sessions.create("a", ME)
    for _ in range(7):
        house.clock.now += 500
        await house.sessions.prompt(made.id, "hi", ME)
    house.clock.now += 100
    fault = await fault_of(house.sessions.prompt(made.id, "hi", ME))
    assert (fault.message, fault.data["ended"]) == (f"Session not found: {made.id}", "expired")
    await until(lambda: executor.told[-1] == ("closed", made.id, "expired"))
    assert house.states()[-1] == "closed"


async def test_sessions_with_workers_and_remote_agents_never_expire() -> None:
    house = House(
        Found(FakeExecutor(), name="w", kind="worker"), Found(FakeExecutor(), name="r", kind="remote")
    )
    for agent in ("w", "r"):
        assert (await house.sessions.create(agent, ME)).expires_at == 0.0
    house.clock.now += 1e6
    assert await house.sessions.reap() == 0
    assert house.sessions.active == 2


async def test_the_reaper_looks_by_itself() -> None:
    # DR-13
    house, executor = one(idle=600.0, reap_every=0.01)
    made = await house.sessions.create("a", ME)
    tending = asyncio.create_task(house.sessions.tend())
    house.clock.now += 601
    await until(lambda: executor.told[-1] == ("closed", made.id, "expired"))
    tending.cancel()


async def test_there_is_room_for_so_many_sessions_in_this_process_and_workers_have_their_own() -> None:
    # DR-14
    info = ExecutorInfo(capacity=2)
    house = House(
        Found(FakeExecutor(), name="a"),
        Found(FakeExecutor(), name="b", kind="handler"),
        Found(FakeExecutor(info=info), name="w", kind="worker"),
        max=100,
    )
    assert house.sessions.capacity == 102
    made = [await house.sessions.create("ab"[each % 2], ME) for each in range(100)]
    full = house.kernel.session_counts.full
    assert full("a", "llm")
    assert not full("w", "worker", 2)
    fault = await fault_of(house.sessions.create("a", ME))
    assert (fault.message, fault.type, fault.data["limit"]) == (
        "Session capacity reached",
        FaultType.UPSTREAM,
        100,
    )
    for _ in range(2):
        await house.sessions.create("w", ME)
    assert full("w", "worker", 2)
    assert (await fault_of(house.sessions.create("w", ME))).message == "Session capacity reached"
    assert (house.sessions.active, house.sessions.of("a"), house.sessions.of("w")) == (102, 50, 2)
    await house.sessions.close(made[0].id, ME)
    await house.sessions.create("b", ME)
    house.clock.now += 601  # those that expired make room by themselves
    await house.sessions.create("b", ME)
    assert house.sessions.of("b") == 1


async def test_sessions_of_others_are_not_seen() -> None:
    house, _ = one()
    mine = await house.sessions.create("a", ME)
    await house.sessions.create("a", YOU)
    assert [each.id for each in house.sessions.records(ME)] == [mine.id]
    assert len(house.sessions.records()) == 2
    for asked in (house.sessions.prompt(mine.id, "hi", YOU), house.sessions.cancel(mine.id, YOU)):
        assert (await fault_of(asked)).message.startswith(f"Session not found: {mine.id}")
    with pytest.raises(Fault, match="Session not found"):
        await house.sessions.status(mine.id, YOU)


async def test_prompts_and_metadata_are_measured_in_bytes() -> None:
    # DR-20
    async def briefly(turn: ExecutorTurn, emit: Emit) -> TurnResult:
        return TurnResult(("read",), ())

    house, executor = one(briefly)
    made = await house.sessions.create("a", ME, metadata={"x": "y" * (65_536 - 8)})
    whole = "é" * 524_288
    assert (await house.sessions.prompt(made.id, whole, ME)).text == "read"
    fault = await fault_of(house.sessions.prompt(made.id, whole + "x", ME))
    assert (fault.type, fault.data["sessionValid"]) == (FaultType.UPSTREAM, True)
    assert "1048577" in fault.message
    assert "1048576" in fault.message
    assert (await house.sessions.status(made.id, ME)).status == "idle"
    fault = await fault_of(house.sessions.create("a", ME, metadata={"x": "é" + "y" * (65_536 - 9)}))
    assert fault.type is FaultType.UPSTREAM
    assert "65537" in fault.message
    assert "65536" in fault.message
    assert (len(executor.turns), house.sessions.active) == (1, 1)
    fault = await fault_of(house.sessions.create("a", ME, metadata={"x": object()}))
    assert fault.type is FaultType.PROTOCOL


async def test_a_session_binds_a_provider_and_its_parameters_below_those_of_a_prompt() -> None:
    # DR-24 DR-25
    house, executor = one()
    executor.info = ExecutorInfo(providers_known=(ProviderFacts("x", ("m",)),))
    fault = await fault_of(house.sessions.create("a", ME, metadata={"provider": "zz"}))
    assert (fault.type, fault.message) == (
        FaultType.CONFIG,
        'Provider "zz" is not registered in the ProviderRegistry',
    )
    assert (house.sessions.active, executor.told) == (0, [])
    given = {"provider": "x", "runtimeParams": {"temperature": 0.5, "topP": 0.9}, "tag": 1}
    made = await house.sessions.create("a", ME, metadata=given)
    assert (made.provider, executor.metadata) == ("x", [given])
    await house.sessions.prompt(made.id, "hi", ME, params=Params({"temperature": 1.0}))
    (turn,) = executor.turns
    assert (turn.provider, turn.params.get("temperature"), turn.params.get("top_p")) == ("x", 1.0, 0.9)
    for wrong in ({"nonsense": 1}, {"temperature": 3}, []):
        fault = await fault_of(house.sessions.create("a", ME, metadata={"runtimeParams": wrong}))
        assert fault.type is FaultType.PROTOCOL
    assert house.sessions.active == 1
    plain = await house.sessions.create("a", ME)
    await house.sessions.prompt(plain.id, "hi", ME)
    assert executor.turns[-1].provider == ""


async def test_delegating_is_a_session_for_one_prompt() -> None:
    # DR-18
    house, executor = one()
    done = await house.sessions.delegate("hi", ME, metadata={"a": 1})
    assert done.result is not None
    assert (done.agent, done.result.text, done.fault) == ("a", "0:hi", None)
    assert executor.told == [("opened", done.session_id), ("closed", done.session_id, "task-complete")]
    executor.answer = failed(BROKEN)
    lost = await house.sessions.delegate("hi", ME, agent="a")
    assert lost.fault is not None
    assert (lost.result, lost.fault.code, lost.fault.data["sessionValid"]) == (None, -32002, False)
    assert executor.told[-1] == ("closed", lost.session_id, "task-failed")
    nobody = await house.sessions.delegate("hi", ME, agent="zz")
    assert nobody.fault is not None
    assert (nobody.session_id, nobody.fault.message) == ("", "Agent not found: zz")
    assert house.sessions.active == 0


async def test_delegating_that_is_cancelled_or_late_leaves_no_session() -> None:
    gate = Gate()
    house, executor = one(gate.answer)
    late = await house.sessions.delegate("hi", ME, timeout=0.05)
    assert late.fault is not None
    assert late.fault.type is FaultType.TIMEOUT
    gate.reached.clear()
    work = asyncio.create_task(house.sessions.delegate("hi", ME))
    await gate.reached.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert house.sessions.active == 0
    await until(lambda: executor.told[-1][0] == "closed")
    assert executor.told[-1][2] == "task-failed"


async def test_without_an_id_the_session_is_one_with_the_default_agent_itself() -> None:
    # DR-6 X14
    first, second = Hooked(), Hooked()
    house = House(Found(first, name="a"), Found(second, name="b"), default="b")
    made = await house.sessions.create(None, ME)
    await house.sessions.prompt(made.id, "hi", ME)
    assert (made.agent, len(second.turns), first.turns) == ("b", 1, [])


async def test_where_there_is_nobody_there_are_no_sessions() -> None:
    # DR-2
    house = House()
    fault = await fault_of(house.sessions.create(None, ME))
    assert (fault.message, fault.type, fault.code) == ("No agents registered", FaultType.CONFIG, -32004)
    assert (house.sessions.active, house.sessions.capacity) == (0, 100)


async def test_who_may_no_longer_use_an_agent_is_refused_in_a_session_that_it_has() -> None:
    house, executor = one()

    def permit(agent: str, principal: Principal, trace: object) -> None:
        if gone:
            raise Fault(FaultType.AUTH, f"{agent} is not for you")

    gone = False
    sessions = Sessions(house.kernel, house.directory, hub=house.hub, permit=permit)
    made = await sessions.create("a", ME)
    await sessions.prompt(made.id, "hi", ME)
    gone = True
    fault = await fault_of(sessions.prompt(made.id, "hi", ME))
    assert (fault.type, len(executor.turns)) == (FaultType.AUTH, 1)
    assert await sessions.close(made.id, ME)


async def test_why_a_session_failed_is_told_without_its_callers_token() -> None:
    house, _ = one(failed(Fault(FaultType.UPSTREAM, "refused s3cr3t-t0ken-of-me \x1b[2J")))
    made = await house.sessions.create("a", ME)
    await fault_of(house.sessions.prompt(made.id, "hi", ME, bearer="s3cr3t-t0ken-of-me"))
    reason = (await house.sessions.status(made.id, ME)).reason
    assert reason.startswith("refused")
    told = repr([reason, *(each for each in house.hub.since(0).events)])
    assert "s3cr3t" not in told
    assert "\x1b" not in told


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_is_done_at_once_each_session_begins_and_ends_once(seed: int) -> None:
    # DR-12
    chance = random.Random(seed)

    async def answer(turn: ExecutorTurn, emit: Emit) -> TurnResult:
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        if chance.random() < 0.2:
            raise Fault(FaultType.UPSTREAM, "it broke")
        return await echo(turn, emit)

    house, executor = one(answer, max=12, idle=50.0)
    known: list[str] = []

    async def something() -> None:
        id_ = chance.choice(known) if known else "0" * 32
        match chance.randrange(8):
            case 0 | 1:
                known.append((await house.sessions.create("a", ME)).id)
            case 2:
                await house.sessions.close(id_, ME)
            case 3:
                await house.sessions.cancel(id_, ME)
            case 4:
                await house.sessions.create("a", ME, metadata={"resume": id_})
            case 5:
                house.clock.now += chance.randrange(20)
                await house.sessions.reap()
            case 6:
                async with asyncio.timeout(0.001):  # subject: a caller that goes away
                    await house.sessions.prompt(id_, "x", ME, queue=True)
            case _:
                await house.sessions.prompt(id_, "x", ME)

    for _ in range(40):
        done = await asyncio.gather(*(something() for _ in range(10)), return_exceptions=True)
        assert all(each is None or isinstance(each, Fault | TimeoutError) for each in done), done
        assert house.sessions.of("a") == house.sessions.active == len(house.sessions.records()) <= 12
    await house.sessions.end()
    await until(lambda: not house.kernel.in_flight)
    for session in {each[1] for each in executor.told}:
        those = [each for each in executor.told if each[1] == session and each[0] != "cancelled"]
        assert [each[0] for each in those] == ["opened", "closed"] * (len(those) // 2)
        assert {each[2] for each in those[1:-1:2]} <= {"reopened"}
    assert house.sessions.active == 0


async def test_when_the_fleet_stops_its_sessions_end_and_no_more_are_opened() -> None:
    house, executor = one()
    made = await house.sessions.create("a", ME)
    await house.sessions.end()
    assert executor.told[-1] == ("closed", made.id, "shutdown")
    assert house.sessions.active == 0
    assert (await fault_of(house.sessions.create("a", ME))).type is FaultType.TRANSPORT


async def test_a_thread_that_its_owner_deleted_is_followed_by_another() -> None:
    house, _ = one()
    made = await house.sessions.create("a", ME)
    first = await house.sessions.prompt(made.id, "one", ME)
    conversations = house.kernel._conversations["a"]
    conversations._drop(str(first.conversation))
    fault = await fault_of(house.sessions.prompt(made.id, "two", ME))
    assert (fault.data[REASON], fault.data["sessionValid"]) == ("not_found", True)
    again = await house.sessions.prompt(made.id, "two", ME)
    assert again.text == "0:two"
    assert again.conversation != first.conversation
