"""Bytes at a port that are almost a request: what is taken, what is refused, and what never becomes a second
request."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from starlette.types import Receive, Scope, Send
from support.ports import free_ports
from support.waiting import until

from pallas.surfaces.connections import MAX_HEAD, PIPELINED
from pallas.surfaces.listener import Listener, bind

pytestmark = pytest.mark.asyncio(loop_scope="module")
HOST = b"Host: 127.0.0.1\r\n"
LAST = HOST + b"Connection: close\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


class Recorder:
    """Answers with what it was asked; ``/held`` waits for ``go``, ``/stream`` sends its head before that."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.gone: list[str] = []
        self.go = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        head = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        request = {key: scope[key] for key in ("method", "path", "http_version")} | {"headers": head}
        self.requests.append(request)
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message["more_body"]:
                break
        else:
            self.gone.append(scope["path"])
            return
        request["body"] = body.decode()
        request["headers_at_the_end"] = len(scope["headers"])
        start = {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"connection", b"keep-alive")] if scope["path"] == "/kept" else [],
        }
        if scope["path"] == "/stream":
            await send(start)
            await send({"type": "http.response.body", "body": b"[", "more_body": True})
        if scope["path"] in ("/held", "/stream"):
            await self.go.wait()
        if scope["path"] != "/stream":
            await send(start)
        await send({"type": "http.response.body", "body": json.dumps(request).encode()})


@pytest.fixture
def app(listener: tuple[Listener, Recorder]) -> Recorder:
    """The application behind the port, which has not been asked yet."""
    recorder = listener[1]
    recorder.requests.clear()
    recorder.gone.clear()
    recorder.go.clear()
    return recorder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def listener() -> AsyncIterator[tuple[Listener, Recorder]]:
    recorder = Recorder()
    listener = Listener(recorder, bind("127.0.0.1", free_ports(1)[0], "test"), lifespan=False)
    await listener.start()
    try:
        yield listener, recorder
    finally:
        await listener.stop()


@pytest.fixture
def port(listener: tuple[Listener, Recorder]) -> int:
    return listener[0].port


async def raw(port: int, *pieces: bytes) -> bytes:
    """All that a port answers until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        async with asyncio.timeout(30):
            return await reader.read()
    finally:
        writer.transport.abort()


def post(framing: bytes, body: bytes) -> bytes:
    return b"POST /first HTTP/1.1\r\n" + HOST + framing + b"\r\n" + body


SECOND = b"GET /second HTTP/1.1\r\n" + LAST + b"\r\n"
REFUSED = {
    "bare LF": b"GET / HTTP/1.1\nHost: 127.0.0.1\n\n",
    "bare LF behind a header": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\n\r\n",
    "bare CR in a value": b"GET / HTTP/1.1\r\n" + HOST + b"X: a\rb\r\n\r\n",
    "folded header": b"GET / HTTP/1.1\r\n" + HOST + b"X: a\r\n b\r\n\r\n",
    "space before the first header": b"GET / HTTP/1.1\r\n " + HOST + b"\r\n",
    "space before the colon": b"GET / HTTP/1.1\r\n" + HOST + b"X : a\r\n\r\n",
    "character that no name has": b"GET / HTTP/1.1\r\n" + HOST + b"X(: a\r\n\r\n",
    "header without a name": b"GET / HTTP/1.1\r\n" + HOST + b": a\r\n\r\n",
    "header without a colon": b"GET / HTTP/1.1\r\n" + HOST + b"X\r\n\r\n",
    "NUL in a value": b"GET / HTTP/1.1\r\n" + HOST + b"X: a\x00b\r\n\r\n",
    "no Host": b"GET / HTTP/1.1\r\n\r\n",
    "two Hosts": b"GET / HTTP/1.1\r\n" + HOST + HOST + b"\r\n",
    "two Hosts in HTTP/1.0": b"GET / HTTP/1.0\r\n" + HOST + HOST + b"\r\n",
    "no version": b"GET /\r\n" + HOST + b"\r\n",
    "HTTP/0.9": b"GET / HTTP/0.9\r\n" + HOST + b"\r\n",
    "HTTP/2 in clear text": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/2.0": b"GET / HTTP/2.0\r\n" + HOST + b"\r\n",
    "unknown method": b"BREW / HTTP/1.1\r\n" + HOST + b"\r\n",
    "tunnel": b"CONNECT 127.0.0.1:80 HTTP/1.1\r\n" + HOST + b"\r\n",
    "byte above ASCII in the target": b"GET /\xff HTTP/1.1\r\n" + HOST + b"\r\n",
    "space in the target": b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n",
    "the same length twice": post(b"Content-Length: 2\r\nContent-Length: 2\r\n", b"hi"),
    "different lengths": post(b"Content-Length: 2\r\nContent-Length: 3\r\n", b"hi"),
    "list of lengths": post(b"Content-Length: 2, 2\r\n", b"hi"),
    "length with a sign": post(b"Content-Length: +2\r\n", b"hi"),
    "negative length": post(b"Content-Length: -2\r\n", b"hi"),
    "hexadecimal length": post(b"Content-Length: 0x2\r\n", b"hi"),
    "empty length": post(b"Content-Length:\r\n", b"hi"),
    "length beyond 64 bits": post(b"Content-Length: 99999999999999999999\r\n", b"hi"),
    "unknown encoding": post(b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n"),
    "no chunks": post(b"Transfer-Encoding: identity\r\n", b"0\r\n\r\n"),
    "almost chunks": post(b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n"),
    "two encodings": post(CHUNKED + CHUNKED, b"0\r\n\r\n"),
    "empty encoding": post(b"Transfer-Encoding:\r\n", b"0\r\n\r\n"),
    "chunks in HTTP/1.0": b"POST / HTTP/1.0\r\n" + HOST + CHUNKED + b"\r\n0\r\n\r\n",
    "endless header": b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"y" * 400_000,
    "endless name": b"GET / HTTP/1.1\r\n" + HOST + b"y" * 400_000,
    "endless headers": b"GET / HTTP/1.1\r\n" + HOST + b"X: yyyyyyyyyyyyyyyyyyyy\r\n" * 40_000,
    "endless target": b"GET /" + b"y" * 400_000,
    "endless empty lines": b"\r\n" * 400_000,
    "head that is too large and complete": b"GET / HTTP/1.1\r\n" + HOST + b"X: y\r\n" * 20_000 + b"\r\n",
}


@pytest.mark.parametrize("request_bytes", REFUSED.values(), ids=REFUSED)
async def test_what_is_no_request_is_refused_before_the_application_sees_it(
    port: int, app: Recorder, request_bytes: bytes
) -> None:
    answer = await _until_refused(port, request_bytes + SECOND)
    assert answer.startswith(b"HTTP/1.1 400 "), answer[:200]
    assert b"connection: close\r\n" in answer
    assert app.requests == []


async def _until_refused(port: int, request: bytes) -> bytes:
    """The start of the answer: a sender that is cut off may not read all of it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        async with asyncio.timeout(30):
            return await reader.readuntil(b"\r\n\r\n")
    finally:
        writer.transport.abort()


BROKEN = {
    "bare LF behind a chunk's size": b"2\nhi\r\n0\r\n\r\n",
    "chunk larger than its size": b"2\r\nhi!\r\n0\r\n\r\n",
    "negative size": b"-2\r\nhi\r\n0\r\n\r\n",
    "size with a prefix": b"0x2\r\nhi\r\n0\r\n\r\n",
    "space behind the size": b"2 \r\nhi\r\n0\r\n\r\n",
    "size beyond 64 bits": b"fffffffffffffffff\r\nhi\r\n0\r\n\r\n",
    "line break in an extension": b'2;a="b\nc"\r\nhi\r\n0\r\n\r\n',
    "endless extension": b"2;" + b"a" * 400_000,
    "endless trailers": b"2\r\nhi\r\n0\r\n" + b"X: yyyyyyyyyyyyyyyyyyyy\r\n" * 40_000,
    "endless trailer": b"2\r\nhi\r\n0\r\nX: " + b"y" * 400_000,
}


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
async def test_a_broken_body_ends_its_request_and_is_no_second_one(
    port: int, app: Recorder, body: bytes
) -> None:
    answer = await _until_refused(port, post(CHUNKED, body + SECOND))
    assert answer.startswith(b"HTTP/1.1 400 "), answer[:200]
    await until(lambda: app.gone == ["/first"])
    assert [each["path"] for each in app.requests] == ["/first"]


async def test_trailers_do_not_become_headers(port: int, app: Recorder) -> None:
    trailers = b"Authorization: Bearer stolen\r\nHost: elsewhere\r\n"
    await raw(port, post(CHUNKED, b"2\r\nhi\r\n0\r\n" + trailers + b"\r\n" + SECOND))
    first, second = app.requests
    assert first["body"] == "hi"
    assert first["headers_at_the_end"] == len(first["headers"]) == 2
    assert "authorization" not in first["headers"]
    assert second["path"] == "/second"


async def test_white_space_around_a_value_is_not_part_of_it(port: int, app: Recorder) -> None:
    await raw(port, b"GET / HTTP/1.1\r\nHost: \t127.0.0.1 \t\r\nConnection: close\r\nX:\r\n\r\n")
    assert app.requests[0]["headers"] == {"host": "127.0.0.1", "connection": "close", "x": ""}


@pytest.mark.parametrize("target", ["/a?b=c", "/a%2Fb", "//host/a", "*", "/a#b"])
async def test_the_path_is_the_target_as_it_was_sent(port: int, app: Recorder, target: str) -> None:
    method = b"OPTIONS " if target == "*" else b"GET "
    await raw(port, method + target.encode() + b" HTTP/1.1\r\n" + LAST + b"\r\n")
    assert app.requests[0]["path"] == target.partition("?")[0].replace("%2F", "/")


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("http://elsewhere/mcp", "/mcp"),
        ("HTTP://elsewhere/mcp?a=b", "/mcp"),
        ("https://elsewhere", "/"),
        ("http://elsewhere?a=b", "/"),
    ],
)
async def test_a_target_that_is_a_url_names_the_host(
    port: int, app: Recorder, target: str, path: str
) -> None:
    await raw(port, b"GET " + target.encode() + b" HTTP/1.1\r\n" + LAST + b"\r\n")
    request = app.requests[0]
    assert (request["path"], request["headers"]["host"]) == (path, "elsewhere")


@pytest.mark.parametrize("framing", ["length", "chunks", "none"])
@pytest.mark.parametrize("pieces", [1, 3])
async def test_a_request_that_asks_for_another_protocol_is_answered_in_this_one(
    port: int, app: Recorder, framing: str, pieces: int
) -> None:
    # A client of HTTP/2 asks so with each first request, whatever its body holds.
    asked = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    smuggled = b"GET /smuggled HTTP/1.1\r\n" + HOST + b"\r\n"
    whole = {
        "length": post(asked + b"Content-Length: %d\r\n" % len(smuggled), smuggled),
        "chunks": post(asked + CHUNKED, b"%x\r\n%s\r\n0\r\n\r\n" % (len(smuggled), smuggled)),
        "none": post(asked, b""),
    }[framing] + SECOND
    size = len(whole) // pieces + 1
    answer = await raw(port, *(whole[start : start + size] for start in range(0, len(whole), size)))
    assert [each["path"] for each in app.requests] == ["/first", "/second"]
    assert app.requests[0]["body"] == ("" if framing == "none" else smuggled.decode())
    assert answer.count(b"HTTP/1.1 200 OK") == 2


async def test_requests_in_a_row_are_answered_in_their_order_one_at_a_time(port: int, app: Recorder) -> None:
    held = asyncio.create_task(raw(port, b"GET /held HTTP/1.1\r\n" + HOST + b"\r\n" + SECOND))
    await until(lambda: len(app.requests) == 1)
    app.go.set()
    answer = await held
    assert [each["path"] for each in app.requests] == ["/held", "/second"]
    assert answer.index(b"/held") < answer.index(b"/second")


async def test_many_requests_in_a_row_are_not_kept_waiting_for_their_turn(
    listener: tuple[Listener, Recorder], port: int, app: Recorder
) -> None:
    more = b"GET /more HTTP/1.1\r\n" + HOST + b"\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /held HTTP/1.1\r\n" + HOST + b"\r\n" + more * 5_000)
    await until(lambda: len(app.requests) == 1)
    app.go.set()
    async with asyncio.timeout(30):
        head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    await until(lambda: not listener[0]._server.server_state.connections)
    assert len(app.requests) <= PIPELINED + 1
    writer.transport.abort()


@pytest.mark.parametrize("path", ["/held", "/stream"])
async def test_what_is_no_request_behind_one_does_not_disturb_its_answer(
    port: int, app: Recorder, path: str
) -> None:
    head = b"GET " + path.encode() + b" HTTP/1.1\r\n" + HOST + b"\r\n"
    held = asyncio.create_task(raw(port, head + b"\x00no request\r\n\r\n" + SECOND))
    await until(lambda: len(app.requests) == 1)
    app.go.set()
    answer = await held
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert path.encode() in answer
    assert [each["path"] for each in app.requests] == [path]


async def test_a_client_that_leaves_ends_the_request_in_progress_and_not_the_last_one(
    port: int, app: Recorder
) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    begun = post(b"Content-Length: 9\r\n", b"part")
    writer.write(begun)
    await until(lambda: len(app.requests) == 1)
    writer.write(
        b"more!" + b"GET /held HTTP/1.1\r\n" + HOST + b"\r\n" + post(b"Content-Length: 9\r\n", b"part")
    )
    await until(lambda: len(app.requests) == 2)
    writer.transport.abort()
    app.go.set()
    await until(lambda: app.requests[1].get("headers_at_the_end") == 1)
    assert [each["path"] for each in app.requests] == ["/first", "/held"]


async def test_the_last_answer_of_a_connection_says_so_whatever_the_application_says(
    port: int, app: Recorder
) -> None:
    answer = await raw(port, b"GET /kept HTTP/1.1\r\n" + LAST + b"\r\n")
    head = answer.partition(b"\r\n\r\n")[0]
    assert head.count(b"connection: ") == 1
    assert b"connection: close" in head


async def test_an_answer_to_http_1_0_has_no_chunks(port: int, app: Recorder) -> None:
    answer = await raw(port, b"GET /old HTTP/1.0\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert b"connection: close" in head
    assert json.loads(body)["http_version"] == "1.0"


async def test_a_head_and_its_body_in_any_pieces_are_one_request(port: int, app: Recorder) -> None:
    whole = post(b"Content-Length: 5\r\n", b"hello") + SECOND
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number in range(len(whole)):
        writer.write(whole[number : number + 1])
        await writer.drain()
        await asyncio.sleep(0)
    async with asyncio.timeout(30):
        answer = await reader.read()
    writer.transport.abort()
    assert answer.count(b"HTTP/1.1 200 OK") == 2
    assert [each["body"] for each in app.requests] == ["hello", ""]
    assert MAX_HEAD == 65_536
