"""HAProxy with the configuration of deploy/, before stand-ins for replicas."""

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest
from support.ports import free_ports
from support.waiting import until

CONFIG = Path(__file__).parents[2] / "deploy" / "haproxy.cfg"
HAPROXY = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")

pytestmark = pytest.mark.skipif(HAPROXY is None, reason="haproxy is not installed (make system-packages)")


@dataclass
class Replica:
    """Answers each request with its name; ``/stream`` in two pieces, the second when ``goes_on`` is set."""

    name: str
    port: int
    is_ready: bool = True
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)
    callers_gone: int = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        with_name = f"HTTP/1.1 200 OK\r\nReplica: {self.name}\r\n"
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                if head.startswith("GET /readyz"):
                    status = "200 OK" if self.is_ready else "503 Service Unavailable"
                    writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
                elif head.startswith("GET /stream"):
                    writer.write(f"{with_name}Transfer-Encoding: chunked\r\n\r\n3\r\none\r\n".encode())
                    await self._until_it_goes_on(reader)
                    writer.write(b"3\r\ntwo\r\n0\r\n\r\n")
                else:
                    writer.write(f"{with_name}Content-Length: 0\r\n\r\n".encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _until_it_goes_on(self, reader: asyncio.StreamReader) -> None:
        gone = asyncio.create_task(reader.read(1))
        going = asyncio.create_task(self.goes_on.wait())
        await asyncio.wait((gone, going), return_when=asyncio.FIRST_COMPLETED)
        self.callers_gone += gone.done()
        gone.cancel()
        going.cancel()
        await asyncio.gather(gone, going, return_exceptions=True)


@asynccontextmanager
async def balanced(
    folder: Path,
) -> AsyncIterator[tuple[httpx2.AsyncClient, dict[str, Replica], list[asyncio.Server]]]:
    """HAProxy with this configuration before three stand-ins for replicas, and a client of it."""
    port, *ports = free_ports(4)
    text = CONFIG.read_text().replace("bind :24200", f"bind 127.0.0.1:{port}")
    names = re.findall(r"^    server (\S+) ", text, re.MULTILINE)
    replicas = {name: Replica(name, each) for name, each in zip(names, ports, strict=True)}
    for replica in replicas.values():
        text = text.replace(f" {replica.name}:24200", f" 127.0.0.1:{replica.port}")
    config = folder / "haproxy.cfg"
    config.write_text(text)
    servers = [
        await asyncio.start_server(replica.answer, "127.0.0.1", replica.port) for replica in replicas.values()
    ]
    with (folder / "haproxy.log").open("w") as log:
        running = await asyncio.create_subprocess_exec(
            str(HAPROXY), "-db", "-f", config, stdout=log, stderr=log
        )
        try:
            async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                yield client, replicas, servers
        finally:
            running.kill()
            await running.wait()
            for server in servers:
                server.close()


async def who(client: httpx2.AsyncClient) -> str:
    """The replica that a request reaches; empty while there is none."""
    try:
        answer = await client.get("/")
    except httpx2.TransportError:
        return ""
    return answer.headers.get("replica", "")


async def seen(client: httpx2.AsyncClient, count: int = 6) -> list[str]:
    """The replicas that so many requests reach."""
    return [await who(client) for _ in range(count)]


async def until_seen(client: httpx2.AsyncClient, names: set[str]) -> None:
    """Wait until requests reach these replicas and no others."""
    async with asyncio.timeout(60):
        while set(await seen(client)) != names:  # noqa: ASYNC110 - nothing tells when it changes
            await asyncio.sleep(0.1)


async def test_requests_go_to_each_replica_in_turn_and_past_those_that_drain_or_died(tmp_path: Path) -> None:
    async with balanced(tmp_path) as (client, replicas, servers):
        await until_seen(client, set(replicas))
        # One connection, and nothing that keeps it with a replica.
        assert sorted(await seen(client)) == sorted([*replicas, *replicas])
        assert (await client.get("/metrics")).status_code == 404
        one, two, three = replicas.values()
        async with asyncio.timeout(60):
            while True:
                async with client.stream("GET", "/stream") as answer:
                    if answer.headers["replica"] == one.name:
                        pieces = answer.aiter_bytes()
                        # Passed on at once.
                        assert await anext(pieces) == b"one"
                        one.is_ready = False
                        await until_seen(client, {two.name, three.name})
                        # What is open when a replica begins to drain goes on.
                        one.goes_on.set()
                        assert await anext(pieces) == b"two"
                        break
        # No request fails when a replica takes no connection any more, before a check has found out.
        servers[1].close()
        servers[1].close_clients()
        assert set(await seen(client)) == {three.name}


async def test_a_caller_that_goes_away_is_noticed_by_the_replica(tmp_path: Path) -> None:
    async with balanced(tmp_path) as (client, replicas, _):
        await until_seen(client, set(replicas))
        async with client.stream("GET", "/stream") as answer:
            replica = replicas[answer.headers["replica"]]
        await until(lambda: replica.callers_gone == 1)
