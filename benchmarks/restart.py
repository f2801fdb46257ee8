"""How long something is away that was killed (SIGKILL), until it answers again: an agent in a process of its
own, and a program of the project, beside a bare FastMCP server that a loop starts again at once. And an agent
of the process of the fleet that is restarted by hand."""

import os
import signal
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import Any

import httpx2
import psutil
import yaml

from .programs import DEADLINE, MODULE, free_ports, process, until_http, until_line
from .report import Figure

TIMES = 5
TOKEN = "a-token-of-the-benchmark"
AGAIN = {"backoff": 0.05, "backoff_max": 0.05, "crashes": 100}
SERVER = """
import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("shop")


@server.tool()
def stock(name: str) -> str:
    return name


server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
"""
LOOP = """
import subprocess
import sys

while True:
    subprocess.run([sys.executable, "-m", "benchmarks.bare", sys.argv[1]])
"""


def measure() -> list[Figure]:
    """The medians of a few deaths each."""
    with _fleet() as fleet:
        alone = _median(lambda: fleet.kill_agent("alone"))
        shop = _median(fleet.kill_shop)
        by_hand = _median(lambda: fleet.restart("plain"))
    bare = _bare()
    return [
        Figure("an agent's process killed, until it answers", alone / bare, 2.5, detail=_beside(alone, bare)),
        Figure("a program killed, until it answers", shop / bare, 1.5, detail=_beside(shop, bare)),
        Figure("an agent restarted by hand, until it answers", by_hand, 1.0, unit="s"),
    ]


def _beside(seconds: float, bare: float) -> str:
    return f"{seconds:.2f} s; a bare server, started again at once: {bare:.2f} s"


def _median(away: Callable[[], float]) -> float:
    return statistics.median(away() for _ in range(TIMES))


class _Running:
    """A fleet that is being harmed."""

    def __init__(self, registry: str, urls: dict[str, str], shop: str, pid: int) -> None:
        self._urls, self._shop = urls, shop
        self._fleet = psutil.Process(pid)
        self._http = httpx2.Client(
            base_url=f"{registry}/api/v1/fleet",
            headers={"authorization": f"Bearer {TOKEN}"},
            timeout=30,
            trust_env=False,
        )

    def kill_agent(self, name: str) -> float:
        """Seconds until it takes a message again."""
        os.kill(self._agent(name)["pid"], signal.SIGKILL)
        began = perf_counter()
        _until(lambda: not self._answers(name))
        _until(lambda: self._answers(name))
        return perf_counter() - began

    def kill_shop(self) -> float:
        """Seconds until its URL answers again."""
        for child in self._fleet.children(recursive=True):
            with suppress(psutil.Error):
                if "shop.py" in " ".join(child.cmdline()):
                    child.kill()
        began = perf_counter()
        _until(lambda: not _http_at(self._shop))
        _until(lambda: _http_at(self._shop))
        return perf_counter() - began

    def restart(self, name: str) -> float:
        """Seconds until it takes a message again."""
        restarts = self._agent(name)["restarts"]
        began = perf_counter()
        self._http.post(f"/agents/{name}/restart").raise_for_status()
        _until(lambda: self._agent(name)["restarts"] > restarts and self._answers(name))
        return perf_counter() - began

    def _agent(self, name: str) -> dict[str, Any]:
        agents = self._http.get("/snapshot").json()["snapshot"]["agents"]
        found: dict[str, Any] = next(each for each in agents if each["name"] == name)
        return found

    def _answers(self, name: str) -> bool:
        call = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {
                "name": "send_message",
                "arguments": {"message": "hello"},
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientCapabilities": {},
                    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
                },
            },
        }
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "tools/call",
            "mcp-name": "send_message",
        }
        with suppress(httpx2.HTTPError):
            answer = httpx2.post(self._urls[name], json=call, headers=headers, timeout=30, trust_env=False)
            return answer.status_code == 200 and '"isError":true' not in answer.text
        return False


@contextmanager
def _fleet() -> Iterator[_Running]:
    registry, shop, *ports = free_ports(4)
    names = ("alone", "plain")
    with tempfile.TemporaryDirectory(prefix="pallas-bench-") as folder:
        root = Path(folder) / "project"
        (root / "agents").mkdir(parents=True)
        (root / "agents" / "__init__.py").touch()
        (root / "shop.py").write_text(SERVER)
        agents: dict[str, Any] = {}
        for name, port in zip(names, ports, strict=True):
            (root / "agents" / f"{name}.py").write_text(MODULE.format(name=name, servers=[]))
            agents[name] = {"module": f"agents.{name}", "port": port, "restart": AGAIN}
        agents["alone"]["isolation"] = "process"
        url = f"http://127.0.0.1:{shop}/mcp"
        topology = {
            "name": "bench",
            "bind": "127.0.0.1",
            "registry_port": registry,
            "servers": {"shop": {"command": f"python shop.py {shop}", "url": url, "restart": AGAIN}},
            "agents": agents,
        }
        (root / "agents.yaml").write_text(yaml.safe_dump(topology))
        (root / "fastagent.config.yaml").write_text(yaml.safe_dump({"default_model": "passthrough"}))
        os.environ["PALLAS_CONTROL_TOKEN"] = TOKEN
        with process("-m", "pallas.server", cwd=root) as running:
            until_line(running, "] running")
            urls = {name: f"http://127.0.0.1:{port}/mcp" for name, port in zip(names, ports, strict=True)}
            yield _Running(f"http://127.0.0.1:{registry}", urls, url, running.pid)


def _bare() -> float:
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}/mcp"
    here = Path(__file__).resolve().parent.parent
    with process("-c", LOOP, str(port), cwd=here) as running:
        until_http(url)

        def away() -> float:
            for child in psutil.Process(running.pid).children():
                child.kill()
            began = perf_counter()
            _until(lambda: not _http_at(url))
            _until(lambda: _http_at(url))
            return perf_counter() - began

        seconds = _median(away)
        children = psutil.Process(running.pid).children()
    for child in children:
        with suppress(psutil.Error):
            child.kill()
    return seconds


def _http_at(url: str) -> bool:
    with suppress(httpx2.HTTPError):
        httpx2.get(url, timeout=1.0, trust_env=False)
        return True
    return False


def _until(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + DEADLINE
    while not condition():
        if monotonic() > deadline:
            raise SystemExit("what was killed did not come back")
        sleep(0.005)
