"""A program of the desktop, with a small script in its place."""

import asyncio
from contextlib import suppress
from pathlib import Path

import psutil
from support.processes import gone
from support.waiting import until

from pallas_tui.helper_program import run


async def test_what_a_program_started_ends_with_the_caller_and_no_pipe_stays_open(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f'sleep 600 & echo "$$ $!" > "{pids}.new"; mv "{pids}.new" "{pids}"'
    await run(["true"], timeout=60.0)
    files = psutil.Process().num_fds()
    running = asyncio.create_task(run(["sh", "-c", script], timeout=60.0, limit=100))
    await until(pids.exists)
    program, started = map(int, pids.read_text().split())
    # The program has ended and is reaped; the one that it started holds the pipe.
    await until(lambda: not psutil.pid_exists(program))
    assert not running.done() and not gone(started)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await until(lambda: gone(started) and psutil.Process().num_fds() <= files)
