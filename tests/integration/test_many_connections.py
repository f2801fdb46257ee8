"""Clients that open connections and leave them, or take their time: let go, while others are answered."""

import asyncio
import os
import resource
import select
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send
from support.certificates import self_signed
from support.clocks import put_forward
from support.live import ERAS, ask, write_project
from support.served import Served, served
from support.waiting import until

from pallas.config.models import TlsConfig
from pallas.surfaces import connections
from pallas.surfaces import listener as listening
from pallas.surfaces.connections import Bounds, ClientConnection, ConnectionLimits
from pallas.surfaces.listener import Listener, bind
from pallas.surfaces.tls_certificate import Certificate

PATIENT = Bounds(head=600, body=600, write=600, linger=600, idle=600, look=0.05)
MANY = 10_000


# --- the real thing: a fleet in a process of its own


@contextmanager
def descriptors(wanted: int) -> Iterator[None]:
    """So many open files for this process; skips where the system has fewer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"{wanted} open files are wanted, the system lets us have {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def opened(port: int, count: int, said: bytes = b"") -> Iterator[list[socket.socket]]:
    """So many connections, all of them left after ``said``."""
    clients: list[socket.socket] = []
    try:
        for _ in range(count):
            client = socket.create_connection(("127.0.0.1", port), timeout=90)
            clients.append(client)
            with suppress(ConnectionError):  # it had to make room already
                client.send(said)
            client.setblocking(False)
        yield clients
    finally:
        for client in clients:
            client.close()


def is_over(client: socket.socket) -> bool:
    """Whether the other end has gone."""
    try:
        while data := client.recv(65_536):
            assert data.startswith(b"HTTP/1.1 408 ")
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


async def all_over(clients: list[socket.socket], timeout: float = 90) -> None:
    """Until none of them is connected any more."""
    left = {client.fileno(): client for client in clients}
    with select.epoll() as waiting:
        for number in left:
            waiting.register(number, select.EPOLLIN)

        def none_left() -> bool:
            for number, _ in waiting.poll(0):
                if is_over(left[number]):
                    waiting.unregister(number)
                    del left[number]
            return not left

        await until(none_left, timeout=timeout)


async def answers_in_both_eras(fleet: Served) -> None:
    for era in ERAS:
        async with fleet.client("one", era) as one:
            assert await ask(one, f"hello {era}")
    assert (await fleet.get("/readyz")).status_code == 200


@pytest.mark.slow
async def test_ten_thousand_connections_opened_and_left_are_let_go_while_calls_are_answered(
    tmp_path: Path,
) -> None:
    root = write_project(tmp_path / "project", {"one": None}, top={"bind": "127.0.0.1"})
    with descriptors(MANY + 1_000), served(root) as fleet:
        await fleet.says("running")
        before = psutil.Process(fleet.process.pid).num_fds()
        port = fleet.entries["agents"]["one"]["port"]
        with opened(port, MANY // 2) as silent, opened(port, MANY // 2, b"GET /mcp HTTP/1.1\r\nho") as begun:
            await answers_in_both_eras(fleet)
            await all_over(silent + begun)
            await answers_in_both_eras(fleet)
        await fleet.logs("connections closed")
        process = psutil.Process(fleet.process.pid)
        await until(lambda: process.num_fds() < before + 50)


@pytest.mark.slow
async def test_a_fleet_with_few_descriptors_keeps_some_for_itself(tmp_path: Path) -> None:
    root = write_project(
        tmp_path / "project",
        {"one": None},
        top={"bind": "127.0.0.1"},
    )
    limited = ("prlimit", "--nofile=1024:1024")
    with descriptors(4_096), served(root, wrap=limited) as fleet:
        await fleet.says("running")
        port = fleet.entries["agents"]["one"]["port"]
        with opened(port, 3_000, b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9\r\n"):
            process = psutil.Process(fleet.process.pid)
            await until(lambda: process.num_fds() > 100)
            await answers_in_both_eras(fleet)
            assert process.num_fds() < 900


# --- one listener


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Has it be so many seconds later for the bounds of connections."""
    clock, ahead = connections.monotonic, [0.0]
    for module in (connections, listening):
        monkeypatch.setattr(module, "monotonic", lambda: clock() + ahead[0])

    def pass_(seconds: float) -> None:
        ahead[0] += seconds

    return pass_


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Counter[ClientConnection]:
    """How often each connection was looked at: what it does counts since the first look that sees it."""
    counts: Counter[ClientConnection] = Counter()
    look = ClientConnection.look

    def counted(connection: ClientConnection, now: float, bounds: Bounds) -> str:
        counts[connection] += 1
        return look(connection, now, bounds)

    monkeypatch.setattr(ClientConnection, "look", counted)
    return counts


class Counting:
    """An application that says hello, streams for ever at ``/stream`` and reads bodies at ``/body``."""

    def __init__(self) -> None:
        self.streams = 0
        self.gone = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        if scope["path"] == "/body":
            while (message := await receive()).get("more_body"):
                pass
            self.gone += message["type"] == "http.disconnect"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/stream":
            await self._stream(send)
        elif scope["path"] == "/held":
            self.streams += 1
            while (await receive())["type"] != "http.disconnect":
                pass
            self.gone += 1
        await send({"type": "http.response.body", "body": b"hello"})

    async def _stream(self, send: Send) -> None:
        self.streams += 1
        try:
            while not self.gone:
                await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
                await asyncio.sleep(0)
        finally:
            self.streams -= 1


@asynccontextmanager
async def serving(app: ASGIApp, **more: Any) -> AsyncIterator[Listener]:
    listener = Listener(app, bind("127.0.0.1", 0, "test"), lifespan=False, **more)
    await listener.start()
    try:
        yield listener
    finally:
        await listener.stop()


async def hello(listener: Listener) -> None:
    """Somebody else is answered."""
    async with httpx2.AsyncClient(trust_env=False, timeout=90) as http:
        assert (await http.get(f"http://127.0.0.1:{listener.port}/")).text == "hello"


class Drip:
    """A byte now and then, for as long as the other end takes it."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._sent = 0
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        with suppress(ConnectionError):
            while not self._writer.is_closing():
                self._writer.write(b"a")
                await self._writer.drain()
                self._sent += 1
                await asyncio.sleep(0.02)

    async def some(self) -> None:
        """Wait until a few more bytes are sent."""
        before = self._sent
        await until(lambda: self._sent > before + 2)


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nhost: a\r\nx-slow: ",
        b"POST /body HTTP/1.1\r\nhost: a\r\ncontent-length: 999999\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\n\r\nGET / HTTP/1.1\r\nx-second: ",
    ],
    ids=["head", "body", "second request"],
)
async def test_a_client_that_sends_a_byte_now_and_then_is_told_and_let_go(
    head: bytes, later: Callable[[float], None], looks: Counter[ClientConnection]
) -> None:
    app = Counting()
    async with serving(app, bounds=replace(PATIENT, linger=0.5)) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(head)
        drip = Drip(writer)
        try:
            for _ in range(2):  # neither is as long as it has, and bytes come after each
                await drip.some()
                before = sum(looks.values())
                await until(lambda before=before: sum(looks.values()) > before + 1)
                await hello(listener)
                later(400)
            async with asyncio.timeout(90):
                with suppress(ConnectionError):  # it may have been in the middle of a byte
                    said = await reader.read(-1)
                    assert b"HTTP/1.1 408 Request Timeout" in said
            await until(lambda: app.gone == (b"/body" in head))
            await hello(listener)
        finally:
            drip.task.cancel()
            writer.transport.abort()


async def test_a_client_that_never_reads_its_stream_is_let_go() -> None:
    app = Counting()
    async with serving(app, bounds=replace(PATIENT, write=0.5)) as listener:
        client = socket.create_connection(("127.0.0.1", listener.port))
        try:
            client.send(b"GET /stream HTTP/1.1\r\nhost: a\r\n\r\n")
            await until(lambda: app.streams == 1)
            await hello(listener)
            # Writing to who is gone does nothing: that it is gone is told by the pool.
            await until(lambda: len(listener._server.server_state.connections) == 0)
        finally:
            app.gone = 1
            client.close()


async def test_who_keeps_a_connection_between_calls_or_waits_for_an_answer_is_not_let_go(
    later: Callable[[float], None],
) -> None:
    app = Counting()
    async with serving(app, bounds=replace(PATIENT, idle=6_000)) as listener:
        _, held = await asyncio.open_connection("127.0.0.1", listener.port)
        held.write(b"GET /held HTTP/1.1\r\nhost: a\r\n\r\n")
        await until(lambda: app.streams == 1)
        async with httpx2.AsyncClient(trust_env=False, timeout=90) as http:
            url = f"http://127.0.0.1:{listener.port}/"
            assert (await http.get(url)).text == "hello"
            # By the time that a client that says nothing is gone, both others would be.
            silent, left = await asyncio.open_connection("127.0.0.1", listener.port)
            await until(lambda: len(listener._server.server_state.connections) == 3)
            later(601)
            async with asyncio.timeout(90):
                assert await silent.read() == b""
            assert app.gone == 0
            before = len(listener._server.server_state.connections)
            assert (await http.get(url)).text == "hello"
            assert before == 2 == len(listener._server.server_state.connections)
        held.transport.abort()
        left.transport.abort()


async def test_a_connection_that_is_not_used_again_is_closed_after_its_time() -> None:
    async with serving(Counting(), bounds=replace(PATIENT, idle=0)) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        async with asyncio.timeout(90):
            answer = await reader.read()
        assert b"connection: close" not in answer
        assert answer.endswith(b"hello\r\n0\r\n\r\n")
        writer.close()


async def test_those_that_wait_without_a_request_make_room_and_those_at_work_do_not() -> None:
    app = Counting()
    pool = ConnectionLimits(100)
    async with serving(app, bounds=PATIENT, pool=pool) as listener:
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"GET /held HTTP/1.1\r\nhost: a\r\n\r\n")
        await until(lambda: app.streams == 1)
        with opened(listener.port, 500) as idle:
            await hello(listener)
            await until(lambda: sum(is_over(client) for client in idle) >= 400)
            assert pool.count <= 100
            assert app.gone == 0
        writer.transport.abort()


async def test_when_all_are_at_work_the_next_is_closed_and_those_go_on() -> None:
    app = Counting()
    pool = ConnectionLimits(20)
    async with serving(app, bounds=PATIENT, pool=pool) as listener:
        with opened(listener.port, 20, b"GET /held HTTP/1.1\r\nhost: a\r\n\r\n"):
            await until(lambda: app.streams == 20)
            with opened(listener.port, 3) as late:
                await all_over(late)
            assert app.gone == 0
        await until(lambda: app.gone == 20)
        await hello(listener)


async def test_without_descriptors_the_loop_does_not_spin_and_goes_on_when_there_are_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = Counting()
    loop = asyncio.get_running_loop()
    pool = ConnectionLimits(10_000)
    tried: list[float] = []
    tell = pool.tell

    def told(reason: str, count: int = 1) -> None:
        if reason == "lack of descriptors":
            tried.append(loop.time())
        tell(reason, count)

    monkeypatch.setattr(pool, "tell", told)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with serving(app, bounds=PATIENT, pool=pool) as listener:
        with opened(listener.port, 20, b"GET /held HTTP/1.1\r\nhost: a\r\n\r\n"):
            await until(lambda: app.streams == 20)
            client = socket.socket()
            client.setblocking(False)
            highest = max(map(int, os.listdir("/proc/self/fd")))  # noqa: PTH208
            filler = [socket.socket() for _ in range(highest)]  # no gap is left below the limit
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (max(each.fileno() for each in filler) + 1, hard))
                with pytest.raises(OSError, match="Too many open files"):
                    socket.socket()
                with suppress(BlockingIOError):
                    client.connect(("127.0.0.1", listener.port))
                await until(lambda: len(tried) >= 4)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                for each in filler:
                    each.close()
            gaps = [later - earlier for earlier, later in pairwise(tried)]
            assert min(gaps) >= listening._EXHAUSTED_PAUSE * 0.9  # asked again at once, it would be nothing
            await loop.sock_sendall(client, b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
            assert b"hello" in await loop.sock_recv(client, 65_536) + await loop.sock_recv(client, 65_536)
            client.close()


async def test_who_makes_no_tls_handshake_is_let_go_and_counts_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certfile, keyfile = self_signed(tmp_path)
    pool = ConnectionLimits(50)
    tls = Certificate(TlsConfig(certfile, keyfile)).context
    async with serving(Counting(), bounds=PATIENT, pool=pool, tls=tls) as listener:
        with opened(listener.port, 40) as silent:
            await until(lambda: pool.count == 40)
            trusting = ssl.create_default_context(cafile=certfile)
            async with httpx2.AsyncClient(trust_env=False, verify=trusting, timeout=90) as http:
                assert (await http.get(f"https://localhost:{listener.port}/")).text == "hello"
            put_forward(601, monkeypatch)
            await all_over(silent)
        await until(lambda: pool.count == 0)


async def test_handshakes_make_room_for_others(tmp_path: Path) -> None:
    certfile, keyfile = self_signed(tmp_path)
    pool = ConnectionLimits(50)
    tls = Certificate(TlsConfig(certfile, keyfile)).context
    async with serving(Counting(), bounds=PATIENT, pool=pool, tls=tls) as listener:
        with opened(listener.port, 300) as silent:
            trusting = ssl.create_default_context(cafile=certfile)
            async with httpx2.AsyncClient(trust_env=False, verify=trusting, timeout=90) as http:
                assert (await http.get(f"https://localhost:{listener.port}/")).text == "hello"
            await until(lambda: sum(is_over(client) for client in silent) >= 200)


async def test_a_malformed_request_costs_its_sender_alone() -> None:
    async with serving(Counting(), bounds=PATIENT) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"\x16\x03\x01\x02\x00 no http\r\n\r\n")
        async with asyncio.timeout(90):
            assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.transport.abort()
        await hello(listener)
        head = b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 200_000
        with opened(listener.port, 1, head) as endless:
            client = endless[0]
            answer = bytearray()

            def refused() -> bool:
                with suppress(BlockingIOError, ConnectionError):
                    answer.extend(client.recv(4_096))
                return answer.startswith(b"HTTP/1.1 400 ")

            await until(refused)
        await hello(listener)
