"""What became of the HTTP requests of a call, and what a client is told of a connection that failed."""

import asyncio
from typing import Any

import httpx2
import pytest
from mcp_types import CONNECTION_CLOSED
from support.waiting import until

from pallas.downstreams.http_requests import (
    CallFate,
    WatchedTransport,
    call_fate,
    goes_beside,
    is_answer,
    says_session_lost,
    wrap_transports,
)

NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
SENT = (httpx2.ReadError, httpx2.WriteError, httpx2.ReadTimeout, httpx2.RemoteProtocolError)
URL = "http://one.test/mcp"


async def answered(
    result: Any, *, method: str = "POST", is_open: bool = True, session: bool = False
) -> tuple[httpx2.Response, CallFate]:
    """The response to a request, and the fate of its call; ``result`` is a status or an error."""

    def respond(request: httpx2.Request) -> httpx2.Response:
        if isinstance(result, int):
            return httpx2.Response(result)
        raise result

    fate = CallFate()
    token = call_fate.set(fate)
    try:
        headers = {"mcp-session-id": "s"} if session else {}
        transport = WatchedTransport(httpx2.MockTransport(respond), lambda: is_open)
        async with httpx2.AsyncClient(transport=transport, timeout=60) as client:
            return await client.request(method, URL, headers=headers), fate
    finally:
        call_fate.reset(token)


def flags(fate: CallFate) -> tuple[bool, bool, bool]:
    """Unsent, broken, no session."""
    return fate.unsent, fate.broken, fate.no_session


@pytest.mark.parametrize("kind", NOT_SENT + SENT)
async def test_a_request_that_fails_on_an_open_connection_is_answered_with_an_error(
    kind: type[httpx2.TransportError],
) -> None:
    response, fate = await answered(kind("the reason"))
    assert response.status_code == 503
    error = response.json()["error"]
    assert error["code"] == CONNECTION_CLOSED
    assert f"{kind.__name__}: the reason" in error["message"]
    assert not is_answer(response)
    is_unsent = kind in NOT_SENT
    assert ("cannot connect" in error["message"]) is is_unsent
    assert flags(fate) == (is_unsent, not is_unsent, False)


@pytest.mark.parametrize("kind", NOT_SENT + SENT)
async def test_it_raises_while_the_connection_is_opened(kind: type[httpx2.TransportError]) -> None:
    with pytest.raises(kind, match="the reason"):
        await answered(kind("the reason"), is_open=False)


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_what_is_no_message_raises_at_all_times(method: str) -> None:
    with pytest.raises(httpx2.ReadError):
        await answered(httpx2.ReadError("gone"), method=method)


async def test_an_error_without_words_says_what_it_means() -> None:
    response, _ = await answered(httpx2.ReadError(""))
    assert response.json()["error"]["message"] == "the connection was lost in the middle of it"


@pytest.mark.parametrize(
    ("status", "session", "is_lost"),
    [(404, True, True), (400, True, True), (404, False, False), (400, False, False), (200, True, False)]
    + [(status, True, False) for status in (401, 403, 405, 429, 500, 503)],
)
async def test_a_session_is_lost_by_404_and_400_to_a_request_that_names_one(
    status: int, session: bool, is_lost: bool
) -> None:
    response, fate = await answered(status, session=session)
    assert (response.status_code, is_answer(response)) == (status, True)
    assert flags(fate) == (False, False, is_lost)


async def test_a_request_of_no_call_has_no_fate() -> None:
    transport = WatchedTransport(httpx2.MockTransport(lambda request: httpx2.Response(404)), lambda: True)
    async with httpx2.AsyncClient(transport=transport, timeout=60) as client:
        response = await client.post(URL, headers={"mcp-session-id": "s"})
        assert response.status_code == 404


async def test_every_way_of_a_client_is_wrapped_and_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Way(httpx2.AsyncBaseTransport):
        def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
            self.inner, self.closed = inner, 0
            made.append(self)

        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            self.seen = request.url.host
            return httpx2.Response(200)

        async def aclose(self) -> None:
            self.closed += 1
            await self.inner.aclose()

    made: list[Way] = []
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.test:1")
    monkeypatch.setenv("NO_PROXY", "near.test")
    client = httpx2.AsyncClient(timeout=60)
    wrap_transports(client, lambda inner: WatchedTransport(Way(inner), lambda: True))
    async with client:
        await client.get("http://plain.test/")
        await client.get("https://far.test/")
        await client.get("https://near.test/")
    assert len(made) == 2  # the direct one and the proxy's; where no proxy is used there is none
    assert sorted(each.seen for each in made) == ["far.test", "near.test"]
    assert [each.closed for each in made] == [1, 1]


@pytest.mark.parametrize(
    ("second", "wanted"),
    [(404, (False, False, False)), (NOT_SENT[0]("x"), (False, True, False)), (200, (False, False, False))],
)
async def test_once_a_request_was_accepted_the_call_may_have_run(
    second: Any, wanted: tuple[bool, bool, bool]
) -> None:
    results = iter([200, second])

    def respond(request: httpx2.Request) -> httpx2.Response:
        result = next(results)
        if isinstance(result, int):
            return httpx2.Response(result)
        raise result

    fate = CallFate()
    token = call_fate.set(fate)
    transport = WatchedTransport(httpx2.MockTransport(respond), lambda: True)
    async with httpx2.AsyncClient(transport=transport, timeout=60) as client:
        for _ in range(2):
            await client.post(URL, headers={"mcp-session-id": "s"})
    call_fate.reset(token)
    assert flags(fate) == wanted


async def test_a_refused_request_that_is_accepted_the_next_time_has_its_session() -> None:
    statuses = iter([400, 200])
    fate = CallFate()
    token = call_fate.set(fate)
    respond = httpx2.MockTransport(lambda request: httpx2.Response(next(statuses)))
    async with httpx2.AsyncClient(transport=WatchedTransport(respond, lambda: True), timeout=60) as client:
        for _ in range(2):
            await client.post(URL, headers={"mcp-session-id": "s"})
    call_fate.reset(token)
    assert flags(fate) == (False, False, False)


async def test_a_server_that_hangs_on_a_cancelled_call_holds_up_no_other_request() -> None:
    asked: list[str] = []
    released = asyncio.Event()

    async def respond(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.content.decode())
        if "cancelled" in asked[-1]:
            await released.wait()
        return httpx2.Response(200)

    notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    transport = WatchedTransport(httpx2.MockTransport(respond), lambda: True)
    async with httpx2.AsyncClient(transport=transport, timeout=60) as client:
        token = goes_beside.set(True)
        told = await client.post(URL, json=notice)
        goes_beside.reset(token)
        assert (told.status_code, is_answer(told)) == (202, False)
        assert (await client.post(URL, json={"jsonrpc": "2.0", "id": 2, "method": "ping"})).status_code == 200
        await until(lambda: len(asked) == 2)
        assert [each for each in asked if "cancelled" in each]
        released.set()


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (429, b"slow down", "HTTP 429: slow down"),
        (500, b'{"detail": "\x1b[31mno\\n"}', "HTTP 500: "),
        (503, b"", "HTTP 503"),
        (502, b"x" * 1_000_000, "HTTP 502: xxx"),
        (413, b'{"jsonrpc": "2.0", "id": 1, "error": {"code": 5, "message": "own words"}}', "own words"),
    ],
)
async def test_a_refused_call_has_the_reason_that_the_response_gives(
    status: int, body: bytes, said: str
) -> None:
    token = call_fate.set(CallFate())
    respond = httpx2.MockTransport(lambda request: httpx2.Response(status, content=body))
    async with httpx2.AsyncClient(transport=WatchedTransport(respond, lambda: True), timeout=60) as client:
        response = await client.post(URL)
    call_fate.reset(token)
    text = response.json()["error"]["message"]
    assert response.status_code == status and text.startswith(said)
    assert len(text) < 400 and "\x1b" not in text


async def test_a_hundred_answers_at_most_are_on_their_way_beside_the_calls() -> None:
    """What is beyond is dropped: a server that asks for ever and takes no answer holds nothing else up."""
    asked: list[bytes] = []
    released = asyncio.Event()

    async def respond(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.content)
        if b"answer" in request.content:
            await released.wait()
        return httpx2.Response(202)

    transport = WatchedTransport(httpx2.MockTransport(respond), lambda: True)
    async with httpx2.AsyncClient(transport=transport, timeout=60) as client:
        token = goes_beside.set(True)
        for number in range(150):
            answer = {"jsonrpc": "2.0", "id": number, "result": {"answer": number}}
            assert (await client.post(URL, json=answer)).status_code == 202
        goes_beside.reset(token)
        await until(lambda: len(asked) == 100)
        assert (await client.post(URL, json={"jsonrpc": "2.0", "id": 1, "method": "ping"})).is_success
        assert len(asked) == 101
        released.set()
        await until(lambda: not transport._beside)
        token = goes_beside.set(True)
        await client.post(URL, json={"jsonrpc": "2.0", "id": 200, "result": {"answer": 200}})
        goes_beside.reset(token)
        await until(lambda: len(asked) == 102)


@pytest.mark.parametrize(
    ("location", "follows"),
    [
        ("/moved", True),
        ("http://one.test/moved", True),
        ("http://two.test/mcp", False),
        ("https://one.test/", False),
    ],
)
async def test_what_goes_beside_follows_redirects_within_its_origin_only(
    location: str, follows: bool
) -> None:
    asked: list[tuple[str, str | None]] = []

    def respond(request: httpx2.Request) -> httpx2.Response:
        asked.append((str(request.url), request.headers.get("authorization")))
        if request.url.path == "/mcp" and request.url.host == "one.test":
            return httpx2.Response(307, headers={"location": location})
        return httpx2.Response(202)

    transport = WatchedTransport(httpx2.MockTransport(respond), lambda: True)
    async with httpx2.AsyncClient(transport=transport, timeout=60) as client:
        token = goes_beside.set(True)
        await client.post(URL, json={"id": 1, "result": {}}, headers={"authorization": "Bearer own"})
        goes_beside.reset(token)
        await until(lambda: asked and not transport._beside)
    assert asked[1:] == ([("http://one.test/moved", "Bearer own")] if follows else [])


@pytest.mark.parametrize(
    ("text", "in_an_answer"),
    [
        ("Session not found or expired", True),
        ("Bad Request: No valid session ID provided", True),
        ("MCP session has been terminated", True),
        ("Browser session 12 not found", False),
        ("close_tab failed: session expired", False),
    ],
)
def test_an_answer_speaks_of_its_session_only_if_it_says_nothing_else(text: str, in_an_answer: bool) -> None:
    assert says_session_lost(text)
    assert says_session_lost(text, only=True) is in_an_answer
