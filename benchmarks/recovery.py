"""How soon calls work again after their MCP server was away: sixteen callers, twenty recoveries of each kind
of server. It is killed, stopped, restarted or replaced by another version, for moments and for seconds."""

import asyncio
import itertools
import json
import re
import secrets
import signal
import subprocess
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from time import monotonic
from typing import Any, Final, Literal

import psutil
import yaml

from pallas.processes.event_loop import run

from .caller import HANDSHAKE, MODERN, Caller
from .programs import MODULE, free_ports, process, until_line
from .report import Figure

CALLERS: Final = 16
RECOVERIES: Final = 20
PAUSE: Final = 1.0
"""Seconds between two calls of a caller; a server that is back ends them."""
LOST: Final = 60.0
"""Seconds after which a call counts as lost."""
AWAY: Final = (0.2, 1.0, 2.0, 4.0, 6.0)
"""Seconds for which a server is away: the client's pauses between attempts grow meanwhile."""
Way = Literal["killed", "stopped", "restarted", "replaced"]
WAYS: Final[tuple[Way, ...]] = ("killed", "stopped", "restarted", "replaced")
KINDS: Final = {
    "stdio": {"protocol": MODERN, "refusal": "modern"},
    "http": {"protocol": MODERN, "refusal": "modern"},
    "http, handshake": {"protocol": HANDSHAKE, "refusal": "python"},
    "sse": {"protocol": HANDSHAKE, "refusal": "sse"},
}
PROGRAM: Final = Path(__file__).resolve().parent.parent / "tests" / "support" / "counting_server.py"
_SAYS_WHY: Final = re.compile("fail|not found|not available|cannot|closed|broke|lost|missing", re.IGNORECASE)


@dataclass
class Server:
    """One of ``counting_server``, in a folder of its own. A stdio server is started by the fleet."""

    kind: str
    folder: Path
    port: int = 0
    version: int = 1
    _process: subprocess.Popen[bytes] | None = None

    @property
    def entry(self) -> dict[str, Any]:
        """Its entry under ``mcp.servers``."""
        if not self.port:
            return {"command": sys.executable, "args": ["-I", "-S", str(PROGRAM), str(self.folder)]}
        way = {"transport": "sse"} if self.kind == "sse" else {}
        return {"url": f"http://127.0.0.1:{self.port}/mcp", "auth": {"oauth": False}, **way}

    def write(self) -> None:
        """Say what it is from its next start on."""
        more = {"port": self.port, "version": str(self.version), "tools": ["count"], "notifies": True}
        rest = {"first": "answer", "loads": 0, "stays": False}
        draft = self.folder / "draft"
        draft.write_text(json.dumps({**KINDS[self.kind], **more, **rest}), "utf-8")
        draft.replace(self.folder / "server.json")

    def programs(self) -> list[psutil.Process]:
        """Its processes that run."""
        found = []
        for each in psutil.process_iter():
            with suppress(psutil.Error):
                if str(self.folder) in each.cmdline() and each.status() != psutil.STATUS_ZOMBIE:
                    found.append(each)
        return found

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all of them."""
        for each in self.programs():
            with suppress(psutil.NoSuchProcess):
                each.send_signal(number)

    async def start(self) -> None:
        """Have it accept calls, from the moment on at which this returns."""
        (self.folder / "broken").unlink(missing_ok=True)
        if not self.port:
            return
        self._spawn()
        async with asyncio.timeout(LOST):
            while True:
                with suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                    writer.close()
                    return
                await asyncio.sleep(0.005)

    def _spawn(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-I", "-S", str(PROGRAM), str(self.folder)])

    async def end(self) -> None:
        """Have it be away: a stdio server ends whenever it is started."""
        if not self.port:
            (self.folder / "broken").touch()
        self.send(signal.SIGKILL)
        if self._process is not None:
            await asyncio.to_thread(self._process.wait)
            self._process = None

    def executed(self) -> Counter[int]:
        """How often each call was executed."""
        log = self.folder / "log.jsonl"
        events = map(json.loads, log.read_text("utf-8").splitlines())
        return Counter(each["number"] for each in events if each["event"] == "executed")


@dataclass
class Callers:
    """Sixteen callers of an agent; each call has a number, and ends with its answer, an error, or neither."""

    url: str
    back: asyncio.Event = field(default_factory=asyncio.Event)
    answered: dict[int, float] = field(default_factory=dict)
    """When each caller was answered last."""
    ends: Counter[str] = field(default_factory=Counter)
    failed: list[float] = field(default_factory=list)
    """When calls began that ended with an error."""
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)

    @asynccontextmanager
    async def calling(self) -> AsyncIterator[None]:
        """Have all of them call until the block ends, and wait for the end of their last calls."""
        over = asyncio.Event()
        callers = [asyncio.create_task(self._call_on(number, over)) for number in range(CALLERS)]
        try:
            yield
        finally:
            over.set()
            self.back.set()
            await asyncio.wait(callers, timeout=2 * LOST)
            for each in callers:
                each.cancel()
            await asyncio.gather(*callers)

    async def _call_on(self, caller: int, over: asyncio.Event) -> None:
        while not over.is_set():
            async with Caller(self.url) as client:
                while not over.is_set() and await self._call(caller, client):
                    with suppress(TimeoutError):
                        async with asyncio.timeout(PAUSE):
                            await self.back.wait()

    async def _call(self, caller: int, client: Caller) -> bool:
        """Make one call; return whether the connection can be used for another one."""
        number, began = next(self._numbers), monotonic()
        message = f"***CALL_TOOL shop__count {json.dumps({'number': number})}"
        arguments = {"message": message, "conversation_id": secrets.token_urlsafe(18)}
        text = ""
        try:
            async with asyncio.timeout(LOST):
                result = await client.result("send_message", arguments)
            text = "\n".join(str(each.get("text", "")) for each in result["content"]).removeprefix(message)
        except TimeoutError:
            self.ends["lost"] += 1
            return False
        except RuntimeError as error:
            text = f"failed: {error}"
        if f"count {number} by version" in text:
            self.ends["answered"] += 1
            self.answered[caller] = monotonic()
        elif _SAYS_WHY.search(text):
            self.ends["errors"] += 1
            self.failed.append(began)
        else:
            self.ends["lost"] += 1
        async with self._news:
            self._news.notify_all()
        return True

    async def after(self, moment: float) -> tuple[float, float]:
        """Seconds from a moment until the first of them was answered, and until each was."""
        self.back.set()
        first = await self._until(lambda: any(each > moment for each in self.answered.values()))
        self.back.clear()
        last = await self._until(lambda: sum(each > moment for each in self.answered.values()) == CALLERS)
        return first - moment, last - moment

    async def _until(self, condition: Callable[[], bool]) -> float:
        with suppress(TimeoutError):
            async with asyncio.timeout(LOST), self._news:
                await self._news.wait_for(condition)
        return monotonic()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was seen of one kind of server."""

    first: list[float]
    each: list[float]
    failed: int
    """Calls that began after a recovery, before all callers were answered, and failed."""
    ends: Counter[str]
    twice: int
    left: int
    """Programs that run after the fleet has ended, and while it runs those beyond one for each instance."""


def measure() -> Iterator[Figure]:
    """Yield the figures of each kind of server, then those of all together."""
    ends: Counter[str] = Counter()
    twice = left = 0
    for kind in KINDS:
        found = run(_recoveries(kind))
        ends += found.ends
        twice, left = twice + found.twice, left + found.left
        yield Figure(f"next call that works, {kind}, p99", _share(found.first, 0.99), 1.0, "s", _said(found))
    bare = sorted(run(_bare_starts()))
    detail = f"the first after {bare[0]:.2f} s; a recovery on stdio starts as many"
    yield Figure(f"{CALLERS + 1} programs started at once until they answer", bare[-1], None, "s", detail)
    detail = f"{ends.total()} calls, {ends['answered']} answered, {ends['errors']} ended with an error"
    yield Figure("calls lost without an error", ends["lost"], 0, "", detail)
    yield Figure("calls executed twice", twice, 0, "")
    yield Figure("programs of servers left behind", left, 0, "")


def _said(found: Outcome) -> str:
    each = " and ".join(f"{_share(found.each, share):.2f} s" for share in (0.5, 0.99))
    times = f"p50 {_share(found.first, 0.5):.2f} s, of {len(found.first)}"
    return f"{times}; each of {CALLERS} callers {each}; calls after it that failed: {found.failed}"


def _share(values: list[float], share: float) -> float:
    return sorted(values)[ceil(share * len(values)) - 1]


async def _recoveries(kind: str) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="pallas-bench-") as folder:
        server = Server(kind, Path(folder) / "server", 0 if kind == "stdio" else free_ports(1)[0])
        server.folder.mkdir()
        server.write()
        url = _project(Path(folder) / "project", server)
        callers = Callers(url)
        first, each, failed = [], [], 0
        try:
            await server.start()
            with process("-m", "pallas.server", cwd=Path(folder) / "project") as running:
                await asyncio.to_thread(until_line, running, "running")
                async with callers.calling():
                    await callers.after(monotonic())
                    for number in range(RECOVERIES):
                        moment = await _away(server, WAYS[number % len(WAYS)], AWAY[number % len(AWAY)])
                        soon, late = await callers.after(moment)
                        first.append(soon)
                        each.append(late)
                        failed += sum(began > moment for began in callers.failed)
                left = 0 if server.port else max(0, len(server.programs()) - CALLERS - 1)
            left += len(server.programs()) - bool(server.port)
        finally:
            server.send(signal.SIGCONT)
            await server.end()
        twice = sum(count > 1 for count in server.executed().values())
        return Outcome(first, each, failed, callers.ends, twice, left)


async def _bare_starts() -> list[float]:
    """Seconds until each of as many programs answers as a recovery starts, without a fleet."""
    began = monotonic()
    question = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "server/discover"}).encode() + b"\n"

    async def start(folder: Path) -> float:
        command = sys.executable, "-I", "-S", str(PROGRAM), str(folder)
        program = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
        assert program.stdin is not None and program.stdout is not None
        program.stdin.write(question)
        await program.stdout.readline()
        answered = monotonic()
        program.kill()
        await program.wait()
        return answered - began

    with tempfile.TemporaryDirectory(prefix="pallas-bench-") as folder:
        server = Server("stdio", Path(folder))
        server.write()
        return await asyncio.gather(*(start(server.folder) for _ in range(CALLERS + 1)))


async def _away(server: Server, way: Way, seconds: float) -> float:
    """Have a server be away; return the moment from which on it accepts calls again."""
    if way == "stopped":
        server.send(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        server.send(signal.SIGCONT)
        return monotonic()
    if way == "replaced":
        server.version += 1
        server.write()
    await server.end()
    if way == "killed":
        await asyncio.sleep(seconds)
    await server.start()
    return monotonic()


def _project(root: Path, server: Server) -> str:
    """Write a project of an agent with the server; returns its URL."""
    registry, port = free_ports(2)
    root.mkdir()
    (root / "desk.py").write_text(MODULE.format(name="desk", servers=["shop"]))
    agents = {"desk": {"module": "desk", "port": port, "max_instances": CALLERS + 1}}
    topology = {"name": "bench", "bind": "127.0.0.1", "registry_port": registry, "agents": agents}
    (root / "agents.yaml").write_text(yaml.safe_dump(topology))
    settings = {"default_model": "passthrough", "mcp": {"servers": {"shop": server.entry}}}
    (root / "fastagent.config.yaml").write_text(yaml.safe_dump(settings))
    return f"http://127.0.0.1:{port}/mcp"
