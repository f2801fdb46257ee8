"""How long a fleet takes to answer, what an agent costs in memory, and when the screen is painted."""

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import tempfile
import termios
from contextlib import suppress
from pathlib import Path
from statistics import median
from time import perf_counter

import psutil

from .programs import DEADLINE, fleet, project
from .report import Figure

ROUNDS = 5
MANY = 8


def measure() -> list[Figure]:
    """Start of eight agents against one, memory per extra agent, first paint."""
    seconds: dict[int, list[float]] = {1: [], MANY: []}
    rss: dict[int, list[float]] = {1: [], MANY: []}
    for _ in range(ROUNDS):
        for count in (1, MANY):
            with fleet(count) as (_, running, took):
                seconds[count].append(took)
                rss[count].append(psutil.Process(running.pid).memory_info().rss / 1e6)
    one, many = median(seconds[1]), median(seconds[MANY])
    extra = (median(rss[MANY]) - median(rss[1])) / (MANY - 1)
    paints = [first_paint() for _ in range(ROUNDS)]
    python = [_bare_textual() for _ in range(ROUNDS)]
    return [
        Figure(
            f"all of {MANY} agents answering against 1",
            many / one,
            1.15,
            detail=f"{many:.2f} s and {one:.2f} s",
        ),
        Figure("memory per extra agent", extra, 2.0, unit="MB", detail=f"{median(rss[1]):.0f} MB with one"),
        Figure(
            "first paint",
            median(paints),
            1.0,
            unit="s",
            detail=f"{median(paints) / median(python):.1f}x an empty Textual app ({median(python):.2f} s)",
        ),
    ]


def first_paint() -> float:
    """Seconds from exec until the workbench's frame is on a real terminal."""
    with tempfile.TemporaryDirectory(prefix="pallas-bench-") as folder:
        root = Path(folder) / "project"
        project(root, 4)
        environment = {**os.environ, "PALLAS_LOG_FILE": str(root / "pallas.log"), "TERM": "xterm-256color"}
        command = [sys.executable, "-m", "pallas.server", "dev", str(root)]
        return _until_text(command, environment, "Agents")


def _bare_textual() -> float:
    source = (
        "from textual.app import App\nfrom textual.widgets import Static\n"
        "class A(App):\n    def compose(self):\n        yield Static('Agents')\n"
        "A().run()\n"
    )
    return _until_text([sys.executable, "-c", source], {**os.environ, "TERM": "xterm-256color"}, "Agents")


def _until_text(command: list[str], environment: dict[str, str], text: str) -> float:
    began = perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(command[0], command, environment)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    seen = b""
    try:
        while perf_counter() - began < DEADLINE:
            if select.select([terminal], [], [], 0.2)[0]:
                try:
                    seen += os.read(terminal, 65536)
                except OSError:
                    break
            if text.encode() in seen:
                return perf_counter() - began
        raise SystemExit(f"{text!r} was not painted: {seen[-500:]!r}")
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        _reap(pid, terminal)


def _reap(pid: int, terminal: int) -> None:
    """Let it restore the terminal and end; what does not end is killed."""
    deadline = perf_counter() + 10
    while perf_counter() < deadline:
        done, _ = os.waitpid(pid, os.WNOHANG)
        if done:
            os.close(terminal)
            return
        if select.select([terminal], [], [], 0.05)[0]:
            with suppress(OSError):
                os.read(terminal, 65536)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(terminal)
