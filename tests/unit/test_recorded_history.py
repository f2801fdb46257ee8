"""What was said before a recorded run is in its recording, without the secrets of that time."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.executors import FakeExecutor, echo
from support.kept import asked, kernel_on

from pallas.config import Project
from pallas.executors import Emit, ExecutorTurn, TurnResult
from pallas.ledger import Ledger, open_ledger
from pallas.model import Message, Recording, RunTexts, ToolAnswer, ToolCall
from pallas.model.ids import mint
from pallas.model.long_strings import MAX_STRING, shortened
from pallas.runs.recorded_history import MaskedTexts, recorded_history
from pallas.runs.run_recording import record_run
from pallas.telemetry.step_record import call_step, model_step

BEARER = "canary-bearer-5e1f0c2d9b7a"


@pytest.fixture
async def ledger() -> AsyncIterator[Ledger]:
    opened = await open_ledger("memory")
    yield opened
    await opened.close()


async def told(ledger: Ledger, project: Path, executor: FakeExecutor, *texts: str) -> Recording:
    """The recording of the last of several turns; only the first has the bearer."""
    kernel, handle, run = kernel_on(ledger, executor), mint(), ""
    for number, text in enumerate(texts):
        bearer = None if number else BEARER
        run = (await kernel.run(asked(text, handle, new=number == 0, bearer=bearer))).run_id
    return await record_run(kernel, ledger, Project(project, project / "agents.yaml", "test", {}), run)


def ask_model(texts: list[str]) -> None:
    """A step that sends these texts to a model."""
    body = json.dumps({"messages": [{"role": "user", "content": text} for text in texts]}).encode()
    with model_step("scripted") as step:
        assert step is not None
        step.send(len(body), lambda: ("http://models.test/", (), body))


async def sends_history(turn: ExecutorTurn, emit: Emit) -> TurnResult:
    ask_model([*(message.text for message in turn.history), turn.text])
    return await echo(turn, emit)


async def asks_for_a_summary(turn: ExecutorTurn, emit: Emit) -> TurnResult:
    """Sends the history to a model that summarises it, and then only its summary."""
    if turn.history:
        with call_step("compaction", turn.agent, {"messages": len(turn.history)}):
            ask_model([message.text for message in turn.history])
    ask_model(["a summary", turn.text])
    return await echo(turn, emit)


@pytest.mark.parametrize("answer", [echo, sends_history, asks_for_a_summary])
@pytest.mark.parametrize("much", ["", "x " * MAX_STRING])
async def test_a_secret_that_is_forgotten_is_masked_in_what_was_said_before(
    ledger: Ledger, tmp_path: Path, answer: Any, much: str
) -> None:
    """Also for agents that send no history, such as a remote one, and for texts that steps do not keep."""
    recording = await told(ledger, tmp_path, FakeExecutor(answer), f"my {BEARER}{much}", "a\r\n\x1b[1mb", "c")
    assert BEARER not in repr(recording.history)
    first, second, third, fourth = (message.text for message in recording.history)
    assert (first, second) == (f"my [redacted]{much}", f"0:my [redacted]{much}")
    assert (third, fourth) == ("a\n␛[1mb", "2:a\n␛[1mb")


async def test_a_run_whose_texts_are_not_stored_has_those_of_its_steps(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_texts(runs: Any) -> dict[str, RunTexts]:
        return {}

    monkeypatch.setattr(ledger.runs, "texts", no_texts)
    recording = await told(ledger, tmp_path, FakeExecutor(sends_history), f"my {BEARER}")
    assert (recording.first.question, recording.first.answer) == ("my [redacted]", "[redacted]")
    recording = await told(ledger, tmp_path, FakeExecutor(echo), f"my {BEARER}")
    assert (recording.first.question, recording.first.answer) == ("[redacted]", "[redacted]")


def test_texts_that_are_nowhere_recorded_are_masked_as_a_whole() -> None:
    call = ToolCall("c", "shop__find", {"what": "lamps", "at": ["here", 7]})
    before = [
        ("r", Message("user", "a question")),
        ("r", Message("assistant", "I look", calls=(call,))),
        ("r", Message("tool", "two\nlamps", answers=(ToolAnswer("c", "two"), ToolAnswer("d", "lamps")))),
        ("r", Message("assistant", "an answer")),
    ]
    nothing = MaskedTexts([])
    assert [message.text for message in recorded_history(before, {}, nothing)] == [
        "[redacted]", "[redacted]", "[redacted]\n[redacted]", "[redacted]",
    ]  # fmt: skip
    known = {"r": RunTexts("", is_as_said=True)}
    sent = MaskedTexts([json.dumps({"all": ["lamps", "here", "two"]})])
    found = recorded_history(before, known, sent)
    assert [message.text for message in found] == [
        "a question", "[redacted]", "two\nlamps", "an answer",
    ]  # fmt: skip
    assert found[1].calls[0].arguments == {"what": "lamps", "at": ["here", 7]}


def test_a_long_text_is_as_it_was_sent() -> None:
    long = "x" * (MAX_STRING + 1)
    sent = MaskedTexts([json.dumps({"content": shortened(long)})])
    assert sent.text(long) == shortened(long)
    assert sent.text(long + "y") == "[redacted]"


async def test_a_recording_has_every_joiner_and_mark_of_what_was_said(ledger: Ledger, tmp_path: Path) -> None:
    said = "می\u200cخواهم क्\u200dष soft\u00adhyphen \u200fab 葛\U000e0100"
    recording = await told(ledger, tmp_path, FakeExecutor(sends_history), said, f"again {said}")
    assert recording.history[0].text == said
    assert recording.first.question == f"again {said}"
    assert said in recording.first.answer
    (step,) = recording.first.steps
    sent = json.loads(step.request)["messages"]
    assert [each["content"] for each in sent][::2] == [said, f"again {said}"]
