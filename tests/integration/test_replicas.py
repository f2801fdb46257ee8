"""Fleets of one project that share a PostgreSQL database: any of them goes on with the runs of another."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import asyncpg
import httpx2
import pytest
from support.live import ERAS, MODERN_FIRST
from support.raw_client import INITIALIZE, handshake_headers
from support.replicas import Replicas, Setup, in_its_call, waiting
from support.served import Served, fault_in, text_of
from support.surfaces import rest
from support.survivors import effects, ended_run
from support.tasks import TaskClient
from support.waiting import poll

from pallas.surfaces.rest.run_replay import PER_ATTEMPT

THREAD = {"conversation_id": "a thread of mine"}
PATIENT = {"pallas.surfaces.rest.run_recall.STORED_SECONDS": 60.0}
"""Readers wait for the last chunk of a run even where it is stored long after the run's end."""


async def asked(fleet: Served, era: str, text: str) -> None:
    """Ask the clerk, until its fleet is gone."""
    with suppress(Exception):  # the connection breaks
        async with fleet.client("clerk", era) as clerk:
            await clerk.call_tool("send_message", {"message": text, **THREAD})


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [{"*": "repeat"}], indirect=True)
async def test_a_run_of_a_replica_that_is_killed_goes_on_in_another(replicas: Replicas) -> None:
    asking = asyncio.create_task(asked(replicas.one, ERAS[0], "work"))
    await in_its_call(replicas.here)
    replicas.one.send(signal.SIGKILL)
    await in_its_call(replicas.here, 2)
    # The conversation goes on at the other one, after the run.
    async with replicas.two.client("clerk", ERAS[1]) as clerk:
        next_one = asyncio.create_task(clerk.call_tool("send_message", {"message": "hi", **THREAD}))
        (replicas.here / "door").touch()
        assert text_of(await next_one) == "turn 2"
    await asking
    run, rows = await ended_run(replicas.url, 1)
    assert (run.status, run.attempt) == ("ok", 2)
    assert effects(replicas.here) == ["note a", "wait b", "wait b"]
    assert [row.split(":")[0] for row in rows] == [
        "user complete", "assistant complete", "tool complete", "assistant complete", "tool complete",
        "assistant complete", "user complete", "assistant complete",
    ]  # fmt: skip


@pytest.mark.slow
async def test_a_replica_that_is_stopped_for_a_while_does_nothing_more_for_a_run_that_was_taken_over(
    replicas: Replicas,
) -> None:
    asking = asyncio.create_task(asked(replicas.one, ERAS[0], "work"))
    await in_its_call(replicas.here)
    replicas.one.send(signal.SIGSTOP)
    try:
        run, rows = await ended_run(replicas.url)
        assert (run.status, run.attempt) == ("ok", 2)
        assert rows[-1] == "assistant complete: I do not know whether it was done"
        (replicas.here / "door").touch()
    finally:
        replicas.one.send(signal.SIGCONT)
    # Its tool has returned: it must neither ask on nor write the answer.
    await replicas.one.logs("another fleet continues this run")
    await asking
    assert effects(replicas.here) == ["note a", "wait b"]
    assert (await ended_run(replicas.url))[1] == rows
    # It goes on as a replica.
    async with replicas.one.client("clerk", ERAS[1]) as clerk:
        answer = await clerk.call_tool("send_message", {"message": "hi", **THREAD})
    assert text_of(answer) == "turn 2"


@pytest.mark.slow
async def test_messages_of_one_thread_are_answered_in_the_order_in_which_they_came_to_any_replica(
    replicas: Replicas,
) -> None:
    async with (
        replicas.one.client("clerk", ERAS[0]) as one,
        replicas.two.client("clerk", ERAS[1]) as two,
    ):
        await replicas.one.logs("running")
        first = asyncio.create_task(one.call_tool("send_message", {"message": "work", **THREAD}))
        await in_its_call(replicas.here)
        asked = []
        for number in range(4):
            clerk = (one, two)[number % 2]
            message = {"message": f"say {number}", **THREAD}
            asked.append(asyncio.create_task(clerk.call_tool("send_message", message)))
            await waiting(replicas.url, number + 1)
        # One whose caller is gone gives its place up.
        asked[1].cancel()
        await waiting(replicas.url, 3)
        (replicas.here / "door").touch()
        assert "waited b" in text_of(await first)
        answers = await asyncio.gather(*(each for each in asked if not each.cancelled()))
        assert [text_of(each) for each in answers] == ["turn 2", "turn 3", "turn 4"]
    _, rows = await ended_run(replicas.url)
    assert [row for row in rows if "say" in row] == [
        "user complete: say 0",
        "user complete: say 2",
        "user complete: say 3",
    ]


@pytest.mark.slow
async def test_a_message_that_waits_in_a_replica_that_dies_is_answered_by_another(
    replicas: Replicas,
) -> None:
    first = asyncio.create_task(asked(replicas.two, ERAS[0], "work"))
    await in_its_call(replicas.here)
    second = asyncio.create_task(asked(replicas.one, ERAS[0], "say it"))
    await waiting(replicas.url, 1)
    replicas.one.send(signal.SIGKILL)
    await second
    await replicas.two.logs("runs that another fleet left unfinished: 1 wait here")
    (replicas.here / "door").touch()
    await first
    run, rows = await ended_run(replicas.url, 0)
    assert (run.status, run.attempt) == ("ok", 1)
    assert rows[-2:] == ["user complete: say it", "assistant complete: turn 2"]


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [Setup(constants=PATIENT)], indirect=True)
@pytest.mark.parametrize("is_read", ["while it waits", "when it is over"])
async def test_a_stream_of_a_message_that_waits_in_a_replica_that_dies_is_stored_by_another(
    replicas: Replicas, is_read: str
) -> None:
    async with rest(replicas.one) as one, rest(replicas.two) as two:
        thread = (await one.post("/agents/clerk/threads", json={})).json()["id"]
        chat, body = "/agents/clerk/chat", {"threadId": thread, "stream": True}
        first = asyncio.create_task(streamed(two, "POST", chat, json={**body, "message": "work"}))
        await in_its_call(replicas.here)
        async with one.stream("POST", chat, json={**body, "message": "say it"}) as begun:
            run = begun.headers["pallas-run-id"]
            await waiting(replicas.url, 1)
            replicas.one.send(signal.SIGKILL)
        await replicas.two.logs("runs that another fleet left unfinished: 1 wait here")
        reading = streamed(two, "GET", f"/runs/{run}/events")
        if is_read == "while it waits":
            reading = asyncio.create_task(reading)
        (replicas.here / "door").touch()
        await first
        if is_read == "when it is over":
            assert (await ended_run(replicas.url))[0].id == run
        stream = await reading
    assert stream.chunks[-1]["type"] == "final"
    last = await poll(lambda: last_stored(replicas.url, run))
    assert last == int(stream.last) == len(stream.chunks)


async def last_stored(url: str, run: str) -> int | None:
    """The number of the last chunk of a run in the ledger, once one is there."""
    connection = await asyncpg.connect(url)
    try:
        last = await connection.fetchval("SELECT max(seq) FROM run_events WHERE run_id = $1", run)
        return last - 1_000_000 if last is not None and last > 1_000_000 else None
    finally:
        await connection.close()


@pytest.mark.slow
async def test_messages_that_come_at_the_same_moment_do_not_wait_for_each_other(
    replicas: Replicas,
) -> None:
    async with (
        replicas.one.client("clerk", ERAS[0]) as one,
        replicas.two.client("clerk", ERAS[1]) as two,
    ):
        await one.call_tool("send_message", {"message": "hi", **THREAD})
        async with asyncio.timeout(60):
            for number in range(5):
                message = {"message": f"say {number}", **THREAD}
                clerks = (one, one, two, one, two)
                answers = await asyncio.gather(*(each.call_tool("send_message", message) for each in clerks))
                first = 2 + number * len(clerks)
                expected = [f"turn {each}" for each in range(first, first + len(clerks))]
                assert sorted(map(text_of, answers), key=lambda text: int(text.split()[1])) == expected


@pytest.mark.slow
async def test_a_caller_that_waits_behind_one_of_its_replica_gives_its_place_up(replicas: Replicas) -> None:
    async with replicas.one.client("clerk", ERAS[0]) as one:
        await replicas.one.logs("running")
        first = asyncio.create_task(one.call_tool("send_message", {"message": "work", **THREAD}))
        await in_its_call(replicas.here)
        second = asyncio.create_task(one.call_tool("send_message", {"message": "say it", **THREAD}))
        await waiting(replicas.url, 1)
        second.cancel()
        await waiting(replicas.url, 0)
        (replicas.here / "door").touch()
        assert "waited b" in text_of(await first)


@pytest.mark.slow
async def test_a_message_that_waits_in_a_replica_that_ends_is_answered_by_another(
    replicas: Replicas,
) -> None:
    first = asyncio.create_task(asked(replicas.two, ERAS[0], "work"))
    await in_its_call(replicas.here)
    async with replicas.one.client("clerk", ERAS[1]) as one:
        second = asyncio.create_task(one.call_tool("send_message", {"message": "say it", **THREAD}))
        await waiting(replicas.url, 1)
        replicas.one.send(signal.SIGTERM)
        fault = fault_in(await second)
    assert fault["data"]["reason"] == "handed_over"
    assert await replicas.one.ended() == 0
    await replicas.two.logs("runs that another fleet left unfinished: 1 wait here")
    (replicas.here / "door").touch()
    await first
    run, rows = await ended_run(replicas.url, 0)
    assert (run.status, run.attempt) == ("ok", 1)
    assert rows[-2:] == ["user complete: say it", "assistant complete: turn 2"]


@pytest.mark.slow
@pytest.mark.parametrize("is_in_transaction", [False, True])
async def test_a_message_that_waits_in_a_replica_that_is_stopped_stays_answered_when_it_goes_on(
    replicas: Replicas, is_in_transaction: bool
) -> None:
    first = asyncio.create_task(asked(replicas.two, ERAS[0], "work"))
    await in_its_call(replicas.here)
    async with replicas.one.client("clerk", ERAS[1]) as one:
        second = asyncio.create_task(one.call_tool("send_message", {"message": "say it", **THREAD}))
        await waiting(replicas.url, 1)
        async with threads_locked(replicas.url) if is_in_transaction else nullcontext():
            replicas.one.send(signal.SIGSTOP)
        try:
            await replicas.two.logs("runs that another fleet left unfinished: 1 wait here")
            (replicas.here / "door").touch()
            await first
            run, rows = await ended_run(replicas.url)
            assert (run.status, rows[-1]) == ("ok", "assistant complete: turn 2")
        finally:
            replicas.one.send(signal.SIGCONT)
        assert fault_in(await second)["data"]["reason"] == "taken_over"
    replicas.one.send(signal.SIGTERM)
    assert await replicas.one.ended() == 0
    assert await ended_run(replicas.url) == (run, rows)


@dataclass
class Stream:
    """What a stream brought to its end: the run, the number of its last chunk, and the chunks."""

    run: str
    last: str
    chunks: list[dict[str, Any]]

    @property
    def text(self) -> str:
        """All pieces of text."""
        return "".join(each["delta"] for each in self.chunks if each["type"] == "text")


async def streamed(api: httpx2.AsyncClient, method: str, path: str, **request: Any) -> Stream:
    """A stream, read to its end."""
    async with api.stream(method, path, **request) as answer:
        assert answer.status_code == 200
        found = Stream(answer.headers["pallas-run-id"], "0", [])
        async for line in answer.aiter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                found.last = value
            elif name == "data" and value != "[DONE]":
                found.chunks.append(json.loads(value))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [{"*": "repeat"}], indirect=True)
async def test_a_stream_of_a_run_that_is_handed_over_goes_on_at_another(replicas: Replicas) -> None:
    chat, key = "/agents/clerk/chat", {"idempotency-key": "once"}
    body = {"message": "work", "stream": True}
    async with rest(replicas.one) as one, rest(replicas.two) as two:
        asking = asyncio.create_task(streamed(one, "POST", chat, json=body, headers=key))
        await in_its_call(replicas.here)
        replicas.one.send(signal.SIGTERM)
        begun = await asking
        assert begun.chunks[-1]["data"]["reason"] == "handed_over"
        where, after = f"/runs/{begun.run}/events", {"last-event-id": begun.last}
        following = asyncio.create_task(streamed(two, "GET", where, headers=after))
        again = asyncio.create_task(two.post(chat, json={**body, "stream": False}, headers=key))
        await in_its_call(replicas.here, 2)
        (replicas.here / "door").touch()
        rest_of_it = await following
        assert [each["type"] for each in (rest_of_it.chunks[0], rest_of_it.chunks[-1])] == [
            "rollback",
            "final",
        ]
        assert rest_of_it.text.strip() == 'done: {"result":"waited b"}'
        assert (await again).json()["text"].endswith('done: {"result":"waited b"}')
        # From the start it is one stream, without an end in the middle.
        whole = await streamed(two, "GET", where)
        assert [each["type"] for each in whole.chunks if each["type"] in ("error", "final")] == ["final"]


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [{"*": "repeat"}], indirect=True)
async def test_the_stream_of_a_fork_is_stored_by_the_replica_that_goes_on_with_it(
    replicas: Replicas,
) -> None:
    async with rest(replicas.one) as one, rest(replicas.two) as two:
        first = asyncio.create_task(one.post("/agents/clerk/chat", json={"message": "work"}))
        await in_its_call(replicas.here)
        (replicas.here / "door").touch()
        run = (await first).json()["runId"]
        (replicas.here / "door").unlink()
        async with one.stream("POST", f"/runs/{run}/fork", json={"step": 3, "stream": True}) as begun:
            fork = begun.headers["pallas-run-id"]
            await in_its_call(replicas.here, 2)
            replicas.one.send(signal.SIGKILL)
        await in_its_call(replicas.here, 3)
        (replicas.here / "door").touch()
        last = await poll(
            lambda: last_stored(replicas.url, fork),
            lambda found: found is not None and found > PER_ATTEMPT,
            timeout=60,
        )
        stream = await streamed(two, "GET", f"/runs/{fork}/events")
    assert stream.chunks[-1]["type"] == "final"
    assert stream.text.strip() == 'done: {"result":"waited b"}'
    assert int(stream.last) >= (last or 0)


@pytest.mark.slow
@pytest.mark.parametrize("comes_back", ["with its stream", "with its key"])
async def test_a_rest_caller_whose_message_waits_in_a_replica_that_ends_gets_its_answer_of_another(
    replicas: Replicas, comes_back: str
) -> None:
    first = asyncio.create_task(asked(replicas.two, ERAS[0], "work"))
    await in_its_call(replicas.here)
    chat, key = "/agents/clerk/chat", {"idempotency-key": "once"}
    body = {"message": "say it", "stream": True, "threadId": THREAD["conversation_id"]}
    async with rest(replicas.one) as one, rest(replicas.two) as two:
        asking = asyncio.create_task(streamed(one, "POST", chat, json=body, headers=key))
        await waiting(replicas.url, 1)
        replicas.one.send(signal.SIGTERM)
        begun = await asking
        assert begun.chunks[-1]["data"]["reason"] == "handed_over"
        assert begun.last == "0"
        if comes_back == "with its key":
            again = asyncio.create_task(streamed(two, "POST", chat, json=body, headers=key))
        else:
            again = asyncio.create_task(streamed(two, "GET", f"/runs/{begun.run}/events"))
        await replicas.two.logs("runs that another fleet left unfinished: 1 wait here")
        (replicas.here / "door").touch()
        await first
        answer = await again
    assert answer.chunks[-1]["type"] == "final"
    assert answer.text == "turn 2"
    assert answer.run == begun.run
    await answered_once(replicas.url)


@pytest.mark.slow
@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_an_mcp_caller_whose_message_waits_in_a_replica_that_ends_gets_its_answer_of_another(
    replicas: Replicas, era: str
) -> None:
    first = asyncio.create_task(asked(replicas.two, ERAS[0], "work"))
    await in_its_call(replicas.here)
    message, meta = {"message": "say it", **THREAD}, {"local.pallas/idempotency": "once"}
    async with replicas.one.client("clerk", era) as one:
        asking = asyncio.create_task(one.call_tool("send_message", message, meta=meta))
        await waiting(replicas.url, 1)
        replicas.one.send(signal.SIGTERM)
        assert fault_in(await asking)["data"]["reason"] == "handed_over"
    async with replicas.two.client("clerk", era) as two:
        again = asyncio.create_task(two.call_tool("send_message", message, meta=meta))
        await replicas.two.logs("runs that another fleet left unfinished: 1 wait here")
        (replicas.here / "door").touch()
        await first
        assert text_of(await again) == "turn 2"
    await answered_once(replicas.url)


async def answered_once(url: str) -> None:
    """Nobody waits any more, and the thread has its two messages once."""
    await waiting(url, 0)
    _, rows = await ended_run(url)
    assert [row for row in rows if row.startswith("user")] == ["user complete: work", "user complete: say it"]


@asynccontextmanager
async def threads_locked(url: str) -> AsyncIterator[None]:
    """Enter the block when a fleet waits for a lock in the middle of a transaction."""
    blocked = "SELECT count(*) FROM pg_locks WHERE relation = 'threads'::regclass AND NOT granted"
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction(), asyncio.timeout(60):
            await connection.execute("LOCK TABLE threads IN EXCLUSIVE MODE")
            await poll(lambda: connection.fetchval(blocked))
            yield
    finally:
        await connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_a_thread_has_one_run_at_a_time_on_all_replicas(replicas: Replicas, era: str) -> None:
    async with replicas.one.client("clerk", era) as one, replicas.two.client("clerk", era) as two:
        first = asyncio.create_task(one.call_tool("send_message", {"message": "work", **THREAD}))
        await in_its_call(replicas.here)
        second = asyncio.create_task(two.call_tool("send_message", {"message": "hi", **THREAD}))
        await replicas.two.in_flight(1)
        (replicas.here / "door").touch()
        assert "waited b" in text_of(await first)
        assert text_of(await second) == "turn 2"


@pytest.mark.slow
@pytest.mark.parametrize("by", ["run", "task"])
async def test_a_run_is_cancelled_at_any_replica(replicas: Replicas, by: str) -> None:
    async with rest(replicas.two) as two:
        if by == "task":
            tasks = TaskClient(replicas.one.url("clerk"))
            task = (await tasks.call(message="work", **THREAD))["taskId"]
        asking = asyncio.create_task(asked(replicas.one, ERAS[0], "work")) if by == "run" else None
        await in_its_call(replicas.here)
        if by == "run":
            (run,) = (await two.get("/runs")).json()["items"]
            assert (await two.delete(f"/runs/{run['id']}")).status_code == 202
        else:
            assert (await two.delete(f"/tasks/{task}")).status_code == 202
            assert (await tasks.until(task))["status"] == "cancelled"
        run_record, _ = await ended_run(replicas.url)
        assert run_record.status == "cancelled"
        if asking is not None:
            await asking
    assert effects(replicas.here) == ["note a", "wait b"]


@pytest.mark.slow
async def test_a_message_that_waits_for_its_thread_is_cancelled_at_another_replica(
    replicas: Replicas,
) -> None:
    first = asyncio.create_task(asked(replicas.two, ERAS[0], "work"))
    await in_its_call(replicas.here)
    async with replicas.one.client("clerk", ERAS[1]) as one, rest(replicas.two) as two:
        second = asyncio.create_task(one.call_tool("send_message", {"message": "say it", **THREAD}))
        await waiting(replicas.url, 1)
        assert (await two.delete(f"/runs/{await queued_run(replicas.url)}")).status_code == 202
        assert fault_in(await second)["data"]["cancelled"]
        await waiting(replicas.url, 0)
    (replicas.here / "door").touch()
    await first
    # The one that was cancelled is in no thread.
    _, rows = await ended_run(replicas.url, 1)
    assert [row for row in rows if row.startswith("user")] == ["user complete: work"]


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [{"*": "repeat"}], indirect=True)
async def test_a_reader_at_one_replica_sees_the_run_of_another_go_on_there(replicas: Replicas) -> None:
    body = {"message": "tell me", "stream": True}
    types: list[str] = []
    async with (
        rest(replicas.one) as one,
        rest(replicas.two) as two,
        one.stream("POST", "/agents/clerk/chat", json=body) as begun,
    ):
        await in_its_call(replicas.here)
        path = f"/runs/{begun.headers['pallas-run-id']}/events"
        async with two.stream("GET", path) as stream, asyncio.timeout(60):
            async for line in stream.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                types.append(json.loads(line.removeprefix("data: "))["type"])
                if types[-1] == "tool_call" and types.count("tool_call") == 1:
                    replicas.one.send(signal.SIGKILL)
                elif types[-1] == "rollback":  # before the run gets on
                    (replicas.here / "door").touch()
    at = types.index("rollback")
    assert "tool_call" in types[:at]
    assert (types[at + 1], types[-1]) == ("continued", "final")


async def queued_run(url: str) -> str:
    """The id of the run that waits for its thread."""
    connection = await asyncpg.connect(url)
    try:
        return str(await connection.fetchval("SELECT run_id FROM waiting"))
    finally:
        await connection.close()


@pytest.mark.slow
async def test_a_session_of_the_handshake_goes_on_at_any_replica(replicas: Replicas) -> None:
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        opened = await http.post(replicas.one.url("clerk"), json=INITIALIZE, headers=handshake_headers())
        session, said = opened.headers["mcp-session-id"], []
        for number, fleet in enumerate((replicas.one, replicas.two, replicas.one, replicas.two)):
            call = {"name": "send_message", "arguments": {"message": "hi"}}
            body = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call}
            answer = await http.post(fleet.url("clerk"), json=body, headers=handshake_headers(session))
            said.append(f"turn {number + 1}" in answer.text)
        # What the client sends to another replica ends its call, and the session.
        ended = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}}
        call = {"name": "send_message", "arguments": {"message": "work"}}
        body = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": call}
        headers = handshake_headers(session)
        asking = asyncio.create_task(http.post(replicas.one.url("clerk"), json=body, headers=headers))
        await in_its_call(replicas.here)
        answer = await http.post(replicas.two.url("clerk"), json=ended, headers=headers)
        assert answer.status_code == 202
        await asking
        assert (await ended_run(replicas.url))[0].status == "cancelled"
        assert (await http.delete(replicas.two.url("clerk"), headers=headers)).status_code == 200

        async def is_over() -> bool:
            tools = {"jsonrpc": "2.0", "id": 10, "method": "tools/list"}
            again = await http.post(replicas.one.url("clerk"), json=tools, headers=headers)
            return again.status_code == 404

        await poll(is_over)
        forged = handshake_headers(session[:-2] + "xx")
        assert (await http.post(replicas.two.url("clerk"), json=body, headers=forged)).status_code == 404
    assert said == [True] * 4
