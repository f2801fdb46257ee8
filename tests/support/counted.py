"""Servers that note what they execute (``counting_server``), and callers of their agents."""

import asyncio
import itertools
import json
import os
import re
import secrets
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from pallas.fleet.fleet import Fleet

from .live import ERAS, agent_module, tool_call, write_project
from .ports import free_ports
from .processes import gone
from .served import Served, text_of
from .waiting import until

Kind = Literal["stdio-modern", "stdio-handshake", "http-modern", "http-python", "http-typescript"]
KINDS: Final[tuple[Kind, ...]] = (
    "stdio-modern",
    "stdio-handshake",
    "http-modern",
    "http-python",
    "http-typescript",
)
"""Transports and versions of MCP; over HTTP in the handshake versions, as two SDKs lose their sessions."""
MODERN: Final = "2026-07-28"
HANDSHAKE: Final = "2025-11-25"
PROGRAM: Final = str(Path(__file__).with_name("counting_server.py"))
TOOLS: Final = ["count", "wait"]
_DONE: Final = re.compile(r"success|completed|no content|\bok\b|\bdone\b", re.IGNORECASE)
"""What says nothing of a failure."""
_numbers = itertools.count(1)


@dataclass
class CountedServer:
    """A server of that kind, in a folder of its own. The fleet starts a stdio server, a test one over HTTP.

    ``settings`` are more of ``counting_server``'s, which processes read that start later.
    """

    name: str
    kind: Kind
    folder: Path
    settings: dict[str, Any] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = None
    _killed: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        port = {"port": free_ports(1)[0]} if self.is_http else {}
        self.be(**{**self.settings_of(self.kind), **port, **self.settings})

    @staticmethod
    def settings_of(kind: Kind) -> dict[str, Any]:
        """What a server of that kind is at first, apart from its port."""
        _, _, dialect = kind.partition("-")
        return {
            "protocol": MODERN if dialect == "modern" else HANDSHAKE,
            "port": 0,
            "refusal": dialect,
            "version": "1",
            "tools": TOOLS,
            "notifies": True,
            "first": "answer",
            "loads": 0,
            "stays": False,
        }

    @property
    def is_http(self) -> bool:
        """Whether it is one over HTTP."""
        return self.kind.startswith("http")

    @property
    def entry(self) -> dict[str, Any]:
        """Its entry under ``mcp.servers``."""
        if self.is_http:
            return {"url": f"http://127.0.0.1:{self.settings['port']}/mcp", "auth": {"oauth": False}}
        return {"command": sys.executable, "args": [PROGRAM, str(self.folder)]}

    def be(self, **settings: Any) -> None:
        """Have it be that from its next start on, or the next ``notify``."""
        self.settings |= settings
        draft = self.folder / "server.draft"
        draft.write_text(json.dumps(self.settings), "utf-8")
        draft.replace(self.folder / "server.json")

    def events(self, name: str, **facts: Any) -> list[dict[str, Any]]:
        """The events of that name in its log, in order, that have these facts."""
        log = self.folder / "log.jsonl"
        lines = log.read_text("utf-8").splitlines() if log.exists() else []
        found = (event for event in map(json.loads, lines) if event["event"] == name)
        return [event for event in found if all(event.get(key) == value for key, value in facts.items())]

    @property
    def executed(self) -> Counter[int]:
        """How often each number was executed."""
        return Counter(event["number"] for event in self.events("executed"))

    @property
    def started(self) -> list[int]:
        """The processes that were started, in order."""
        return [event["pid"] for event in self.events("start")]

    @property
    def alive(self) -> list[int]:
        """Those of them that run."""
        return [pid for pid in self.started if not gone(pid)]

    def open(self, name: str) -> None:
        """Put a file into its folder: ``gate``, ``hold``, ``broken`` or ``ready``."""
        (self.folder / name).touch()

    def shut(self, name: str) -> None:
        """Take the file away."""
        (self.folder / name).unlink(missing_ok=True)

    async def start(self) -> None:
        """Start it if it is one over HTTP, and wait until it listens.

        A stdio server that was killed is started again by the fleet, also while there are no calls: wait
        until it is.
        """
        if self.is_http and self._process is None:
            pid = self._spawn()
            await until(lambda: self.events("listening", pid=pid))
        elif self._killed and not self.is_http:
            await until(lambda: {*self.alive} - self._killed)

    def _spawn(self) -> int:
        self._process = subprocess.Popen([sys.executable, PROGRAM, str(self.folder)])
        return self._process.pid

    async def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End all of its processes."""
        for pid in (found := self.alive):
            self.send(number, pid)
        if self._process is not None:
            await asyncio.to_thread(self._process.wait, 60)
            self._process = None
        await until(lambda: all(map(gone, found)))
        self._killed.update(found)

    def end(self) -> None:
        """Kill all of its processes that run, at the end of a test that does not wait."""
        self.send(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(60)
            self._process = None

    def send(self, number: signal.Signals, *pids: int) -> None:
        """Send a signal to all of its processes, or to these."""
        for pid in pids or self.alive:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    async def notify(self, **settings: Any) -> None:
        """Have it be that at once and say so to its clients."""
        self.be(**settings)
        await self._send_and_see(signal.SIGUSR1, "notified")

    async def has_listeners(self) -> None:
        """Wait until it can notify each client: until one listens, where that takes a request."""
        if self.is_http or self.settings["protocol"] == MODERN:
            await until(lambda: {*self.alive} <= {each["pid"] for each in self.events("listened")})

    async def forget(self) -> None:
        """Have it forget its sessions."""
        await self._send_and_see(signal.SIGUSR2, "forgot")

    async def _send_and_see(self, number: signal.Signals, event: str) -> None:
        alive = self.alive
        wanted = Counter(each["pid"] for each in self.events(event)) + Counter(alive)
        self.send(number, *alive)
        await until(lambda: Counter(each["pid"] for each in self.events(event)) >= wanted)


def counted_project(
    root: Path, servers: Iterable[CountedServer], *, callers: int = 1, isolation: str = "none", **more: Any
) -> Path:
    """A project with an agent for each server, of its name, that answers so many callers at a time."""
    found = list(servers)
    return write_project(
        root,
        {each.name: agent_module(each.name, (each.name,)) for each in found},
        keys={each.name: {"max_instances": callers, "isolation": isolation} for each in found},
        config={"mcp": {"servers": {each.name: each.entry for each in found}}},
        **more,
    )


@dataclass(frozen=True)
class Call:
    """A call that ended. ``text`` is what the caller got, ``version`` the server's if it is the answer."""

    number: int
    text: str
    version: str

    @property
    def is_answered(self) -> bool:
        """Whether it is the tool's answer."""
        return bool(self.version)

    @property
    def is_error(self) -> bool:
        """Whether it says that it failed, and not nothing, or something that reads as if it were done."""
        return bool(not self.is_answered and self.text.strip() and not _DONE.search(self.text))


@dataclass
class Callers:
    """Clients of one agent, in both protocol versions in turn, each with a conversation of its own.

    The agent's model is passthrough, which calls what it is told to.
    """

    server: CountedServer
    clients: Mapping[int, Client]
    numbers: list[int] = field(default_factory=list)
    """Those of all calls so far."""
    conversations: str = field(default_factory=partial(secrets.token_urlsafe, 18))

    async def call(self, tool: str = "count", callers: Collection[int] | None = None) -> list[Call]:
        """Have all of them call the tool at once, or these, and wait for how each call ends."""
        chosen = range(len(self.clients)) if callers is None else callers
        return await asyncio.gather(*(self._call(each, tool) for each in chosen))

    async def _call(self, caller: int, tool: str) -> Call:
        self.numbers.append(number := next(_numbers))
        message = tool_call(f"{self.server.name}__{tool}", number=number)
        result = await self.clients[caller].call_tool(
            "send_message",
            {
                "message": message,
                "conversation_id": f"{self.conversations}-{caller}",
            },
        )
        text = text_of(result).removeprefix(message)
        _, _, said = text.partition(f"{tool} {number} by version ")
        return Call(number, text, said[:1])

    @asynccontextmanager
    async def in_flight(self, tool: str = "wait") -> AsyncIterator["asyncio.Task[list[Call]]"]:
        """The calls of all of them, once the server executes each; they end by themselves in the block."""
        self.server.shut("gate")
        before = len(self.server.events("executed"))
        calls = asyncio.create_task(self.call(tool))
        try:
            await until(lambda: len(self.server.events("executed")) == before + len(self.clients))
            yield calls
            await calls
        finally:
            self.server.open("gate")
            calls.cancel()
            await asyncio.wait({calls}, timeout=60)

    def executed_once(self, calls: Collection[Call]) -> bool:
        """Whether each of these was executed, and none of all calls twice."""
        executed = self.server.executed
        return all(executed[each.number] == 1 for each in calls) and self.none_twice()

    def none_twice(self) -> bool:
        """Whether no call was executed twice so far."""
        executed = self.server.executed
        return all(executed[number] <= 1 for number in self.numbers)


@asynccontextmanager
async def callers(fleet: Fleet | Served, server: CountedServer, count: int = 1) -> AsyncIterator[Callers]:
    """So many clients of the agent that is named as its server."""
    if isinstance(fleet, Served):
        url = fleet.url(server.name)
    else:
        url = next(each.url for each in fleet.agents if each.name == server.name)
    clients: dict[int, Client] = {}
    over = asyncio.Event()
    # Plain HTTP: a client that trusts certificates takes 20 ms of a core to be made.
    async with httpx2.AsyncClient(verify=False, timeout=None) as http:
        # Each in a task of its own: what a test raises does not pass through all of them.
        tasks = [asyncio.create_task(_hold(number, url, http, clients, over)) for number in range(count)]
        try:
            await until(lambda: len(clients) == count or any(each.done() for each in tasks))
            yield Callers(server, clients)
        finally:
            over.set()
            done, _ = await asyncio.wait(tasks, timeout=60)
            for each in done:
                each.result()


async def _hold(
    number: int, url: str, http: httpx2.AsyncClient, clients: dict[int, Client], over: asyncio.Event
) -> None:
    async with Client(
        streamable_http_client(url, http_client=http), mode=ERAS[number % len(ERAS)]
    ) as clients[number]:
        await over.wait()
