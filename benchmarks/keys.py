"""How long a key takes to show while the fleet says 200,000 things a second, and how long leaving takes."""

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from .report import Figure
from .screen import Screen, screen

RATE = 200_000
SECONDS = 15.0
EVERY = 0.1
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


def measure() -> list[Figure]:
    """Key latency over a quiet fleet, and under the flood."""
    quiet, _ = under(0)
    flood, offered = under(RATE)
    return [
        Figure("key to frame, quiet fleet, p95", quiet.p95, None, "ms", _more(quiet)),
        Figure("key to frame, flood, p50", flood.p50, None, "ms", f"{offered:,.0f} events a second"),
        Figure("key to frame, flood, p95", flood.p95, 50, "ms", f"{flood.p95 / quiet.p95:.1f}x quiet"),
        Figure("key to frame, flood, max", flood.most, 100, "ms"),
    ]


def _more(latency: Latency) -> str:
    return f"p50 {latency.p50:.1f}, max {latency.most:.1f}"


def under(rate: int, seconds: float = SECONDS) -> tuple[Latency, float]:
    """Key latency while ``rate`` events a second are offered, and how many really were."""
    with tempfile.TemporaryDirectory(prefix="pallas-bench-") as folder:
        log = Path(folder) / "pallas.log"
        log.touch()
        command = [sys.executable, "-m", "benchmarks.flooded", str(rate), str(log)]
        environment = {**os.environ, "PALLAS_WORKBENCH_CONFIG": str(Path(folder) / "workbench.yaml")}
        with screen(command, environment, cwd=HERE) as shown:
            shown.until("Write to agent0", "Write to")
            shown.drain(2.0)
            began = perf_counter()
            latency = Latency.of(typed(shown, int(seconds / EVERY)))
            took = perf_counter() - began
            shown.press("\x11")
            shown.drain(0.3)
            shown.press("y")
            shown.gone(perf_counter())
        published = int(log.with_suffix(".published").read_text().split()[0])
        return latency, published / (took + 2.0)


def typed(shown: Screen, count: int) -> list[float]:
    """Seconds that each of ``count`` keys took to show."""
    taken = []
    for _ in range(count):
        taken.append(shown.type_letter())
        # Never in step with the ticks of the pump.
        shown.drain(EVERY * (0.6 + 0.8 * (len(taken) * 0.618 % 1)))
    return taken


__all__ = ["Latency", "measure", "typed", "under"]
