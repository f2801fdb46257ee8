"""What is not there under ``/.well-known/`` is 404 on every port, and a target in absolute form is taken."""

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from support.live import running, write_project
from support.ports import free_ports

from pallas.fleet.fleet import Fleet

pytestmark = pytest.mark.asyncio(loop_scope="module")
PORTS = ("agent", "registry", "one port")
UNKNOWN = (
    "/.well-known/openid-configuration",
    "/.well-known/oauth-authorization-server",
    "/.well-known/oauth-authorization-server/mcp",
    "/.well-known/mcp.json",
    "/.well-known/nothing",
    "/.well-known/",
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def urls(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, str]]:
    """An address on each port: of agents with ports of their own, of the registry, and of all on one port."""
    apart = write_project(tmp_path_factory.mktemp("apart"), {"desk": None})
    one = write_project(
        tmp_path_factory.mktemp("one"),
        {"desk": None},
        keys={"desk": {"port": None}},
        top={"port": free_ports(1)[0]},
    )
    async with running(apart) as fleet, running(one) as together:
        yield {"agent": agent_url(fleet), "registry": registry_url(fleet), "one port": registry_url(together)}


def agent_url(fleet: Fleet) -> str:
    found = fleet.snapshot().agent("desk")
    assert found is not None
    return str(found.url)


def registry_url(fleet: Fleet) -> str:
    return str(fleet.snapshot().registry_url)


async def answer(url: str, request: str) -> str:
    """The first line of the response to a request that is sent as it is written."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        head = request.format(host=parts.netloc)
        writer.write(f"{head}\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n".encode())
        async with asyncio.timeout(60):
            return (await reader.readline()).decode().strip()
    finally:
        writer.close()


@pytest.mark.parametrize("path", UNKNOWN)
@pytest.mark.parametrize("port", PORTS)
async def test_an_unknown_document_is_404_on_every_port(urls: dict[str, str], port: str, path: str) -> None:
    assert " 404 " in await answer(urls[port], f"GET {path} HTTP/1.1")


@pytest.mark.parametrize("port", PORTS)
async def test_a_target_in_absolute_form_is_taken_as_its_path(urls: dict[str, str], port: str) -> None:
    path = "/mcp" if port == "agent" else "/v0.1/servers"
    plain = await answer(urls[port], f"GET {path} HTTP/1.1")
    assert await answer(urls[port], f"GET http://{{host}}{path} HTTP/1.1") == plain
    assert " 404 " not in plain
    assert " 404 " in await answer(urls[port], "GET http://{host}/.well-known/nothing HTTP/1.1")
