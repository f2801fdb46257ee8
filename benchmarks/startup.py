"""How long a fleet takes to answer, what an agent costs in memory, and when the screen is painted."""

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import psutil

from .first_answer import imports, one_agent, sample_project
from .programs import fleet, project
from .report import Figure
from .screen import screen

ROUNDS = 5
MANY = 8


def measure() -> list[Figure]:
    """Start to first answer, start of eight agents against one, memory per extra agent, first paint."""
    answers: dict[str, list[float]] = {"one": [], "sample": [], "imports": []}
    for _ in range(ROUNDS):
        answers["imports"].append(imports())
        for name, started in (("one", one_agent), ("sample", sample_project)):
            with started() as (_, _, took):
                answers[name].append(took)
    base = median(answers["imports"])
    with sample_project(pauses=True) as (_, _, took):
        notes = {"one": "", "sample": f"; {took:.2f} s with the pauses of its scripted model"}
    seconds: dict[int, list[float]] = {1: [], MANY: []}
    rss: dict[int, list[float]] = {1: [], MANY: []}
    for _ in range(ROUNDS):
        for count in (1, MANY):
            with fleet(count) as (_, running, took):
                seconds[count].append(took)
                rss[count].append(psutil.Process(running.pid).memory_info().rss / 1e6)
    one, many = median(seconds[1]), median(seconds[MANY])
    extra = (median(rss[MANY]) - median(rss[1])) / (MANY - 1)
    workbench, empty = paints(2 * ROUNDS)
    return [
        *(
            Figure(
                f"start to first answer, {what}",
                median(answers[name]),
                aim,
                unit="s",
                detail=f"{median(answers[name]) / base:.1f}x the imports of fast-agent and FastMCP "
                f"({base:.2f} s){notes[name]}",
            )
            for name, what, aim in (("one", "one agent", 1.8), ("sample", "sample project", 2.5))
        ),
        Figure(
            f"all of {MANY} agents answering against 1",
            many / one,
            1.15,
            detail=f"{many:.2f} s and {one:.2f} s",
        ),
        Figure("memory per extra agent", extra, 2.0, unit="MB", detail=f"{median(rss[1]):.0f} MB with one"),
        Figure(
            "first paint, processor time against an empty Textual app",
            workbench.processor / empty.processor,
            1.8,
            detail=f"{workbench.processor:.2f} s and {empty.processor:.2f} s; "
            f"{workbench.wall:.2f} s and {empty.wall:.2f} s until it is seen",
        ),
    ]


@dataclass(frozen=True, slots=True)
class Paint:
    """Seconds from exec until a frame is on a real terminal, and those of the processor."""

    wall: float
    processor: float


def paints(rounds: int) -> tuple[Paint, Paint]:
    """The medians of the workbench and of an empty Textual app, by turns; the first of each compiles."""
    found = [(first_paint(), _bare_textual()) for _ in range(rounds + 1)][1:]
    return tuple(  # type: ignore[return-value]
        Paint(median(each.wall for each in one), median(each.processor for each in one))
        for one in zip(*found, strict=True)
    )


def first_paint() -> Paint:
    """The first frame of the workbench."""
    with tempfile.TemporaryDirectory(prefix="pallas-bench-") as folder:
        root = Path(folder) / "project"
        project(root, 4)
        environment = {**os.environ, "PALLAS_LOG_FILE": str(root / "pallas.log")}
        command = [sys.executable, "-m", "pallas.server", "dev", str(root)]
        return _until_text(command, environment, "Agents")


def _bare_textual() -> Paint:
    source = (
        "from textual.app import App\nfrom textual.widgets import Static\n"
        "class A(App):\n    def compose(self):\n        yield Static('Agents')\n"
        "A().run()\n"
    )
    return _until_text([sys.executable, "-c", source], dict(os.environ), "Agents")


def _until_text(command: list[str], environment: dict[str, str], text: str) -> Paint:
    with screen(command, environment) as shown:
        shown.until(text)
        wall, used = perf_counter() - shown.began, psutil.Process(shown.pid).cpu_times()
        return Paint(wall, used.user + used.system)
