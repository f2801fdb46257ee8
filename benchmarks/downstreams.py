"""What calls of MCP servers cost the fleet that makes them: processor time without that of servers and
model, which are other processes; connections and child processes for many callers."""

import asyncio
import json
import os
import secrets
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import psutil
import yaml
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from pallas.downstreams.connection import Connection, Watch
from pallas.downstreams.offer import Offer
from pallas.downstreams.opening import Callbacks, Settings
from pallas.downstreams.transports import Http, StdioProgram, Transport
from pallas.processes.event_loop import run

from .caller import Caller
from .programs import free_ports, process, until_line
from .report import Figure
from .tool_server import ROOT, Counts, counts_of, tool_server

ROUNDS = 3
TURNS = 40
CALLS = 10
ECHOES = 200
SERVERS = 10
AGENTS = 8
"""Agents that connect all servers, where processor time is measured: that of a start varies by a tenth."""
CALLERS = 40
# Seconds that any one batch of turns may take.
DEADLINE = 300.0
MODULE = """
from fast_agent import FastAgent

fast = FastAgent("{name}")


@fast.agent(name="{name}", instruction="You are a desk.", servers={servers})
async def main() -> None: ...
"""
STDIO = {"command": sys.executable, "args": ["-m", "benchmarks.tool_server"], "cwd": str(ROOT)}


def measure() -> Iterator[Figure]:
    """Yield the figures."""
    with tool_server() as origin:
        yield from run(beside_the_sdk(origin))
        for name in ("stdio", "http"):
            yield from _calls(origin, name)
        yield from _connecting(origin)
        yield from _connections(origin)


def _http(origin: str, name: str) -> dict[str, Any]:
    return {"url": f"{origin}/{name}/mcp", "auth": {"oauth": False}}


@contextmanager
def _agents(origin: str, servers: Mapping[str, Any], number: int = 1) -> Iterator[tuple[str, psutil.Process]]:
    """So many agents with these servers that are ready: the URL of the first, and the fleet's process."""
    registry, *ports = free_ports(number + 1)
    agents = {
        f"desk{index}": {"module": f"desk{index}", "port": port, "max_instances": CALLERS}
        for index, port in enumerate(ports)
    }
    topology = {"name": "bench", "bind": "127.0.0.1", "registry_port": registry, "agents": agents}
    settings = {
        "default_model": "generic.m",
        "generic": {"api_key": "none", "base_url": f"{origin}/v1"},
        "mcp": {"servers": dict(servers)},
    }
    with tempfile.TemporaryDirectory(prefix="pallas-bench-") as folder:
        root = Path(folder) / "project"
        root.mkdir()
        for name in agents:
            (root / f"{name}.py").write_text(MODULE.format(name=name, servers=[*servers]))
        (root / "agents.yaml").write_text(yaml.safe_dump(topology))
        (root / "fastagent.config.yaml").write_text(yaml.safe_dump(settings))
        with process("-m", "pallas.server", cwd=root) as running:
            until_line(running, "running")
            yield f"http://127.0.0.1:{ports[0]}/mcp", psutil.Process(running.pid)


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
    with _agents(origin, {name: servers[name]}) as (url, fleet):
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


async def beside_the_sdk(origin: str) -> list[Figure]:
    """Calls through a connection as agents have them, and through the SDK's own client."""
    url = f"{origin}/plain/mcp"
    program = StdioServerParameters.model_validate(STDIO)
    sides: dict[str, tuple[Transport, Any]] = {
        "stdio": (
            StdioProgram(program.command, program.args, dict(os.environ), str(ROOT)),
            stdio_client(program),
        ),
        "http": (Http(url), url),
    }
    figures = []
    for name, (transport, target) in sides.items():
        connection = Connection(name, transport, Settings(), Callbacks(), Watch(_unchanged), {})
        await connection.open(DEADLINE)
        ours = await _processor_of(partial(connection.call, _echo))
        await connection.close()
        async with Client(target) as client:
            theirs = await _processor_of(partial(_echo, client))
        detail = f"{ours:.2f} ms, the SDK's {theirs:.2f} ms; best of {ROUNDS}"
        figures.append(
            Figure(f"a call of a tool, {name}, against the SDK's client", ours / theirs, 1.5, "x", detail)
        )
    return figures


async def _unchanged(offer: Offer) -> Offer:
    return offer


async def _echo(client: Client) -> None:
    await client.call_tool("echo", {"text": "text "})


async def _processor_of(call: Callable[[], Awaitable[None]]) -> float:
    """The processor time of a call, in ms, in the best of so many rounds."""
    found = []
    async with asyncio.timeout(DEADLINE):
        for _ in range(1 + ROUNDS):  # the first builds what is built once
            began = process_time()
            for _ in range(ECHOES):
                await call()
            found.append((process_time() - began) / ECHOES * 1e3)
    return min(found)


def _connecting(origin: str) -> Iterator[Figure]:
    """Starts of an agent with ten servers that take 0.2 s to open, and of many agents with and without."""
    servers = {f"late{number}": _http(origin, f"late{number}") for number in range(SERVERS)}
    found: list[Counts] = []
    taken: dict[int, list[float]] = {0: [], SERVERS: []}
    for _ in range(ROUNDS):
        counts_of(origin)
        with _agents(origin, servers):
            found.append(counts_of(origin))
        for number, processor in taken.items():
            with _agents(origin, servers if number else {}, AGENTS) as (_, fleet):
                processor.append(_processor(fleet))
    best = min(found, key=lambda counts: counts.connecting)
    detail = f"from the first request to the last list, {best.openings} openings; best of {ROUNDS}"
    yield Figure(f"{SERVERS} servers of 0.2 s connected", best.connecting, None, "s", detail)
    none, all_ = (min(each) * 1e3 for each in taken.values())
    detail = f"{AGENTS} agents start with {none:.0f} ms, with {SERVERS} servers each {all_:.0f} ms"
    yield Figure("processor time of a connection, http", (all_ - none) / AGENTS / SERVERS, None, "ms", detail)


async def _at_once(url: str, tool: str) -> None:
    """Have all callers call the tool, which waits for the last of them."""
    async with asyncio.timeout(DEADLINE), AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(Caller(url)) for _ in range(CALLERS)]
        await asyncio.gather(*(_turn(each, f"{tool} {CALLERS}") for each in callers))


def _connections(origin: str) -> Iterator[Figure]:
    servers = {"stdio": STDIO, "http": _http(origin, "plain")}
    counts_of(origin)
    with _agents(origin, servers) as (url, fleet):
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
