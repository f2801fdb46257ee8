"""The one door: finding agents among many, a session beside a plain message, a worker beside a handler."""

import asyncio
import json
import secrets
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter

import yaml

from .caller import Caller
from .programs import free_ports, process, until_line
from .report import Figure

MANY = 1_000
FEW = 10
CALLS = 300
LOOKS = 40

HANDLER = """
async def answer(request):
    return request.text
"""
WORKER = """
import json, sys

for line in sys.stdin:
    call = json.loads(line)
    method, params = call["method"], call.get("params") or {}
    if method == "session/new":
        result = {"sessionId": str(call["id"])}
    elif method == "session/prompt":
        result = {"text": params["input"], "stopReason": "end_turn"}
    elif method == "session/close":
        result = {}
    else:
        error = {"code": -32601, "message": "Method not found"}
        print(json.dumps({"jsonrpc": "2.0", "id": call.get("id"), "error": error}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": result}), flush=True)
"""


def measure() -> list[Figure]:
    """Discovery, sessions and workers, each beside what it is compared with in the same run."""
    return [*_discovery(), *_side_by_side()]


def _discovery() -> list[Figure]:
    seconds, started = {}, {}
    size = 0
    for count in (FEW, MANY):
        began = perf_counter()
        with _registered(count) as url:
            started[count] = perf_counter() - began
            seconds[count], found = asyncio.run(_looked(url))
            size = len(found)
    each = f"p50 {seconds[MANY] * 1e3:.1f} ms, {size / 1024:.0f} KiB; {seconds[FEW] * 1e3:.2f} ms for {FEW}"
    return [
        Figure(f"agents_discover of {MANY:,}, for each agent, against {FEW}",
               (seconds[MANY] / MANY) / (seconds[FEW] / FEW), 1.0, detail=each),
        Figure(f"start with {MANY:,} registered agents", started[MANY], None, "s",
               f"{started[FEW]:.1f} s for {FEW}"),
    ]  # fmt: skip


def _side_by_side() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="pallas-bench-") as folder:
        root = Path(folder) / "project"
        agents, registry = _project(root)
        with process("-m", "pallas.server", cwd=root) as running:
            until_line(running, "running")
            return asyncio.run(_compared(agents, f"http://127.0.0.1:{registry}/mcp"))


async def _compared(agents: dict[str, str], bridge: str) -> list[Figure]:
    async with Caller(agents["upper"]) as plain, Caller(bridge) as leased, Caller(agents["echo"]) as worker:
        session = json.loads(await leased.call("sessions_create", agentId="upper"))["sessionId"]
        handle, other = secrets.token_urlsafe(18), secrets.token_urlsafe(18)
        ways = {
            "message": lambda: plain.call("send_message", message="hello", conversation_id=handle),
            "session": lambda: leased.call("sessions_prompt", sessionId=session, prompt="hello"),
            "worker": lambda: worker.call("send_message", message="hello", conversation_id=other),
        }
        took = await _in_turn(ways)
    message, leased_for, far = took["message"], took["session"], took["worker"]
    return [
        Figure("sessions_prompt against send_message", leased_for / message, 1.1,
               detail=f"p50 {leased_for * 1e3:.2f} ms against {message * 1e3:.2f} ms, a handler, kept"),
        Figure("a worker's round trip against a handler's", far / message, None,
               detail=f"p50 {far * 1e3:.2f} ms against {message * 1e3:.2f} ms"),
    ]  # fmt: skip


async def _in_turn(ways: Mapping[str, Callable[[], Awaitable[str]]]) -> dict[str, float]:
    """Median seconds of each, called in turn, so that whatever the machine does happens to all."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(CALLS + 20):
        for name, call in ways.items():
            began = perf_counter()
            await call()
            if number >= 20:
                taken[name].append(perf_counter() - began)
    return {name: median(seconds) for name, seconds in taken.items()}


async def _looked(url: str) -> tuple[float, str]:
    """Median seconds of a look at all agents, and what it found."""
    seconds, found = [], ""
    async with Caller(url) as caller:
        for _ in range(LOOKS):
            began = perf_counter()
            found = await caller.call("agents_discover")
            seconds.append(perf_counter() - began)
    return median(seconds), found


@contextmanager
def _registered(count: int) -> Iterator[str]:
    """A fleet of so many registered agents, all of them ready: the URL of its bridge."""
    with tempfile.TemporaryDirectory(prefix="pallas-bench-") as folder:
        root = Path(folder)
        (port,) = free_ports(1)
        (root / "upper.py").write_text(HANDLER)
        entry = {"kind": "handler", "handler": "upper:answer"}
        topology = {"name": "bench", "bind": "127.0.0.1", "port": port, "agents": {"upper": entry}}
        (root / "agents.yaml").write_text(yaml.safe_dump(topology))
        here = Path(__file__).resolve().parent.parent
        with process("-m", "benchmarks.registered", str(root), str(count), cwd=here) as running:
            until_line(running, "running")
            yield f"http://127.0.0.1:{port}/mcp"


def _project(root: Path) -> tuple[dict[str, str], int]:
    """A handler and a worker that say what they hear; their URLs, and the registry's port."""
    root.mkdir()
    registry, upper, echo = free_ports(3)
    (root / "upper.py").write_text(HANDLER)
    (root / "worker.py").write_text(WORKER)
    agents = {
        "upper": {"kind": "handler", "handler": "upper:answer", "port": upper},
        "echo": {"kind": "worker", "command": ["python", "worker.py"], "dialect": "ndjson", "port": echo},
    }
    topology = {"name": "bench", "bind": "127.0.0.1", "registry_port": registry, "agents": agents}
    (root / "agents.yaml").write_text(yaml.safe_dump(topology))
    return {"upper": f"http://127.0.0.1:{upper}/mcp", "echo": f"http://127.0.0.1:{echo}/mcp"}, registry
