"""What is read from a worker's stdout and said on its stdin, and what is session for its conversations."""

import asyncio
import json
from dataclasses import replace

import pytest
from support.waiting import until
from support.worker_peer import joined

from pallas.executors import ExecutorTurn
from pallas.executors.worker.json_rpc_peer import JsonRpcError
from pallas.executors.worker.turn_output import TurnOutput, history_block
from pallas.executors.worker.worker_limits import LIMITS, WorkerLimits
from pallas.executors.worker.worker_sessions import WorkerSessions
from pallas.model import Event, Fault, FaultType, Message, TextDelta, ToolEvent

PROMPT = "session/prompt"


async def test_answers_go_to_their_calls_in_any_order_and_late_ones_nowhere() -> None:
    async with joined() as (peer, other):
        first = await peer.request(PROMPT, {"n": 1})
        second = await peer.request(PROMPT, {"n": 2})
        ids = [(await other.read())["id"], (await other.read())["id"]]
        peer.forget(first)
        other.write(
            {"id": str(ids[1]), "result": 2}, {"jsonrpc": "2.0", "id": ids[0], "result": 1}, b"", b"  "
        )
        assert await second == 2
        assert first.cancelled()
        third = await peer.request(PROMPT, {})
        other.write({"id": None, "error": {"code": -32700, "message": "Parse \x1b error", "data": 1}})
        with pytest.raises(JsonRpcError) as caught:
            await third
        assert (caught.value.code, caught.value.message) == (-32700, "Parse ␛ error")
        assert not other.broke


@pytest.mark.parametrize(
    "line",
    [b"[]", b"42", b"null", b'{"id": 99, "result": 1}', b"{}", b"[" * 100_000, b'{"a": \xff}', b"1" * 10_000],
)
async def test_what_is_no_message_fails_what_is_in_flight(line: bytes) -> None:
    async with joined() as (peer, other):
        calls = [await peer.request(PROMPT, {}) for _ in range(2)]
        other.write(line)
        for call in calls:
            with pytest.raises(Fault, match=r"^coder: the worker (wrote a line|answered a call)") as caught:
                await call
            assert caught.value.type is FaultType.PROTOCOL
            assert len(caught.value.message.rpartition(": ")[2]) <= 80
        again = await peer.request(PROMPT, {})
        other.write({"id": 3, "result": "fine"})
        assert await again == "fine"


async def test_a_broken_line_fails_only_the_call_that_it_names() -> None:
    async with joined() as (peer, other):
        first, second = await peer.request(PROMPT, {}), await peer.request(PROMPT, {})
        other.write(b'{"jsonrpc":"2.0","id":2,"result":{"text":"cut he')
        with pytest.raises(Fault):
            await second
        other.write({"id": 1, "result": "whole"})
        assert await first == "whole"


async def test_garbage_again_and_again_breaks_it_and_now_and_then_does_not() -> None:
    async with joined(WorkerLimits(garbage=3)) as (_, other):
        other.write(b"one", b"two")
        other.write(b"three \x1b[2J")
        await until(lambda: other.broke)
        assert other.broke[0] == "was ended, because its stdout is not JSON-RPC: three ␛[2J"
    async with joined(WorkerLimits(garbage=2, within=0.0)) as (peer, other):
        other.write(b"one", b"two", b"three")
        call = await peer.request(PROMPT, {})
        other.write({"id": 1, "result": 1})
        with pytest.raises(Fault):
            await call
        assert not other.broke


async def test_its_own_requests_are_answered_and_its_notifications_heard() -> None:
    async with joined() as (_, other):
        other.write(
            {"jsonrpc": "2.0", "id": "x", "method": "known", "params": {"a": 1}},
            {"jsonrpc": "2.0", "id": 7, "method": "fs/read_text_file", "params": [1]},
            {"jsonrpc": "2.0", "method": "session/update", "params": {"b": 2}},
        )
        assert await other.read() == {"jsonrpc": "2.0", "id": "x", "result": {"got": {"a": 1}}}
        error = {"code": -32601, "message": "Method not found"}
        assert await other.read() == {"jsonrpc": "2.0", "id": 7, "error": error}
        await until(lambda: other.heard)
        assert other.heard == [("session/update", {"b": 2})]


async def test_one_that_asks_without_end_and_reads_no_answer_is_broken_off() -> None:
    async with joined(replace(LIMITS, queue=20_000)) as (_, other):
        request = json.dumps({"jsonrpc": "2.0", "id": "y" * 1000, "method": "known"}).encode() + b"\n"

        async def ask() -> None:
            while not other.broke:
                other.writer.write(request * 50)
                await other.writer.drain()

        async with asyncio.timeout(60):
            await ask()
        assert other.broke[0] == "does not read its answers"


async def test_a_call_has_its_time() -> None:
    # DR-28
    async with joined() as (peer, other):
        with pytest.raises(Fault, match=r"did not answer session/new within 0\.01 s") as caught:
            await peer.call("session/new", {}, 0.01)
        assert (caught.value.type, caught.value.code) == (FaultType.TIMEOUT, -32001)
        assert (await other.read())["method"] == "session/new"
        assert not peer.in_flight


def test_conversations_are_bounded_and_their_sessions_closed() -> None:
    closed: list[str] = []
    session = WorkerSessions(2, closed.append)
    for lease in ("a", "b"):
        session.of(lease).id = lease.upper()
    session.of("a")
    session.of("c").id = "C"
    assert closed == ["B"]
    session.belongs("c", "session")
    session.close("session")
    session.close("session")
    session.release("nobody")
    assert closed == ["B", "C"]
    assert len(session) == 1


def test_a_session_knows_its_conversation_and_no_other() -> None:
    session = WorkerSessions(2, lambda _: None).of("a")
    history = [Message("user", "one"), Message("assistant", "1")]
    assert session.knows(())
    assert not session.knows(history)
    session.remember((), history)
    assert session.knows(history)
    assert session.knows(history[1:])  # the older part was forgotten
    assert not session.knows(())
    assert not session.knows((Message("user", "two"), *history[1:]))
    session.loose = True  # a turn was cancelled: whatever became of it
    assert session.knows((*history, Message("user", "cut")))
    assert not session.knows(history[1:])


async def test_text_that_comes_in_pieces_is_clean_and_one_that_ends_is_over() -> None:
    events: list[Event] = []
    output = TurnOutput(ExecutorTurn("r", "coder", "hi"), events.append, 100)
    output.begin()
    for piece in ("one\r", "\ntwo", "\x1b[2J", ""):
        output.text(piece)
    output.tool("unknown", status="completed")
    output.tool("t", title="Run", kind="other")
    output.text("after", message="m1")
    output.text("wards", message="m2")
    assert output.end(ok=False) == ("one\ntwo␛[2J", "after", "wards")
    output.text("late")
    output.tool("late", title="late")
    output.notice("late")
    assert "".join(each.text for each in events if isinstance(each, TextDelta)) == "one\ntwo␛[2Jafterwards"
    tools = [(each.server, each.tool, each.phase) for each in events if isinstance(each, ToolEvent)]
    assert tools == [("worker", "Run", "started"), ("worker", "Run", "failed")]


def test_the_newest_of_a_long_history_is_told() -> None:
    history = [Message("user", f"{number} " + "x" * 50) for number in range(10)]
    lines = history_block(history, 200).splitlines()
    assert (
        lines[0] == "[Conversation so far: 2 messages, one JSON object per line; 8 older ones are left out]"
    )
    assert [json.loads(line)["text"][0] for line in lines[1:-1]] == ["8", "9"]
    assert history_block((), 200) == ""
