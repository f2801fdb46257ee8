"""Connections to model providers: calls share them, and they end with those who use them."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from support.live import agent_module, client, running, write_project
from support.ports import free_ports
from support.providers import provider
from support.waiting import until

from pallas import aiohttp_transport
from pallas.aiohttp_transport import AiohttpTransport
from pallas.executors.model_client.provider_connections import (
    MAX_CLIENTS,
    ClientKey,
    PooledClient,
    ProviderConnections,
    provider_connections,
)

MODELS = {
    "chat": "generic.qwen3",
    "official": "openai.gpt-4.1",
    "messages": "anthropic.claude-haiku-4-5",
    "responses": "responses.gpt-5-mini",
    "gemini": "google.gemini-2.5-flash",
}
OK = b"HTTP/1.1 200 OK\r\nset-cookie: a=b\r\ncontent-length: 2\r\n\r\nok"

Answer = Callable[["Server", asyncio.StreamWriter, int], Awaitable[bool]]


@dataclass
class Server:
    """Counts its connections; ``answer`` gets each request's number and returns whether it stays open."""

    answer: Answer
    url: str = ""
    opened: int = 0
    requests: list[bytes] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    more: asyncio.Event = field(default_factory=asyncio.Event)
    said: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.requests.append(head)
                if not await self.answer(self, writer, len(self.requests)):
                    break
        writer.close()
        self.ended.set()


async def fine(server: Server, writer: asyncio.StreamWriter, number: int) -> bool:
    writer.write(OK)
    return True


async def refuses_the_second(server: Server, writer: asyncio.StreamWriter, number: int) -> bool:
    if number == 2:
        return False
    writer.write(OK)
    return True


async def breaks_off(server: Server, writer: asyncio.StreamWriter, number: int) -> bool:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\nhalf of")
    return False


async def says_more_later(server: Server, writer: asyncio.StreamWriter, number: int) -> bool:
    writer.write(OK)
    await writer.drain()
    if number == 1:
        await server.more.wait()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nsmuggled")
        await writer.drain()
        server.said.set()
    return True


async def silent(server: Server, writer: asyncio.StreamWriter, number: int) -> bool:
    await asyncio.sleep(3600)
    return False


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[Server]:
    found = Server(answer)
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    try:
        yield found
    finally:
        server.close()
        server.close_clients()


@asynccontextmanager
async def sending() -> AsyncIterator[httpx2.AsyncClient]:
    transport = AiohttpTransport(verify=ssl.create_default_context(), trust_env=False)
    async with httpx2.AsyncClient(transport=transport, timeout=60) as found:
        yield found


@pytest.mark.slow
async def test_all_calls_of_a_model_go_over_one_connection_whatever_its_provider(tmp_path: Path) -> None:
    async with provider() as models:
        names = {model.partition(".")[0] for model in MODELS.values()}
        config: dict[str, Any] = {}
        for name in names:
            config |= {key: each for key, each in models.config(f"{name}.x").items() if key == name}
        agents = {name: agent_module(name, model=model) for name, model in MODELS.items()}
        async with running(write_project(tmp_path, agents, config=config)) as fleet:
            for name in MODELS:
                async with client(fleet, name) as connected:
                    for _ in range(3):
                        result = await connected.call_tool("send_message", {"message": "hello"})
                        assert not result.is_error, result
        ports: dict[tuple[str, str], list[int]] = {}
        for asked in models.asked:
            ports.setdefault((asked.kind, str(asked.body.get("model"))), []).append(asked.port)
    assert len(ports) == len(MODELS)
    for calls in ports.values():
        assert len(calls) == 3
        assert len({*calls}) == 1, ports


async def test_a_client_stays_open_for_the_next_who_borrows_it_and_closes_with_the_last_holder() -> None:
    async with serving(fine) as server:
        connections = ProviderConnections()
        async with connections.held():
            async with connections.held():
                for _ in range(3):
                    async with connections.client(ClientKey(server.url, "a")) as borrowed:
                        assert (await borrowed.get(server.url)).text == "ok"
            assert (await connections.client(ClientKey(server.url, "a")).get(server.url)).text == "ok"
            assert (server.opened, connections.opened) == (1, 1)
            assert not server.ended.is_set()
            await connections.client(ClientKey(server.url, "b")).get(server.url)
            assert server.opened == 2, "another credential has connections of its own"
        async with asyncio.timeout(60):
            await server.ended.wait()
        assert connections.opened == 0
    assert provider_connections() is provider_connections()


async def test_clients_that_are_slow_to_close_are_closed_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    together, closed = asyncio.Barrier(3), []

    async def close(client: PooledClient) -> None:
        await together.wait()
        closed.append(client)

    monkeypatch.setattr(PooledClient, "close_connections", close)
    connections = ProviderConnections()
    async with connections.held():
        for number in range(3):
            connections.client(ClientKey("http://127.0.0.1:1", str(number)))
    assert len(closed) == 3


async def test_a_cookie_of_one_caller_is_not_sent_for_the_next() -> None:
    async with serving(fine) as server:
        connections = ProviderConnections()
        async with connections.held():
            for _ in range(2):
                await connections.client(ClientKey(server.url, "a")).get(server.url)
    assert len(server.requests) == 2
    assert not any(b"cookie" in each.lower() for each in server.requests)


async def test_clients_are_bounded_and_one_that_is_in_use_stays() -> None:
    async with serving(fine) as server:
        connections = ProviderConnections()
        async with connections.held():
            used = connections.client(ClientKey(server.url, "used"))
            async with used.stream("GET", server.url) as response:
                others = [connections.client(ClientKey(server.url, str(n))) for n in range(MAX_CLIENTS + 5)]
                assert connections.client(ClientKey(server.url, "used")) is used
                assert await response.aread() == b"ok"
            assert connections.client(ClientKey(server.url, str(MAX_CLIENTS + 4))) is others[-1]
            assert connections.client(ClientKey(server.url, "0")) is not others[0]


async def test_a_connection_that_the_server_had_closed_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiohttp_transport, "STALE_AFTER", -1.0)
    async with serving(refuses_the_second) as server, sending() as models:
        for _ in range(2):
            assert (await models.post(server.url, content=b"{}")).text == "ok"
        assert (server.opened, len(server.requests)) == (2, 3)


async def test_a_server_that_is_away_is_not_asked_again_however_long_it_was_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aiohttp_transport, "STALE_AFTER", -1.0)
    (nobody,) = free_ports(1)
    async with sending() as models, asyncio.timeout(30):
        with pytest.raises(httpx2.ConnectError):
            await models.post(f"http://127.0.0.1:{nobody}/", content=b"{}")


async def test_a_request_that_must_not_run_twice_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiohttp_transport, "STALE_AFTER", -1.0)
    transport = AiohttpTransport(verify=httpx2.create_ssl_context(), trust_env=False, resends=False)
    async with (
        serving(refuses_the_second) as server,
        httpx2.AsyncClient(transport=transport, timeout=60.0) as client,
    ):
        await client.post(server.url, content=b"{}")
        with pytest.raises(httpx2.RemoteProtocolError):
            await client.post(server.url, content=b"{}")
        assert len(server.requests) == 2


async def test_a_request_is_not_repeated_on_a_connection_that_was_used_just_now() -> None:
    async with serving(refuses_the_second) as server, sending() as models:
        await models.post(server.url, content=b"{}")
        with pytest.raises(httpx2.RemoteProtocolError):
            await models.post(server.url, content=b"{}")
        assert len(server.requests) == 2


@pytest.mark.parametrize("read", [False, True], ids=["unread", "read"])
async def test_an_answer_that_nobody_asked_for_is_not_that_of_the_next_request(read: bool) -> None:
    async with serving(says_more_later) as server, sending() as models:
        assert (await models.post(server.url, content=b"{}")).text == "ok"
        server.more.set()
        await server.said.wait()
        for _ in range(10 if read else 0):  # rounds of the loop: it takes from sockets what is there
            await asyncio.sleep(0)
        assert (await models.post(server.url, content=b"{}")).text == "ok"
        assert server.opened == 2
        assert (await models.post(server.url, content=b"{}")).text == "ok"
        assert server.opened == 2


@pytest.mark.parametrize(
    ("answer", "error"),
    [(breaks_off, httpx2.RemoteProtocolError), (silent, httpx2.ReadTimeout)],
    ids=["broken", "silent"],
)
async def test_failures_have_the_names_that_the_libraries_of_providers_know(
    answer: Answer, error: type[Exception]
) -> None:
    async with serving(answer) as server, sending() as models:
        with pytest.raises(error):
            await models.get(server.url, timeout=httpx2.Timeout(60.0, read=0.2))


async def test_a_refused_connection_is_a_connect_error_and_a_cancelled_call_frees_its_connection() -> None:
    async with sending() as models:
        async with serving(silent) as server:
            call = asyncio.create_task(models.get(server.url))
            await until(lambda: server.requests)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        with pytest.raises(httpx2.ConnectError):
            await models.get(server.url)


async def test_the_environments_proxy_is_used_unless_its_exceptions_name_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(fine) as proxy:
        for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("http_proxy", proxy.url)
        transport = AiohttpTransport(verify=ssl.create_default_context(), trust_env=True)
        async with httpx2.AsyncClient(transport=transport, timeout=60) as models:
            assert (await models.get("http://model.invalid/v1")).text == "ok"
            assert proxy.requests[0].startswith(b"GET http://model.invalid/v1 ")
            monkeypatch.setenv("no_proxy", "model.invalid")
            with pytest.raises(httpx2.ConnectError):
                await models.get("http://model.invalid/v1")


async def test_a_stream_that_is_faster_than_its_reader_leaves_time_for_others() -> None:
    class Buffered:
        async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
            for _ in range(5):
                yield b"x" * size

    others = 0

    async def work() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(work())
    response: Any = SimpleNamespace(content=Buffered())
    transport: Any = None
    seen = [others async for _ in aiohttp_transport._ResponseStream(response, transport)]
    task.cancel()
    assert seen == sorted(set(seen))
