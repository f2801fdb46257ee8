"""Model steps in the ledger, on each database: requests are put together again, and take no room twice."""

import json
from dataclasses import replace
from time import time
from typing import Any

from sqlalchemy import Connection, func, select

from pallas.ledger import Ledger
from pallas.ledger.step_store import forget_unused
from pallas.ledger.tables import blobs
from pallas.model import Blob, EndedRun, Message, RunRecord, StepUsage
from pallas.telemetry.open_step import MAX_TEXT
from pallas.telemetry.step_record import RunSteps, StepRecord, stored

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
    new = [Blob(p.scope, p.digest, p.parent.digest if p.parent else "", p.body) for p in parts]
    await ledger.runs.record([EndedRun(run.id, None, (), [stored(each) for each in steps.steps], new)])
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


async def test_a_call_is_stored_whatever_its_arguments_and_its_result_hold(ledger: Ledger) -> None:
    thread = (await ledger.threads.create("echo", "anonymous")).id
    steps = StepRecord().open("r", thread)
    arguments = {"id": 7, "odd": "a\ud800b \x1b[31m", "long": "x" * 40_000, "rows": ["y" * 300]}
    step = steps.begin("tool", name="shelf__find", request=steps.split_call("shelf__find", arguments))
    picture = {"type": "image", "mimeType": "image/png", "data": "A" * 40_000}
    step.content([{"type": "text", "text": "c\ud800d\x1b[0m" + "z" * (MAX_TEXT + 5)}, picture])
    step.finish("done")
    await keep(ledger, steps, thread)
    detail = await ledger.steps.get("r", 1)
    assert detail is not None
    assert detail == step.detail
    given = json.loads(detail.request)["arguments"]
    assert (given["id"], given["odd"], given["rows"]) == (7, "a?b \x1b[31m", ["y" * 300])
    assert given["long"].startswith("[40000 characters, SHA-256 ")
    text, image = json.loads(detail.response)["content"]
    assert text["text"].startswith("c?d")
    assert text["text"].endswith("z[12 more characters]")
    assert image["data"].startswith("[40000 characters, SHA-256 ")
