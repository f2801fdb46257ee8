"""How long a key takes to show, whatever the fleet does, and how long it takes to leave."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from .blocked import LINGER, QUESTION, blocked_project
from .programs import DEADLINE
from .report import Figure
from .screen import Screen, screen

RATE = 200_000
EVERY = 0.1
"""Seconds between two keys, about."""
HERE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds from a key to the frame that holds it."""

    p50: float
    p95: float
    most: float

    @classmethod
    def of(cls, seconds: list[float]) -> "Latency":
        """Of measured seconds, at least one."""
        ordered = sorted(1000 * each for each in seconds)
        return cls(ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.95)], ordered[-1])

    def __str__(self) -> str:
        return f"p50 {self.p50:.1f}, p95 {self.p95:.1f}, max {self.most:.1f}"


def measure() -> list[Figure]:
    """Key latency over a quiet fleet, under the flood, over a blocked one; leaving with a call in flight."""
    quiet, _ = under_flood(0, 150)
    flood, offered = under_flood(RATE, 150)
    blocked, leaving = while_blocked(35)
    ratio = f"{flood.p95 / quiet.p95:.1f}x the quiet fleet's; {offered:,.0f} events a second"
    return [
        Figure("key to frame, quiet fleet, p95", quiet.p95, None, "ms", str(quiet)),
        Figure("key to frame, flood, p95", flood.p95, 50, "ms", ratio),
        Figure("key to frame, flood, max", flood.most, 100, "ms", str(flood)),
        Figure("key to frame, loop blocked, p95", blocked.p95, 50, "ms", str(blocked)),
        Figure("key to frame, loop blocked, max", blocked.most, 100, "ms"),
        Figure("leaving with a call in flight", leaving, 2.0, "s"),
    ]


def under_flood(rate: int, keys: int) -> tuple[Latency, float]:
    """Latency of ``keys`` keys while ``rate`` events a second are offered, and how many really were."""
    with tempfile.TemporaryDirectory(prefix="pallas-bench-") as folder:
        log = Path(folder) / "pallas.log"
        log.touch()
        with _shown(Path(folder), "benchmarks.flooded", str(rate), str(log)) as shown:
            shown.until("Write to")
            shown.drain(2.0)
            latency = Latency.of(typed(shown, keys))
            _leave(shown)
        published, seconds = log.with_suffix(".published").read_text().split()
        return latency, int(published) / float(seconds)


def while_blocked(keys: int) -> tuple[Latency, float]:
    """Latency of ``keys`` keys while the loop is blocked, and the seconds to leave with another call.

    The loop stays blocked until the last key is on the screen.
    """
    with tempfile.TemporaryDirectory(prefix="pallas-bench-") as folder:
        root, asleep, wake = (Path(folder) / name for name in ("project", "asleep", "wake"))
        blocked_project(root, asleep, wake)
        with _shown(Path(folder), "pallas.server", "dev", str(root)) as shown:
            shown.until("Write to sleeper")
            shown.drain(1.0)
            _ask(shown, QUESTION)
            _until_there(shown, asleep)
            latency = Latency.of(typed(shown, keys))
            wake.touch()
            shown.until("rested")
            shown.drain(0.5)
            shown.press("\x15")  # the line is emptied of what was typed
            _ask(shown, LINGER)
            return latency, _leave(shown, "in flight")


def typed(shown: Screen, count: int) -> list[float]:
    """Seconds that each of ``count`` keys took to show."""
    taken = []
    for _ in range(count):
        taken.append(shown.type_letter())
        # Never in step with the ticks of the pump.
        shown.drain(EVERY * (0.6 + 0.8 * (len(taken) * 0.618 % 1)))
    return taken


def _ask(shown: Screen, question: str) -> None:
    shown.press(question)
    shown.drain(0.2)
    shown.press("\r")
    shown.drain(1.0)  # by now the tool has been called


def _until_there(shown: Screen, file: Path) -> None:
    end = perf_counter() + DEADLINE
    while not file.exists():
        if perf_counter() > end:
            raise SystemExit(f"{file.name} is not there within {DEADLINE:g} s")
        shown.drain(0.05)


def _leave(shown: Screen, question: str = "Quit?") -> float:
    """Quit, and say yes to the question; seconds from there until the program is gone."""
    shown.press("\x11")
    shown.until(question, timeout=10)
    began = perf_counter()
    shown.press("y")
    return shown.gone(began)


@contextmanager
def _shown(folder: Path, *module: str) -> Iterator[Screen]:
    environment = {
        **os.environ,
        "PALLAS_LOG_FILE": str(folder / "pallas.log"),
        "PALLAS_WORKBENCH_CONFIG": str(folder / "workbench.yaml"),
    }
    with screen([sys.executable, "-m", *module], environment, cwd=HERE) as shown:
        yield shown
