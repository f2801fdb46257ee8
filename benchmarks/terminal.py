"""Answers in the workbench, on a real terminal, beside an empty Textual app that shows the same model's text
with Textual's own Markdown stream. The fleet is a process of its own, to which the workbench is attached, so
only what shows the answer is measured."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import quantiles
from time import perf_counter

import psutil

from .markdown_model import END, RATE, markdown_model
from .programs import process, talker, until_line
from .report import Figure
from .screen import Screen, screen

HERE = Path(__file__).resolve().parent.parent
SECONDS = 20
"""Of an answer that is streamed."""
BLOCKS = (500, 2_000)
ANSWERS = 40
SIZE = 20_000
"""Characters of each of the answers that are kept."""
KEY_EVERY = 0.3
# Seconds for what follows the end of an answer: its last frame, and what is freed.
_REST = 1.0
_numbers = count(1)


@dataclass(slots=True)
class Streamed:
    """What an answer costs the program that shows it."""

    share: float
    """Of one core."""
    written: float
    """Bytes a second to the terminal."""
    keys: list[float]
    """Seconds until each key that was pressed meanwhile was shown."""


def measure() -> Iterator[Figure]:
    """Yield the figures."""
    with shown() as (workbench, peer):
        ours, theirs = streamed(workbench), streamed(peer)
        detail = f"{100 * ours.share:.0f} % and {100 * theirs.share:.0f} % of a core"
        name = f"an answer of {RATE} pieces a second, against Textual's Markdown"
        yield Figure(f"{name}: processor time", ours.share / theirs.share, 0.2, detail=detail)
        yield Figure("the same: processor time", 100 * ours.share, 10, "%")
        yield Figure(
            "the same: written to the terminal",
            ours.written / 1000,
            10,
            "kB/s",
            f"the app {theirs.written / 1000:.0f} kB/s",
        )
        yield Figure(
            "a key meanwhile until it shows: p95",
            _p95(ours.keys),
            50,
            "ms",
            f"the app {_p95(theirs.keys):.0f} ms",
        )
        few, many = (whole(workbench, f"blocks {blocks}") for blocks in BLOCKS)
        yield Figure(
            f"an answer of {BLOCKS[1]:,} blocks against one of {BLOCKS[0]}: processor time",
            many / few,
            BLOCKS[1] / BLOCKS[0],
            detail=f"{many:.2f} s and {few:.2f} s",
        )
    with shown() as (workbench, _):
        added, left = kept(workbench)
        yield Figure(f"memory after {ANSWERS} answers of 20 kB", added, 20, "MB")
        yield Figure("the same after /clear", left, 5, "MB")


def streamed(screen: Screen, seconds: int = SECONDS) -> Streamed:
    """Ask for an answer of that many seconds, and press keys meanwhile."""
    end = ask_for(screen, f"stream {seconds}")
    screen.until("Section", timeout=30)
    before, began, written, keys = processor_time(screen.pid), perf_counter(), 0, []
    while perf_counter() - began < seconds - 2:
        taken, wrote = _key(screen)
        keys.append(taken)
        written += wrote + _read(screen, KEY_EVERY)
    took = perf_counter() - began
    used = processor_time(screen.pid) - before
    screen.until(end, timeout=60)
    screen.drain(_REST)
    screen.press("\x15")  # the line is emptied
    return Streamed(used / took, written / took, keys)


def whole(screen: Screen, question: str) -> float:
    """Processor seconds for an answer that comes at once, until it is shown to its end."""
    before = processor_time(screen.pid)
    screen.until(ask_for(screen, question), timeout=90)
    screen.drain(_REST)
    return processor_time(screen.pid) - before


def kept(screen: Screen) -> tuple[float, float]:
    """MB of memory that answers add which can be read again, and that are left once they are cleared."""
    whole(screen, f"whole {SIZE}")
    before = memory(screen.pid)
    for _ in range(ANSWERS):
        whole(screen, f"whole {SIZE}")
    added = memory(screen.pid) - before
    ask(screen, "/clear")
    screen.drain(2 * _REST)
    return added / 1e6, (memory(screen.pid) - before) / 1e6


def ask_for(screen: Screen, answer: str) -> str:
    """Ask for an answer; its last line, which no earlier answer on the screen has."""
    number = next(_numbers)
    ask(screen, f"{answer} for {number}")
    return END.format(n=number)


def ask(screen: Screen, question: str) -> None:
    """Write a question and send it."""
    screen.press(question)
    screen.drain(0.3)
    screen.press("\r")


def _key(screen: Screen) -> tuple[float, int]:
    """Seconds until a letter shows, and the bytes that were written until then."""
    counted = screen.written
    taken = screen.type_letter()
    return taken, screen.written - counted


def _read(screen: Screen, seconds: float) -> int:
    counted = screen.written
    screen.drain(seconds)
    return screen.written - counted


def _p95(seconds: list[float]) -> float:
    return quantiles(seconds, n=20)[18] * 1e3


def processor_time(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def memory(pid: int) -> int:
    return psutil.Process(pid).memory_full_info().uss


@contextmanager
def shown() -> Iterator[tuple[Screen, Screen]]:
    """A workbench attached to a fleet of that model, and the app, each ready to be asked."""
    with ExitStack() as stack:
        model = stack.enter_context(markdown_model())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pallas-bench-")))
        (folder / "project").mkdir()
        registry, _ = talker(folder / "project", model)
        fleet = stack.enter_context(process("-m", "pallas.server", "--serve", cwd=folder / "project"))
        until_line(fleet, "] running")
        environment = {
            **os.environ,
            "PALLAS_LOG_FILE": str(folder / "pallas.log"),
            "PALLAS_WORKBENCH_CONFIG": str(folder / "workbench.yaml"),
        }
        attached = [sys.executable, "-m", "pallas.server", "dev", "--attach", f"http://127.0.0.1:{registry}"]
        workbench = stack.enter_context(screen(attached, environment, cwd=HERE))
        app = [sys.executable, "-m", "benchmarks.markdown_screen", model]
        peer = stack.enter_context(screen(app, dict(os.environ), cwd=HERE))
        for each in (workbench, peer):
            each.until("rite to")
            each.drain(_REST)
        yield workbench, peer
