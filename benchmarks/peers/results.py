"""The figures of the comparison as a table."""

import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from .measured import Sample
from .sides import CONVERSATIONS, Side

MANY = 16
"""Callers of the slices with many."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the report."""

    text: str

    def row(self) -> str:
        """The line."""
        return self.text


@dataclass(frozen=True, slots=True)
class Memory:
    """MB of a server after its first answer, and after so many conversations more."""

    start: float
    end: float
    conversations: int

    def after(self) -> str:
        """The MB at the end, with the number of conversations unless it is the usual one."""
        usual = self.conversations == CONVERSATIONS
        return f"{self.end:.0f}{'' if usual else f' ({self.conversations})'}"

    def each(self) -> str:
        """KB of a conversation."""
        return f"{(self.end - self.start) * 1e3 / self.conversations:.0f}"


@dataclass(slots=True)
class Found:
    """What was measured of a side; empty where it was not."""

    samples: dict[int, list[Sample]] = field(default_factory=lambda: {MANY: [], 1: []})
    """For each number of callers, a sample of each round."""
    long: list[tuple[float, float]] = field(default_factory=list)
    """Processor seconds of a turn at the start of a long conversation, and of one at its end."""
    starts: list[float] = field(default_factory=list)
    """Seconds from the start of the process to its first answer."""
    memory: list[Memory] = field(default_factory=list)
    """At most one."""

    def costs(self) -> list[float]:
        """The server's processor seconds of a turn with many callers, in each round."""
        return [sample.turns.cost for sample in self.samples[MANY]]


type Columns = list[tuple[str, Callable[[Found], str]]]


def ratio(mine: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the ratios of figures that were taken in pairs; a side that failed has fewer."""
    return median(a / b for a, b in zip(mine, theirs, strict=False))


def lines(found: Mapping[Side, Found], failed: Mapping[Side, str]) -> Iterator[Line]:
    """Two tables in Markdown, then versions, what each side stores, and what the measurement itself took."""
    first = next(iter(found.values()), Found())
    load: Columns = [
        ("processor ms of a turn", lambda side: f"{median(side.costs()) * 1e3:.2f}"),
        ("against the first", lambda side: f"{ratio(side.costs(), first.costs()):.2f}x"),
        (f"turns/s, {MANY} callers", lambda side: f"{_rate(side, MANY):.0f}"),
        (f"p50 ms, {MANY} callers", lambda side: f"{_p50(side, MANY):.1f}"),
        ("turns/s, 1 caller", lambda side: f"{_rate(side, 1):.0f}"),
        ("p50 ms, 1 caller", lambda side: f"{_p50(side, 1):.1f}"),
        ("KB on disk of a turn", lambda side: f"{_written(side):.1f}"),
        ("model connections per 1,000 calls", lambda side: f"{_connections(side):.0f}"),
    ]
    rest: Columns = [
        ("last turn of 100 against first", lambda side: f"{_growth(side):.2f}x"),
        ("MB at start", lambda side: f"{side.memory[0].start:.0f}"),
        (f"MB after {CONVERSATIONS:,} conversations", lambda side: side.memory[0].after()),
        ("KB of each", lambda side: side.memory[0].each()),
        ("s to first answer", lambda side: f"{median(side.starts):.1f}"),
    ]
    for columns in (load, rest):
        yield Line(f"| | {' | '.join(name for name, _ in columns)} |")
        yield Line("|---" * (len(columns) + 1) + "|")
        for side, figures in found.items():
            cells = [_cell(value, figures) for _, value in columns]
            if any(cells):
                yield Line(f"| {side.name}{'' if side.kept else ' (not kept)'} | {' | '.join(cells)} |")
        yield Line("")
    for side in found:
        yield Line(f"{side.name}: {side.versions()}; {side.streamed}; stores {side.stored}")
    for side, reason in failed.items():
        yield Line(f"{side.name}: failed, {reason}")
    samples = [each for figures in found.values() for some in figures.samples.values() for each in some]
    if answers := sum(each.model.answers for each in samples):
        model = sum(each.model.processor for each in samples) / answers
        callers = sum(each.turns.callers for each in samples) / answers
        yield Line(
            f"a turn took {model * 1e3:.3f} ms of the model server, {callers * 1e3:.3f} ms of the caller"
        )
    yield Line(
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} "
        f"processors, load {os.getloadavg()[0]:.1f}"
    )


def _cell(value: Callable[[Found], str], figures: Found) -> str:
    """A figure, or nothing where it was not measured: then there is nothing to take a median of."""
    try:
        return value(figures)
    except (ValueError, IndexError, ZeroDivisionError):
        return ""


def _rate(side: Found, callers: int) -> float:
    return median(sample.turns.rate for sample in side.samples[callers])


def _p50(side: Found, callers: int) -> float:
    return median(sample.turns.percentile(50) for sample in side.samples[callers]) * 1e3


def _written(side: Found) -> float:
    samples = side.samples[MANY]
    return sum(each.written for each in samples) / sum(each.model.answers for each in samples) / 1e3


def _growth(side: Found) -> float:
    return median(last / first for first, last in side.long)


def _connections(side: Found) -> float:
    models = [sample.model for sample in side.samples[MANY]]
    return 1000 * sum(each.connections for each in models) / sum(each.answers for each in models)
