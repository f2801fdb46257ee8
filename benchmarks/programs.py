"""Projects and processes that the measurements run on."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import perf_counter, sleep
from typing import IO, Any
from unittest import mock

import httpx2
import yaml

MODULE = """
from fast_agent import FastAgent

fast = FastAgent("{name}")


@fast.agent(name="{name}", instruction="You are {name}.", servers={servers})
async def main() -> None: ...
"""
# The module is imported beside the fleet's loop, which is the thread's event loop meanwhile.
FACTS = """

from benchmarks import facts

facts.serve({port})
"""
ECHO = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("echo")


@server.tool()
def echo(text: str) -> str:
    return text


server.run("stdio")
"""
DEADLINE = 120.0


@contextmanager
def own_state() -> Iterator[None]:
    """Fleets that start in the block keep threads, tokens and settings in a folder that ends with it."""
    with tempfile.TemporaryDirectory(prefix="pallas-bench-") as folder:
        own = {name: f"{folder}/{name.lower()}" for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME")}
        with mock.patch.dict(os.environ, own):
            yield


def free_ports(count: int) -> list[int]:
    """Ports that nobody holds."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in sockets]


def project(
    root: Path, count: int, *, stdio: bool = False, facts: int | None = None, **keys: int
) -> list[str]:
    """A project of ``count`` agents on the passthrough model; returns their URLs.

    With ``stdio`` each has a server of that kind; the process tells its ``facts`` on that port; ``keys``
    go to each agent's entry in agents.yaml.
    """
    registry, *ports = free_ports(count + 1)
    servers = ["echo"] if stdio else []
    (root / "agents").mkdir(parents=True)
    (root / "agents" / "__init__.py").touch()
    agents: dict[str, Any] = {}
    for number, port in enumerate(ports):
        name = f"agent{number}"
        (root / "agents" / f"{name}.py").write_text(MODULE.format(name=name, servers=servers))
        agents[name] = {"module": f"agents.{name}", "port": port, **keys}
    if facts is not None:
        with (root / "agents" / "agent0.py").open("a") as module:
            module.write(FACTS.format(port=facts))
    topology = {"name": "bench", "bind": "127.0.0.1", "registry_port": registry, "agents": agents}
    (root / "agents.yaml").write_text(yaml.safe_dump(topology))
    settings: dict[str, Any] = {"default_model": "passthrough"}
    if stdio:
        (root / "echo.py").write_text(ECHO)
        settings["mcp"] = {"servers": {"echo": {"command": "python", "args": ["echo.py"]}}}
    (root / "fastagent.config.yaml").write_text(yaml.safe_dump(settings))
    return [f"http://127.0.0.1:{port}/mcp" for port in ports]


@contextmanager
def process(*arguments: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """A Python program in a group of its own, ended with the block."""
    environment = {**os.environ, "PALLAS_LOG_FILE": str(cwd / "pallas.log")}
    with program([sys.executable, *arguments], cwd, environment) as running:
        yield running


@contextmanager
def own_server(module: str, *arguments: object) -> Iterator[str]:
    """The origin of a module that serves a port, its first argument, in a process of its own."""
    (port,) = free_ports(1)
    here = Path(__file__).resolve().parent.parent
    with process("-m", module, str(port), *map(str, arguments), cwd=here):
        origin = f"http://127.0.0.1:{port}"
        until_http(origin)
        yield origin


def talker(root: Path, model: str) -> tuple[int, int]:
    """Write a project of one agent of that model into ``root``; the ports of the registry and the agent."""
    registry, port = free_ports(2)
    (root / "talker.py").write_text(MODULE.format(name="talker", servers=[]))
    agents = {"talker": {"module": "talker", "port": port}}
    topology = {"name": "bench", "bind": "127.0.0.1", "registry_port": registry, "agents": agents}
    (root / "agents.yaml").write_text(yaml.safe_dump(topology))
    settings = {"default_model": "generic.m", "generic": {"api_key": "none", "base_url": f"{model}/v1"}}
    (root / "fastagent.config.yaml").write_text(yaml.safe_dump(settings))
    return registry, port


@contextmanager
def program(
    command: list[str], cwd: Path, environment: Mapping[str, str], output: int | IO[str] = subprocess.PIPE
) -> Iterator[subprocess.Popen[str]]:
    """Any program in a group of its own, ended with the block."""
    running = subprocess.Popen(
        command,
        cwd=cwd,
        env=environment,
        stdout=output,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield running
    finally:
        with suppress(ProcessLookupError):
            running.send_signal(signal.SIGTERM)
        try:
            running.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()


def until_line(running: subprocess.Popen[str], text: str) -> None:
    """Until the program has printed ``text``."""
    assert running.stdout is not None
    lines: list[str] = []
    for line in running.stdout:
        lines.append(line)
        if text in line:
            return
    raise SystemExit(f"{text!r} did not come:\n{''.join(lines)}")


def until_http(url: str) -> None:
    """Until something answers there."""
    deadline = perf_counter() + DEADLINE
    while perf_counter() < deadline:
        with suppress(httpx2.HTTPError):
            httpx2.get(url, timeout=1.0)
            return
        sleep(0.02)
    raise SystemExit(f"{url} did not answer")


@contextmanager
def fleet(
    count: int, *options: str, stdio: bool = False, facts: int | None = None, **keys: int
) -> Iterator[tuple[list[str], subprocess.Popen[str], float]]:
    """A running fleet: its agents' URLs, its process, and the seconds until all agents were ready.

    ``options`` are those of the command line.
    """
    with tempfile.TemporaryDirectory(prefix="pallas-bench-") as folder:
        root = Path(folder) / "project"
        urls = project(root, count, stdio=stdio, facts=facts, **keys)
        began = perf_counter()
        with process("-m", "pallas.server", *options, cwd=root) as running:
            until_line(running, "running")
            yield urls, running, perf_counter() - began


@contextmanager
def bare(*, facts: int | None = None) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A running bare FastMCP server: its URL and its process, which tells its ``facts`` on that port."""
    (port,) = free_ports(1)
    ports = [str(each) for each in (port, facts) if each is not None]
    here = Path(__file__).resolve().parent.parent
    with process("-m", "benchmarks.bare", *ports, cwd=here) as running:
        url = f"http://127.0.0.1:{port}/mcp"
        until_http(url)
        yield url, running
