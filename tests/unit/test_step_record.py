"""The record of steps: texts that are cleaned later, with the secrets of the time when they arrived."""

import json

from pallas.model import StepUsage
from pallas.model.redaction import forget, redact
from pallas.telemetry.step_record import MAX_UNSETTLED, MAX_UNSETTLED_BYTES, OpenStep, StepRecord

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
