"""From saving an agent's module until its new version answers, beside `uvicorn --reload` on a bare Starlette
server: both are saved in turn, and each is asked again and again for the number that was saved. Then eight
callers, half of them of each era, call while the module is saved again and again. Last, the longest gap of
the fleet's loop during a reload."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter

import httpx2

from pallas.processes.event_loop import run

from .caller import HANDSHAKE, MODERN, Caller
from .programs import free_ports, process, project, until_http, until_line
from .report import Figure

SAVES = 30
LOADED_SAVES = 15
CALLERS = 8
P50_AIM = 0.5
# Seconds between the end of one reload and the next save.
PAUSE = 0.4
AGENT = '''
from fast_agent import FastAgent

fast = FastAgent("agent0")
NUMBER = "number-{number}"


def version() -> str:
    """Which one this is."""
    return NUMBER


@fast.agent(name="agent0", instruction="You are number {number}.", function_tools=[version])
async def main() -> None: ...
'''
# In another agent: how long its loop, which is the fleet's, was away, since somebody asked last.
GAPS = """

import asyncio
import time

_loop = asyncio.get_event_loop()
_worst = [0.0]


async def _tick():
    last = time.perf_counter()
    while True:
        await asyncio.sleep(0.001)
        now = time.perf_counter()
        _worst[0] = max(_worst[0], now - last)
        last = now


async def _tell(reader, writer):
    writer.write(str(_worst[0]).encode())
    _worst[0] = 0.0
    writer.close()


def _begin():
    globals()["_tasks"] = [
        _loop.create_task(_tick()),
        _loop.create_task(asyncio.start_server(_tell, "127.0.0.1", {port})),
    ]


_loop.call_soon_threadsafe(_begin)
"""
BARE = """
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route


async def version(request):
    return PlainTextResponse("number-{number}")


app = Starlette(routes=[Route("/", version)])
"""
_ASK = "***CALL_TOOL version {}"


@dataclass(slots=True)
class _Side:
    """A file that is saved, and how the number in it is asked for."""

    file: Path
    source: str
    ask: Callable[[], Awaitable[str]]
    seconds: list[float] = field(default_factory=list)

    async def save(self, number: int) -> float:
        """Write the next version; the seconds until it answers."""
        text = self.source.replace("{number}", str(number))
        began = perf_counter()
        await asyncio.to_thread(self.file.write_text, text)
        async with asyncio.timeout(60):
            while True:
                if f"number-{number}" in await self.ask():
                    return perf_counter() - began
                await asyncio.sleep(0.002)


def measure() -> list[Figure]:
    """Both side by side, then under load."""
    with tempfile.TemporaryDirectory(prefix="pallas-bench-") as folder, _both(Path(folder)) as both:
        return run(_measured(*both))


async def _measured(root: Path, url: str, gaps: int, bare_root: Path, bare_url: str) -> list[Figure]:
    async with _pallas(root, url) as ours, _uvicorn(bare_root, bare_url) as bare:
        for number in range(1, 4):  # what is loaded once is loaded
            await ours.save(number)
            await bare.save(number)
        worst = []
        for number in range(4, 4 + SAVES):
            await asyncio.sleep(PAUSE)
            await _gap(gaps)
            ours.seconds.append(await ours.save(number))
            worst.append(await _gap(gaps))
            await asyncio.sleep(PAUSE)
            bare.seconds.append(await bare.save(number))
        called, failed, longest = await _under_load(ours, url)
        bare_called, bare_failed = await _bare_under_load(bare, bare_url)
    p95, bare_p95 = (quantiles(side.seconds, n=20, method="inclusive")[18] for side in (ours, bare))
    p50, bare_p50 = (median(side.seconds) for side in (ours, bare))
    return [
        Figure("save to answering, p50", p50, P50_AIM, "s", f"p95 {p95:.3f} s of {SAVES} saves"),
        Figure("  uvicorn --reload, p50", bare_p50, None, "s", f"p95 {bare_p95:.3f} s"),
        Figure("  ratio of the two, p50", p50 / bare_p50, None, "x", f"p95 {p95 / bare_p95:.2f}"),
        Figure(
            f"calls failed in {LOADED_SAVES} reloads, {CALLERS} callers",
            failed,
            0,
            "",
            f"of {called}; the longest took {longest:.3f} s",
        ),
        Figure(f"  uvicorn --reload, {CALLERS} callers", bare_failed, None, "", f"of {bare_called}"),
        Figure(
            "longest gap of the loop in a reload, p50",
            1e3 * median(worst),
            None,
            "ms",
            f"max {1e3 * max(worst):.0f} ms",
        ),
    ]


async def _under_load(side: _Side, url: str) -> tuple[int, int, float]:
    """Calls, those that failed, and the longest, while the agent is reloaded again and again."""
    stop, calls, failed, longest = asyncio.Event(), [0], [0], [0.0]

    async def calling(number: int) -> None:
        async with Caller(url, (MODERN, HANDSHAKE)[number % 2]) as caller:
            await caller.open_session()
            while not stop.is_set():
                began = perf_counter()
                try:
                    await caller.call("send_message", message="hello")
                except RuntimeError:
                    failed[0] += 1
                calls[0] += 1
                longest[0] = max(longest[0], perf_counter() - began)
            await caller.end_session()

    async with asyncio.TaskGroup() as group:
        for number in range(CALLERS):
            group.create_task(calling(number))
        for number in range(1_000, 1_000 + LOADED_SAVES):
            await side.save(number)
        stop.set()
    return calls[0], failed[0], longest[0]


async def _bare_under_load(side: _Side, url: str) -> tuple[int, int]:
    stop, calls, failed = asyncio.Event(), [0], [0]

    async def calling() -> None:
        async with httpx2.AsyncClient(timeout=10) as client:
            while not stop.is_set():
                try:
                    (await client.get(url)).raise_for_status()
                except httpx2.HTTPError:
                    failed[0] += 1
                    await asyncio.sleep(0.01)
                calls[0] += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(CALLERS):
            group.create_task(calling())
        for number in range(1_000, 1_000 + LOADED_SAVES):
            await side.save(number)
        stop.set()
    return calls[0], failed[0]


async def _gap(port: int) -> float:
    """The longest gap since the last time, in seconds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    text = await reader.read()
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
    return float(text)


@asynccontextmanager
async def _pallas(root: Path, url: str) -> AsyncIterator[_Side]:
    async with Caller(url) as caller:

        async def ask() -> str:
            return await caller.call("send_message", message=_ASK)

        yield _Side(root / "agents" / "agent0.py", AGENT, ask)


@asynccontextmanager
async def _uvicorn(root: Path, url: str) -> AsyncIterator[_Side]:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(httpx2.AsyncClient(timeout=5))

        async def ask() -> str:
            try:
                return (await client.get(url)).text
            except httpx2.HTTPError:
                return ""

        yield _Side(root / "app.py", BARE, ask)


@contextmanager
def _both(folder: Path) -> Iterator[tuple[Path, str, int, Path, str]]:
    """A fleet of two agents that watches its files, and a bare server that uvicorn watches."""
    root, bare_root = folder / "project", folder / "bare"
    gaps, port = free_ports(2)
    url, _ = project(root, 2)
    (root / "agents" / "agent0.py").write_text(AGENT.replace("{number}", "0"))
    with (root / "agents" / "agent1.py").open("a") as module:
        module.write(GAPS.replace("{port}", str(gaps)))
    bare_root.mkdir()
    (bare_root / "app.py").write_text(BARE.replace("{number}", "0"))
    bare_url = f"http://127.0.0.1:{port}/"
    # Without -B it may stay at a version for ever: code compiled in the same second counts as the same.
    uvicorn = ("-B", "-m", "uvicorn", "--reload", "--port", str(port), "--log-level", "error", "app:app")
    with (
        process("-m", "pallas.server", "--serve", "--watch", cwd=root) as running,
        process(*uvicorn, cwd=bare_root),
    ):
        until_line(running, "running")
        until_http(bare_url)
        yield root, url, gaps, bare_root, bare_url
