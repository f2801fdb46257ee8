"""How long a run waits after its fleet was killed (SIGKILL) and started again: from the moment at which the
fleet says that it runs until the tool that was under way is called again."""

import asyncio
import os
import signal
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep, time

import yaml

from .caller import Caller
from .programs import DEADLINE, MODULE, free_ports, process, until_line
from .report import Figure

TIMES = 5
SERVER = """
import time
from pathlib import Path

from mcp.server.mcpserver import MCPServer

server = MCPServer("shelf")


@server.tool()
def wait() -> str:
    with Path("calls").open("a") as file:
        file.write(f"{time.time()}\\n")
    while not Path("door").exists():
        time.sleep(0.01)
    return "it is there"


server.run("stdio")
"""
SCRIPT = """
rules:
  - when: {last: user}
    call: [{tool: shelf__wait}]
  - when: {last: tool}
    say: "done"
"""


def measure() -> list[Figure]:
    """The median of a few kills."""
    waits = sorted(_waits() for _ in range(TIMES))
    detail = f"at most {waits[-1]:.2f} s, of {TIMES}"
    return [
        Figure("a killed run, until it goes on in a ready fleet", statistics.median(waits), 1.0, "s", detail)
    ]


def _waits() -> float:
    """Seconds after the fleet was ready; negative if the run went on before."""
    with tempfile.TemporaryDirectory(prefix="pallas-bench-") as folder:
        root = Path(folder)
        url = _project(root)
        with process("-m", "pallas.server", cwd=root) as running:
            until_line(running, "] running")
            asyncio.run(_ask(url, lambda: len(_calls(root)) == 1))
            os.killpg(running.pid, signal.SIGKILL)
        with process("-m", "pallas.server", cwd=root) as running:
            until_line(running, "] running")
            ready = time()
            _until(lambda: len(_calls(root)) == 2)
            (root / "door").touch()
        return _calls(root)[1] - ready


async def _ask(url: str, is_called: Callable[[], bool]) -> None:
    """Ask the agent and come back once its tool is called."""
    async with Caller(url) as caller:
        asking = asyncio.create_task(caller.call("send_message", message="go", conversation_id="mine"))
        await asyncio.to_thread(_until, is_called)
        asking.cancel()


def _calls(root: Path) -> list[float]:
    """When the tool was called."""
    file = root / "calls"
    return [float(line) for line in file.read_text().splitlines()] if file.exists() else []


def _project(root: Path) -> str:
    """Write a project whose agent calls a tool that waits; returns its URL."""
    registry, port, model = free_ports(3)
    clerk = {"module": "clerk", "port": port, "unfinished_calls": {"shelf__wait": "repeat"}}
    topology = {
        "name": "bench",
        "bind": "127.0.0.1",
        "registry_port": registry,
        "database_url": f"sqlite:///{root}/ledger.sqlite3",
        "scripted": {"script": "model.yaml", "port": model},
        "agents": {"clerk": clerk},
    }
    settings = {
        "default_model": "generic.scripted",
        "generic": {"base_url": f"http://127.0.0.1:{model}/v1", "api_key": "offline"},
        "mcp": {"servers": {"shelf": {"command": "python", "args": ["shelf.py"]}}},
    }
    (root / "agents.yaml").write_text(yaml.safe_dump(topology))
    (root / "fastagent.config.yaml").write_text(yaml.safe_dump(settings))
    (root / "model.yaml").write_text(SCRIPT)
    (root / "shelf.py").write_text(SERVER)
    (root / "clerk.py").write_text(MODULE.format(name="clerk", servers=["shelf"]))
    return f"http://127.0.0.1:{port}/mcp"


def _until(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + DEADLINE
    while not condition():
        if monotonic() > deadline:
            raise SystemExit("the run did not go on")
        sleep(0.005)
