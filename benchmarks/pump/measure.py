"""What a message between handlers takes."""

import asyncio
import gc
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import yaml

from ..report import Figure

if TYPE_CHECKING:
    from pallas.fleet.fleet import Fleet
    from pallas.messaging.messaging_port import Emit
    from pallas.model import Event

COUNT = 4_000
AT_ONCE = 20
TRIES = 3
FRAMES = 10_000
"""A hundred times a hundred: what one handler says at once is bounded."""
CALLS = 300
PACKAGE = "xml-pipeline"
PYTHON_OF_IT = "PALLAS_BENCH_PUMP_PYTHON"
"""An interpreter that has that package already, in place of an environment that is made for this."""

HANDLERS = """
import asyncio
from dataclasses import dataclass

from pallas.contract import HandlerResponse


@dataclass
class Add:
    a: int
    b: int


@dataclass
class Sum:
    value: int


waiting = asyncio.Event()


async def add(payload, metadata):
    return HandlerResponse(Sum(payload.a + payload.b), to=metadata.from_id)


async def last(payload, metadata):
    return None


def forward(to):
    async def handler(payload, metadata):
        return HandlerResponse(Add(payload.a, payload.b), to=to)

    return handler


hop1, hop2, hop3 = forward("hop2"), forward("hop3"), forward("hop4")


async def many(payload, metadata):
    return b"<some.add><a>1</a><b>1</b></some.add>" * 100


async def some(payload, metadata):
    return b"<hold.add><a>1</a><b>1</b></hold.add>" * 100


async def hold(payload, metadata):
    await waiting.wait()


async def answer(request):
    return request.text
"""


def measure() -> list[Figure]:
    """Everything about handlers' messages."""
    with tempfile.TemporaryDirectory(prefix="pallas-bench-") as folder:
        figures = asyncio.run(_measured(Path(folder)))
        return [*figures, *_beside(figures, Path(folder))]


async def _measured(folder: Path) -> list[Figure]:
    async with _fleet(folder) as fleet:
        one = await _rate(fleet, "add", 1)
        ends = await _rate(fleet, "last", 1)
        four = await _rate(fleet, "hop1", 4)
        whole = await _whole(fleet)
        frames = await _frames(fleet)
    return [
        Figure("single-hop messages a second (request and answer)", one, 5_000, "/s", least=True),
        Figure("messages a second that are not answered", ends, None, "/s"),
        Figure("messages a second over four hops", four, None, "/s", f"{four / one:.2f}x a single hop's"),
        *whole,
        frames,
    ]


@asynccontextmanager
async def _fleet(folder: Path) -> AsyncIterator["Fleet"]:
    from pallas.config import load_project
    from pallas.fleet.fleet import Fleet
    from pallas.telemetry.event_hub import EventHub

    root = folder / "project"
    (root / "code").mkdir(parents=True)
    (root / "code" / "__init__.py").write_text("")
    (root / "code_of").mkdir()
    (root / "code_of" / "__init__.py").write_text(HANDLERS)
    names = {
        "add": (),
        "last": (),
        "hop1": ("hop2",),
        "hop2": ("hop3",),
        "hop3": ("hop4",),
        "many": ("some",),
        "some": ("hold",),
    }
    agents: dict[str, dict[str, object]] = {
        name: {
            "kind": "handler",
            "handler": f"code_of:{name}",
            "payload": "code_of:Add",
            "peers": list(peers),
        }
        for name, peers in names.items()
    }
    agents["hop4"] = {"kind": "handler", "handler": "code_of:last", "payload": "code_of:Add"}
    agents["hold"] = {"kind": "handler", "handler": "code_of:hold", "payload": "code_of:Add", "timeout": 600}
    agents["apart"] = {
        "kind": "handler", "handler": "code_of:add", "payload": "code_of:Add", "isolation": "process"
    }  # fmt: skip
    agents["plain"] = {"kind": "handler", "handler": "code_of:answer"}
    whole = {
        "name": "bench",
        "port": _free_port(),
        "bind": "127.0.0.1",
        "messages": {"per_run": 4 * FRAMES, "queue": 4 * FRAMES, "bytes": 8_000_000},
        "agents": agents,
    }
    (root / "agents.yaml").write_text(yaml.safe_dump(whole, sort_keys=False))
    (root / "fastagent.config.yaml").write_text("default_model: generic.none\n")
    fleet = Fleet(load_project(root), hub=EventHub(), dev=True)
    await fleet.start()
    try:
        yield fleet
    finally:
        await fleet.stop()


async def _rate(fleet: "Fleet", agent: str, hops: int) -> float:
    """Messages a second, the median of some tries, with ``AT_ONCE`` of them under way."""
    from pallas.messaging.delivery import First
    from pallas.messaging.messaging_port import MessageSender

    payload = fleet.peers.endpoints(agent)[0].payload.pack({"a": 1, "b": 2})
    emit, asker = _emitting(fleet), MessageSender("bench", agent)

    async def some(count: int) -> None:
        for _ in range(count):
            await fleet.messaging.exchange(First(agent, payload, asker), emit)

    async def once() -> float:
        count = COUNT // hops
        began = perf_counter()
        await asyncio.gather(*(some(count // AT_ONCE) for _ in range(AT_ONCE)))
        return count * hops / (perf_counter() - began)

    await some(200)
    return median([await once() for _ in range(TRIES)])


def _emitting(fleet: "Fleet") -> "Emit":
    def emit(event: "Event") -> None:
        fleet.hub.publish(event)

    return emit


async def _whole(fleet: "Fleet") -> list[Figure]:
    """A message through the kernel, as a surface asks for it: typed, apart, and without a type."""
    from pallas.model import RunRequest

    async def took(agent: str, text: str) -> float:
        async def ask() -> None:
            await fleet.kernel.run(RunRequest(agent, text))

        return await _median(ask)

    plain = await took("plain", "3")
    typed, apart = await took("add", '{"a": 1, "b": 2}'), await took("apart", '{"a": 1, "b": 2}')
    return [
        Figure("a typed handler's run, against one without a type", typed / plain, None,
               detail=f"p50 {typed * 1e6:.0f} us and {plain * 1e6:.0f} us"),
        Figure("with isolation: process, against the same in process", apart / typed, None,
               detail=f"p50 {apart * 1e6:.0f} us"),
    ]  # fmt: skip


async def _median(ask: Callable[[], Awaitable[None]]) -> float:
    took = []
    for _ in range(CALLS):
        began = perf_counter()
        await ask()
        took.append(perf_counter() - began)
    return median(took)


async def _frames(fleet: "Fleet") -> Figure:
    """What ``FRAMES`` open frames hold in memory."""
    from pallas.messaging.delivery import First
    from pallas.messaging.messaging_port import MessageSender

    payload = fleet.peers.endpoints("many")[0].payload.pack({"a": 1, "b": 1})
    gc.collect()
    before = _resident()
    first = First("many", payload, MessageSender("frames", "many"))
    running = asyncio.create_task(fleet.messaging.exchange(first, lambda event: None))
    began = perf_counter()
    # Nobody tells of a number.
    while (  # noqa: ASYNC110
        fleet.messaging.open_frames <= FRAMES and perf_counter() - began < 60 and not running.done()
    ):
        await asyncio.sleep(0.05)
    held, opened = _resident() - before, fleet.messaging.open_frames
    running.cancel()
    await asyncio.wait({running}, timeout=30)
    left = fleet.messaging.open_frames
    detail = f"{held / max(1, opened):.1f} KiB each; {left} left after the run was cancelled"
    return Figure(f"memory for {opened:,} open frames", held / 1024, 100, "MiB", detail)


def _resident() -> float:
    """KiB."""
    with Path("/proc/self/statm").open() as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() / 1024


def _beside(figures: list[Figure], folder: Path) -> list[Figure]:
    """The other pump, where its package can be had: as many messages a second as it does, and ours to it."""
    python = os.environ.get(PYTHON_OF_IT) or _environment(folder)
    if not python:
        return [
            Figure(f"beside {PACKAGE}", 0.0, None, detail="not measured: the package cannot be installed")
        ]
    found = []
    for figure, hops, count in ((figures[1], 1, 2_000), (figures[2], 4, 500)):
        program = [python, str(Path(__file__).with_name("upstream.py")), str(hops), str(count)]
        done = subprocess.run(program, capture_output=True, text=True, timeout=180, check=False)
        if done.returncode:
            return [Figure(f"beside {PACKAGE}", 0.0, None, detail="not measured: it failed")]
        theirs = float(done.stdout)
        name = f"messages a second, {hops} hop{'s' * (hops > 1)}, against {PACKAGE}"
        found.append(Figure(name, figure.value / theirs, 1.0, "x", f"{theirs:,.0f}/s there", least=True))
    return found


def _environment(folder: Path) -> str:
    """The interpreter of an environment with that package; empty where it cannot be made."""
    where = folder / "beside"
    python = where / "bin" / "python"
    for command in (
        [sys.executable, "-m", "venv", str(where)],
        [str(python), "-m", "pip", "install", "-q", PACKAGE],
    ):
        try:
            done = subprocess.run(command, capture_output=True, timeout=180, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return ""
        if done.returncode:
            return ""
    return str(python)


def _free_port() -> int:
    from ..programs import free_ports

    return free_ports(1)[0]
