"""The REST API on a real port, over a real kernel, ledger and catalog; the agents do as a test says."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import Scope

from pallas.access.grants import Grants
from pallas.catalog import Catalog
from pallas.catalog.secret_seal import seal_of
from pallas.config import Project, load_project
from pallas.ledger import Ledger, open_ledger
from pallas.model import FleetSnapshot, FleetState, Principal
from pallas.runs.kernel import Kernel
from pallas.sessions.thread_access import Threads
from pallas.surfaces.host_guard import HostOriginGuard
from pallas.surfaces.listener import Listener, bind
from pallas.surfaces.request_caller import principal_in
from pallas.surfaces.rest.rest_app import BASE, RestApi, RestParts, rest_app
from pallas.tasks import Tasks
from pallas.telemetry.event_hub import EventHub

from .executors import Answer, FakeAgent, FakeExecutor, echo
from .live import ECHO, write_project
from .ports import free_ports


class StandingLive:
    """A fleet, as far as a catalog is concerned with it, in which nothing comes to be."""

    def __init__(self, project: Project) -> None:
        self.files = project

    async def update(self) -> None:
        """Nothing."""

    async def remove(self, name: str) -> None:
        """Nothing."""

    def removed(self, name: str) -> None:
        """Nothing."""

    def status(self, name: str) -> Mapping[str, Any]:
        """What a fleet would say of an agent of the files."""
        if name not in self.files.agents:
            return {}
        shown = {"kind": "llm", "availability": "ready", "capabilities": ()}
        url = f"http://127.0.0.1:1/{name}"
        return {"state": "ready", "health": "ok", "url": url, "instruction": "Be.", **shown}

    def shadow(self, name: str) -> str:
        """The place of an agent that a file declares."""
        config = self.files.agents.get(name)
        return str(config.where) if config is not None else ""


@dataclass
class Api:
    """The API at ``url``. ``answers`` is what the agents ``echo`` and ``other`` do; both see pictures."""

    port: int
    kernel: Kernel
    ledger: Ledger
    grants: Grants
    catalog: Catalog
    rest: RestApi
    tasks: Tasks
    executor: FakeExecutor
    hub: EventHub
    agents: dict[str, FakeAgent] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Where the API is."""
        return f"http://127.0.0.1:{self.port}{BASE}"

    def client(self, bearer: str | None = None, **headers: str) -> httpx2.AsyncClient:
        """A plain HTTP client."""
        given = {"authorization": f"Bearer {bearer}"} if bearer is not None else {}
        return httpx2.AsyncClient(base_url=self.url, headers=given | headers, trust_env=False, timeout=60)


@asynccontextmanager
async def api(
    folder: Path,
    answer: Answer = echo,
    *,
    ledger: Ledger | None = None,
    grants: Grants | None = None,
    authenticate: Callable[[Scope], Awaitable[Principal] | Principal] = principal_in,
    tasks: bool = True,
    **more: Any,
) -> AsyncIterator[Api]:
    """The API over two agents that do as ``answer`` does, and a project that declares them.

    Without a ``ledger`` one in memory is opened, and closed at the end; without ``tasks`` it has none;
    ``more`` as for ``rest_app``.
    """
    project = load_project(write_project(folder, {"echo": None, "other": None}, config=dict(ECHO)), {})
    kept = ledger if ledger is not None else await open_ledger("memory")
    hub, grants = EventHub(), grants if grants is not None else Grants()
    kernel, executor = Kernel(hub), FakeExecutor(answer)
    kernel.use_ledger(kept)
    works = Tasks(kept.tasks, kernel, hub, grants)
    agents = {name: FakeAgent(executor, name) for name in ("echo", "other")}
    for agent in agents.values():
        kernel.attach(agent)
    catalog = Catalog(kept.resources, seal_of({}, None), StandingLive(project))
    await catalog.start()
    parts = RestParts(
        kernel,
        Threads(kept, grants, kernel.forget_thread, kernel.unwritten),
        catalog,
        grants,
        authenticate,
        lambda: project,
        lambda: FleetSnapshot("test", FleetState.RUNNING, 0.0, ""),
        kept,
        works if tasks else None,
    )
    rest = rest_app(parts, **more)
    (port,) = free_ports(1)
    app = HostOriginGuard(Starlette(routes=[Mount(BASE, rest)]), ())
    listener = Listener(app, bind("127.0.0.1", port, "test"))
    await listener.start()
    try:
        yield Api(port, kernel, kept, grants, catalog, rest, works, executor, hub, agents)
    finally:
        await kernel.close(0.1)
        await works.close()
        await rest.close()
        await kernel.close_records()
        await listener.stop(0.1)
        catalog.close()
        if ledger is None:
            await kept.close()


class Wire:
    """One request on a socket of its own: what comes back, byte for byte."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.head = b""
        self.body = b""

    async def __aenter__(self) -> "Wire":
        self._reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> int:
        """Send it and read the head of the answer; the status."""
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = {"host": "127.0.0.1", **({"content-type": "application/json"} if data else {})}
        lines |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines["content-length"] = str(len(data))
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self.writer.write(f"{method} {BASE}{path} HTTP/1.1\r\n{head}\r\n".encode() + data)
        async with asyncio.timeout(60):
            self.head = await self._reader.readuntil(b"\r\n\r\n")
        return int(self.head.split(b" ", 2)[1])

    @property
    def headers(self) -> dict[str, str]:
        """Of the answer, in lower case."""
        lines = self.head.decode().split("\r\n")[1:]
        return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}

    async def piece(self) -> bytes:
        """The next piece of a body in pieces; empty at its end."""
        async with asyncio.timeout(60):
            size = int(await self._reader.readuntil(b"\r\n"), 16)
            data = await self._reader.readexactly(size + 2)
        self.body += data[:-2]
        return data[:-2]

    async def rest(self) -> bytes:
        """All of the body."""
        if "content-length" in self.headers:
            async with asyncio.timeout(60):
                self.body = await self._reader.readexactly(int(self.headers["content-length"]))
            return self.body
        while await self.piece():
            pass
        return self.body


def chunks_in(body: bytes | str) -> list[dict[str, Any]]:
    """The chunks of a stream that ended as it should."""
    text = body.decode() if isinstance(body, bytes) else body
    messages = [each for each in text.split("\n\n") if each and not each.startswith(":")]
    lines = [line for each in messages for line in each.split("\n") if line.startswith("data: ")]
    assert lines[-1] == "data: [DONE]", lines
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def text_in(chunks: list[dict[str, Any]]) -> str:
    """All text of it."""
    return "".join(each["delta"] for each in chunks if each["type"] == "text")
