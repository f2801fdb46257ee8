"""The kernel: admits, resolves, bounds, records."""

import asyncio
import base64

import pytest
from support.executors import FakeAgent, FakeExecutor, Gate, echo
from support.waiting import until

from pallas.bounds.sizes import MAX_RESULT
from pallas.executors import Emit, ExecutorInfo, ExecutorTurn, TurnResult
from pallas.model import (
    AgentState,
    Event,
    Fault,
    FaultType,
    Image,
    Message,
    Principal,
    RunFinished,
    RunRequest,
    RunStarted,
    StepStarted,
    ToolEvent,
)
from pallas.model.ids import mint
from pallas.runs.conversations import IDLE_SECONDS, Conversations
from pallas.runs.kernel import Kernel
from pallas.telemetry.event_hub import EventHub

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 16).decode()


def kernel_with(executor: FakeExecutor, **agent: object) -> tuple[Kernel, EventHub, FakeAgent]:
    hub = EventHub()
    kernel = Kernel(hub)
    fake = FakeAgent(executor, **agent)  # type: ignore[arg-type]
    kernel.attach(fake)
    return kernel, hub, fake


def _counts(kernel: Kernel) -> tuple[int, int, int]:
    stats = kernel.stats("echo")
    return stats.active, stats.waiting, stats.total


async def test_a_conversation_is_remembered_and_others_are_not_mixed_in() -> None:
    # PR-19
    kernel, _, _ = kernel_with(FakeExecutor())
    for turn in range(3):
        result = await kernel.run(RunRequest("echo", "hi", conversation="a"))
        assert result.text == f"{turn * 2}:hi"
    assert (await kernel.run(RunRequest("echo", "hi", conversation="b"))).text == "0:hi"
    assert (await kernel.run(RunRequest("echo", "hi"))).text == "0:hi"
    assert (await kernel.run(RunRequest("echo", "hi"))).text == "0:hi"
    assert [m.text for m in await kernel.open("echo", "a", None, Principal())][:2] == ["hi", "0:hi"]


async def test_an_mcp_session_is_a_conversation_and_a_handle_wins_over_it() -> None:
    # PR-19
    kernel, _, _ = kernel_with(FakeExecutor())
    await kernel.run(RunRequest("echo", "one", session="s"))
    assert (await kernel.run(RunRequest("echo", "two", session="s"))).text == "2:two"
    assert (await kernel.run(RunRequest("echo", "x", session="s", conversation="c"))).text == "0:x"


async def test_given_history_is_used_once_and_then_kept() -> None:
    # PR-18
    executor = FakeExecutor()
    kernel, _, _ = kernel_with(executor)
    before = (Message("user", "a"), Message("assistant", "b"))
    first = await kernel.run(RunRequest("echo", "c", conversation="h", history=before))
    second = await kernel.run(RunRequest("echo", "d", conversation="h", history=before))
    assert (first.text, second.text) == ("2:c", "4:d")


async def test_twenty_calls_on_one_conversation_are_queued_and_all_succeed() -> None:
    # PR-19
    kernel, _, _ = kernel_with(FakeExecutor())
    results = await asyncio.gather(
        *(kernel.run(RunRequest("echo", "x", conversation="q")) for _ in range(20))
    )
    assert sorted(int(result.text.split(":")[0]) for result in results) == list(range(0, 40, 2))


async def test_cancelling_the_call_cancels_the_work_and_frees_the_conversation() -> None:
    gate = Gate()
    executor = FakeExecutor(gate.answer)
    kernel, hub, _ = kernel_with(executor)
    call = asyncio.create_task(kernel.run(RunRequest("echo", "x", conversation="c")))
    await gate.reached.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    executor.answer = echo
    async with asyncio.timeout(60):
        assert (await kernel.run(RunRequest("echo", "y", conversation="c"))).text == "0:y"
    assert gate.cancelled
    outcomes = [event.outcome for event in hub.since(0).events if isinstance(event, RunFinished)]
    assert outcomes == ["cancelled", "ok"]


async def test_a_run_cancelled_by_id_tells_its_caller() -> None:
    gate = Gate()
    kernel, hub, _ = kernel_with(FakeExecutor(gate.answer))
    call = asyncio.create_task(kernel.run(RunRequest("echo", "x")))
    await gate.reached.wait()
    started = next(event for event in hub.since(0).events if isinstance(event, RunStarted))
    assert kernel.cancel(started.run_id)
    with pytest.raises(Fault, match="cancelled"):
        await call
    assert not kernel.cancel(started.run_id)


async def test_a_waiting_run_goes_to_the_executor_that_is_there_when_its_turn_comes() -> None:
    gate = Gate()
    kernel, _, agent = kernel_with(FakeExecutor(gate.answer))
    first = asyncio.create_task(kernel.run(RunRequest("echo", "1", conversation="c")))
    await gate.reached.wait()
    second = asyncio.create_task(kernel.run(RunRequest("echo", "2", conversation="c")))
    successor = FakeExecutor()
    agent.executor = successor
    gate.open.set()
    assert (await first).text == "0:1"
    assert (await second).text == "2:2"
    assert [turn.text for turn in successor.turns] == ["2"]


async def test_stats_count_active_queued_and_total() -> None:
    gate = Gate()
    kernel, _, _ = kernel_with(FakeExecutor(gate.answer))
    calls = [asyncio.create_task(kernel.run(RunRequest("echo", "x", conversation="c"))) for _ in range(3)]
    await gate.reached.wait()
    assert _counts(kernel) == (1, 2, 0)
    gate.open.set()
    await asyncio.gather(*calls)
    assert _counts(kernel) == (0, 0, 3)
    assert kernel.stats("echo").last_latency is not None


async def test_images_are_refused_when_the_model_has_no_vision() -> None:
    # PR-17
    executor = FakeExecutor(info=ExecutorInfo(model="plain", vision=False))
    kernel, _, _ = kernel_with(executor)
    with pytest.raises(Fault, match="plain has no vision") as caught:
        await kernel.run(RunRequest("echo", "see", images=(Image(PNG, "image/png"),)))
    assert caught.value.type is FaultType.CONFIG
    assert executor.turns == []
    modelless = FakeExecutor(info=ExecutorInfo(model="", vision=False))
    kernel, _, _ = kernel_with(modelless)
    with pytest.raises(Fault, match=r"^echo takes no pictures; send the message without images$"):
        await kernel.run(RunRequest("echo", "see", images=(Image(PNG, "image/png"),)))


@pytest.mark.parametrize(
    ("image", "says"),
    [
        (Image("not base64!", "image/png"), "not base64"),
        (Image(base64.b64encode(b"plain text").decode(), "image/png"), "not a PNG"),
        (Image(PNG, "image/jpeg"), "its bytes are image/png"),
        (Image(base64.b64encode(b"\0" * (3 * 1024 * 1024 + 1)).decode(), "image/png"), "at most 3000000"),
    ],
)
async def test_a_picture_that_is_none_is_refused_with_the_reason(image: Image, says: str) -> None:
    # PR-17
    kernel, _, _ = kernel_with(FakeExecutor())
    with pytest.raises(Fault, match=says):
        await kernel.run(RunRequest("echo", "see", images=(image,)))


async def test_an_unknown_agent_and_one_in_error_say_so() -> None:
    kernel, _, agent = kernel_with(FakeExecutor())
    with pytest.raises(Fault, match="Agent not found: nobody"):
        await kernel.run(RunRequest("nobody", "x"))
    agent.state, agent.reason = AgentState.ERROR, "agents/echo.py:3: NameError: name 'x' is not defined"
    with pytest.raises(Fault, match="echo cannot answer: its code failed; the log has the details") as caught:
        await kernel.run(RunRequest("echo", "x"))
    assert caught.value.cause == agent.reason
    agent.state = AgentState.CONNECTING
    with pytest.raises(Fault, match="connecting") as caught:
        await kernel.run(RunRequest("echo", "x"))
    assert caught.value.retryable


async def test_a_crash_tells_operators_its_kind_and_nobody_its_text() -> None:
    # PR-36
    async def crash(turn: ExecutorTurn, emit: Emit) -> TurnResult:
        raise RuntimeError("key sk-secret")

    kernel, hub, _ = kernel_with(FakeExecutor(crash))
    with pytest.raises(Fault, match="the run failed; the log has the details") as caught:
        await kernel.run(RunRequest("echo", "x", conversation="c"))
    assert "RuntimeError" in caught.value.cause
    assert "sk-secret" not in caught.value.message + caught.value.cause
    assert "sk-secret" not in repr(hub.since(0))
    assert await kernel.open("echo", "c", None, Principal()) == ()


async def test_a_listener_that_raises_changes_nothing() -> None:
    # PI-22
    async def steps(turn: ExecutorTurn, emit: Emit) -> TurnResult:
        emit(StepStarted(run_id=turn.run_id, agent=turn.agent, actor=turn.agent, step=1, kind="llm"))
        return await echo(turn, emit)

    def broken(_: Event) -> None:
        raise RuntimeError("transport is gone")

    kernel, _, _ = kernel_with(FakeExecutor(steps))
    assert (await kernel.run(RunRequest("echo", "x"), broken)).text == "0:x"


async def test_a_run_counts_its_own_steps_and_tools() -> None:
    async def work(turn: ExecutorTurn, emit: Emit) -> TurnResult:
        run, agent = turn.run_id, turn.agent
        emit(StepStarted(run_id=run, agent=agent, actor=agent, step=1, kind="llm"))
        emit(StepStarted(run_id=run, agent=agent, actor="other", step=7, kind="llm"))
        emit(ToolEvent(run_id=run, agent=agent, server="s", tool="t", phase="started", call_id="1"))
        nested = ToolEvent(
            run_id=run, agent=agent, server="s", tool="u", phase="started", call_id="2", nested=True
        )
        emit(nested)
        emit(ToolEvent(run_id=run, agent=agent, server="s", tool="t", phase="completed", call_id="1"))
        return await echo(turn, emit)

    kernel, _, _ = kernel_with(FakeExecutor(work))
    result = await kernel.run(RunRequest("echo", "x"))
    assert (result.steps, result.tools) == (1, 1)


async def test_closing_refuses_new_runs_and_cancels_those_that_do_not_end() -> None:
    gate = Gate()
    kernel, _, _ = kernel_with(FakeExecutor(gate.answer))
    call = asyncio.create_task(kernel.run(RunRequest("echo", "x")))
    await gate.reached.wait()
    await kernel.close(timeout_s=0)
    with pytest.raises(Fault, match="cancelled"):
        await call
    with pytest.raises(Fault, match="stopping"):
        await kernel.run(RunRequest("echo", "x"))


async def test_another_principal_never_reads_or_continues_a_conversation() -> None:
    # PR-19
    executor = FakeExecutor()
    kernel, _, _ = kernel_with(executor)
    alice, bob = Principal("bearer:a"), Principal("bearer:b")
    await kernel.run(RunRequest("echo", "secret", conversation="c", principal=alice))
    with pytest.raises(Fault, match="not found"):
        await kernel.run(RunRequest("echo", "what?", conversation="c", principal=bob))
    with pytest.raises(Fault, match="not found"):
        await kernel.open("echo", "c", None, bob)
    assert len(executor.turns) == 1


async def test_an_event_never_shows_a_whole_handle() -> None:
    # PR-36
    kernel, hub, _ = kernel_with(FakeExecutor())
    await kernel.run(RunRequest("echo", "x", conversation="chat-0123456789abcdef"))
    started = next(event for event in hub.since(0).events if isinstance(event, RunStarted))
    assert started.conversation == "chat-012…"
    assert "abcdef" not in repr(hub.since(0))


async def test_a_run_that_takes_too_long_is_cancelled_and_names_the_key() -> None:
    gate = Gate()
    executor = FakeExecutor(gate.answer)
    kernel, hub, agent = kernel_with(executor, run_timeout=0.02)
    with pytest.raises(Fault, match=r"longer than 0\.02 s .* run_timeout of echo in agents\.yaml") as caught:
        await kernel.run(RunRequest("echo", "x", conversation="c"))
    assert caught.value.type is FaultType.TIMEOUT
    assert gate.cancelled
    assert [event.outcome for event in hub.since(0).events if isinstance(event, RunFinished)] == ["error"]
    executor.answer, agent.run_timeout = echo, 60.0
    assert (await kernel.run(RunRequest("echo", "y", conversation="c"))).text == "0:y"


async def test_a_timeout_within_the_run_is_not_taken_for_its_deadline() -> None:
    async def slow_tool(turn: ExecutorTurn, emit: Emit) -> TurnResult:
        raise TimeoutError

    kernel, _, _ = kernel_with(FakeExecutor(slow_tool))
    with pytest.raises(Fault) as caught:
        await kernel.run(RunRequest("echo", "x"))
    assert "run_timeout" not in caught.value.message


async def _long(turn: ExecutorTurn, emit: Emit) -> TurnResult:
    text = '"' * (MAX_RESULT // 2)  # two bytes each, as JSON
    return TurnResult((text,), (Message("user", turn.text), Message("assistant", text)))


@pytest.mark.parametrize("how", ["handle", "session", "neither"])
async def test_an_answer_nobody_could_receive_is_a_fault_and_is_kept(how: str) -> None:
    kernel, _, _ = kernel_with(FakeExecutor(_long))
    mine = Principal("bearer:mine")
    request = {
        "handle": RunRequest("echo", "all of it", conversation="h", principal=mine),
        "session": RunRequest("echo", "all of it", session="s", principal=mine),
        "neither": RunRequest("echo", "all of it", principal=mine),
    }[how]
    with pytest.raises(Fault, match=f"900002 bytes as JSON; at most {MAX_RESULT}") as caught:
        await kernel.run(request)
    assert "ask there for a part of it" in caught.value.message
    assert (caught.value.data["size"], caught.value.data["limit"]) == (900_002, MAX_RESULT)
    handle = None if how == "session" else caught.value.data["conversation_id"]
    kept = await kernel.open("echo", handle, request.session, mine)
    assert [len(message.text) for message in kept] == [9, MAX_RESULT // 2]
    with pytest.raises(Fault, match="not found"):
        await kernel.open("echo", handle, request.session, Principal("bearer:other"))


async def test_an_answer_that_just_fits_is_no_fault() -> None:
    async def fitting(turn: ExecutorTurn, emit: Emit) -> TurnResult:
        return TurnResult(("x" * (MAX_RESULT - 2),), ())

    kernel, _, _ = kernel_with(FakeExecutor(fitting))
    assert len((await kernel.run(RunRequest("echo", "x"))).text) == MAX_RESULT - 2


async def test_a_message_above_the_limit_says_both_sizes() -> None:
    executor = FakeExecutor()
    kernel, _, _ = kernel_with(executor)
    with pytest.raises(Fault, match="2097153 characters; at most 2097152: send it in parts") as caught:
        await kernel.run(RunRequest("echo", "x" * 2_097_153))
    assert caught.value.type is FaultType.PROTOCOL
    assert executor.turns == []


async def test_an_idle_conversation_expires_by_the_clock_and_its_instance_with_it() -> None:
    now = 0.0
    hub, executor = EventHub(), FakeExecutor()
    kernel = Kernel(hub, clock=lambda: now)
    kernel.attach(FakeAgent(executor))
    await kernel.run(RunRequest("echo", "x", conversation="old"))
    now = IDLE_SECONDS - 1
    await kernel.run(RunRequest("echo", "x", conversation="young"))
    kernel.sweep()
    assert executor.released == []
    now = IDLE_SECONDS
    # Nobody looks, as the sweeper's owner does not either.
    kernel.sweep()
    assert executor.released == [executor.turns[0].lease]
    with pytest.raises(Fault, match="unknown, expired"):
        await kernel.open("echo", "old", None, Principal())
    assert len(await kernel.open("echo", "young", None, Principal())) == 2


async def test_a_conversation_with_a_run_in_it_never_expires() -> None:
    now = 0.0
    gate = Gate()
    executor = FakeExecutor(gate.answer)
    kernel = Kernel(EventHub(), clock=lambda: now)
    kernel.attach(FakeAgent(executor))
    running = asyncio.create_task(kernel.run(RunRequest("echo", "x", conversation="c")))
    await gate.reached.wait()
    now = 10 * IDLE_SECONDS
    kernel.sweep()
    kernel.end_session("echo", "c", Principal())
    assert executor.released == []
    gate.open.set()
    await running
    kernel.sweep()
    assert len(await kernel.open("echo", "c", None, Principal())) == 2


async def test_the_sweeper_runs_by_itself_until_it_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("pallas.runs.kernel.SWEEP_EVERY", 0.001)
    executor = FakeExecutor()
    kernel = Kernel(EventHub(), clock=lambda: now)
    kernel.attach(FakeAgent(executor))
    await kernel.run(RunRequest("echo", "x", conversation="c"))
    tidy = asyncio.create_task(kernel.tidy())
    now = IDLE_SECONDS
    await until(lambda: executor.released == [executor.turns[0].lease])
    tidy.cancel()
    with pytest.raises(asyncio.CancelledError):
        await tidy


async def test_the_end_of_a_session_ends_its_conversation_and_no_other() -> None:
    executor = FakeExecutor()
    kernel, _, _ = kernel_with(executor)
    alice, bob = Principal("bearer:a"), Principal("bearer:b")
    await kernel.run(RunRequest("echo", "x", session="s", principal=alice))
    await kernel.run(RunRequest("echo", "x", conversation="s", principal=alice))
    kernel.end_session("echo", "s", bob)
    assert executor.released == []
    kernel.end_session("echo", "s", alice)
    assert executor.released == [executor.turns[0].lease]
    assert executor.turns[0].lease != executor.turns[1].lease
    assert len(await kernel.open("echo", "s", None, alice)) == 2


async def test_a_conversation_that_makes_room_releases_its_instance() -> None:
    released: list[str] = []
    all_ = Conversations(max_idle=2, forgotten=released.append)
    opened = [all_.open(f"id:{number}", Principal()) for number in range(4)]
    assert released == [each.key for each in opened[:2]]


async def test_pictures_of_given_history_are_checked_too() -> None:
    # PR-17
    kernel, _, _ = kernel_with(FakeExecutor(info=ExecutorInfo(model="plain", vision=False)))
    history = (Message("user", "see", (Image(PNG, "image/png"),)),)
    with pytest.raises(Fault, match="no vision"):
        await kernel.run(RunRequest("echo", "and?", history=history))


async def test_a_handle_we_made_is_never_taken_for_a_new_one() -> None:
    # PR-19
    now = 0.0
    kernel = Kernel(EventHub(), clock=lambda: now)
    kernel.attach(FakeAgent(FakeExecutor()))
    handle = mint()
    await kernel.run(RunRequest("echo", "x", conversation=handle, new_conversation=True))
    assert (await kernel.run(RunRequest("echo", "y", conversation=handle))).text == "2:y"
    now = IDLE_SECONDS
    with pytest.raises(Fault, match="unknown, expired"):
        await kernel.run(RunRequest("echo", "z", conversation=handle))
    # One that the caller chose begins anew.
    assert (await kernel.run(RunRequest("echo", "z", conversation="my own"))).text == "0:z"


async def test_cancelling_a_message_that_waits_leaves_the_others_their_turn() -> None:
    # PR-19
    gate = Gate()
    executor = FakeExecutor(gate.answer)
    kernel, _, _ = kernel_with(executor)
    calls = [asyncio.create_task(kernel.run(RunRequest("echo", "x", conversation="c"))) for _ in range(3)]
    await gate.reached.wait()
    await until(lambda: kernel.stats("echo").waiting == 2)
    calls[1].cancel()
    with pytest.raises(asyncio.CancelledError):
        await calls[1]
    gate.open.set()
    assert [(await calls[0]).text, (await calls[2]).text] == ["0:x", "2:x"]
    await until(lambda: _counts(kernel) == (0, 0, 3))
