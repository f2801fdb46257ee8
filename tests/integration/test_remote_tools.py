"""Remote agents that are a tool of some MCP server: both eras, its refusals, its end, its memory."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastmcp import Context
from fastmcp.server.dependencies import get_http_headers
from mcp import MCPError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from support.dials import dials
from support.fake_downstreams import FakeDownstream, modern, redirect, serving
from support.odd_http import packed
from support.remotes import QUICK, Other, Talk, other, remote
from support.waiting import until

from pallas.executors.remote.endpoint_watch import WatchIntervals
from pallas.executors.remote.remote_credentials import Noted
from pallas.executors.remote.remote_faults import Whom, explain
from pallas.model import Fault, FaultType, Image, Notice, Params, ToolEvent, TraceContext
from pallas.telemetry.trace_context import RunTrace, running
from pallas.telemetry.wire_record import WireRecord

ERAS = ("modern", "handshake")


async def fault_of(talk: Talk, text: str, **more: Any) -> Fault:
    with pytest.raises(Fault) as raised:
        await talk.say(text, **more)
    assert raised.value.data["providerId"] == "far"
    return raised.value


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_is_asked_in_either_era_and_told_what_was_said_before(era: Any) -> None:
    async with other(era=era) as there, remote(there.url) as executor:
        talk = Talk(executor)
        first = await talk.say("how are you")
        assert first.texts == ("how are you?",)
        assert [message.role for message in first.messages] == ["user", "assistant"]
        await talk.say("and now")
        told = there.heard[-1]
        assert told.startswith("[Earlier in this conversation")
        assert "user: how are you\n\nassistant: how are you?" in told
        assert told.endswith("[End of the earlier messages. The new message:]\n\nand now")
        calls = [(each.server, each.tool, each.phase) for each in talk.heard(ToolEvent)]
        assert calls[:2] == [("desk", "look", "started"), ("desk", "look", "completed")]
        # Somebody else's conversation is told nothing of this one.
        await Talk(executor, lease="id:two").say("who are you")
        assert there.heard[-1] == "who are you"


@pytest.mark.parametrize("era", ERAS)
async def test_what_is_cancelled_here_is_cancelled_there(era: Any) -> None:
    async with other(era=era) as there, remote(there.url) as executor:
        run = asyncio.create_task(Talk(executor).say("wait"))
        async with asyncio.timeout(30):
            await there.reached.wait()
            run.cancel()
            await asyncio.wait({run})
            await there.cancelled.wait()
        assert run.cancelled()
        assert (await Talk(executor).say("still there")).texts == ("still there?",)


async def test_a_deadline_of_ours_ends_what_is_done_there() -> None:
    async with other() as there, remote(there.url) as executor:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30) as limit, asyncio.TaskGroup() as group:
                group.create_task(expire(limit, there.reached))
                await Talk(executor).say("wait")
        assert there.reached.is_set()
        async with asyncio.timeout(30):
            await there.cancelled.wait()


async def expire(limit: asyncio.Timeout, begun: asyncio.Event) -> None:
    """Have no time left, once that has begun."""
    await begun.wait()
    limit.reschedule(asyncio.get_running_loop().time())


async def test_errors_of_the_other_side_are_told_by_type() -> None:
    # DR-22
    async with other() as there, remote(there.url) as executor:
        talk = Talk(executor)
        for status, type_, retryable in (
            (401, FaultType.AUTH, False),
            (403, FaultType.AUTH, False),
            (429, FaultType.UPSTREAM, True),
            (500, FaultType.UPSTREAM, True),
            (503, FaultType.UPSTREAM, True),
        ):
            there.call_status = status
            fault = await fault_of(talk, "now")
            assert (fault.type, fault.retryable) == (type_, retryable), status
            assert fault.data["upstreamCode"] == status
        there.call_status = 0
        fault = await fault_of(talk, "fail")
        assert (fault.type, fault.retryable) == (FaultType.UPSTREAM, False)
        assert fault.message.startswith("far: ")
        assert "kaput" in fault.message and "\x1b" not in fault.message
        await there.go()
        fault = await fault_of(talk, "gone")
        assert (fault.type, fault.retryable) == (FaultType.TRANSPORT, True)
        await there.come()
        assert (await talk.say("back")).texts == ("back?",)


async def test_an_answer_that_breaks_off_is_a_fault_that_may_be_tried_again() -> None:
    async with other() as there, remote(there.url) as executor:
        run = asyncio.create_task(fault_of(Talk(executor), "wait"))
        async with asyncio.timeout(30):
            await there.reached.wait()
            await there.go()
            fault = await run
        assert fault.type is FaultType.TRANSPORT and fault.retryable


async def test_who_takes_too_long_to_connect_is_a_timeout() -> None:
    # DR-22
    async with other() as there:
        there.deaf = True
        with pytest.raises(Fault) as raised:
            async with remote(there.url, pace=WatchIntervals(connect=0.3)):
                pass
        assert raised.value.type is FaultType.TIMEOUT and raised.value.retryable


async def test_a_refusal_names_what_to_correct_and_no_credential() -> None:
    async with other(status=401) as there:
        with pytest.raises(Fault) as raised:
            async with remote(there.url, headers={"Authorization": "Bearer hunter2hunter2"}):
                pass
        assert raised.value.type is FaultType.AUTH
        assert "headers.Authorization" in raised.value.message
        assert "hunter2" not in str(raised.value.to_body())
        with pytest.raises(Fault, match="forward_inbound_auth"):
            async with remote(there.url):
                pass


@pytest.mark.parametrize("era", ERAS)
async def test_the_callers_own_bearer_goes_with_its_requests_alone(era: Any) -> None:
    async with other(era=era) as there, remote(there.url, forward_inbound_auth=True) as executor:
        started = len(there.bearers)
        assert set(there.bearers) == {""}
        await Talk(executor).say("one", bearer="token-of-anna")
        await Talk(executor, lease="id:two").say("two", bearer="token-of-bob")
        await Talk(executor, lease="id:three").say("three")
        sent = there.bearers[started:]
        anna, bob = sent.index("Bearer token-of-anna"), sent.index("Bearer token-of-bob")
        assert anna < bob
        # A connection of one caller is never used for another.
        assert "Bearer token-of-anna" not in sent[bob:]
        assert sent[-1] in ("", "Bearer token-of-bob")  # or the end of a session


@pytest.mark.parametrize("era", ERAS)
async def test_of_many_callers_at_once_each_comes_with_its_own_bearer(
    era: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_there = asyncio.Barrier(8)

    async def whose(self: Other, question: str, context: Context) -> str:
        async with asyncio.timeout(30):
            await all_there.wait()
        return get_http_headers(include={"authorization"})["authorization"]

    monkeypatch.setattr(Other, "_answer", whose)
    async with other(era=era) as there, remote(there.url, forward_inbound_auth=True) as executor:
        talks = [Talk(executor, lease=f"id:{number}") for number in range(8)]
        for _ in range(3):  # the connections of one round are there for the next
            said = await asyncio.gather(
                *(talk.say("who", bearer=f"token-of-{number % 5}") for number, talk in enumerate(talks))
            )
            assert [each.texts for each in said] == [(f"Bearer token-of-{n % 5}",) for n in range(8)]
        assert not any("token-of" in repr(event) for talk in talks for event in talk.events)


async def test_without_opting_in_a_bearer_stays_here() -> None:
    async with other() as there, remote(there.url) as executor:
        await Talk(executor).say("one", bearer="token-of-anna")
        assert set(there.bearers) == {""}


async def test_one_that_asks_for_the_callers_token_is_found_out_about_when_there_is_one() -> None:
    async with other(status=401) as there, remote(there.url, forward_inbound_auth=True) as executor:
        there.status = 0
        assert (await Talk(executor).say("now", bearer="token-of-anna")).texts == ("now?",)


async def test_a_redirect_to_another_origin_carries_no_bearer() -> None:
    async with other() as elsewhere:
        fake = FakeDownstream(redirect(307, elsewhere.url))
        async with (
            serving(fake) as origin,
            remote(
                f"{origin}/mcp", start=False, forward_inbound_auth=True, headers={"X-Key": "hunter2hunter2"}
            ) as executor,
        ):
            with pytest.raises(Fault) as raised:
                await Talk(executor).say("hello", bearer="token-of-anna")
        assert raised.value.type is FaultType.CONFIG and "redirects to" in raised.value.message
        assert any("token-of-anna" in seen.headers.get("authorization", "") for seen in fake.seen)
        assert elsewhere.bearers == [] and elsewhere.requests == 0


async def test_a_handle_that_is_configured_goes_on_where_we_were_until_a_restart() -> None:
    async with other(with_handle=True) as there, remote(there.url, conversation="thread_ref") as executor:
        talk = Talk(executor)
        await talk.say("one")
        await talk.say("two")
        assert there.heard == ["one", "two"]
        first, second = there.handles
        assert first == second and len(first) >= 22
        await Talk(executor, lease="id:two").say("other")
        assert there.handles[-1] != first
        executor.release("id:one")
        await talk.say("three")
        assert there.handles[-1] not in (first, "") and "user: one" in there.heard[-1]


@pytest.mark.slow
async def test_pictures_are_refused_where_nothing_takes_them() -> None:
    async with other() as there, remote(there.url) as executor:
        assert not executor.info.vision
        with pytest.raises(Fault, match="takes no images"):
            await Talk(executor).say("look", images=(Image("aGk=", "image/png"),))
        assert there.heard == []


@pytest.mark.parametrize("era", ERAS)
async def test_one_that_goes_is_noticed_while_nobody_asks(era: Any) -> None:
    told: list[str] = []
    async with other(era=era) as there, remote(there.url, pace=QUICK) as executor:
        executor.when_failed(told.append)
        await Talk(executor).say("hello")
        await there.go()
        await until(lambda: told)
        assert "does not answer: cannot connect" in told[0]
        assert executor.problems() == ("far",)
        # The supervisor starts it again: it says that it is down, until it is back.
        await executor.park(2.0)
        with pytest.raises(Fault) as raised:
            await executor.start()
        assert raised.value.type is FaultType.TRANSPORT
        await there.come()
        await executor.start()
        assert (await Talk(executor).say("hello")).texts == ("hello?",)
        assert executor.problems() == () and len(told) == 1


async def test_more_runs_than_it_takes_wait() -> None:
    async with other() as there, remote(there.url, capacity=1) as executor:
        assert executor.info.capacity == 1
        first = asyncio.create_task(Talk(executor, lease=None).say("wait"))
        async with asyncio.timeout(30):
            await there.reached.wait()
        second = asyncio.create_task(Talk(executor, lease=None).say("next"))
        await until(lambda: executor.waiting == 1)
        there.open.set()
        async with asyncio.timeout(30):
            assert (await first).texts == ("wait?",)
            assert (await second).texts == ("next?",)
        assert executor.waiting == 0


async def test_once_it_is_closed_nothing_of_it_begins_any_more() -> None:
    async with other() as there, remote(there.url, capacity=1) as executor:
        held = asyncio.create_task(fault_of(Talk(executor), "wait"))
        await there.reached.wait()
        waits = asyncio.create_task(fault_of(Talk(executor), "hello"))
        await until(lambda: executor.waiting == 1)
        await executor.close(2.0)
        there.open.set()
        await held
        assert "is stopping" in (await waits).message
        with pytest.raises(Fault, match="far is stopping"):
            await executor.start()
        assert there.heard == ["wait"]
        assert not [task for task in asyncio.all_tasks() if task.get_name() == "look at far"]


async def test_a_server_without_a_tool_to_talk_to_says_which_keys_to_set() -> None:
    async with dials() as (there,):
        with pytest.raises(Fault) as raised:
            async with remote(there.url):
                pass
        assert raised.value.type is FaultType.CONFIG
        assert "note, fail" in raised.value.message and "set tool" in raised.value.message
        async with remote(there.url, tool="note") as executor:
            assert (await Talk(executor).say("this")).texts == ("noted this",)


def test_foreign_words_in_errors_hold_no_escape_and_no_secret() -> None:
    whom = Whom("far", "http://there/mcp", False, 10.0)
    fault = explain(MCPError(-32603, "bad\x1b[2J token Bearer abcdefghijklmnop"), Noted(), whom)
    assert fault.type is FaultType.PROTOCOL
    assert "\x1b" not in fault.message and "abcdefghijklmnop" not in fault.message


async def test_after_a_restart_no_connection_of_before_is_in_the_way() -> None:
    async with (
        other(era="handshake", with_handle=True) as there,
        remote(there.url, conversation="thread_ref") as executor,
    ):
        talks = [Talk(executor, lease=f"id:{number}") for number in range(6)]
        for text in ("wait", "then"):
            runs = [asyncio.create_task(talk.say(text)) for talk in talks]
            await until(lambda: len(there.heard) % 6 == 0 and there.heard)
            there.open.set()
            await asyncio.gather(*runs)
        await there.go()
        await there.come()
        assert (await talks[0].say("back")).texts[0].endswith("back?")
        assert "user: then" in there.heard[-1]


@pytest.mark.parametrize("folded", [False, True])
async def test_an_answer_without_end_is_not_read_to_it(folded: bool) -> None:
    async def endless(fake: FakeDownstream, request: Request, body: dict[str, Any]) -> Response:
        async def lines() -> AsyncIterator[bytes]:
            while not await request.is_disconnected():
                yield b" " * 1_000_000

        answer = StreamingResponse(lines(), media_type="application/json")
        return packed(answer, "gzip") if folded else answer

    async with serving(FakeDownstream(endless)) as origin, remote(f"{origin}/mcp", start=False) as executor:
        fault = await fault_of(Talk(executor), "hello")
        assert "more than 16 MiB" in fault.message, fault.message


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_an_answer_that_is_compressed_is_read(encoding: str) -> None:
    schema = {"type": "object", "properties": {"message": {"type": "string"}}}
    tool = {"name": "send_message", "description": "Answers.", "inputSchema": schema}

    async def folded(fake: FakeDownstream, request: Request, body: dict[str, Any]) -> Response:
        results: dict[str, Any] = {
            "tools/call": {"content": [{"type": "text", "text": "of the other side"}]},
            "tools/list": {"tools": [tool], "ttlMs": 0, "cacheScope": "private"},
        }
        if (result := results.get(str(body.get("method")))) is not None:
            said = {"jsonrpc": "2.0", "id": body["id"], "result": {"resultType": "complete", **result}}
            return packed(JSONResponse(said), encoding)
        return packed(await modern(fake, request, body), encoding)

    fake = FakeDownstream(folded)
    async with serving(fake) as origin, remote(f"{origin}/mcp", start=False) as executor:
        assert (await Talk(executor).say("hello")).texts == ("of the other side",)
        assert {seen.headers["accept-encoding"] for seen in fake.seen} == {"gzip, deflate"}


async def test_what_is_said_to_the_other_side_is_on_the_record_without_the_bearer() -> None:
    record = WireRecord()
    async with other() as there, remote(there.url, forward_inbound_auth=True) as executor:
        trace = RunTrace("r1", "far", TraceContext("ab" * 16, "cd" * 8), record.open("r1"))
        with running(trace):
            await Talk(executor).say("hello", bearer="token-of-anna")
    (call,) = [each for each in record.exchanges("r1") if each.method == "tools/call"]
    assert (call.peer, call.status) == ("far", 200)
    assert "hello" in call.request and "pallas-hops=1" in call.request and "hello?" in call.response
    assert "token-of-anna" not in repr(record.exchanges("r1"))


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
async def test_one_that_hears_nothing_any_more_is_given_up_in_time(era: Any) -> None:
    async with other(era=era) as there, remote(there.url) as executor:
        await Talk(executor).say("hello")
        there.deaf = True
        asked = there.requests
        run = asyncio.create_task(Talk(executor).say("anybody"))
        await until(lambda: there.requests > asked)
        run.cancel()
        _, late = await asyncio.wait({run}, timeout=30)
        assert not late and run.cancelled()


async def test_parameters_that_nobody_takes_are_told_once() -> None:
    async with other() as there, remote(there.url) as executor:
        talk = Talk(executor)
        for _ in range(2):
            await talk.say("hello", params=Params({"temperature": 0.5, "seed": None}))
        (notice,) = talk.heard(Notice)
        assert notice.text == "far is a tool and takes no parameters: left out temperature"
