"""One connection to a server: opened once for all who wait, lost, opened again, and left without a rest."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError
from mcp_types import INVALID_PARAMS, INVALID_REQUEST, ErrorData, JSONRPCError
from support.memory_server import HungUp, MemoryHttp, MemoryServer, Params
from support.waiting import until

from pallas.downstreams import connection as module
from pallas.downstreams import raw_streams
from pallas.downstreams.connection import Connection, NotConnected, Watch
from pallas.downstreams.offer import Offer
from pallas.downstreams.opening import Callbacks, Settings

LONG = 60.0
"""Seconds that no test waits for, unless it fails."""


@dataclass
class Heard:
    """What the owner of a connection heard."""

    offers: list[Offer] = field(default_factory=list)
    changes: int = 0
    losses: list[BaseException] = field(default_factory=list)

    async def listed(self, offer: Offer) -> Offer:
        """Note an offer."""
        self.offers.append(offer)
        return offer

    def changed(self) -> None:
        """Count it."""
        self.changes += 1


@asynccontextmanager
async def connected(
    server: Any, heard: Heard | None = None, *, eras: dict[str, str] | None = None, **settings: Any
) -> AsyncIterator[Connection]:
    """A connection that is closed in the end; nothing of it may go on then."""
    before = asyncio.all_tasks()
    heard = heard or Heard()
    transport = server.transport() if isinstance(server, MemoryHttp) else server
    made = Connection(
        "memory",
        transport,
        Settings(**settings),
        Callbacks(),
        Watch(heard.listed, heard.changed, heard.losses.append),
        {} if eras is None else eras,
        Context,
    )
    try:
        yield made
    finally:
        async with asyncio.timeout(LONG):
            await made.close()
    assert asyncio.all_tasks() == before
    if isinstance(server, MemoryServer):
        assert server.open_now == 0


async def echo(client: Client) -> Any:
    """Call the tool."""
    return await client.call_tool("echo", {"text": "x"})


def once(reply: Callable[[Params], Any], then: Callable[[Params], Any]) -> Callable[[Params], Any]:
    """A reply that is another one from the second time on."""
    seen: list[bool] = []

    async def answer(params: Params) -> Any:
        if seen:
            return await then(params)
        seen.append(True)
        return await reply(params)

    return answer


async def hang_up(params: Params) -> Any:
    """Close the connection in place of an answer."""
    raise HungUp


async def called(params: Params) -> Any:
    """The usual result of a call."""
    return {"content": [{"type": "text", "text": "done"}]}


async def test_all_who_wait_share_one_opening() -> None:
    server, heard = MemoryServer(), Heard()
    async with connected(server, heard) as one:
        await asyncio.gather(*(one.open(LONG) for _ in range(10)))
        await one.open(LONG)
        assert (server.starts, server.asked["initialize"], server.asked["tools/list"]) == (1, 1, 1)
        assert (one.is_open, one.is_opening) == (True, False)
        assert [tool.name for offer in heard.offers for tool in offer.tools] == ["echo"]
        assert one.offer is heard.offers[0]


async def test_an_opening_goes_on_when_the_patience_of_its_waiter_ends() -> None:
    may_answer = asyncio.Event()
    server = MemoryServer()
    usual = server.answer

    async def slow(params: Params) -> Any:
        await may_answer.wait()
        del server.replies["initialize"]
        return await usual("initialize", params)

    server.replies["initialize"] = slow
    async with connected(server) as one:
        with pytest.raises(TimeoutError, match="memory did not connect within 0"):
            await one.open(0.01)
        assert one.is_opening
        waiting = asyncio.create_task(one.open(LONG))
        may_answer.set()
        await waiting
        assert one.is_open and server.starts == 1


async def test_an_opening_that_fails_tells_all_who_wait_and_the_next_one_is_new() -> None:
    server = MemoryServer(is_program=False)

    async def refuse(params: Params) -> Any:
        return ErrorData(code=INVALID_REQUEST, message="not today")

    server.replies["initialize"] = refuse
    async with connected(server) as one:
        found = await asyncio.gather(*(one.open(LONG) for _ in range(5)), return_exceptions=True)
        assert [str(each) for each in found] == ["not today"] * 5
        assert one.error is found[0] and server.starts == 1
        del server.replies["initialize"]
        await one.open(LONG)
        assert (server.starts, one.error) == (2, None)


async def test_what_may_not_be_used_keeps_a_connection_from_opening() -> None:
    class Refusing(Heard):
        async def listed(self, offer: Offer) -> Offer:
            raise ValueError("held")

    async with connected(MemoryServer(), Refusing()) as one:
        with pytest.raises(ValueError, match="held"):
            await one.open(LONG)
        assert not one.is_open


async def test_a_call_opens_a_connection_that_was_lost() -> None:
    server, heard = MemoryServer(), Heard()
    async with connected(server, heard) as one:
        assert (await one.call(echo)).content[0].text == '{"text": "x"}'
        server.hang_up()
        await until(lambda: not one.is_open)
        assert [str(each) for each in heard.losses] == ["the other side closed the connection"]
        assert one.offer is not None  # its tools stay known
        assert (await one.call(echo)).content[0].text == '{"text": "x"}'
        assert (server.starts, server.asked["tools/call"]) == (2, 2)


async def test_a_call_that_may_have_run_is_not_made_again_and_the_next_one_is_answered() -> None:
    server, heard = MemoryServer(), Heard()
    server.replies["tools/call"] = once(hang_up, called)
    async with connected(server, heard) as one:
        with pytest.raises(MCPError, match="Connection closed"):
            await one.call(echo)
        assert server.asked["tools/call"] == 1
        assert len(heard.losses) == 1
        assert one.is_open  # opened again for the calls that follow
        assert (await one.call(echo)).content[0].text == "done"
        assert (server.starts, server.asked["tools/call"]) == (2, 2)


async def test_what_can_be_repeated_is_made_once_more_after_any_loss() -> None:
    server = MemoryServer()
    server.replies["tools/call"] = once(hang_up, called)
    async with connected(server) as one:
        assert (await one.call(echo, can_repeat=True)).content[0].text == "done"
        server.replies["tools/call"] = hang_up
        with pytest.raises(MCPError):
            await one.call(echo, can_repeat=True)
        assert server.asked["tools/call"] == 4


async def test_an_error_of_the_server_loses_no_connection_whatever_its_number() -> None:
    server, heard = MemoryServer(), Heard()

    async def refuse(params: Params) -> Any:
        return ErrorData(code=-32000, message="no such thing")  # the SDK's number for a closed connection

    server.replies["tools/call"] = refuse
    async with connected(server, heard) as one:
        with pytest.raises(MCPError, match="no such thing"):
            await one.call(echo, can_repeat=True)
        assert (server.starts, server.asked["tools/call"], heard.losses) == (1, 1, [])


async def test_a_cancelled_call_frees_its_caller_and_the_connection_stays_usable() -> None:
    server = MemoryServer()
    begun, never = asyncio.Event(), asyncio.Event()

    async def slow(params: Params) -> Any:
        begun.set()
        await never.wait()

    server.replies["tools/call"] = once(slow, called)
    async with connected(server) as one:
        call = asyncio.create_task(one.call(echo))
        await begun.wait()
        call.cancel()
        await asyncio.wait({call}, timeout=LONG)
        assert call.cancelled()
        await until(lambda: server.asked["notifications/cancelled"])
        assert (await one.call(echo)).content[0].text == "done"
        assert server.starts == 1


async def test_calls_at_once_that_lose_the_connection_open_one_new_one() -> None:
    server, heard = MemoryServer(), Heard()
    count = 10
    all_there = asyncio.Event()

    async def lose_all(params: Params) -> Any:
        if server.asked["tools/call"] == count:
            all_there.set()
            server.replies["tools/call"] = called
        await all_there.wait()
        raise HungUp

    server.replies["tools/call"] = lose_all
    async with connected(server, heard) as one:
        found = await asyncio.gather(*(one.call(echo) for _ in range(count)), return_exceptions=True)
        assert all(isinstance(each, MCPError) for each in found)
        assert (server.starts, len(heard.losses), server.asked["tools/call"]) == (2, 1, count)
        assert (await one.call(echo)).content[0].text == "done"


async def test_a_list_that_changes_is_listed_again() -> None:
    server, heard = MemoryServer(), Heard()
    async with connected(server, heard) as one:
        await one.open(LONG)
        server.tools = ["echo", "more"]
        await server.notify("notifications/tools/list_changed")
        await until(lambda: [tool.name for tool in one.offer.tools] == ["echo", "more"])
        await until(lambda: heard.changes == 2)  # the first was that it is open


async def test_what_changed_before_a_subscription_began_is_listed_too() -> None:
    server, heard = MemoryServer(is_modern=True), Heard()

    async def late(params: Params) -> None:
        server.tools = ["echo", "more"]  # nobody is told: the subscription has not begun
        await server.acknowledge(params)

    server.replies["subscriptions/listen"] = late
    async with connected(server, heard) as one:
        await one.open(LONG)
        await until(lambda: heard.changes == 2)  # the first was that it is open
        assert one.offer is not None
        assert [tool.name for tool in one.offer.tools] == ["echo", "more"]


async def test_a_connection_that_is_closed_while_it_lists_again_tells_no_change() -> None:
    server, lists_again, may_use = MemoryServer(is_modern=True), asyncio.Event(), asyncio.Event()

    class Slow(Heard):
        async def listed(self, offer: Offer) -> Offer:
            if self.offers:
                lists_again.set()
                await may_use.wait()
            return await super().listed(offer)

    server.replies["subscriptions/listen"] = server.acknowledge
    heard = Slow()
    async with connected(server, heard) as one:
        await one.open(LONG)
        await lists_again.wait()
        may_use.set()  # at once with the end: the list is there before the connection is left
    assert (len(heard.offers), heard.changes, heard.losses) == (2, 1, [])


async def test_a_server_that_misses_its_pings_and_lists_nothing_is_lost() -> None:
    server, heard = MemoryServer(), Heard()
    never = asyncio.Event()

    async def silent(params: Params) -> Any:
        await never.wait()

    server.replies["ping"] = silent
    async with connected(server, heard, ping_seconds=0.01, missed_pings=2) as one:
        await one.open(LONG)
        server.replies["tools/list"] = silent
        await until(lambda: heard.losses)
        assert str(heard.losses[0]) == "it did not answer 2 pings"
        assert not one.is_open


async def test_http_a_ping_finds_out_that_the_server_forgot_the_session() -> None:
    server, heard = MemoryHttp(), Heard()
    async with connected(server, heard, ping_seconds=0.01) as one:
        await one.open(LONG)
        server.sessions.clear()
        await until(lambda: heard.losses)
        assert not one.is_open
        await one.open(LONG)
        assert server.opened == 2


async def test_a_program_that_ends_at_a_question_is_started_again_and_the_next_time_once() -> None:
    server, eras = MemoryServer(), dict[str, str]()
    server.replies["server/discover"] = hang_up
    async with connected(server, eras=eras) as one:
        await one.open(LONG)
        assert (server.starts, eras) == (2, {"memory": "legacy"})
        one.lose(ConnectionError("gone"))
        await one.open(LONG)
        assert server.starts == 3
    async with connected(server, eras=eras) as other:
        await other.open(LONG)
        assert (server.starts, server.asked["server/discover"]) == (4, 1)


async def test_the_newer_era_is_remembered_and_a_replaced_program_is_asked_again() -> None:
    server, eras = MemoryServer(is_modern=True), dict[str, str]()
    async with connected(server, eras=eras) as one:
        await one.open(LONG)
        assert (server.starts, eras, one.offer and one.offer.version) == (1, {"memory": "auto"}, "2026-07-28")
    server.is_modern = False
    server.replies["server/discover"] = hang_up
    async with connected(server, eras=eras) as other:
        with pytest.raises(MCPError):
            await other.open(LONG)
        await other.open(LONG)  # the other way at the next attempt
        assert other.offer is not None and other.offer.version == "2025-11-25"
        assert eras == {"memory": "legacy"}


@pytest.mark.parametrize("is_modern", [False, True])
async def test_a_program_that_crashed_is_there_at_the_first_call_after_that(is_modern: bool) -> None:
    server = MemoryServer(is_modern=is_modern)
    opening = "server/discover" if is_modern else "initialize"
    usual = {} if is_modern else {"server/discover": hang_up}  # the older one ends at the question
    server.replies = dict(usual)
    async with connected(server) as one:
        await one.open(LONG)
        for crashes in (1, 2, 3):
            server.replies[opening] = hang_up
            server.hang_up()
            await until(lambda: not one.is_open)
            for _ in range(crashes):
                with pytest.raises(MCPError):
                    await one.open(LONG)
            server.replies = dict(usual)
            before = server.starts
            assert (await one.call(echo)).content[0].text == '{"text": "x"}'
            assert server.starts == before + 1


@pytest.mark.parametrize("answers_late", [False, True])
async def test_a_server_that_is_silent_about_versions_is_asked_by_the_handshake(
    monkeypatch: pytest.MonkeyPatch, answers_late: bool
) -> None:
    monkeypatch.setattr(raw_streams, "SILENCE_SECONDS", 0.01)
    server = MemoryServer()
    late = asyncio.Event()

    async def silent(params: Params) -> Any:
        await late.wait()
        return {"supportedVersions": ["2026-07-28"]} if answers_late else None

    server.replies["server/discover"] = silent
    async with connected(server) as one:
        await one.open(LONG)
        late.set()
        assert one.offer is not None and one.offer.version == "2025-11-25"
        assert (await one.call(echo)).content[0].text == '{"text": "x"}'
        assert server.starts == 1


async def test_an_error_without_an_id_is_the_answer_to_the_question_for_versions() -> None:
    server = MemoryServer()

    async def not_understood(params: Params) -> Any:
        return JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=INVALID_REQUEST, message="what?"))

    server.replies["server/discover"] = not_understood
    async with connected(server) as one:
        await one.open(LONG)
        assert one.offer is not None and one.offer.version == "2025-11-25"
        assert server.starts == 1


async def test_a_connection_that_is_closed_while_it_opens_tells_who_waits() -> None:
    server, never = MemoryServer(), asyncio.Event()

    async def silent(params: Params) -> Any:
        await never.wait()

    server.replies["initialize"] = silent
    async with connected(server) as one:
        waiting = asyncio.create_task(one.open(LONG))
        await until(lambda: server.asked["initialize"])
        await one.close()
        with pytest.raises(NotConnected, match="the agent is stopping"):
            await waiting
        with pytest.raises(NotConnected, match="the agent is stopping"):
            await one.open(LONG)
        with pytest.raises(NotConnected):
            await one.call(echo)
        assert server.starts == 1


async def test_a_server_that_does_not_end_is_left_after_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LEAVE_SECONDS", 0.01)
    server = MemoryServer(leaving=asyncio.Event())
    async with connected(server) as one:
        await one.open(LONG)
        one.lose(ConnectionError("lost"))
        await until(lambda: server.open_now == 0)  # the time for the end of everything else is over then


async def test_closing_twice_and_without_an_opening_does_nothing() -> None:
    server = MemoryServer()
    async with connected(server) as one:
        await one.close()
    async with connected(server) as one:
        await one.open(LONG)
        await asyncio.gather(one.close(), one.close())
        assert server.open_now == 0
    assert server.starts == 1


async def test_http_a_session_that_the_server_forgot_is_opened_again_and_the_call_made_once_more() -> None:
    server, heard = MemoryHttp(), Heard()
    async with connected(server, heard) as one:
        await one.call(echo)
        server.sessions.clear()
        await one.call(echo)
        assert (server.opened, server.asked["tools/call"], len(heard.losses)) == (2, 2, 1)


@pytest.mark.parametrize(("status", "body", "calls"), [(404, None, 2), (400, None, 2)])
async def test_http_a_session_that_is_refused_each_time_is_tried_twice(
    status: int, body: Any, calls: int
) -> None:
    tried: list[str] = []

    def fail(request: httpx2.Request, message: Params) -> httpx2.Response | None:
        if message.get("method") != "tools/call":
            return None
        tried.append(request.headers["mcp-session-id"])
        return httpx2.Response(status, json=body)

    server = MemoryHttp(fail=fail)
    async with connected(server) as one:
        with pytest.raises(Exception):  # noqa: B017 - the SDK's, for such an answer
            await one.call(echo)
        assert tried == ["s1", "s2"][:calls]


async def test_http_arguments_that_are_refused_with_400_lose_no_session() -> None:
    tried: list[str] = []

    def fail(request: httpx2.Request, message: Params) -> httpx2.Response | None:
        if message.get("method") != "tools/call":
            return None
        tried.append(request.headers["mcp-session-id"])
        error = {"code": INVALID_PARAMS, "message": "text is missing"}
        return httpx2.Response(400, json={"jsonrpc": "2.0", "id": message["id"], "error": error})

    server, heard = MemoryHttp(fail=fail), Heard()
    async with connected(server, heard) as one:
        with pytest.raises(MCPError, match="text is missing"):
            await one.call(echo)
        assert (tried, heard.losses, server.opened) == (["s1"], [], 1)


async def test_http_a_404_without_a_session_is_an_answer() -> None:
    tried: list[Any] = []

    def fail(request: httpx2.Request, message: Params) -> httpx2.Response | None:
        if message.get("method") != "tools/call":
            return None
        tried.append(request.headers.get("mcp-session-id"))
        return httpx2.Response(404)

    server, heard = MemoryHttp(fail=fail, keeps_sessions=False), Heard()
    async with connected(server, heard) as one:
        with pytest.raises(MCPError):
            await one.call(echo)
        assert (tried, heard.losses) == ([None], [])


@pytest.mark.parametrize(
    ("error", "calls"),
    [
        (httpx2.ConnectError, 2),
        (httpx2.ConnectTimeout, 2),
        (httpx2.PoolTimeout, 2),
        (httpx2.ReadError, 1),
        (httpx2.WriteError, 1),
        (httpx2.ReadTimeout, 1),
        (httpx2.RemoteProtocolError, 1),
    ],
)
async def test_http_a_call_that_was_not_sent_is_made_once_more_and_no_other(
    error: type[httpx2.TransportError], calls: int
) -> None:
    fails, tried = [True], []

    def fail(request: httpx2.Request, message: Params) -> httpx2.Response | None:
        if message.get("method") != "tools/call":
            return None
        tried.append(request.headers["mcp-session-id"])
        if fails:
            raise error("broken")
        return None

    server, heard = MemoryHttp(fail=fail), Heard()
    async with connected(server, heard) as one:
        with pytest.raises(MCPError):
            await one.call(echo)
        assert tried == ["s1", "s2"][:calls]
        fails.clear()
        assert (await one.call(echo)).content[0].text == '{"text": "x"}'
        assert len(tried) == calls + 1  # one call for one call
        assert len(heard.losses) == calls


async def test_http_without_repeats_a_lost_session_is_an_error_once() -> None:
    server = MemoryHttp()
    async with connected(server, repeats=False) as one:
        await one.call(echo)
        server.sessions.clear()
        with pytest.raises(MCPError):
            await one.call(echo)
        assert server.asked["tools/call"] == 1
        await one.call(echo)
        assert server.asked["tools/call"] == 2


async def test_http_a_server_that_is_not_there_says_why() -> None:
    def fail(request: httpx2.Request, message: Params) -> httpx2.Response | None:
        raise httpx2.ConnectError("nobody listens")

    async with connected(MemoryHttp(fail=fail)) as one:
        with pytest.raises(httpx2.ConnectError, match="nobody listens"):
            await one.open(LONG)
        assert isinstance(one.error, httpx2.ConnectError)


async def test_http_a_call_does_not_end_with_an_opening_that_began_before_it() -> None:
    may_fail, server = asyncio.Event(), MemoryHttp()

    async def away(params: Params) -> Any:
        del server.replies["server/discover"]
        await may_fail.wait()
        raise httpx2.ConnectError("nobody listens")

    server.replies["server/discover"] = away
    async with connected(server) as one:
        first = asyncio.create_task(one.open(LONG))
        await until(lambda: one.is_opening and server.asked["server/discover"] == 1)
        calls = [asyncio.create_task(one.call(echo)) for _ in range(3)]
        await asyncio.sleep(0)  # they wait for the opening, and the server is back meanwhile
        may_fail.set()
        assert [each.content[0].text for each in await asyncio.gather(*calls)] == ['{"text": "x"}'] * 3
        assert server.opened == 1
        with pytest.raises(httpx2.ConnectError, match="nobody listens"):
            await first


async def test_http_each_call_has_the_context_of_its_caller_and_openings_have_none() -> None:
    caller: ContextVar[str] = ContextVar("caller", default="")
    seen: list[tuple[str, str]] = []

    def fail(request: httpx2.Request, message: Params) -> httpx2.Response | None:
        seen.append((message.get("method", ""), caller.get()))
        return None

    server = MemoryHttp(fail=fail)
    async with connected(server) as one:
        caller.set("opener")
        await one.open(LONG)

        async def call(name: str) -> None:
            caller.set(name)
            await one.call(echo)

        names = [f"run {number}" for number in range(8)]
        await asyncio.gather(*(asyncio.create_task(call(name)) for name in names))
    assert sorted(who for method, who in seen if method == "tools/call") == names
    assert {who for method, who in seen if method != "tools/call"} == {""}


async def test_a_connection_that_is_closed_before_its_opening_has_begun_tells_who_waits() -> None:
    server = MemoryServer()
    async with connected(server) as one:
        waiting = asyncio.create_task(one.open(LONG))
        await asyncio.sleep(0)
        assert one.is_opening
        await one.close()
        with pytest.raises(NotConnected, match="the agent is stopping"):
            async with asyncio.timeout(30):
                await waiting


@pytest.mark.parametrize("resumes", [404, 400, httpx2.ConnectError("gone")], ids=["404", "400", "not there"])
async def test_http_a_stream_that_breaks_and_cannot_be_resumed_is_no_reason_to_call_again(
    resumes: Any,
) -> None:
    calls: list[str] = []
    gets: list[str] = []

    def fail(request: httpx2.Request, message: Params) -> httpx2.Response | None:
        if request.method == "GET" and "last-event-id" in request.headers:
            gets.append(request.headers["last-event-id"])
            if isinstance(resumes, Exception):
                raise resumes
            return httpx2.Response(resumes)
        if message.get("method") != "tools/call":
            return None
        calls.append(request.headers["mcp-session-id"])
        text = f"id: e1\nretry: 1\ndata: {json.dumps({'jsonrpc': '2.0', 'method': 'notifications/x'})}\n\n"
        return httpx2.Response(200, text=text, headers={"content-type": "text/event-stream"})

    async with connected(MemoryHttp(fail=fail), Heard()) as one:
        with pytest.raises(Exception):  # noqa: B017
            await one.call(echo)
        assert gets
        assert calls == ["s1"]


def slow_then_broken(server: MemoryHttp, begun: asyncio.Event, go: asyncio.Event) -> None:
    """Have the server answer its first call when it may, and break off the second."""

    async def slow(params: Params) -> Any:
        begun.set()
        await go.wait()
        return server.marked({"content": [{"type": "text", "text": "slow"}]})

    async def broken(params: Params) -> Any:
        raise httpx2.ReadError("gone")

    server.replies["tools/call"] = once(slow, broken)


@pytest.mark.parametrize("is_modern", [True, False])
async def test_http_a_call_that_breaks_off_ends_no_other_call(is_modern: bool) -> None:
    begun, go, heard = asyncio.Event(), asyncio.Event(), Heard()
    server = MemoryHttp(is_modern=is_modern)
    slow_then_broken(server, begun, go)
    async with connected(server, heard) as one:
        first = asyncio.create_task(one.call(echo))
        await begun.wait()
        with pytest.raises(MCPError, match="was lost in the middle"):
            await one.call(echo)
        assert len(heard.losses) == 1
        del server.replies["tools/call"]
        assert (await one.call(echo)).content[0].text == '{"text": "x"}'  # on a new connection
        go.set()
        assert (await first).content[0].text == "slow"
        assert one.is_open and len(heard.losses) == 1


async def test_http_a_connection_that_drains_is_closed_at_once() -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    server = MemoryHttp()
    slow_then_broken(server, begun, go)
    async with connected(server) as one:
        first = asyncio.create_task(one.call(echo))
        await begun.wait()
        with pytest.raises(MCPError):
            await one.call(echo)
        async with asyncio.timeout(30):
            await one.close()
        with pytest.raises((MCPError, NotConnected)):
            await first


async def test_an_old_connection_that_fails_as_it_is_left_loses_no_new_one() -> None:
    class Failing(MemoryServer):
        @asynccontextmanager
        async def open(self, link: Any) -> AsyncIterator[Any]:
            number = self.starts
            async with super().open(link) as streams:
                yield streams
                if number == 0:
                    await until(lambda: server.starts == 2 and one.is_open)
                    raise OSError("the pipe is gone")

    server, heard = Failing(), Heard()
    async with connected(server, heard) as one:
        await one.open(LONG)
        one.lose(ConnectionError("lost"))
        await one.open(LONG)
        await until(lambda: server.open_now == 1)
        assert (await one.call(echo)).content[0].text == '{"text": "x"}'
        assert (server.starts, len(heard.losses)) == (2, 1)


async def test_an_offer_has_the_output_schemas_that_the_sdk_does_not_see() -> None:
    server, schema = MemoryServer(), {"type": "object", "required": ["total"]}

    async def listed(params: Params) -> Any:
        return {"tools": [{"name": "echo", "inputSchema": {"type": "object"}, "outputSchema": schema}]}

    server.replies["tools/list"] = listed
    async with connected(server) as one:
        await one.open(LONG)
        assert one.offer is not None and one.offer.tools[0].output_schema == schema
        assert one.schema_of("echo") is not None
        assert (await one.call(echo)).content[0].text == '{"text": "x"}'  # checked elsewhere, not by the SDK
