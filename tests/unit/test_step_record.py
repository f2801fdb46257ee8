"""The record of steps: texts that are cleaned later, with the secrets of the time when they arrived."""

import json

import pytest

from pallas.executors.model_client.answer_document import answer_of
from pallas.model import StepUsage
from pallas.model.redaction import forget, known_spellings, redact, redact_text
from pallas.telemetry.open_step import OpenStep
from pallas.telemetry.step_record import MAX_UNSETTLED, MAX_UNSETTLED_BYTES, StepRecord

TOKEN = "caller-token-of-this-run"


def asked(step: OpenStep, question: str, answer: str, read: list[str] | None = None) -> None:
    """Record a request with its answer; each is added to ``read`` when it is read."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": question}]}).encode()

    def request() -> tuple[str, list[tuple[str, str]], bytes]:
        if read is not None:
            read.append(question)
        return "http://127.0.0.1/v1", [("authorization", f"Bearer {question}")], body

    step.send(len(body), request)
    step.answered(200)
    step.attempted(len(answer), lambda: (json.dumps({"said": answer}), StepUsage(3, 2)))


def test_a_secret_that_is_forgotten_before_a_step_is_read_is_masked_in_it() -> None:
    run = StepRecord().open("r", "c")
    step = run.begin()
    redact(TOKEN)
    asked(step, f"use {TOKEN}", f"used {TOKEN}")
    forget(TOKEN)
    (stored,) = run.stored()
    new = run.unstored(1.0, set())
    assert TOKEN not in repr((step.detail, stored, [part.body for part in new]))
    assert json.loads(step.detail.request)["messages"] == [{"role": "user", "content": "use [redacted]"}]
    assert json.loads(step.detail.response) == {"said": "used [redacted]"}
    assert [name for name, _ in step.headers] == ["authorization"]


def test_texts_wait_until_they_are_read_and_only_so_many() -> None:
    record, read = StepRecord(), list[str]()
    run = record.open("r", "c")
    steps = [run.begin() for _ in range(MAX_UNSETTLED)]
    asked(steps[0], "first", "x", read)
    assert read == []
    assert (steps[0].value.name, steps[0].value.messages, steps[0].value.usage) == ("m", 1, StepUsage(3, 2))
    assert read == ["first"]
    for step in steps[1 : MAX_UNSETTLED // 2]:  # each waits with its request and with its answer
        asked(step, "more", "x", read)
    assert len(read) == MAX_UNSETTLED // 2
    asked(steps[-1], "y" * MAX_UNSETTLED_BYTES, "x", read)
    assert len(read) == MAX_UNSETTLED // 2 + 1


def test_the_size_of_the_record_is_that_of_its_steps_before_and_after_their_texts_are_cleaned() -> None:
    record = StepRecord()
    run = record.open("r", "c")
    steps = [run.begin() for _ in range(3)]
    for number, step in enumerate(steps):
        asked(step, f"question {number} " * 50, "answer " * 50)
        asked(step, "again", "the answer that counts " * 10)
    assert record.size == sum(step.size for step in steps) > 3 * 1_000
    assert all("the answer that counts" in step.response for step in steps)
    assert record.size == sum(step.size for step in steps) > 3 * 1_000
    while run.count:
        run.drop_oldest()
    assert record.size == 0


def test_a_repeated_attempt_leaves_the_answer_and_the_usage_of_the_last_one() -> None:
    step = StepRecord().open("r", "c").begin()
    step.first_token()
    asked(step, "question", "broken")
    assert step.value.first_token is not None
    step.retry("429", 0.5)
    step.send(10, lambda: ("never", [], b"read"))
    step.answered(200)
    step.first_token()
    step.attempted(0, lambda: ("", StepUsage()))
    step.end()
    value = step.value
    assert [(each.status, each.reason, each.wait) for each in value.attempts] == [
        (200, "429", 0.5),
        (200, "", 0),
    ]
    assert (step.response, value.usage, value.state, value.messages) == ("", StepUsage(), "done", 1)
    assert value.first_token is not None


def test_a_request_is_masked_with_the_secrets_of_its_own_time() -> None:
    step = StepRecord().open("r", "c").begin()
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": TOKEN}]}).encode()
    redact(TOKEN)
    step.send(len(body), lambda: ("http://127.0.0.1/v1", [], body))
    forget(TOKEN)
    step.attempted(1, lambda: ('"no token here"', StepUsage()))
    assert TOKEN not in step.detail.request
    assert "[redacted]" in step.detail.request


def test_the_longer_of_two_secrets_is_masked_whole_whichever_is_still_known() -> None:
    longer = f"{TOKEN}-and-more"
    for early, late in ((TOKEN, longer), (longer, TOKEN)):
        redact(early)
        known = known_spellings()
        forget(early)
        redact(late)
        assert redact_text(f"<{longer}>", known) == "<[redacted]>"
        forget(late)


def test_a_text_that_cannot_be_read_is_told_and_costs_no_other_step_its_own() -> None:
    record = StepRecord()
    broken, whole = record.open("one", "c").begin(), record.open("two", "d").begin()

    def fails() -> tuple[str, StepUsage]:
        raise RecursionError("too deep")

    broken.send(5, lambda: ("http://127.0.0.1/v1", [], b"[" * 200_000))
    broken.attempted(5, fails)
    asked(whole, "question", "answer")
    assert json.loads(broken.detail.request)
    assert json.loads(broken.response) == "[this could not be read]"
    assert json.loads(whole.response) == {"said": "answer"}


@pytest.mark.parametrize(
    "body", [b'{"a":' * 5_000, b'data: {"choices":' + b"[" * 5_000, b"[" * 5_000 + b"]" * 5_000]
)
def test_an_answer_that_is_nested_without_end_is_recorded_as_what_it_is(body: bytes) -> None:
    step = StepRecord().open("r", "c").begin()
    asked(step, "question", "x")
    step.attempted(len(body), lambda: answer_of(body))
    assert isinstance(json.loads(step.response), str | list)


def test_a_step_that_the_record_dropped_takes_no_room_and_reads_nothing() -> None:
    record, read = StepRecord(max_bytes=10_000), list[str]()
    run = record.open("r", "c")
    first = run.begin()
    asked(first, "first", "x" * 100, read)
    for number in range(20):
        asked(run.begin(), f"{number} " * 100, "y" * 500)
    assert first not in run.steps
    before = record.size
    assert first.response == ""
    first.attempted(50, lambda: ('"late"', StepUsage()))
    assert first.value.messages == 0
    assert (read, record.size) == ([], before)
    assert record.size == sum(step.size for step in run.steps)
    assert all(step.response for step in run.steps)
    assert record.size == sum(step.size for step in run.steps) <= 10_000
