"""A workbench that is left alone: processor time and bytes to its terminal, beside an empty Textual app."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import psutil

from .programs import project
from .report import Figure
from .screen import Screen, screen

AGENTS = 3
SETTLE = 20.0
"""Seconds until the cursor rests and all that a start leaves to be done is done."""
WATCHED = 60.0
_EMPTY = """
from textual.app import App
from textual.widgets import Input


class Empty(App):
    def compose(self):
        yield Input(placeholder="Nothing here")


Empty().run()
"""


@dataclass(slots=True)
class Idle:
    """What a program at rest costs: share of a core in percent, and bytes a second."""

    share: float
    written: float


def measure() -> list[Figure]:
    """Both side by side for a minute, so that a busy machine is the same for both."""
    workbench, empty = at_rest(SETTLE, WATCHED)
    detail = f"{workbench.share:.2f} % and {empty.share:.2f} % of a core"
    return [
        Figure("idle workbench, processor time", workbench.share / empty.share, 1.0, detail=detail),
        Figure(
            "idle workbench, written to the terminal",
            workbench.written,
            50,
            "B/s",
            f"the empty app {empty.written:.0f} B/s",
        ),
    ]


def at_rest(settle: float, watched: float) -> tuple[Idle, Idle]:
    """The workbench and the empty app, for ``watched`` seconds after ``settle`` seconds."""
    with ExitStack() as stack:
        shown = [stack.enter_context(_workbench()), stack.enter_context(_empty())]
        workbench, empty = _watched(shown, settle, watched)
    return workbench, empty


def _watched(shown: list[Screen], settle: float, watched: float) -> list[Idle]:
    _read_all(shown, settle)
    before = [_seconds(each.pid) for each in shown]
    written = _read_all(shown, watched)
    return [
        Idle(100 * (_seconds(each.pid) - began) / watched, count / watched)
        for each, began, count in zip(shown, before, written, strict=True)
    ]


def _seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def _read_all(shown: list[Screen], seconds: float) -> list[int]:
    """Take what they write for that long; returns how many bytes each wrote."""
    counts, end = [0] * len(shown), perf_counter() + seconds
    while perf_counter() < end:
        for index, each in enumerate(shown):
            counts[index] += each.take(0.1)
    return counts


@contextmanager
def _workbench() -> Iterator[Screen]:
    with tempfile.TemporaryDirectory(prefix="pallas-bench-") as folder:
        root = Path(folder) / "project"
        project(root, AGENTS)
        environment = {
            **os.environ,
            "PALLAS_LOG_FILE": f"{folder}/pallas.log",
            "PALLAS_WORKBENCH_CONFIG": f"{folder}/workbench.yaml",
        }
        command = [sys.executable, "-m", "pallas.server", "dev", str(root)]
        with screen(command, environment, cwd=Path(__file__).resolve().parent.parent) as shown:
            shown.until("rite to")
            yield shown


@contextmanager
def _empty() -> Iterator[Screen]:
    with screen([sys.executable, "-c", _EMPTY], dict(os.environ)) as shown:
        shown.until("Nothing here", "othing here")
        yield shown
