"""`pallas --serve` on a project, in a process of its own: what it says, what it logs, how it ends."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import httpx2
import psutil
import yaml
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from .processes import gone
from .waiting import until


@dataclass
class Served:
    """A fleet elsewhere. ``out`` and ``err`` are the lines it wrote so far, ``log`` its log file."""

    root: Path
    log: Path
    process: subprocess.Popen[bytes]
    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)

    @property
    def entries(self) -> dict[str, Any]:
        """Its agents.yaml."""
        loaded: dict[str, Any] = yaml.safe_load((self.root / "agents.yaml").read_text("utf-8"))
        return loaded

    def url(self, agent: str) -> str:
        """Where an agent is."""
        return f"http://127.0.0.1:{self.entries['agents'][agent]['port']}/mcp"

    @property
    def registry(self) -> str:
        """The registry's origin."""
        return f"http://127.0.0.1:{self.entries['registry_port']}"

    async def says(self, text: str, timeout: float = 60) -> str:
        """The first line of its output, from now or before, with ``text`` in it."""
        found: str = await until(
            lambda: next((line for line in (*self.out, *self.err) if text in line), ""), timeout=timeout
        )
        return found

    async def logs(self, text: str, timeout: float = 60) -> dict[str, Any]:
        """The first record of its log with ``text`` in it."""
        line = await until(
            lambda: next((each for each in self.log.read_text("utf-8").splitlines() if text in each), ""),
            timeout=timeout,
        )
        record: dict[str, Any] = json.loads(line)
        return record

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    async def ended(self, timeout: float = 60) -> int:
        """Its exit status, when it has ended."""
        await until(lambda: self.process.poll() is not None, timeout=timeout)
        return int(self.process.returncode)

    def children(self) -> list[int]:
        """The processes below it."""
        return [each.pid for each in psutil.Process(self.process.pid).children(recursive=True)]

    @asynccontextmanager
    async def client(self, agent: str, era: str) -> AsyncIterator[Client]:
        """A real MCP client of one of its agents."""
        async with (
            create_mcp_http_client() as http,
            Client(streamable_http_client(self.url(agent), http_client=http), mode=era) as connected,
        ):
            yield connected

    async def get(self, path: str) -> httpx2.Response:
        """A page of the registry's port."""
        async with httpx2.AsyncClient(trust_env=False, timeout=20) as http:
            return await http.get(self.registry + path)


@contextmanager
def served(
    root: Path, *options: str, wrap: tuple[str, ...] = (), log: Path | None = None, **environment: str
) -> Iterator[Served]:
    """`pallas --serve`, killed at the end with all that is below it if it still runs then.

    ``wrap`` is put before the command; ``log`` is where it logs, ``pallas.log`` beside the project without.
    """
    log = log or root.parent / f"{root.name}.pallas.log"
    process = subprocess.Popen(
        [*wrap, sys.executable, "-m", "pallas.server", "--serve", "--project", str(root), *options],
        env={**os.environ, "PALLAS_LOG_FILE": str(log), "PYTHONUNBUFFERED": "1", **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    fleet = Served(root, log, process)
    readers = [
        threading.Thread(target=_read, args=(stream, lines), daemon=True)
        for stream, lines in ((process.stdout, fleet.out), (process.stderr, fleet.err))
    ]
    for reader in readers:
        reader.start()
    try:
        yield fleet
    finally:
        below = fleet.children() if process.poll() is None else []
        process.kill()
        process.wait()
        for pid in below:
            if not gone(pid):
                psutil.Process(pid).kill()
        for reader in readers:
            reader.join(10)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def _read(stream: IO[bytes] | None, lines: list[str]) -> None:
    assert stream is not None
    # One by one: others look at what is there already.
    lines.extend(line.decode("utf-8", "replace").rstrip("\n") for line in stream)


def text_of(result: Any) -> str:
    """The text of a tool's result."""
    return "".join(getattr(block, "text", "") for block in result.content)


def fault_in(result: Any) -> dict[str, Any]:
    """The Fault that a call came back with; fails the test when it is none."""
    assert result.is_error, text_of(result)
    body: dict[str, Any] = json.loads(text_of(result))
    return body
