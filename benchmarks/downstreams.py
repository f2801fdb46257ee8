"""What calls of MCP servers cost the fleet that makes them: processor time without that of servers and
model, which are other processes; connections and child processes for many callers."""

import asyncio
import json
import secrets
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import yaml

from pallas.event_loop import run

from .caller import Caller
from .programs import free_ports, process, until_line
from .report import Figure
from .tool_server import ROOT, Counts, counts_of, tool_server

ROUNDS = 3
TURNS = 40
CALLS = 10
SERVERS = 10
CALLERS = 40
# Seconds that any one batch of turns may take.
DEADLINE = 300.0
MODULE = """
from fast_agent import FastAgent

fast = FastAgent("desk")


@fast.agent(name="desk", instruction="You are a desk.", servers={servers})
async def main() -> None: ...
"""
STDIO = {"command": sys.executable, "args": ["-m", "benchmarks.tool_server"], "cwd": str(ROOT)}


def measure() -> Iterator[Figure]:
    """Yield the figures."""
    with tool_server() as origin:
        for name in ("stdio", "http"):
            yield from _calls(origin, name)
        yield from _connecting(origin)
        yield from _connections(origin)


def _http(origin: str, name: str) -> dict[str, Any]:
    return {"url": f"{origin}/{name}/mcp", "auth": {"oauth": False}}


@contextmanager
def _agent(origin: str, servers: Mapping[str, Any]) -> Iterator[tuple[str, psutil.Process]]:
    """An agent with these servers that is ready: its URL and the fleet's process."""
    registry, port = free_ports(2)
    agent = {"module": "desk", "port": port, "max_instances": CALLERS}
    topology = {"name": "bench", "bind": "127.0.0.1", "registry_port": registry, "agents": {"desk": agent}}
    settings = {
        "default_model": "generic.m",
        "generic": {"api_key": "none", "base_url": f"{origin}/v1"},
        "mcp": {"servers": dict(servers)},
    }
    with tempfile.TemporaryDirectory(prefix="pallas-bench-") as folder:
        root = Path(folder) / "project"
        root.mkdir()
        (root / "desk.py").write_text(MODULE.format(servers=[*servers]))
        (root / "agents.yaml").write_text(yaml.safe_dump(topology))
        (root / "fastagent.config.yaml").write_text(yaml.safe_dump(settings))
        with process("-m", "pallas.server", cwd=root) as running:
            until_line(running, "running")
            yield f"http://127.0.0.1:{port}/mcp", psutil.Process(running.pid)


def _processor(fleet: psutil.Process) -> float:
    times = fleet.cpu_times()
    return times.user + times.system


async def _turn(caller: Caller, message: str) -> None:
    said = await caller.call("send_message", message=message, conversation_id=secrets.token_urlsafe(18))
    if said != "done":
        raise RuntimeError(f"the tool was not called: {said[:300]}")


async def _turns(url: str, message: str, number: int) -> None:
    async with asyncio.timeout(DEADLINE), Caller(url) as caller:
        for _ in range(number):
            await _turn(caller, message)


def _calls(origin: str, name: str) -> Iterator[Figure]:
    """Turns with one call and with ten more: what is between them are ten calls."""
    servers = {"stdio": STDIO, "http": _http(origin, "plain")}
    taken: dict[int, list[float]] = {1: [], 1 + CALLS: []}
    with _agent(origin, {name: servers[name]}) as (url, fleet):
        for calls in taken:  # the first ones build what is built once
            run(_turns(url, f"{name}__echo {calls}", TURNS // 4))
        for _ in range(ROUNDS):
            for calls, found in taken.items():
                began = _processor(fleet)
                run(_turns(url, f"{name}__echo {calls}", TURNS))
                found.append((_processor(fleet) - began) / TURNS)
    one, many = (min(found) * 1e3 for found in taken.values())
    detail = f"a turn with one call {one:.1f} ms, with {1 + CALLS} {many:.1f} ms; best of {ROUNDS}"
    yield Figure(f"processor time of a tool call, {name}", (many - one) / CALLS, None, "ms", detail)


def _connecting(origin: str) -> Iterator[Figure]:
    """The start of an agent with ten servers that take 0.2 s each to be opened, and of one with none."""
    late = {f"late{number}": _http(origin, f"late{number}") for number in range(SERVERS)}
    taken: dict[str, list[float]] = {"none": [], "ten": []}
    seconds: list[float] = []
    openings: list[int] = []
    for _ in range(ROUNDS):
        for which, servers in (("none", {}), ("ten", late)):
            counts_of(origin)
            with _agent(origin, servers) as (_, fleet):
                taken[which].append(_processor(fleet))
            if servers:
                counts = counts_of(origin)
                seconds.append(counts.connecting)
                openings.append(counts.openings)
    processor = (min(taken["ten"]) - min(taken["none"])) * 1e3
    detail = (
        f"from the first request to the last list; {openings[-1]} openings, {processor:.0f} ms processor time"
    )
    yield Figure(f"{SERVERS} servers of 0.2 s connected", min(seconds), None, "s", detail)


async def _at_once(url: str, tool: str) -> None:
    """Have all callers call the tool, which waits for the last of them."""
    async with asyncio.timeout(DEADLINE), AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(Caller(url)) for _ in range(CALLERS)]
        await asyncio.gather(*(_turn(each, f"{tool} {CALLERS}") for each in callers))


def _connections(origin: str) -> Iterator[Figure]:
    servers = {"stdio": STDIO, "http": _http(origin, "plain")}
    counts_of(origin)
    with _agent(origin, servers) as (url, fleet):
        run(_at_once(url, "http__meet"))
        run(_at_once(url, "http__meet"))
        found: Counts = counts_of(origin)
        children = len(fleet.children(recursive=True))
        memory = fleet.memory_info().rss / 1e6
    yield Figure(
        f"child processes with {CALLERS} callers, 2 servers", children, None, "", f"fleet {memory:.0f} MB"
    )
    yield Figure(
        f"openings over HTTP with {CALLERS} callers",
        found.openings,
        None,
        "",
        f"{found.connections} TCP connections",
    )


if __name__ == "__main__":
    print(json.dumps([[each.name, each.value, each.detail] for each in measure()], indent=1))
