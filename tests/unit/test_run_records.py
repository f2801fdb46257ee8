"""What is kept of a run that is over: it never costs the answer, secrets are masked, and it has bounds."""

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.executors import FakeExecutor, echo
from support.kept import asked, kernel_on
from support.live import write_project

from pallas.config import Project, load_project
from pallas.executors import Emit, ExecutorTurn, TurnResult
from pallas.ledger import Ledger, open_ledger
from pallas.model import EndedRun, Fault, Image, Params, RunRecord, RunRequest
from pallas.model.ids import mint
from pallas.recordings.fork_point import forked_request
from pallas.runs import run_recorder
from pallas.runs.kernel import Kernel
from pallas.runs.run_recording import record_run
from pallas.telemetry.step_record import begin_call_step, model_step

PICTURE = Image(base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(900)).decode(), "image/png")


@pytest.fixture
async def ledger() -> AsyncIterator[Ledger]:
    opened = await open_ledger("memory")
    yield opened
    await opened.close()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path, tmp_path / "agents.yaml", "test", {})


class Gated:
    """A ledger whose writes of records wait until ``open`` is set; ``writes`` are the runs of each."""

    def __init__(self, ledger: Ledger, patch: pytest.MonkeyPatch) -> None:
        self.open = asyncio.Event()
        self.began = asyncio.Event()
        self.writes: list[list[EndedRun]] = []
        self._record = ledger.runs.record
        patch.setattr(ledger.runs, "record", self.record)

    async def record(self, left: Any) -> None:
        runs = list(left)
        self.writes.append(runs)
        self.began.set()
        await self.open.wait()
        await self._record(runs)


async def test_parameters_keep_their_form_when_secrets_in_them_are_masked(
    ledger: Ledger, project: Project
) -> None:
    kernel = kernel_on(ledger, FakeExecutor())
    given = {"stop": ["token=abc", "x"], "seed": 7, "extra": {"password": ["a", 1]}}
    result = await kernel.run(RunRequest("echo", "hi", params=Params(given)))
    assert result.text == "0:hi"
    recording = await record_run(kernel, ledger, project, result.run_id)
    masked = {"stop": ["token=[redacted]", "x"], "seed": 7, "extra": {"password": ["[redacted]"] * 2}}
    assert recording.first.params == masked


async def test_no_run_goes_on_from_one_whose_parameters_were_too_large_to_be_recorded(
    ledger: Ledger, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_recorder, "MAX_PARAMS", 40)
    kernel = kernel_on(ledger, FakeExecutor())
    small = await kernel.run(RunRequest("echo", "hi", params=Params({"seed": 7})))
    assert not (await record_run(kernel, ledger, project, small.run_id)).first.params_lost
    result = await kernel.run(RunRequest("echo", "hi", params=Params({"seed": 7, "stop": ["x" * 50]})))
    recording = await record_run(kernel, ledger, project, result.run_id)
    assert recording.first.params == {}
    assert recording.missing == (f"run {result.run_id} of echo: its parameters, which are too large",)
    with pytest.raises(Fault, match="too large to be recorded"):
        forked_request(recording, 1, params=Params({}))


async def test_a_run_that_cannot_be_recorded_is_answered_all_the_same(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*given: Any) -> Any:
        raise ValueError("no")

    monkeypatch.setattr(run_recorder, "redact_text", fail)
    kernel = kernel_on(ledger, FakeExecutor())
    result = await kernel.run(RunRequest("echo", "hi"))
    assert result.text == "0:hi"
    assert f"run {result.run_id} of echo cannot be recorded" in caplog.text


async def ask(kernel: Kernel, text: str, **more: Any) -> str:
    return (await kernel.run(RunRequest("echo", text, **more))).run_id


async def settled(kernel: Kernel) -> None:
    assert kernel.recorder is not None
    await kernel.recorder.settle(600)


async def test_runs_that_wait_lose_their_pictures_first_and_then_the_oldest_are_dropped(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(run_recorder, "MAX_WAITING", 12_000)
    monkeypatch.setattr(run_recorder, "GATHER", 0.0)
    kernel, gated = kernel_on(ledger, FakeExecutor()), Gated(ledger, monkeypatch)
    await ask(kernel, "taken at once")
    await gated.began.wait()
    first = await ask(kernel, "first", images=(PICTURE,) * 5)
    second = await ask(kernel, "second", images=(PICTURE,) * 5)
    third = await ask(kernel, "third" * 850)
    gated.open.set()
    await settled(kernel)
    with pytest.raises(Fault, match="run not found"):
        await record_run(kernel, ledger, project, first)
    assert "1 runs were not recorded: the ledger is too slow for them" in caplog.text
    recording = await record_run(kernel, ledger, project, second)
    assert (recording.first.question, recording.first.images) == ("second", ())
    assert recording.missing == (f"run {second} of echo: the pictures of its question",)
    assert (await record_run(kernel, ledger, project, third)).missing == ()


async def test_a_write_has_about_as_many_bytes_as_it_may(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_recorder, "MAX_BATCH", 5_000)
    monkeypatch.setattr(run_recorder, "GATHER", 0.0)
    kernel, gated = kernel_on(ledger, FakeExecutor()), Gated(ledger, monkeypatch)
    await ask(kernel, "taken at once")
    await gated.began.wait()
    for _ in range(6):
        await ask(kernel, "x" * 1_000)  # 3,500 bytes with answer and events
    gated.open.set()
    await settled(kernel)
    assert [len(runs) for runs in gated.writes] == [1, 2, 2, 2]


async def test_a_caller_waits_for_the_runs_that_ended_before_and_for_no_later_ones(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_recorder, "GATHER", 0.0)
    kernel, gated = kernel_on(ledger, FakeExecutor()), Gated(ledger, monkeypatch)
    await ask(kernel, "one")
    await gated.began.wait()
    waits = asyncio.create_task(settled(kernel))
    await asyncio.sleep(0)
    await ask(kernel, "two")
    gated.began.clear()
    gated.open.set()
    gated.open = asyncio.Event()  # the next write waits
    async with asyncio.timeout(60):
        await gated.began.wait()
        await waits
    gated.open.set()
    await kernel.close_records(30)


async def test_a_run_that_is_not_stored_yet_is_no_broken_recording(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, project: Project
) -> None:
    kernel, gated = kernel_on(ledger, FakeExecutor()), Gated(ledger, monkeypatch)
    assert kernel.recorder is not None
    settle = kernel.recorder.settle
    monkeypatch.setattr(kernel.recorder, "settle", lambda: settle(0.0))
    result = await kernel.run(asked("one", mint(), new=True))
    with pytest.raises(Fault, match="the run is not stored yet"):
        await record_run(kernel, ledger, project, result.run_id)
    gated.open.set()
    await settle(30)
    assert (await record_run(kernel, ledger, project, result.run_id)).first.answer == "0:one"


async def test_what_a_run_led_to_and_is_not_stored_is_missing(ledger: Ledger, tmp_path: Path) -> None:
    spans = {name: f"{number:016x}" for number, name in enumerate(("gone", "runs", "stored", "child"), 1)}

    async def answer(turn: ExecutorTurn, emit: Emit) -> TurnResult:
        for name, span in spans.items():
            step = begin_call_step("agent", name, {"message": "hi"}, span_id=span)
            assert step is not None
            if name == "child":  # of the agent itself: it answers in the same run
                with model_step("scripted"):
                    pass
            step.finish("done")
        return await echo(turn, emit)

    project = load_project(write_project(tmp_path / "p", dict.fromkeys(spans)))
    kernel = kernel_on(ledger, FakeExecutor(answer))
    run = await ask(kernel, "go")
    for name in ("runs", "stored"):
        record = RunRecord(f"r-{name}", name, "token:alice", parent_span=spans[name], started_at=1.0)
        await ledger.runs.begin(record)
        if name == "stored":
            await ledger.runs.finish(replace(record, status="ok"))
    recording = await record_run(kernel, ledger, project, run)
    assert [each.id for each in recording.runs] == [run, "r-stored"]
    assert recording.missing == (
        "run r-runs of runs: it is not over, or is not stored yet",
        "run r-stored of stored: its question",
        f"run {run} of echo: the run of gone in step 1",
    )
