"""What keeping conversations costs: turns of an agent that answers at once, through the kernel with a ledger
and without one side by side, on SQLite and on PostgreSQL where that is installed; many threads at once; and
a thread of 10,000 messages opened beside one of 10; and what it costs that replicas can take over."""

import asyncio
import tempfile
from pathlib import Path

from pallas.ledger import open_ledger

from ..report import Figure
from . import claims, postgres, storage, turns

THREADS = (1, 16, 64)


def measure() -> list[Figure]:
    """Overhead per turn, turns per second, a long thread beside a short one, bytes per message."""
    with tempfile.TemporaryDirectory(prefix="pallas-bench-") as folder:
        root = Path(folder)
        figures = asyncio.run(_database("SQLite", f"sqlite:///{root / 'turns.sqlite3'}", 3.0))
        figures += asyncio.run(storage.measure(root / "long.sqlite3"))
    with postgres.server() as url:
        if url:
            figures += asyncio.run(_database("PostgreSQL", url, None))
        else:
            print("     PostgreSQL is not installed (initdb, postgres): left out", flush=True)
    return figures


async def _database(name: str, url: str, aim: float | None) -> list[Figure]:
    ledger = await open_ledger(url)
    try:
        without, with_it = await turns.side_by_side(ledger)
        more = (with_it - without) * 1e3
        detail = f"p50 {with_it * 1e3:.2f} ms against {without * 1e3:.2f} ms without a ledger"
        figures = [Figure(f"{name}: what a turn costs more", more, aim, "ms", detail)]
        figures.append(await claims.fence(name, ledger))
        for threads in THREADS:
            seconds, times = await turns.at_once(ledger, threads)
            p50, p99 = turns.quantile(times, 50), turns.quantile(times, 99)
            figures.append(
                Figure(
                    f"{name}: turns a second in {threads} thread{'s' * (threads != 1)}",
                    len(times) / seconds,
                    None,
                    "/s",
                    f"p50 {p50 * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms",
                )
            )
    finally:
        await ledger.close()
    figures.append(await claims.beats(name, url))
    return figures
