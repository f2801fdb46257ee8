"""Workers of the Agent Client Protocol: one on its own library, and fast-agent's as it is installed."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from support.processes import gone
from support.waiting import until
from support.workers import ACP, say, working

from pallas.executors.worker.worker_executor import WorkerExecutor
from pallas.executors.worker.worker_limits import WorkerLimits
from pallas.model import Event, Fault, FaultType, Image, Message, Notice, StepStarted, TextDelta, ToolEvent

pytestmark = pytest.mark.asyncio(loop_scope="module")
TESTS = Path(__file__).parents[1]
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def acp(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WorkerExecutor]:
    limits = WorkerLimits(answer=200_000)
    async with working(tmp_path_factory.mktemp("acp"), ACP, limits=limits) as executor:
        yield executor


async def test_an_acp_worker_is_found_out_and_gets_blocks(acp: WorkerExecutor) -> None:
    # DR-30
    assert acp.info.vision
    assert await say(acp, "hello") == "hello"
    image = Image(PNG, "image/png")
    assert await say(acp, "look", images=(image,)) == "look + <image image/png>"
    history = (Message("user", "I am Ada"), Message("assistant", "Hello"))
    told, _, text = (await say(acp, "who?", "known", history=history)).partition(" + ")
    assert text == "who?"
    assert told.splitlines()[1] == '{"role": "user", "text": "I am Ada"}'
    known = (*history, Message("user", "who?"), Message("assistant", f"{told} + who?"))
    assert await say(acp, "and now?", "known", history=known) == "and now?"


async def test_what_it_does_on_the_way_are_events_of_the_run(acp: WorkerExecutor) -> None:
    # DR-30
    events: list[Event] = []
    assert await say(acp, "work", emit=events.append) == "Let me look.\n\n\nDone."
    told = [
        (event.text, event.reasoning)
        if isinstance(event, TextDelta)
        else (event.server, event.tool, event.phase)
        if isinstance(event, ToolEvent)
        else (event.step, event.kind)
        for event in events
        if isinstance(event, TextDelta | ToolEvent | StepStarted)
    ]
    assert told == [
        (1, "llm"),
        ("Let me ", False),
        ("look.\n", False),
        ("hm", True),
        (2, "tool"),
        ("docs", "search", "started"),
        ("docs", "search", "completed"),
        ("execute", "Run ␛[31mtests", "started"),
        ("execute", "Run ␛[31mtests", "failed"),
        (3, "llm"),
        ("Done.", False),
    ]


async def test_cancelling_a_run_reaches_it_and_its_session_goes_on(acp: WorkerExecutor) -> None:
    # DR-16 DR-30
    events: list[Event] = []
    run = asyncio.create_task(say(acp, "hold", "held", events.append))
    await until(lambda: any(isinstance(event, TextDelta) for event in events))
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    kept = _pair("hold", "so far\n\n[cut short: it was cancelled]")
    heard = await say(acp, "heard", "held", history=kept)
    assert "cancel:" in heard
    session = heard.split("cancel:")[1].split()[0]
    assert f"close:{session}" not in heard


@pytest.mark.slow
async def test_leave_is_refused_and_told_unless_it_is_configured(acp: WorkerExecutor, tmp_path: Path) -> None:
    # DR-30
    events: list[Event] = []
    assert await say(acp, "permit", emit=events.append) == '{"optionId":"no","outcome":"selected"}'
    (notice,) = [event for event in events if isinstance(event, Notice)]
    assert notice.agent == "coder"
    assert (
        "asked for permission for Delete ␛[31meverything and was refused: there is no person to ask"
        in notice.text
    )
    assert await say(acp, "files") == "refused: -32601"
    async with working(tmp_path, ACP, permissions="allow", env={"WORKER_MODE": "blind"}) as allowed:
        assert await say(allowed, "permit") == '{"optionId":"yes","outcome":"selected"}'
        assert not allowed.info.vision


async def test_an_answer_without_end_is_stopped(acp: WorkerExecutor) -> None:
    with pytest.raises(Fault, match=r"answer is longer than 200,000 characters") as caught:
        await say(acp, "flood", "long")
    assert caught.value.type is FaultType.PROTOCOL
    assert await say(acp, "hello", "long") == "hello"


async def test_what_a_newer_worker_says_is_left_out(acp: WorkerExecutor) -> None:
    assert await say(acp, "strange") == "understood"


@pytest.mark.slow
async def test_a_worker_that_wants_a_login_says_so(tmp_path: Path) -> None:
    async with working(tmp_path, ACP, env={"WORKER_MODE": "login"}) as executor:
        with pytest.raises(Fault, match=r"has to be logged in first \(An ␛\[31mAPI key\)") as caught:
            await say(executor, "hello")
    assert caught.value.type is FaultType.AUTH


@pytest.mark.slow
async def test_nothing_of_a_worker_outlives_an_owner_that_is_killed(tmp_path: Path) -> None:
    # DR-29
    owner = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-m", "support.worker_owner", str(tmp_path)],
        stdout=subprocess.PIPE,
        cwd=TESTS,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )
    try:
        assert owner.stdout is not None
        pids = [int(pid) for pid in (await asyncio.to_thread(owner.stdout.readline)).split()]
        assert len(pids) == 2
        assert not any(map(gone, pids))
    finally:
        owner.kill()
        owner.communicate(timeout=60)
    await until(lambda: all(map(gone, pids)))


def _pair(text: str, answer: str) -> tuple[Message, Message]:
    return Message("user", text), Message("assistant", answer)
