"""Two recordings of 1,000 steps, aligned: the same run twice, and runs that have less and less in common."""

from collections.abc import Callable
from dataclasses import replace
from time import process_time

from pallas.recordings.run_diff import diff
from pallas.recordings.word_diff import word_diff

from .invented_runs import Call, Plot, Turn, long_plot, recorded
from .report import Figure

STEPS = 1_000
AIM = 1.0


def measure() -> list[Figure]:
    """Seconds of processor time for each comparison."""
    plot = long_plot(STEPS)
    first = plot.turns[0]
    another = (replace(first, answer="something else"), *plot.turns[1:])
    inserted = (first, Turn("one more", (Call("find0"),)), *plot.turns[1:])
    other = long_plot(STEPS + 2)
    cases: dict[str, Plot] = {
        "the same": plot,
        "another question": replace(plot, question="another question"),
        "another first answer": replace(plot, turns=another),
        "inserted at the beginning": replace(plot, turns=inserted),
        "nothing in common": replace(other, tools=plot.tools),
    }
    figures = [_compared(name, plot, each) for name, each in cases.items()]
    figures.append(_compared("long texts, another question", *_long_texts()))
    old, new = ("\n".join(each.answer for each in one.turns) for one in (plot, other))
    took = _seconds(lambda: word_diff(old, new))
    return [*figures, Figure("words of two texts", took, 0.2, "s", f"{len(old) // 1_000} KB each")]


def _long_texts() -> tuple[Plot, Plot]:
    plot = long_plot(STEPS, words=400)
    return plot, replace(plot, question="another question")


def _compared(name: str, before: Plot, after: Plot) -> Figure:
    old, new = recorded(before, 1), recorded(after, 2)
    size = sum(len(each.request) for each in (*old.first.steps, *new.first.steps)) / 1e6
    took = _seconds(lambda: diff(old, new))
    return Figure(f"{STEPS} steps, {name}", took, AIM, "s", f"{size:,.0f} MB of requests")


def _seconds(work: Callable[[], object]) -> float:
    began = process_time()
    work()
    return process_time() - began
