"""A thread of 10,000 messages beside one of 10: its first page, and what a message takes on disk."""

import statistics
import time
from pathlib import Path
from time import perf_counter

from pallas.ledger import Ledger, open_ledger
from pallas.model import Message, RunRecord

from ..report import Figure
from .turns import ANSWER, QUESTION

LONG = 10_000
SHORT = 10
PAGE = 50
TIMES = 60
_AT_ONCE = 500


async def measure(path: Path) -> list[Figure]:
    """The ratio of the two, and bytes per message beside those of its text."""
    ledger = await open_ledger(f"sqlite:///{path}")
    try:
        short = await _thread(ledger, SHORT)
        before = await _size(path, ledger)
        long = await _thread(ledger, LONG)
        times = {thread: [] for thread in (short, long)}  # type: dict[str, list[float]]
        for _ in range(TIMES):
            for thread, found in times.items():
                found.append(await _open(ledger, thread))
    finally:
        await ledger.close()
    taken = (_files(path) - before) / LONG
    first, last = statistics.median(times[short]), statistics.median(times[long])
    text = (len(QUESTION) + len(ANSWER)) / 2
    return [
        Figure(
            "first page of a thread of 10,000 messages",
            last / first,
            2.0,
            detail=f"p50 {last * 1e3:.2f} ms against {first * 1e3:.2f} ms of one of 10",
        ),
        Figure("a message on disk", taken, None, "B", f"its text has {text:.0f}"),
    ]


async def _thread(ledger: Ledger, messages: int) -> str:
    made = await ledger.threads.create("instant", "anonymous", origin="bench")
    left, number = messages, 0
    while left:
        count = min(left, _AT_ONCE)
        said = [
            Message("user", QUESTION) if n % 2 == 0 else Message("assistant", ANSWER) for n in range(count)
        ]
        now = time.time()
        run = RunRecord(f"{made.id[:8]}{number}", "instant", "anonymous", made.id, "bench", "ok", now, now)
        await ledger.threads.begin(made.id, run, said[0])
        await ledger.threads.finish(made.id, run, said)
        left, number = left - count, number + 1
    return made.id


async def _open(ledger: Ledger, thread: str) -> float:
    began = perf_counter()
    found = await ledger.threads.get(thread)
    page = await ledger.threads.messages(thread, limit=PAGE, newest_first=True)
    seconds = perf_counter() - began
    assert found is not None and page.items
    return seconds


async def _size(path: Path, ledger: Ledger) -> int:
    """What the files hold so far, the journal among them."""
    await ledger.threads.get("none")
    return _files(path)


def _files(path: Path) -> int:
    return sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*"))
