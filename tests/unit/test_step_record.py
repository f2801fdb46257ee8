"""The record of steps: texts that are cleaned later, with the secrets of the time when they arrived."""

import json

import pytest

from pallas.executors.model_client.answer_document import answer_of, breaks_off
from pallas.model import Image, StepUsage
from pallas.model.long_strings import MAX_STRING
from pallas.model.redaction import Spellings, forget, known_spellings, redact, redact_text
from pallas.telemetry.forgotten_secrets import MAX_SCOPES, MAX_SECRETS, ForgottenSecrets
from pallas.telemetry.open_step import MAX_PICTURES, OpenStep
from pallas.telemetry.step_record import MAX_UNSETTLED, MAX_UNSETTLED_BYTES, StepRecord, stored

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
    step.attempted(len(answer), lambda: json.dumps({"said": answer}), StepUsage(3, 2))


def test_a_secret_that_is_forgotten_before_a_step_is_read_is_masked_in_it() -> None:
    run = StepRecord().open("r", "c")
    step = run.begin()
    redact(TOKEN)
    asked(step, f"use {TOKEN}", f"used {TOKEN}")
    forget(TOKEN)
    (kept,) = map(stored, run.steps)
    new = run.unstored(1.0, set())
    assert TOKEN not in repr((step.detail, kept, [part.body for part in new]))
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
    step.attempted(0, lambda: "")
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
    step.attempted(1, lambda: '"no token here"')
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

    def fails() -> str:
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
    first.attempted(50, lambda: '"late"')
    assert first.value.messages == 0
    assert (read, record.size) == ([], before)
    assert record.size == sum(step.size for step in run.steps)
    assert all(step.response for step in run.steps)
    assert record.size == sum(step.size for step in run.steps) <= 10_000


def picture_of(size: int) -> dict[str, str]:
    return {"type": "image", "data": "A" * size, "mimeType": "image/png"}


def test_pictures_of_a_call_are_kept_where_nothing_else_keeps_them_until_another_process_does() -> None:
    record = StepRecord()
    in_thread, alone = (record.open(run, scope).begin("tool") for run, scope in (("r", "c"), ("s", "s")))
    for step in (in_thread, alone):
        step.content([picture_of(MAX_STRING + 1), picture_of(10)])
    assert (in_thread.pictures, len(alone.pictures)) == ((), 1)
    size = alone.size
    taken = alone.take_pictures()
    assert (alone.pictures, alone.size) == ((), size - MAX_STRING - 1)
    alone.keep_pictures([*taken, Image("A" * MAX_PICTURES, "image/png")])
    assert (alone.pictures, alone.size) == (taken, size)


def in_turn(record: StepRecord, run_id: str, token: str, messages: list[str], answer: str) -> OpenStep:
    """A run of the conversation ``c`` by a caller with that token, which is over."""
    run = record.open(run_id, "c")
    step = run.begin()
    redact(token)
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": each} for each in messages]})
    step.send(len(body), lambda: ("http://127.0.0.1/v1", [], body.encode()))
    step.answered(200)
    step.attempted(len(answer), lambda: json.dumps({"said": answer}), StepUsage(3, 2))
    step.settle()
    forget(token)
    run.end()
    return step


@pytest.mark.parametrize("said", ["It is {}.", "see http://x/?key={}&a=1", '{{"auth": "{}"}}', "a.b={}/c"])
def test_a_token_that_a_model_repeated_is_masked_in_later_turns_of_another_caller(said: str) -> None:
    record, other = StepRecord(), "token-of-the-next-caller"
    repeated = said.format(TOKEN)
    in_turn(record, "r1", TOKEN, ["Who am I?"], repeated)
    later = in_turn(record, "r2", other, ["Who am I?", repeated, "And now?"], f"as before: {repeated}")
    assert TOKEN not in repr((later.detail, stored(later)))
    assert "[redacted]" in later.detail.request
    assert "[redacted]" in later.detail.response
    call = record.open("r3", "c").begin("tool", name="t__t", request=None)
    call.arguments({"text": repeated, "long": repeated + "x " * 300})
    call.content([{"type": "text", "text": repeated}])
    assert TOKEN not in repr(call.detail)


def test_a_token_of_an_earlier_turn_is_masked_though_its_message_is_no_longer_remembered() -> None:
    record = StepRecord()
    in_turn(record, "r1", TOKEN, [f"I am {TOKEN}."], "Hello.")
    record.cache._parts.clear()
    record.cache._chains.clear()
    later = in_turn(record, "r2", "token-of-the-next-caller", [f"I am {TOKEN}.", "Hello."], "Yes.")
    assert TOKEN not in repr(later.detail)


def test_only_fingerprints_are_kept_and_only_so_many_and_other_conversations_stay_as_they_are() -> None:
    forgotten = ForgottenSecrets()
    tokens = [f"token-number-{number:04}" for number in range(MAX_SECRETS + 1)]
    for number, token in enumerate(tokens):
        forgotten.note("c", f"it is {token}", Spellings(anywhere=(token,)))
        forgotten.note(f"other-{number}", "nothing", Spellings(anywhere=(token,)))
    assert forgotten.masked_text("c", f"{tokens[0]} {tokens[1]},{tokens[-1]}") == (
        f"{tokens[0]} [redacted],[redacted]"
    )
    assert forgotten.masked_text("other-1", tokens[1]) == tokens[1]
    assert "token-number" not in repr(vars(forgotten))
    assert list(forgotten._scopes) == ["c"]
    for number in range(MAX_SCOPES):
        forgotten.note(f"s{number}", tokens[1], Spellings(anywhere=(tokens[1],)))
    assert forgotten.masked_text("c", tokens[1]) == tokens[1]


def test_the_pieces_of_an_answer_that_broke_off_are_one_text() -> None:
    def stream(*events: dict[str, object]) -> bytes:
        return "".join(f"event: x\ndata: {json.dumps(each)}\n\n" for each in events).encode()

    def delta(kind: str, piece: str, index: int, **more: object) -> dict[str, object]:
        return {"type": f"response.{kind}.delta", "output_index": index, "delta": piece, **more}

    call = {"type": "function_call", "name": "find", "arguments": ""}
    body = stream(
        {"type": "response.created", "response": {"id": "r", "output": []}},
        delta("reasoning_summary_text", "thi", 0, summary_index=0),
        delta("reasoning_summary_text", "nks", 0, summary_index=0),
        delta("output_text", "sec", 1, content_index=0),
        delta("output_text", "ret", 1, content_index=0),
        {"type": "response.output_item.added", "output_index": 2, "item": call},
        delta("function_call_arguments", '{"a"', 2),
        delta("function_call_arguments", ": 1}", 2),
    )
    assert breaks_off(body)
    assert json.loads(answer_of(body)) == {
        "id": "r",
        "output": [
            {"summary": [{"type": "summary_text", "text": "thinks"}]},
            {"content": [{"type": "output_text", "text": "secret"}]},
            {**call, "arguments": '{"a": 1}'},
        ],
    }
    pieces = [{"model": "qwen", "message": {"content": piece}, "done": False} for piece in ("sec", "ret")]
    joined = {"model": "qwen", "message": {"content": "secret"}, "done": False}
    assert json.loads(answer_of(stream(*pieces))) == joined
    assert json.loads(answer_of("\n".join(map(json.dumps, pieces)).encode())) == joined
    assert not breaks_off(b'{"choices": []}\n')
    assert not breaks_off(b"data: {}\n\ndata: [DONE]\n\n")
    assert breaks_off(b'{"choices": [')
