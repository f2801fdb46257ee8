"""The figures that matter most, each a ratio with the most it may be (``make bench-gate``).

A bound is about 30 % above what was reached when it was set, so that what was won is not lost unseen. Both
sides of a ratio are measured by turns or side by side, as processor time or memory, so that other work on the
machine is the same for both. What exceeds its bound is measured once more. The status is 1 if it does again.
"""

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter

import psutil

from pallas.processes.event_loop import run

from . import answers, downstreams, idle, load, models, startup, terminal
from .first_answer import IMPORTS, imports, one_agent
from .programs import own_state
from .report import Figure
from .tool_server import tool_server

STARTS = 3


@dataclass(frozen=True, slots=True)
class Bound:
    """A figure and the most that it may be."""

    name: str
    most: float
    measure: Callable[[], float]


def _first_paint() -> float:
    workbench, empty = startup.paints(4)
    return workbench.processor / empty.processor


def _first_answer() -> float:
    """The seconds of a start by those that the imports of fast-agent and FastMCP take."""
    ratios = []
    for _ in range(STARTS):
        base = imports()
        with one_agent() as (_, _, took):
            ratios.append(took / base)
    return min(ratios)


def _memory() -> float:
    """The memory of an agent after its first answer by that of a process with only those imports."""
    with one_agent() as (_, running, _):
        ours = psutil.Process(running.pid).memory_full_info().uss
    waiting = f"{IMPORTS}; print('ready', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", waiting], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as bare:
        assert bare.stdout is not None
        bare.stdout.readline()
        theirs = psutil.Process(bare.pid).memory_full_info().uss
        with suppress(BrokenPipeError):
            bare.communicate("\n", timeout=30)
    return ours / theirs


def _idle() -> float:
    workbench, empty = idle.at_rest(12, 25)
    return workbench.share / empty.share


def _streamed() -> float:
    with terminal.shown() as (workbench, peer):
        return terminal.streamed(workbench, 12).share / terminal.streamed(peer, 12).share


def _blocks() -> float:
    with terminal.shown() as (workbench, _):
        terminal.whole(workbench, "blocks 20")  # builds what is built once
        few, many = (terminal.whole(workbench, f"blocks {count}") for count in terminal.BLOCKS)
    return many / few


def _call() -> float:
    with tool_server() as origin:
        return max(figure.value for figure in run(downstreams.beside_the_sdk(origin)))


BOUNDS = (
    Bound("first paint, against an empty Textual app", 2.4, _first_paint),
    Bound("start to first answer, against fast-agent's imports", 1.3, _first_answer),
    Bound("memory of one agent, against fast-agent's imports", 2.2, _memory),
    Bound("a kept turn of one caller, against bare FastMCP", 2.8, lambda: load.cost(1, 4)),
    Bound("a kept turn of 16 callers, against bare FastMCP", 2.5, lambda: load.cost(16, 4)),
    Bound("turn 100 of a conversation against turn 1", 1.7, lambda: models.long_conversation().value),
    Bound("a model call, against fast-agent's way", 1.0, lambda: models.connections()[1].value),
    Bound("reading an answer, against the library alone", 1.6, lambda: answers.measure()[0].value),
    Bound("a tool call, against the SDK's client", 2.0, _call),
    Bound("idle workbench, against an empty Textual app", 1.6, _idle),
    Bound("streamed answer, against Textual's Markdown", 0.9, _streamed),
    Bound("an answer of 2,000 blocks against one of 500", 3.5, _blocks),
)


def main(names: list[str]) -> int:
    """Measure those whose names contain one of ``names``, all without one, and print them."""
    failed = 0
    with own_state():
        for bound in BOUNDS:
            if names and not any(name in bound.name for name in names):
                continue
            began = perf_counter()
            value = bound.measure()
            again = ""
            if value > bound.most:
                again = f"; {value:.2f} the first time"
                value = bound.measure()
            failed += value > bound.most
            detail = f"{perf_counter() - began:.0f} s{again}"
            print(Figure(bound.name, value, bound.most, detail=detail).row(), flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
