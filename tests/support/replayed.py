"""Runs that are recorded in one fleet and replayed in another."""

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from pallas.config import load_project
from pallas.executors.replay.replay import ReplayPlan
from pallas.fleet.replay_fleet import ReplayFleet, ReplayOutcome
from pallas.model import Recording, RunRequest
from pallas.recordings.recording_folder import read, write
from pallas.runs.run_recording import portable_recording

from .live import all_ready, running
from .waiting import until

FOLDER = "recording"


async def recorded(root: Path, agent: str, text: str, *, fails: bool = False, **more: Any) -> Recording:
    """The recording of a run of the project at ``root``, as it is read from its folder ``recording``."""
    from pallas.model import Fault

    async with running(root, database="memory") as fleet:
        await until(lambda: all_ready(fleet), timeout=60)
        try:
            await fleet.kernel.run(RunRequest(agent, text, run_id="recorded", **more))
            assert not fails
        except Fault:
            assert fails
        assert fleet.ledger is not None
        recording = await portable_recording(fleet.kernel, fleet.ledger, fleet.project, "recorded")
    write(recording, root / FOLDER)
    return read(root / FOLDER)


@asynccontextmanager
async def replaying(root: Path, recording: Recording, **plan: Any) -> AsyncIterator[ReplayFleet]:
    """A fleet of the project at ``root`` that replays the recording; ``plan`` as for ``ReplayPlan``."""
    before = Path.cwd()
    try:
        async with ReplayFleet.started(
            load_project(root, {**os.environ}), ReplayPlan(recording, **plan)
        ) as fleet:
            yield fleet
    finally:
        os.chdir(before)


async def replayed(root: Path, recording: Recording, **plan: Any) -> ReplayOutcome:
    """What became of one replay."""
    async with replaying(root, recording, **plan) as fleet:
        return await fleet.replay()


def assert_same(outcome: ReplayOutcome) -> None:
    """Steps and answer are those of the recording."""
    assert outcome.is_same, outcome.fault or str(outcome.difference)


def of_another_day(root: Path) -> Recording:
    """The recording as it would have been on another day."""
    today = datetime.now().strftime("%d %B %Y")
    for path in (root / FOLDER).rglob("*.yaml"):
        text = re.sub(r"\n +digest: .*|\ndigest: .*", "", path.read_text())
        path.write_text(re.sub(r"\s+".join(today.split()), "03 May 2025", text))
    return read(root / FOLDER)
