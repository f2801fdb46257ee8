"""A program that is run to its end, with a small script in its place."""

import asyncio
from contextlib import suppress
from pathlib import Path

import psutil
from support.processes import has_ended
from support.waiting import until

from pallas.processes.child_program import run


async def test_what_a_program_started_ends_with_the_caller_and_no_pipe_stays_open(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f'sleep 600 & echo "$$ $!" > "{pids}.new"; mv "{pids}.new" "{pids}"'
    await run(["true"], timeout=60.0)
    files = psutil.Process().num_fds()
    running = asyncio.create_task(run(["sh", "-c", script], timeout=60.0, limit=100))
    await until(pids.exists)
    program, started = map(int, pids.read_text().split())
    sleeper = psutil.Process(started)  # knows another process that gets the same number later
    # The program has ended and is reaped; the one that it started holds the pipe.
    await until(lambda: program not in {each.pid for each in psutil.Process().children()})
    assert not running.done() and not has_ended(sleeper)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await until(lambda: has_ended(sleeper) and psutil.Process().num_fds() <= files)


async def test_a_program_runs_where_it_is_told_to_and_says_what_it_complains_of(tmp_path: Path) -> None:
    script = "pwd; yes complaint | head -c 100000 >&2; exit 3"
    ran = await run(["sh", "-c", script], timeout=60.0, limit=10_000, cwd=tmp_path, complains=True)
    assert ran.output.decode().strip() == str(tmp_path)
    assert (ran.status, ran.problem) == (3, "sh failed with status 3")
    assert ran.complaint.startswith(b"complaint\n")
    assert len(ran.complaint) <= 16 * 1024
