"""`pallas --serve` on a project, in a process of its own: what it says, what it logs, how it ends."""

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
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

from . import pallas_process
from .processes import gone
from .waiting import poll, until


@dataclass
class Served:
    """A fleet elsewhere. ``out`` and ``err`` are the lines it wrote so far, ``log`` its log file."""

    root: Path
    log: Path
    process: subprocess.Popen[bytes]
    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)
    readers: "list[_Reader]" = field(default_factory=list)

    @property
    def entries(self) -> dict[str, Any]:
        """Its agents.yaml."""
        loaded: dict[str, Any] = yaml.safe_load((self.root / "agents.yaml").read_text("utf-8"))
        return loaded

    def url(self, agent: str) -> str:
        """Where an agent is."""
        entries = self.entries
        if "port" in entries:
            return f"http://127.0.0.1:{entries['port']}/agents/{agent}/mcp"
        return f"http://127.0.0.1:{entries['agents'][agent]['port']}/mcp"

    @property
    def registry(self) -> str:
        """The registry's origin."""
        entries = self.entries
        return f"http://127.0.0.1:{entries.get('registry_port') or entries['port']}"

    async def says(self, text: str, timeout: float = 180) -> str:
        """The first line of its output, from now or before, with ``text`` in it."""
        found: str = await until(
            lambda: next((line for line in (*self.out, *self.err) if text in line), ""), timeout=timeout
        )
        return found

    async def logs(self, text: str, timeout: float = 180) -> dict[str, Any]:
        """The first record of its log with ``text`` in it."""

        def found() -> str:  # the last line may be in the middle of being written
            *whole, _ = self.log.read_bytes().split(b"\n")
            return next((line for each in whole if text in (line := each.decode("utf-8"))), "")

        record: dict[str, Any] = json.loads(await until(found, timeout=timeout))
        return record

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    async def ended(self, timeout: float = 180) -> int:
        """Its exit status, when it has ended and all that it wrote is in ``out`` and ``err``."""
        await until(lambda: self.process.poll() is not None, timeout=timeout)
        await until(lambda: all(reader.has_all for reader in self.readers))
        return int(self.process.returncode)

    def children(self) -> list[int]:
        """The processes below it."""
        return [each.pid for each in pallas_process.below(self.process.pid)]

    @asynccontextmanager
    async def client(self, agent: str, era: str) -> AsyncIterator[Client]:
        """A real MCP client of one of its agents."""
        async with (
            create_mcp_http_client() as http,
            Client(streamable_http_client(self.url(agent), http_client=http), mode=era) as connected,
        ):
            yield connected

    async def in_flight(self, runs: int) -> None:
        """Wait until so many runs are in flight."""

        async def count() -> int:
            page = (await self.get("/metrics")).text
            lines = (line.split() for line in page.splitlines() if line.startswith("pallas_runs_in_flight"))
            return int(sum(float(value) for _, value in lines))

        await poll(count, lambda found: found == runs)

    async def get(self, path: str) -> httpx2.Response:
        """A page of the registry's port."""
        # The port is plain HTTP: a client that trusts certificates takes 20 ms of a core to be made.
        async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=60) as http:
            return await http.get(self.registry + path)


@contextmanager
def served(
    root: Path,
    *options: str,
    wrap: tuple[str, ...] = (),
    log: Path | None = None,
    plain: bool = False,
    truly: bool = False,
    forks: bool | None = None,
    constants: Mapping[str, float] | None = None,
    memory: int | None = None,
    **environment: str,
) -> Iterator[Served]:
    """`pallas --serve`, killed at the end with all that is below it if it still runs then.

    ``wrap`` is put before the command; ``log`` is where it logs, ``pallas.log`` beside the project without.
    ``plain`` starts `pallas` in the project's folder instead, without any option. Without ``wrap`` it is
    forked (``pallas_process``) unless it shall be started ``truly``. ``constants``, ``memory``
    and ``forks`` are as there.
    """
    log = log or root.parent / f"{root.name}.pallas.log"
    how = () if plain else ("--serve", "--project", str(root))
    given: dict[str, Any] = {
        "cwd": root if plain else None,
        "env": {**os.environ, "PALLAS_LOG_FILE": str(log), "PYTHONUNBUFFERED": "1", **environment},
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "start_new_session": True,
    }
    if wrap or truly:
        process = subprocess.Popen([*wrap, sys.executable, "-m", "pallas.server", *how, *options], **given)
    else:
        process = pallas_process.start(
            *how, *options, constants=constants, memory=memory, forks=forks, **given
        )
    assert process.stdout is not None
    assert process.stderr is not None
    fleet = Served(root, log, process)
    fleet.readers += [_Reader(process.stdout, fleet.out), _Reader(process.stderr, fleet.err)]
    for reader in fleet.readers:
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
        for reader in fleet.readers:
            reader.join(60)
        for stream in (process.stdout, process.stderr):
            stream.close()


class _Reader(threading.Thread):
    """Puts the lines of a stream into a list as they come."""

    def __init__(self, stream: IO[bytes], lines: list[str]) -> None:
        super().__init__(daemon=True)
        self._stream, self._lines = stream, lines
        self._taking = threading.Lock()

    def run(self) -> None:
        """Until the last one who holds the stream has closed it."""
        rest, over, number = b"", False, self._stream.fileno()
        waiting = select.poll()
        waiting.register(number, select.POLLIN)
        while not over:
            waiting.poll()
            with self._taking:
                over = not (taken := os.read(number, 65_536))
                *whole, rest = (rest + taken).split(b"\n")
                if over and rest:
                    whole.append(rest)
                self._lines.extend(line.decode("utf-8", "replace") for line in whole)

    @property
    def has_all(self) -> bool:
        """Whether all that was written so far stands in the list; a child may hold the stream open on."""
        waiting = select.poll()
        with self._taking:
            if not self.is_alive():
                return True
            waiting.register(self._stream.fileno(), select.POLLIN)
            return not waiting.poll(0)  # once it is closed, the thread is about to end


def text_of(result: Any) -> str:
    """The text of a tool's result."""
    return "".join(getattr(block, "text", "") for block in result.content)


def fault_in(result: Any) -> dict[str, Any]:
    """The Fault that a call came back with; fails the test when it is none."""
    assert result.is_error, text_of(result)
    body: dict[str, Any] = json.loads(text_of(result))
    return body
