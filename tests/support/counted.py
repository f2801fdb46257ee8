"""Servers that note what they execute (``counting_server``), and projects with them."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import psutil

from .live import agent_module, write_project
from .ports import free_ports
from .processes import gone
from .waiting import until

Kind = Literal["stdio-modern", "stdio-handshake", "http-modern", "http-python", "http-typescript", "http-sse"]
KINDS: Final[tuple[Kind, ...]] = (
    "stdio-modern",
    "stdio-handshake",
    "http-modern",
    "http-python",
    "http-typescript",
    "http-sse",
)
"""Transports and versions of MCP; over HTTP in the handshake versions, as two SDKs lose sessions, and over
the older transport, with server-sent events."""
MODERN: Final = "2026-07-28"
HANDSHAKE: Final = "2025-11-25"
PROGRAM: Final = str(Path(__file__).with_name("counting_server.py"))
TOOLS: Final = ["count", "wait"]


@dataclass
class CountedServer:
    """A server of that kind, in a folder of its own. The fleet starts a stdio server, a test one over HTTP.

    ``settings`` are more of ``counting_server``'s, which processes read that start later.
    """

    name: str
    kind: Kind
    folder: Path
    settings: dict[str, Any] = field(default_factory=dict)
    keys: dict[str, Any] = field(default_factory=dict)
    """More keys of its entry under ``mcp.servers``."""
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
            url = f"http://127.0.0.1:{self.settings['port']}/mcp"
            way = {"transport": "sse"} if self.kind == "http-sse" else {}
            return {"url": url, "auth": {"oauth": False}, **way, **self.keys}
        return {"command": sys.executable, "args": [PROGRAM, str(self.folder)], **self.keys}

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
        return [pid for pid in self.started if self._runs(pid)]

    def _runs(self, pid: int) -> bool:
        with suppress(psutil.Error):  # the number may be another process's by now
            return str(self.folder) in psutil.Process(pid).cmdline()
        return False

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
