"""Coming back to a run: the same request sent twice, a stream gone on with, a fleet started anew."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.executors import Gate, echo
from support.rest import Api, Wire, api, chunks_in, text_in
from support.waiting import until

from pallas.executors import Emit, ExecutorTurn, TurnResult
from pallas.ledger import open_ledger
from pallas.model import (
    Fault,
    FaultType,
    LoopMessage,
    Principal,
    RunRequest,
    TextDelta,
    ToolAnswer,
    ToolCall,
)

HI = {"message": "hi"}


async def tell(turn: ExecutorTurn, emit: Emit) -> TurnResult:
    """Writes three pieces and calls a tool, or fails."""
    run: dict[str, Any] = {"run_id": turn.run_id, "agent": turn.agent}
    for piece in ("a", "b", "c"):
        emit(TextDelta(**run, text=piece))
    if turn.text == "fail":
        raise Fault(FaultType.TIMEOUT, "too long", data={"limit": 3.0})
    emit(LoopMessage(**run, role="assistant", text="abc", calls=(ToolCall("1", "echo__say", {}),)))
    emit(LoopMessage(**run, role="tool", text="", answers=(ToolAnswer("1", "ok"),)))
    result = await echo(turn, emit)
    return TurnResult(("abc", result.texts[0]), result.messages)


async def streamed(served: Api, path: str = "/agents/echo/chat", body: Any = None, **headers: str) -> Wire:
    async with Wire(served.port) as wire:
        method = "GET" if body is None else "POST"
        assert await wire.ask(method, path, body, **headers) == 200, await wire.rest()
        await wire.rest()
        return wire


def numbered(body: bytes) -> list[tuple[int, str]]:
    """The number and data of each message; of the last, which has none, 0."""
    found = []
    for message in body.decode().split("\n\n"):
        lines = [line for line in message.split("\n") if line and not line.startswith(":")]
        if lines:
            number = int(lines[0].removeprefix("id: ")) if lines[0].startswith("id: ") else 0
            found.append((number, lines[-1].removeprefix("data: ")))
    return found


async def test_a_request_that_is_sent_twice_is_done_once(tmp_path: Path) -> None:
    async with api(tmp_path, tell) as served:
        body = {**HI, "stream": True}
        first = await streamed(served, body=body, idempotency_key="k1")
        again = await streamed(served, body=body, idempotency_key="k1")
        assert again.body == first.body
        assert [number for number, _ in numbered(first.body)] == [1, 2, 3, 4, 5, 6, 7, 0]
        assert len(served.executor.turns) == 1
        rest = await streamed(served, body=body, idempotency_key="k1", last_event_id="4")
        assert numbered(rest.body) == numbered(first.body)[4:]
        end = await streamed(served, body=body, idempotency_key="k1", last_event_id="7")
        assert end.body == b"data: [DONE]\n\n"
        async with served.client() as http:
            for _ in range(2):  # as a whole, whichever way it was asked for first
                whole = await http.post(
                    "/agents/echo/chat", json={"stream": False, **HI}, headers={"idempotency-key": "k1"}
                )
                assert whole.json()["runId"] == first.headers["pallas-run-id"]
                assert whole.json()["text"] == text_in(chunks_in(first.body))
            other = await http.post(
                "/agents/echo/chat", json={"message": "else"}, headers={"idempotency-key": "k1"}
            )
            assert (other.status_code, other.json()["data"]["reason"]) == (409, "conflict")
            elsewhere = await http.post("/agents/other/chat", json=HI, headers={"idempotency-key": "k1"})
            assert elsewhere.status_code == 409
            fresh = await http.post("/agents/echo/chat", json=HI, headers={"idempotency-key": "k2"})
            assert fresh.json()["runId"] != whole.json()["runId"]
        assert len(served.executor.turns) == 2


async def test_requests_of_one_key_at_once_are_one_run(tmp_path: Path) -> None:
    gate = Gate()
    async with api(tmp_path, gate.answer) as served, served.client() as http:
        asked = [
            asyncio.create_task(http.post("/agents/echo/chat", json=HI, headers={"idempotency-key": "k"}))
            for _ in range(5)
        ]
        await asyncio.wait_for(gate.reached.wait(), 60)
        gate.open.set()
        answers = await asyncio.gather(*asked)
        assert len({each.json()["runId"] for each in answers}) == 1
        assert [each.status_code for each in answers] == [200] * 5


async def test_a_key_is_its_owner_s_own(tmp_path: Path) -> None:
    async with api(tmp_path, tell) as served:
        runs = set()
        for bearer in ("one-bearer-of-many", "two-bearer-of-many"):
            async with served.client(bearer) as http:
                answer = await http.post("/agents/echo/chat", json=HI, headers={"idempotency-key": "k"})
                runs.add(answer.json()["runId"])
        assert len(runs) == 2


async def test_a_failure_is_the_same_the_second_time_and_a_refusal_counts_for_nothing(tmp_path: Path) -> None:
    # UN-4
    async with api(tmp_path, tell) as served, served.client(**{"idempotency-key": "k"}) as http:
        refused = await http.post("/agents/nobody/chat", json=HI)
        assert refused.status_code == 404
        for _ in range(2):
            answer = await http.post("/agents/echo/chat", json={"message": "fail"})
            assert answer.status_code == 504
            assert answer.json()["data"] == {"type": "TIMEOUT", "retryable": True, "limit": 3.0}
        assert len(served.executor.turns) == 1


@pytest.mark.parametrize("key", ["", "x" * 256, "ümlaut"])
async def test_a_key_that_is_none_is_refused(tmp_path: Path, key: str) -> None:
    async with api(tmp_path) as served, Wire(served.port) as wire:
        assert await wire.ask("POST", "/agents/echo/chat", HI, idempotency_key=key) == 400
        assert b"Idempotency-Key" in await wire.rest()


@pytest.mark.parametrize("last", ["x", "-1", "1.5", "9999999999"])
async def test_an_id_that_is_none_is_refused(tmp_path: Path, last: str) -> None:
    async with api(tmp_path, tell) as served:
        run = (await streamed(served, body={**HI, "stream": True})).headers["pallas-run-id"]
        async with Wire(served.port) as wire:
            assert await wire.ask("GET", f"/runs/{run}/events", last_event_id=last) == 400
            assert b"Last-Event-ID" in await wire.rest()


async def test_who_has_a_key_may_go_away_and_the_run_goes_on(tmp_path: Path) -> None:
    gate = Gate()
    async with api(tmp_path, gate.answer, come_back=0.0) as served:
        async with Wire(served.port) as wire:
            asked = asyncio.create_task(wire.ask("POST", "/agents/echo/chat", HI, idempotency_key="k"))
            await asyncio.wait_for(gate.reached.wait(), 60)
            wire.writer.close()
            asked.cancel()
            await asyncio.wait({asked})
        gate.open.set()
        await until(lambda: len(served.kernel.in_flight) == 0)
        assert not gate.cancelled
        again = await streamed(served, body={**HI, "stream": True}, idempotency_key="k")
        assert text_in(chunks_in(again.body)) == "0:hi"


async def test_a_stream_with_a_key_is_waited_for_as_long_as_any(tmp_path: Path) -> None:
    gate = Gate()
    async with api(tmp_path, gate.answer, come_back=600) as served, served.client() as http:
        async with Wire(served.port) as wire:
            await wire.ask("POST", "/agents/echo/chat", {**HI, "stream": True}, idempotency_key="k")
        run = wire.headers["pallas-run-id"]
        whole = asyncio.create_task(http.post("/agents/echo/chat", json=HI, headers={"idempotency-key": "k"}))
        log = served.rest._replay.get(run)
        assert log is not None
        await until(lambda: log.readers == 1)
        gate.open.set()
        assert (await whole).json()["runId"] == run
    gate = Gate()
    async with api(tmp_path / "short", gate.answer, come_back=0.1) as served:
        async with Wire(served.port) as wire:
            await wire.ask("POST", "/agents/echo/chat", {**HI, "stream": True}, idempotency_key="k")
        await until(lambda: gate.cancelled)


async def test_a_run_is_followed_from_the_start_and_from_anywhere(tmp_path: Path) -> None:
    async with api(tmp_path, tell) as served:
        first = await streamed(served, body={**HI, "stream": True})
        assert b"id: " not in first.body
        run = first.headers["pallas-run-id"]
        whole = await streamed(served, f"/runs/{run}/events")
        assert chunks_in(whole.body) == chunks_in(first.body)
        assert [number for number, _ in numbered(whole.body)] == [1, 2, 3, 4, 5, 6, 7, 0]
        assert whole.headers["content-type"] == "text/event-stream"
        rest = await streamed(served, f"/runs/{run}/events", last_event_id="6")
        assert numbered(rest.body) == numbered(whole.body)[6:]
        async with served.client() as http:
            head = await http.head(f"/runs/{run}/events")
            assert (head.status_code, head.content) == (200, b"")


@pytest.mark.slow
async def test_after_a_restart_a_run_is_read_from_the_ledger(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite3"
    ledger = await open_ledger(url)
    async with api(tmp_path / "one", tell, ledger=ledger) as served:
        before = await streamed(served, body={**HI, "stream": True}, idempotency_key="k")
        failed = await streamed(served, body={"message": "fail", "stream": True}, idempotency_key="failed")
    await ledger.close()
    ledger = await open_ledger(url)
    try:
        async with api(tmp_path / "two", tell, ledger=ledger) as served:
            run = before.headers["pallas-run-id"]
            for wire in (
                await streamed(served, f"/runs/{run}/events"),
                await streamed(served, body={**HI, "stream": True}, idempotency_key="k"),
            ):
                assert wire.body == before.body
            rest = await streamed(served, f"/runs/{run}/events", last_event_id="2")
            assert numbered(rest.body) == numbered(before.body)[2:]
            end = await streamed(served, f"/runs/{run}/events", last_event_id="7")
            assert end.body == b"data: [DONE]\n\n"
            async with served.client() as http:
                whole = await http.post("/agents/echo/chat", json=HI, headers={"idempotency-key": "k"})
                assert whole.status_code == 200
                assert whole.json()["text"] == text_in(chunks_in(before.body))
                assert whole.json()["runId"] == run and whole.json()["stopReason"] == "endTurn"
                again = await http.post(
                    "/agents/echo/chat", json={"message": "fail"}, headers={"idempotency-key": "failed"}
                )
                assert again.status_code == 504 and again.json()["data"]["limit"] == 3.0
            same = await streamed(served, f"/runs/{failed.headers['pallas-run-id']}/events")
            assert same.body == failed.body
            assert served.executor.turns == []
    finally:
        await ledger.close()


async def test_a_run_that_came_another_way_is_followed_from_where_it_is(tmp_path: Path) -> None:
    gate = Gate()

    async def write_on(turn: ExecutorTurn, emit: Emit) -> TurnResult:
        emit(TextDelta(run_id=turn.run_id, agent=turn.agent, text="So "))
        return await gate.answer(turn, emit)

    async with api(tmp_path, write_on) as served:
        request = RunRequest("echo", "hi", conversation="mine", principal=Principal(), surface="mcp")
        running = asyncio.create_task(served.kernel.run(request))
        await asyncio.wait_for(gate.reached.wait(), 60)
        (run,) = served.kernel.in_flight
        async with Wire(served.port) as wire:
            assert await wire.ask("GET", f"/runs/{run.id}/events") == 200
            assert b"So " in await wire.piece()
            gate.open.set()
            chunks = chunks_in(await wire.rest())
        await running
        assert chunks[0] == {"type": "text", "delta": "So "}
        assert chunks[-1]["type"] == "final" and chunks[-1]["turnIndex"] == 1
        # Once it is over and forgotten here, its answer is what is known.
        served.rest._replay._logs.clear()
        late = chunks_in((await streamed(served, f"/runs/{run.id}/events")).body)
        assert late == [{"type": "text", "delta": "0:hi"}, chunks[-1]]
