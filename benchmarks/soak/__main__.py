"""`make soak SECONDS=300`: load, reloads, kills and cancels; then the account and what has grown.

The exit status is 1 when a call or a run was lost, an answer was another's, or something grew that must not.
"""

import argparse
import asyncio
import os
import secrets
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import psutil

from ..programs import own_state, process, until_line
from . import project
from .account import Account
from .control import FleetControl
from .harm import Harm
from .load import caller

WARM_UP = 10.0
SETTLE = 30.0


@dataclass(frozen=True, slots=True)
class Size:
    """How large a process is: MiB, and counts."""

    memory: float
    descriptors: int
    threads: int
    children: int


# What may be more at the end than after the warm-up: an agent's version before this one stays parked, and its
# instances are made as they are needed.
GROWTH = Size(memory=120, descriptors=40, threads=8, children=6)


def main() -> int:
    """Run it; the exit status."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.soak")
    options.add_argument("--seconds", type=float, default=300.0)
    options.add_argument("--callers", type=int, default=12)
    options.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    options.add_argument("--keep", action="store_true", help="keep the log, whatever comes of it")
    given = options.parse_args()
    print(f"soak: {given.seconds:g} s, {given.callers} callers, --seed {given.seed}", flush=True)
    with own_state(), tempfile.TemporaryDirectory(prefix="pallas-soak-") as folder:
        status = asyncio.run(_soak(Path(folder), given.seconds, given.callers, given.seed))
        if status or given.keep:
            kept = Path(tempfile.mkdtemp(prefix="pallas-soak-kept-")) / "pallas.log"
            kept.write_bytes((Path(folder) / "project" / "pallas.log").read_bytes())
            print(f"the log is at {kept}")
    return status


async def _soak(folder: Path, seconds: float, callers: int, seed: int) -> int:
    root = folder / "project"
    urls = project.write(root)
    os.environ["PALLAS_CONTROL_TOKEN"] = token = secrets.token_urlsafe(24)
    with process("-m", "pallas.server", "--serve", "--watch", cwd=root) as running:
        await asyncio.to_thread(until_line, running, "running")
        asyncio.get_running_loop().run_in_executor(None, running.stdout.read if running.stdout else str)
        fleet = psutil.Process(running.pid)
        account, control = Account(), FleetControl(urls["registry"], token)
        over = asyncio.Event()

        def missed(count: int) -> None:
            account.missed += count

        following = asyncio.create_task(control.follow(account.hear, missed))
        asking = [
            asyncio.create_task(caller(number, urls, account, over, account.open_runs.__contains__))
            for number in range(callers)
        ]
        harming = asyncio.create_task(Harm(root, control, account, fleet, seed).until(over))
        began = monotonic()
        await asyncio.sleep(min(WARM_UP, seconds / 4))
        before = _size(fleet)
        await asyncio.sleep(seconds - (monotonic() - began))
        over.set()
        await asyncio.wait([*asking, harming], timeout=90)
        stuck = [task for task in (*asking, harming) if not task.done()]
        well = await _well(control, account)
        after = await _settled(fleet, before)
        following.cancel()
        await control.close()
        running.send_signal(signal.SIGTERM)
        status = await asyncio.to_thread(running.wait, 60)
    return _tell(account, before, after, well=well, stuck=len(stuck), status=status)


async def _well(control: FleetControl, account: Account) -> dict[str, Any]:
    """The states of agents and servers once all is quiet, or what they are when that takes too long."""
    deadline = monotonic() + SETTLE
    while True:
        snapshot = await control.snapshot()
        states = {each["name"]: each["state"] for each in (*snapshot["agents"], *snapshot["servers"])}
        if (set(states.values()) == {"ready"} and not account.open_runs) or monotonic() > deadline:
            return states
        await asyncio.sleep(0.2)


async def _settled(fleet: psutil.Process, before: Size) -> Size:
    """The size once versions that were replaced have ended their processes; what leaks stays."""
    deadline = monotonic() + SETTLE
    most = before.children + GROWTH.children
    while (size := _size(fleet)).children > most and monotonic() < deadline:  # noqa: ASYNC110 - a look outside
        await asyncio.sleep(0.5)
    return size


def _size(fleet: psutil.Process) -> Size:
    children = [each for each in fleet.children(recursive=True) if each.status() != psutil.STATUS_ZOMBIE]
    return Size(fleet.memory_info().rss / 2**20, fleet.num_fds(), fleet.num_threads(), len(children))


def _tell(
    account: Account,
    before: Size,
    after: Size,
    *,
    well: dict[str, Any],
    stuck: int,
    status: int,
) -> int:
    print("\n".join(account.lines()))
    problems = [f"{account.bad} calls or runs were lost, refused or answered wrongly"] if account.bad else []
    for name in ("memory", "descriptors", "threads", "children"):
        was, now, most = getattr(before, name), getattr(after, name), getattr(GROWTH, name)
        unit = " MiB" if name == "memory" else ""
        print(f"{name:<11}{was:.0f}{unit} after the warm-up, {now:.0f}{unit} at the end (may grow by {most})")
        if now - was > most:
            problems.append(f"{name} grew by {now - was:.0f}")
    if set(well.values()) != {"ready"}:
        problems.append(f"not everything is ready again: {well}")
    if stuck:
        problems.append(f"{stuck} callers hung")
    if status:
        problems.append(f"the fleet ended with status {status}")
    for problem in problems:
        print(f"PROBLEM: {problem}")
    if not problems:
        print("nothing was lost")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
