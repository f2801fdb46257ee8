"""Chat over REST: one JSON, or the frames of a stream, byte for byte."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.executors import Gate, echo
from support.rest import Api, Wire, api, chunks_in, text_in
from support.waiting import poll, until

from pallas.bounds.sizes import MAX_BODY
from pallas.executors import Emit, ExecutorTurn, TurnResult
from pallas.model import (
    AgentState,
    Fault,
    FaultType,
    LoopMessage,
    Message,
    Principal,
    TextDelta,
    ToolAnswer,
    ToolCall,
)
from pallas.model.grant_rules import CONTROL_FULL
from pallas.surfaces.rest import chunk_stream as stream

PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


async def talk(turn: ExecutorTurn, emit: Emit) -> TurnResult:
    """Does what the message says: writes in pieces, calls a tool, fails, or echoes."""
    run: dict[str, Any] = {"run_id": turn.run_id, "agent": turn.agent}
    if turn.text == "fail":
        emit(TextDelta(**run, text="So far"))
        raise Fault(FaultType.UPSTREAM, "the model broke off", data={"stage": "run"})
    if turn.text != "use a tool":
        for piece in turn.text.split():
            emit(TextDelta(**run, text=piece + " "))
        return await echo(turn, emit)
    call, answer = ToolCall("c1", "echo__say", {"text": "hi"}), ToolAnswer("c1", "said: hi")
    emit(TextDelta(**run, text="Looking."))
    emit(LoopMessage(**run, role="assistant", text="Looking.", calls=(call,)))
    emit(LoopMessage(**run, role="tool", text="said: hi", answers=(answer,)))
    emit(TextDelta(**run, text="It said hi."))
    return TurnResult(
        ("Looking.", "It said hi."),
        (
            Message("user", turn.text),
            Message("assistant", "Looking.", calls=(call,)),
            Message("tool", "said: hi", answers=(answer,)),
            Message("assistant", "It said hi."),
        ),
    )


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Api]:
    async with api(tmp_path, talk) as started:
        yield started


async def test_a_stream_has_these_headers_and_exactly_these_frames(served: Api) -> None:
    # AG-15, AG-17
    async with Wire(served.port) as wire:
        status = await wire.ask("POST", "/agents/echo/chat", {"message": "use a tool", "stream": True})
        body = await wire.rest()
    headers = wire.headers
    assert status == 200
    assert headers["content-type"] == "text/event-stream"
    assert headers["cache-control"] == "no-cache"
    assert headers["x-accel-buffering"] == "no"
    thread, run = headers["pallas-thread-id"], headers["pallas-run-id"]
    final = f'{{"type":"final","threadId":"{thread}","turnIndex":3}}'
    assert body.decode() == "".join(
        f"data: {frame}\n\n"
        for frame in (
            '{"type":"text","delta":"Looking."}',
            '{"type":"tool_call","toolName":"echo__say","args":{"text":"hi"}}',
            '{"type":"tool_result","toolName":"echo__say","ok":true}',
            '{"type":"text","delta":"\\n\\nIt said hi."}',
            final,
            "[DONE]",
        )
    )
    record = await served.ledger.runs.get(run)
    assert record is not None and (record.thread, record.turn_index, record.status) == (thread, 3, "ok")


async def test_a_stream_that_fails_ends_with_the_fault_and_done(served: Api) -> None:
    # AG-15, UN-4
    async with Wire(served.port) as wire:
        await wire.ask("POST", "/agents/echo/chat", {"message": "fail", "stream": True})
        body = await wire.rest()
    assert body.endswith(b"\n\ndata: [DONE]\n\n")
    first, failed = chunks_in(body)
    assert first == {"type": "text", "delta": "So far"}
    assert failed["type"] == "error" and failed["message"] == "the model broke off"
    assert failed["data"] == {"type": "UPSTREAM", "retryable": False, "stage": "run", "code": -32002}
    async with served.client() as http:
        whole = await http.post("/agents/echo/chat", json={"message": "fail"})
    assert whole.status_code == 502
    assert whole.json()["error"] == failed["message"]
    assert whole.json()["data"]["type"] == failed["data"]["type"]


async def test_the_answer_as_a_whole_says_the_same(served: Api) -> None:
    # AG-16
    async with served.client() as http:
        whole = await http.post("/agents/echo/chat", json={"message": "use a tool"})
        streamed = await http.post("/agents/echo/chat", json={"message": "use a tool", "stream": True})
        assert whole.status_code == 200
        assert whole.headers["content-type"] == "application/json"
        body, chunks = whole.json(), chunks_in(streamed.content)
        assert body["text"] == text_in(chunks) == "Looking.\n\nIt said hi."
        assert chunks[-1]["turnIndex"] == body["turnIndex"] == 3
        assert body["threadId"] == whole.headers["pallas-thread-id"] != chunks[-1]["threadId"]
        assert body["runId"] == whole.headers["pallas-run-id"]
        rows = (await http.get(f"/threads/{body['threadId']}/messages")).json()["items"]
    # AG-17: the rows of the thread are linked by the call's id.
    assert [each["role"] for each in rows] == ["user", "assistant", "tool", "assistant"]
    assert rows[1]["toolCalls"] == [{"id": "c1", "name": "echo__say", "arguments": {"text": "hi"}}]
    assert rows[2]["toolCallId"] == "c1"
    assert rows[3]["turnIndex"] == body["turnIndex"] and rows[3]["content"] == "It said hi."


async def test_a_stream_is_asked_for_by_the_body_or_else_by_accept(served: Api) -> None:
    accept = {"accept": "application/json;q=0.5, text/event-stream"}
    async with served.client() as http:
        for body, headers, kind in (
            ({}, {}, "application/json"),
            ({}, accept, "text/event-stream"),
            ({"stream": False}, accept, "application/json"),
            ({"stream": True}, {}, "text/event-stream"),
            ({"stream": None}, accept, "text/event-stream"),
        ):
            answer = await http.post("/agents/echo/chat", json={"message": "hi", **body}, headers=headers)
            assert answer.headers["content-type"] == kind, (body, headers)


async def test_a_thread_is_gone_on_with(served: Api) -> None:
    # AG-16
    async with served.client() as http:
        first = (await http.post("/agents/echo/chat", json={"message": "one"})).json()
        thread = first["threadId"]
        second = await http.post("/agents/echo/chat", json={"message": "two", "threadId": thread})
        assert second.json()["text"] == "2:two"
        assert second.json()["threadId"] == thread
        assert second.json()["turnIndex"] > first["turnIndex"]
        made = (await http.post("/agents/echo/threads", json={"title": "Mine"})).json()
        third = await http.post("/agents/echo/chat", json={"message": "three", "threadId": made["id"]})
        assert third.json()["threadId"] == made["id"]
        # Of another agent, or none at all: the same words.
        for agent, unknown in (("other", thread), ("echo", "conv-" + "A" * 24), ("echo", "mine")):
            answer = await http.post(f"/agents/{agent}/chat", json={"message": "x", "threadId": unknown})
            assert answer.status_code == 404, (agent, unknown)
            assert answer.json()["data"]["reason"] == "not_found"


async def test_parameters_stand_beside_the_message_in_either_spelling(served: Api) -> None:
    async with served.client() as http:
        body = {"message": "hi", "temperature": 0.5, "maxTokens": 10, "repetition_penalty": 1.1}
        assert (await http.post("/agents/echo/chat", json=body)).status_code == 200
    params = served.executor.turns[-1].params
    assert params.get("temperature") == 0.5 and params.get("max_tokens") == 10
    assert params.get("extra") == {"repetition_penalty": 1.1}


async def test_a_whole_conversation_takes_the_place_of_the_message(served: Api) -> None:
    # AG-14: over REST
    whole = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    async with served.client() as http:
        answer = (await http.post("/agents/echo/chat", json={"messages": whole})).json()
        assert answer["text"] == "2:c"
        rows = (await http.get(f"/threads/{answer['threadId']}/messages")).json()["items"]
        assert [each["content"] for each in rows] == ["c", "2:c"]
        wrong = await http.post("/agents/echo/chat", json={"messages": []})
        assert (wrong.status_code, wrong.json()["data"]["key"]) == (400, "messages")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "key"),
    [
        ({"message": "hi", "temperature": 3}, "temperature"),
        ({"message": "hi", "topP": -1}, "topP"),
        ({"message": "hi", "stop": ["a"] * 5}, "stop"),
        ({"message": 1}, "message"),
        ({}, "message"),
        ({"message": " "}, "message"),
        ({"message": "hi", "threadId": ""}, "threadId"),
        ({"message": "hi", "stream": "yes"}, "stream"),
        ({"message": "hi", "images": [{"data": "x"}]}, "images.0.mimeType"),
        ({"message": "hi", "images": [{"data": "x", "mimeType": "image/png", "z": 1}]}, "images.0.z"),
    ],
)
async def test_a_mistake_in_the_body_is_named_by_its_key(served: Api, body: dict[str, Any], key: str) -> None:
    # AG-9: 400 naming the key.
    async with served.client() as http:
        answer = await http.post("/agents/echo/chat", json=body)
    assert answer.status_code == 400
    assert answer.json()["data"] == {"type": "PROTOCOL", "retryable": False, "key": key}
    assert answer.json()["error"].startswith(key + ":")


async def test_a_caller_s_token_is_lent_to_the_run_but_never_the_fleet_s_own(tmp_path: Path) -> None:
    # PR-36
    async def known(scope: Any) -> Principal:
        token = dict(scope["headers"]).get(b"authorization", b"").decode().partition(" ")[2]
        principals = {
            "control-token-of-it": Principal(CONTROL_FULL, "f"),
            "token-in-a-file-of-it": Principal(credential="f", is_local=True),
        }
        return principals.get(token, Principal("token:ci"))

    lent: list[str | None] = []

    async def look(turn: ExecutorTurn, emit: Emit) -> TurnResult:
        lent.append(turn.bearer)
        return await echo(turn, emit)

    async with api(tmp_path, look, authenticate=known) as served:
        for token in ("control-token-of-it", "token-in-a-file-of-it", "a-token-of-somebody"):
            async with served.client(token) as http:
                assert (await http.post("/agents/echo/chat", json={"message": "hi"})).status_code == 200
    assert lent == [None, None, "a-token-of-somebody"]


async def test_pictures_come_in_either_spelling_and_are_checked(served: Api) -> None:
    async with served.client() as http:
        for name in ("mime_type", "mimeType"):
            images = [{"data": PICTURE, name: "image/png"}]
            answer = await http.post("/agents/echo/chat", json={"message": "see", "images": images})
            assert answer.status_code == 200, answer.text
        assert served.executor.turns[-1].images[0].mime_type == "image/png"
        wrong = await http.post(
            "/agents/echo/chat", json={"message": "see", "images": [{"data": "!", "mimeType": "image/png"}]}
        )
    assert wrong.status_code == 400 and "not base64" in wrong.json()["error"]


async def test_an_agent_that_cannot_answer_is_not_available(served: Api) -> None:
    # PI-17
    agent = served.agents["echo"]
    async with served.client() as http:
        for state, reason, after in (
            (AgentState.ERROR, "agents/echo.py:3: no module named here", None),
            (AgentState.CRASH_LOOP, "it failed 5 times", None),
            (AgentState.STOPPED, "stopped by hand", None),
            (AgentState.BACKOFF, "it failed", "8"),
            (AgentState.CONNECTING, "", "5"),
        ):
            agent.state, agent.reason, agent.retry_after = state, reason, 7.2
            for stream in (False, True):
                answer = await http.post("/agents/echo/chat", json={"message": "hi", "stream": stream})
                assert answer.status_code == 503, state
                assert reason.removeprefix("agents/echo.py:3: ") in answer.json()["error"]
                assert "echo.py" not in answer.json()["error"]
                assert answer.headers.get("retry-after") == after
    unknown = FaultType.UPSTREAM.value
    async with served.client() as http:
        answer = await http.post("/agents/nobody/chat", json={"message": "hi"})
    assert (answer.status_code, answer.json()["data"]["type"]) == (404, unknown)


async def test_a_body_that_is_too_large_is_refused_in_words(served: Api) -> None:
    large = b'{"message": "' + b"x" * MAX_BODY + b'"}'

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(large), 100_000):
            yield large[start : start + 100_000]

    async with served.client(**{"content-type": "application/json"}) as http:
        for content in (large, pieces()):
            answer = await http.post("/agents/echo/chat", content=content)
            assert answer.status_code == 413
            assert answer.json()["data"]["type"] == "PROTOCOL"
            assert str(MAX_BODY) in answer.json()["error"]


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b'{"message": "hi"', "application/json", 400),
        (b'{"message": "hi", "x": NaN}', "application/json", 400),
        (b'{"message": "hi", "x": 1e999}', "application/json", 400),
        (b'{"message": "\\ud800"}', "application/json", 400),
        (b'{"message": "\\u0000"}', "application/json", 400),
        (b'{"message": "\xff"}', "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b"9" * 10_000, "application/json", 400),
        (b'["hi"]', "application/json", 400),
        (b"", "application/json", 400),
        (b"message=hi", "application/x-www-form-urlencoded", 415),
        (b'{"message": "hi"}', "", 415),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else None,
)
async def test_what_is_no_proper_json_is_refused(served: Api, content: bytes, kind: str, status: int) -> None:
    async with Wire(served.port) as wire:
        assert await wire.ask("POST", "/agents/echo/chat", content, content_type=kind) == status
        body = json.loads(await wire.rest())
    assert body["data"]["type"] == "PROTOCOL" and body["error"]
    assert served.executor.turns == []


async def test_who_goes_away_before_the_whole_answer_cancels_the_run(tmp_path: Path) -> None:
    gate = Gate()
    async with api(tmp_path, gate.answer) as served, Wire(served.port) as wire:
        asked = asyncio.create_task(wire.ask("POST", "/agents/echo/chat", {"message": "hi"}))
        await asyncio.wait_for(gate.reached.wait(), 60)
        wire.writer.close()
        await until(lambda: gate.cancelled)
        await until(lambda: len(served.kernel.in_flight) == 0)
        asked.cancel()
        await asyncio.wait({asked})


async def test_a_stream_that_nobody_reads_any_more_goes_on_for_a_while(tmp_path: Path) -> None:
    gate = Gate()
    async with api(tmp_path, gate.answer, come_back=0.2) as served:
        async with Wire(served.port) as wire:
            await wire.ask("POST", "/agents/echo/chat", {"message": "hi", "stream": True})
            await asyncio.wait_for(gate.reached.wait(), 60)
        await until(lambda: gate.cancelled)
        run = wire.headers["pallas-run-id"]
        record = await _over(served, run)
        assert record.status == "cancelled"
        assert "went away" in record.fault


async def test_who_comes_back_to_a_stream_in_time_hears_the_rest(tmp_path: Path) -> None:
    gate = Gate()
    async with api(tmp_path, gate.answer, come_back=600) as served:
        async with Wire(served.port) as wire:
            await wire.ask("POST", "/agents/echo/chat", {"message": "hi", "stream": True})
            run = wire.headers["pallas-run-id"]
        async with Wire(served.port) as again:
            assert await again.ask("GET", f"/runs/{run}/events") == 200
            gate.open.set()
            chunks = chunks_in(await again.rest())
        assert text_in(chunks) == "0:hi" and chunks[-1]["type"] == "final"


async def test_a_run_that_is_cancelled_says_so_to_its_reader(tmp_path: Path) -> None:
    gate = Gate()
    async with api(tmp_path, gate.answer) as served, Wire(served.port) as wire, served.client() as http:
        await wire.ask("POST", "/agents/echo/chat", {"message": "hi", "stream": True})
        await asyncio.wait_for(gate.reached.wait(), 60)
        run = wire.headers["pallas-run-id"]
        answer = await http.delete(f"/runs/{run}")
        assert answer.status_code == 202 and answer.json()["id"] == run
        (failed,) = chunks_in(await wire.rest())
        assert failed["type"] == "error" and "cancelled" in failed["message"]
        assert failed["data"]["cancelled"] is True
        assert (await _over(served, run)).status == "cancelled"
        # Once more does no harm.
        assert (await http.delete(f"/runs/{run}")).json()["status"] == "cancelled"
        assert (await http.delete("/runs/unknown")).status_code == 404


async def test_a_stream_on_which_nothing_is_said_shows_signs_of_life(tmp_path: Path) -> None:
    gate = Gate()
    async with api(tmp_path, gate.answer, heartbeat=0.02) as served, Wire(served.port) as wire:
        await wire.ask("POST", "/agents/echo/chat", {"message": "hi", "stream": True})
        first = await wire.piece()
        assert first.startswith(b":") and first.endswith(b"\n\n") and b"data" not in first
        gate.open.set()
        chunks = chunks_in(await wire.rest())
        assert [each["type"] for each in chunks] == ["text", "final"]


@pytest.mark.slow
async def test_a_reader_who_takes_nothing_holds_up_neither_run_nor_memory(tmp_path: Path) -> None:
    pieces, size = 200, 60_000

    async def flood(turn: ExecutorTurn, emit: Emit) -> TurnResult:
        for number in range(pieces):
            emit(TextDelta(run_id=turn.run_id, agent=turn.agent, text=f"{number:06}" + "x" * size))
            await asyncio.sleep(0)
            if number % 50 == 49:  # a limited amount waits for the ledger
                log = served.rest._replay.get(turn.run_id)
                assert log is not None
                await log.written()
        return TurnResult(("done",), (Message("user", turn.text), Message("assistant", "done")))

    async with api(tmp_path, flood) as served, Wire(served.port) as wire:
        await wire.ask("POST", "/agents/echo/chat", {"message": "hi", "stream": True})
        run = wire.headers["pallas-run-id"]
        assert (await _over(served, run)).status == "ok"
        log = served.rest._replay.get(run)
        assert log is not None and log.size <= 2 * 1024 * 1024
        # Now that it reads, it still hears all of it: what left the memory is in the ledger.
        chunks = chunks_in(await wire.rest())
        told = [each for each in chunks if each["type"] == "text"]
        assert [each["delta"][:6] for each in told] == [f"{number:06}" for number in range(pieces)]


@pytest.mark.slow
async def test_a_reader_who_takes_nothing_for_too_long_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "SEND_TIMEOUT", 0.2)
    over = asyncio.Event()

    async def flood(turn: ExecutorTurn, emit: Emit) -> TurnResult:
        for _ in range(250):  # more than the buffers on the way hold
            emit(TextDelta(run_id=turn.run_id, agent=turn.agent, text="x" * 60_000))
            await asyncio.sleep(0)
        await over.wait()
        return await echo(turn, emit)

    async with api(tmp_path, flood) as served, Wire(served.port) as wire:
        await wire.ask("POST", "/agents/echo/chat", {"message": "hi", "stream": True})
        log = served.rest._replay.get(wire.headers["pallas-run-id"])
        assert log is not None
        await until(lambda: log.last >= 250 and not log.readers)
        assert not log.done, "the run goes on without it"
        over.set()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await wire.rest()


async def _over(served: Api, run: str) -> Any:
    return await poll(lambda: served.ledger.runs.get(run), lambda found: found and found.status != "running")
