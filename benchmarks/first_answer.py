"""Fleets from the start of their process to the first answer: one agent, and the sample project."""

import asyncio
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

import yaml

from pallas.processes.event_loop import run

from .caller import Caller
from .model_server import model
from .models import AGENT, SETTINGS, WORDS
from .programs import DEADLINE, free_ports, process

SAMPLE = Path(__file__).resolve().parent.parent / "sample_project"
QUESTION = "Which customers were hit by the May invoice bug, and what did they buy?"
IMPORTS = "import fastmcp; from fast_agent import FastAgent"

type Answered = tuple[str, subprocess.Popen[str], float]
"""The agent's URL, the fleet's process, and the seconds from its start until the agent had answered."""


@contextmanager
def one_agent() -> Iterator[Answered]:
    """A fleet of one agent, whose model is a process beside it."""
    port, registry = free_ports(2)
    with model(WORDS) as base, tempfile.TemporaryDirectory(prefix="pallas-bench-") as folder:
        root = Path(folder) / "project"
        root.mkdir()
        agents = {"talker": {"module": "talker", "port": port}}
        (root / "agents.yaml").write_text(
            yaml.safe_dump(
                {"name": "bench", "bind": "127.0.0.1", "registry_port": registry, "agents": agents}
            )
        )
        (root / "talker.py").write_text(AGENT)
        (root / "fastagent.config.yaml").write_text(SETTINGS.format(base=base))
        with _answered(root, port, "hello") as answered:
            yield answered


@contextmanager
def sample_project(*, pauses: bool = False) -> Iterator[Answered]:
    """The sample project on free ports; the concierge answers, once it has asked two other agents.

    Its scripted model thinks and types as a model does, for 4.8 s: only with ``pauses``.
    """
    with tempfile.TemporaryDirectory(prefix="pallas-bench-") as folder:
        root = Path(folder) / "project"
        shutil.copytree(SAMPLE, root, ignore=shutil.ignore_patterns(".pallas", "__pycache__"))
        files = [root / "agents.yaml", root / "fastagent.config.yaml"]
        used = sorted({port for file in files for port in re.findall(r"\b242\d\d\b", file.read_text())})
        ports = dict(zip(used, map(str, free_ports(len(used))), strict=True))
        for file in files:
            file.write_text(re.sub(r"\b242\d\d\b", lambda found: ports[found[0]], file.read_text()))
        if not pauses:
            script = root / "model.yaml"
            script.write_text(re.sub(r"(?m)^(delay|pace): \S+", r"\1: 0", script.read_text()))
        concierge = yaml.safe_load(files[0].read_text())["agents"]["concierge"]["port"]
        with _answered(root, concierge, QUESTION) as answered:
            yield answered


def imports() -> float:
    """Seconds that Python takes to import fast-agent and FastMCP, in a process of its own."""
    began = perf_counter()
    subprocess.run([sys.executable, "-c", IMPORTS], check=True, capture_output=True)
    return perf_counter() - began


@contextmanager
def _answered(root: Path, port: int, question: str) -> Iterator[Answered]:
    url = f"http://127.0.0.1:{port}/mcp"
    began = perf_counter()
    with process("-m", "pallas.server", "--serve", cwd=root) as running:
        run(_until_answer(url, question))
        yield url, running, perf_counter() - began


async def _until_answer(url: str, question: str) -> None:
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                async with Caller(url) as caller:
                    await caller.call("send_message", message=question)
                return
            except (OSError, RuntimeError, EOFError):  # its port is closed, or it is not ready
                await asyncio.sleep(0.01)
