"""A fleet that is told to stop (SIGTERM) with 100 runs in flight, half of them of each protocol era: how many
callers get their answer, or what was written so far, and how long it takes until the process is gone."""

import asyncio
import json
import re
import signal
import tempfile
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import httpx2
import yaml

from pallas.processes.event_loop import run

from .caller import HANDSHAKE, MODERN, Caller
from .programs import free_ports, process, project, until_line
from .report import Figure

RUNS = 100
AGENTS = 4
ERAS = (MODERN, HANDSHAKE)
# Seconds within which a fleet answers that has nothing else to do.
CALM = 0.1
_ACTIVE = re.compile(r"^pallas_runs_in_flight\{.*\} (.*)$", re.MULTILINE)
ANSWER = " ".join(["so", "much", "was", "written", "by", "then"] * 20)
SCRIPT = """
rules:
  - when: {{last: user, text: quickly}}
    say: done
    delay: {seconds}
  - say: {words}
    pace: {pace}
"""


@dataclass(frozen=True, slots=True)
class Drain:
    """What came of one: callers by what they got (``answered``, ``partial``, ``fault``, ``lost``), seconds
    from the signal to the end of the process, and its exit status."""

    got: Counter[str]
    seconds: float
    status: int


def measure() -> list[Figure]:
    """All runs finish in time; none does."""
    finished = run(drained("quickly", drain_timeout=60, seconds=10))
    cut = run(drained("slowly", drain_timeout=2))
    return [
        Figure(
            f"{RUNS} runs that finish: answered",
            finished.got["answered"] / RUNS,
            1.0,
            least=True,
            detail=f"{_told(finished)}; {finished.seconds:.1f} s from SIGTERM, runs take 10 s",
        ),
        Figure(
            f"{RUNS} runs cut short: told with what was written",
            cut.got["partial"] / RUNS,
            1.0,
            least=True,
            detail=_told(cut),
        ),
        Figure("the same, beyond drain_timeout (2 s)", cut.seconds - 2, 5.0, unit="s"),
    ]


async def drained(message: str, *, drain_timeout: float, seconds: float = 0.0, runs: int = RUNS) -> Drain:
    """Send ``runs`` messages, SIGTERM when all are in flight, and wait for everybody."""
    with tempfile.TemporaryDirectory(prefix="pallas-bench-") as folder:
        root = Path(folder) / "project"
        urls = project(root, AGENTS, max_instances=-(-runs // AGENTS))
        _on_script(root, drain_timeout, seconds)
        with process("-m", "pallas.server", cwd=root) as served:
            until_line(served, "running")
            async with AsyncExitStack() as stack:
                callers = [
                    await stack.enter_async_context(Caller(urls[number % AGENTS], ERAS[number // AGENTS % 2]))
                    for number in range(runs)
                ]
                for caller in callers:
                    await caller.open_session()
                calls = [asyncio.create_task(_outcome(caller, message)) for caller in callers]
                await _in_flight(_registry(root), runs)
                began = perf_counter()
                served.send_signal(signal.SIGTERM)
                status = await asyncio.to_thread(served.wait, drain_timeout + 30)
                took = perf_counter() - began
                got = Counter(await asyncio.wait_for(asyncio.gather(*calls), 10))
        return Drain(got, took, status)


def _on_script(root: Path, drain_timeout: float, seconds: float) -> None:
    """The project on a model that takes its time."""
    (port,) = free_ports(1)
    topology = yaml.safe_load((root / "agents.yaml").read_text())
    topology |= {"drain_timeout": drain_timeout, "scripted": {"script": "model.yaml", "port": port}}
    (root / "agents.yaml").write_text(yaml.safe_dump(topology))
    (root / "model.yaml").write_text(SCRIPT.format(seconds=seconds, words=ANSWER, pace=0.5))
    model = {"base_url": f"http://127.0.0.1:{port}/v1", "api_key": "offline"}
    settings = {"default_model": "generic.scripted", "generic": model}
    (root / "fastagent.config.yaml").write_text(yaml.safe_dump(settings))


def _registry(root: Path) -> str:
    return f"http://127.0.0.1:{yaml.safe_load((root / 'agents.yaml').read_text())['registry_port']}"


async def _in_flight(registry: str, runs: int) -> None:
    """Until so many runs are being answered, and the fleet is done with making all of them begin."""
    async with httpx2.AsyncClient(trust_env=False, timeout=30) as http:
        while True:
            metrics = (await http.get(f"{registry}/metrics")).text
            if sum(map(float, _ACTIVE.findall(metrics))) >= runs:
                break
            await asyncio.sleep(0.05)
        calm = 0
        while calm < 5:
            asked = perf_counter()
            await http.get(f"{registry}/healthz")
            calm = calm + 1 if perf_counter() - asked < CALM else 0
            await asyncio.sleep(0.05)


async def _outcome(caller: Caller, message: str) -> str:
    try:
        await caller.call("send_message", message=message)
    except RuntimeError as error:  # an answer that is a Fault
        body = str(error).partition("failed: ")[2]
        data = json.loads(body)["data"] if body.endswith("}") else {}
        written = data.get("partial", "").strip()
        return "partial" if written and ANSWER.startswith(written) else "fault"
    except (OSError, EOFError, asyncio.IncompleteReadError):
        return "lost"
    return "answered"


def _told(drain: Drain) -> str:
    found = ", ".join(f"{count} {what}" for what, count in sorted(drain.got.items()))
    return f"{found}; exit status {drain.status}"
