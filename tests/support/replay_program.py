"""Run as a program: replay the recording of a project so many times, more than a year later.

Prints a line for each replay: ``same``, or what differs. It changes the clock of its process, so it is not
imported.
"""

import asyncio
import os
import sys
import time

if __name__ != "__main__":
    raise ImportError("run it as a program: it changes the clock")

_YEAR_LATER = 400 * 86_400.0
_time = time.time
time.time = lambda: _time() + _YEAR_LATER  # before anything else imports it

from pathlib import Path  # noqa: E402

from pallas.config import load_project  # noqa: E402
from pallas.executors.replay.replay import ReplayPlan  # noqa: E402
from pallas.fleet.replay_fleet import ReplayFleet  # noqa: E402
from pallas.recordings.recording_folder import read  # noqa: E402


async def main(root: Path, times: int) -> None:
    """Replay it in one fleet, one time after the other."""
    recording = read(root / "recording")
    os.chdir(root)
    async with ReplayFleet.started(load_project(root, {**os.environ}), ReplayPlan(recording)) as fleet:
        for _ in range(times):
            outcome = await fleet.replay()
            assert outcome.recording.first.started_at > _time() + _YEAR_LATER / 2
            differs = outcome.fault or str(outcome.difference or outcome.unused)
            print("same" if outcome.is_same else differs, flush=True)


asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
