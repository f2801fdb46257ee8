"""Model steps in the ledger, on each database: requests are put together again, and take no room twice."""

import json
from dataclasses import replace
from time import time
from typing import Any

import pytest
from sqlalchemy import Connection, func, select, update

from pallas.ledger import Ledger, blob_store
from pallas.ledger.blob_store import forget_unused, packed, unpacked
from pallas.ledger.tables import blobs
from pallas.model import EndedRun, Message, RunRecord, StepUsage, long_strings
from pallas.model.long_strings import shortened
from pallas.telemetry import open_step, request_parts
from pallas.telemetry.step_record import RunSteps, StepRecord, blobs_of, stored, uses_of

TOOLS = [
    {"type": "function", "function": {"name": f"tool_{number}", "description": "d" * 50}}
    for number in range(9)
]
SYSTEM = {"role": "system", "content": "You answer. " * 40}


def request_of(messages: list[dict[str, Any]]) -> bytes:
    body = {"model": "m", "messages": [SYSTEM, *messages], "tools": TOOLS, "stream": True}
    return json.dumps(body, separators=(",", ":")).encode()


def asked(record: StepRecord, run: str, thread: str, messages: list[dict[str, Any]]) -> RunSteps:
    steps = record.open(run, thread)
    step = steps.begin(provider="generic")
    body, headers = request_of(messages), [("content-type", "application/json")]
    step.send(len(body), lambda: ("http://127.0.0.1/v1", headers, body))
    step.answered(200)
    step.attempted(14, lambda: '{"choices":[]}', StepUsage(3, 2))
    step.finish("done")
    return steps


async def keep(ledger: Ledger, steps: RunSteps, thread: str) -> int:
    """Store a run with its steps; returns the bytes that its blobs take."""
    run = RunRecord(steps.run_id, "echo", "anonymous", thread, started_at=time())
    question, answer = Message("user", "hi"), Message("assistant", "ho")
    await ledger.threads.begin(thread, run, question)
    await ledger.threads.finish(thread, replace(run, status="ok", finished_at=time()), [question, answer])
    parts = steps.unstored(0.1, set())
    new, entries = blobs_of(parts), [stored(each) for each in steps.steps]
    await ledger.runs.record([EndedRun(run.id, None, (), entries, new, uses=uses_of(steps.steps, parts))])
    for part in parts:
        part.stored_at = time()
    return sum(len(blob.body) for blob in new)


def blobs_in(connection: Connection) -> int:
    return connection.execute(select(func.count()).select_from(blobs)).scalar_one()


async def test_each_request_is_put_together_again_and_a_step_takes_as_much_in_turn_50_as_in_turn_2(
    ledger: Ledger,
) -> None:
    record, messages, sizes = StepRecord(), [], []
    thread = (await ledger.threads.create("echo", "anonymous")).id
    for turn in range(50):
        messages.append({"role": "user", "content": f"question {turn:02} é \x1b \U0001f468\u200d\U0001f469"})
        sizes.append(await keep(ledger, asked(record, f"r{turn}", thread, messages), thread))
        detail = await ledger.steps.get(f"r{turn}", 1)
        assert detail is not None
        assert json.loads(detail.request) == json.loads(request_of(messages))
        assert (detail.step.messages, detail.step.usage) == (2 * turn + 2, StepUsage(3, 2))
        messages.append({"role": "assistant", "content": f"answer {turn:02}"})
    assert len({*sizes[1:]}) == 1
    assert await ledger.database.read(blobs_in) == 2 + 50 + 49
    assert len(await ledger.steps.list("r3")) == 1
    assert await ledger.steps.get("r3", 2) is None


async def test_a_process_without_memory_of_it_adds_to_the_same_chain(ledger: Ledger) -> None:
    thread = (await ledger.threads.create("echo", "anonymous")).id
    messages = [{"role": "user", "content": f"question {number}"} for number in range(5)]
    await keep(ledger, asked(StepRecord(), "first", thread, messages), thread)
    before = await ledger.database.read(blobs_in)
    messages.append({"role": "user", "content": "one more"})
    await keep(ledger, asked(StepRecord(), "second", thread, messages), thread)
    assert await ledger.database.read(blobs_in) == before + 1
    detail = await ledger.steps.get("second", 1)
    assert detail is not None
    assert json.loads(detail.request) == json.loads(request_of(messages))


async def test_steps_go_with_their_thread_and_what_conversations_share_with_the_last_of_them(
    ledger: Ledger,
) -> None:
    record = StepRecord()
    for name in ("one", "two"):
        thread = (await ledger.threads.create("echo", "anonymous")).id
        await keep(ledger, asked(record, name, thread, [{"role": "user", "content": name}]), thread)
    assert await ledger.database.read(blobs_in) == 2 + 2
    for left, name in ((2 + 1, "one"), (0, "two")):
        run = await ledger.runs.get(name)
        assert run is not None
        await ledger.threads.delete(run.thread)
        assert await ledger.steps.list(name) == ()
        await ledger.database.write(forget_unused)
        assert await ledger.database.read(blobs_in) == left


async def test_the_same_question_has_the_same_digest_in_another_conversation() -> None:
    record = StepRecord()

    def digest(thread: str, call: str, text: str = "found") -> str:
        said = [
            {"role": "assistant", "tool_calls": [{"id": call, "function": {"name": "x", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": call, "content": text},
        ]
        return asked(record, thread, thread, said).steps[0].value.digest

    assert digest("a", "call_1") == digest("b", "call_2")
    assert digest("a", "call_1") != digest("a", "call_1", "lost")


async def test_a_call_is_stored_whatever_its_arguments_and_its_result_hold(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_step, "MAX_TEXT", 100_000)
    thread = (await ledger.threads.create("echo", "anonymous")).id
    steps = StepRecord().open("r", thread)
    arguments = {"id": 7, "odd": "a\ud800b \x1b[31m", "long": "x" * 40_000, "rows": ["y" * 300]}
    step = steps.begin("tool", name="shelf__find", request=steps.split_call("shelf__find", arguments))
    picture = {"type": "image", "mimeType": "image/png", "data": "A" * 40_000}
    step.content([{"type": "text", "text": "c\ud800d\x1b[0m" + "z" * 100_005}, picture])
    step.finish("done")
    await keep(ledger, steps, thread)
    detail = await ledger.steps.get("r", 1)
    assert detail is not None
    assert detail == step.detail
    given = json.loads(detail.request)["arguments"]
    assert (given["id"], given["odd"], given["rows"]) == (7, "a?b \x1b[31m", ["y" * 300])
    assert given["long"] == "x" * 40_000
    assert detail.lacks == ()
    text, image = json.loads(detail.response)["content"]
    assert text["text"].startswith("c?d")
    assert text["text"].endswith("z[12 more characters]")
    assert image["data"].startswith("[40000 characters, SHA-256 ")


def turn_of(texts: list[str], record: StepRecord, run: str, thread: str) -> RunSteps:
    return asked(record, run, thread, [{"role": "user", "content": text} for text in texts])


async def test_a_long_text_for_which_there_is_no_room_is_said_in_words(ledger: Ledger) -> None:
    thread = (await ledger.threads.create("echo", "anonymous")).id
    ledger.room.most_mib = 0
    await keep(ledger, turn_of(["x" * 40_000], StepRecord(), "r", thread), thread)
    detail = await ledger.steps.get("r", 1)
    assert detail is not None
    assert detail.lacks == (
        "a text of 40000 characters: texts of steps take 0 MiB, the most they may (step_texts_mib in "
        "agents.yaml)",
    )
    assert "[40000 characters, SHA-256 " in detail.request
    ledger.room.most_mib = 1
    await keep(ledger, turn_of(["x" * 40_000], StepRecord(), "s", thread), thread)
    detail = await ledger.steps.get("r", 1)
    assert detail is not None
    assert (detail.lacks, "x" * 40_000 in detail.request) == ((), True)


async def test_a_text_beyond_the_bound_says_so_in_memory_and_in_the_ledger(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (long_strings, request_parts, blob_store):
        monkeypatch.setattr(module, "MAX_TEXT", 100_000)
    thread = (await ledger.threads.create("echo", "anonymous")).id
    steps = turn_of(["x " * 50_001], StepRecord(), "r", thread)
    await keep(ledger, steps, thread)
    stored_one = await ledger.steps.get("r", 1)
    for detail in (steps.steps[0].detail, stored_one):
        assert detail is not None
        assert detail.lacks == ("a text of 100002 characters: 100000 is the most",)


async def test_only_who_sent_a_long_text_reads_it_by_its_digest(ledger: Ledger) -> None:
    text = "secret plans " * 4_000
    record, threads = StepRecord(), [(await ledger.threads.create("echo", "anonymous")).id for _ in "ab"]
    await keep(ledger, turn_of([text], record, "r", threads[0]), threads[0])
    await keep(ledger, turn_of([shortened(text)], record, "s", threads[1]), threads[1])
    mine, other = [await ledger.steps.get(run, 1) for run in "rs"]
    assert mine is not None
    assert other is not None
    assert (text in mine.request, text in other.request) == (True, False)


async def test_secrets_in_a_long_text_are_masked_before_it_is_stored(ledger: Ledger) -> None:
    thread = (await ledger.threads.create("echo", "anonymous")).id
    secret = "sk-proj-4fHq81MzT6vWcXk2LrB9yNdE4fHq81MzT6vWcXk2"
    text = "words " * 10_000 + secret + " words" * 10_000
    steps = turn_of([text], StepRecord(), "r", thread)
    call = steps.begin(
        "tool", name="fs__read", request=steps.split_call("fs__read", {"token": "t " * 20_000})
    )
    call.content([{"type": "text", "text": text}])
    call.finish("done")
    await keep(ledger, steps, thread)
    for number in (1, 2):
        detail = await ledger.steps.get("r", number)
        assert detail is not None
        assert secret not in detail.request + detail.response
        assert "[redacted]" in detail.request + detail.response
    assert "t t t" not in detail.request
    bodies = await ledger.database.read(lambda c: c.execute(select(blobs.c.body)).scalars().all())
    assert secret not in "".join(map(unpacked, bodies))


async def test_an_equal_long_text_is_compressed_once(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    packed_texts: list[str] = []

    def count(text: str) -> bytes:
        packed_texts.append(text)
        return packed(text)

    monkeypatch.setattr(blob_store, "packed", count)
    text = "words " * 10_000
    for run in "rstu":
        thread = (await ledger.threads.create("echo", "anonymous")).id
        await keep(ledger, turn_of([text], StepRecord(), run, thread), thread)
    assert packed_texts.count(text) == 1


async def test_a_long_text_that_was_sent_again_is_not_forgotten_at_once(ledger: Ledger) -> None:
    text, used = "words " * 10_000, select(blobs.c.used_at).where(blobs.c.scope == blob_store.TEXT)
    for run in "rs":
        thread = (await ledger.threads.create("echo", "anonymous")).id
        await keep(ledger, turn_of([text], StepRecord(), run, thread), thread)
        if run == "r":
            await ledger.database.write(lambda c: c.execute(update(blobs).values(used_at=1.0)) and None)
    assert await ledger.database.read(lambda c: c.execute(used).scalar_one()) > 1.0
