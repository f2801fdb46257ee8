"""`pallas record`: write runs into folders as recordings."""

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pallas.cli.resources.shared_options import FolderOption, TokenOption, UrlOption, reach_of
from pallas.safe_text import one_line

from .resources.fleet_requests import (
    HOW,
    NO_FLEET,
    OK,
    REFUSED,
    USAGE,
    FleetLocation,
    complain,
    explained,
    problem_text,
    run_named,
    run_with_fleet,
)

if TYPE_CHECKING:
    from pallas.client import RestClient
    from pallas.model import Recording

_NEWEST: Final = 400
"""Runs among which it looks for those that are new."""
_LOOK_EVERY: Final = 1.0
"""Seconds between two looks for runs that have ended."""
_SECONDS: Final = 120.0
"""For one recording to arrive."""


def record_runs(runs: Sequence[str], output: Path | None, reach: FleetLocation) -> int:
    """Record each run, into ``output`` if it is one and into a folder of ``recordings`` else."""
    if output is not None and len(runs) > 1:
        complain("pallas record: --output is for one run; without it each gets a folder of its own")
        return USAGE

    async def work(api: "RestClient") -> int:
        return max([await _record(api, each, output) for each in runs])

    return run_with_fleet(reach, work)


def record_all(output: Path, reach: FleetLocation) -> int:
    """Record each run that ends from now on into a folder in ``output``, until it is interrupted."""

    async def work(api: "RestClient") -> int:
        if api.own:
            complain(f"pallas record: no fleet runs; {HOW}")
            return NO_FLEET
        await _follow(api, output)
        return OK

    return run_with_fleet(reach, work)


async def _follow(api: "RestClient", output: Path) -> None:
    known: set[str] = set()
    running: set[str] = set()
    is_first = True
    while True:
        # A run without a thread is in the list when it has ended, at the place where it began.
        async for run in api.items("/runs", most=_NEWEST):
            name = str(run.get("id"))
            if name not in known:
                known.add(name)
                if not is_first or run.get("status") == "running":
                    running.add(name)
        if is_first:
            is_first = False
            print(f"recording every run into {output}; Ctrl-C ends it", flush=True)
        for name in sorted(running):
            if name in running and await _is_over(api, name):
                below = await _record_with_all(api, name, output)
                known.update(below)
                running.difference_update({name, *below})
        await asyncio.sleep(_LOOK_EVERY)


async def _is_over(api: "RestClient", run: str) -> bool:
    from pallas.client.rest_client import part
    from pallas.model import Fault

    try:
        return bool((await api.get(f"/runs/{part(run)}")).get("status") != "running")
    except Fault as fault:
        return fault.data.get("reason") == "not_found"  # then there is nothing to wait for


async def _record_with_all(api: "RestClient", run: str, output: Path) -> list[str]:
    """Record a run, and remove the recordings of the runs that it led to, which are part of it.

    Returns the ids of those.
    """
    from pallas.model import Fault
    from pallas.recordings.recording_folder import folder_name

    try:
        recording = await fetch_recording(api, run)
    except Fault as fault:
        complain(f"run/{one_line(run, 40)}: {await explained(api, fault)}")
        return []
    for below in recording.runs[1:]:
        shutil.rmtree(output / folder_name(below.agent, below.id), ignore_errors=True)
    _write(recording, output / folder_name(recording.first.agent, run))
    return [below.id for below in recording.runs[1:]]


async def _record(api: "RestClient", run: str, output: Path | None) -> int:
    from pallas.client import NoFleetAnswers
    from pallas.model import Fault
    from pallas.recordings.recording_folder import RECORDINGS, folder_name

    try:
        recording = await fetch_recording(api, run)
    except NoFleetAnswers:
        raise
    except Fault as fault:
        complain(f"run/{one_line(run, 40)}: {await explained(api, fault)}")
        return REFUSED
    return _write(recording, output or RECORDINGS / folder_name(recording.first.agent, recording.first.id))


async def fetch_recording(api: "RestClient", run: str) -> "Recording":
    """Fetch the recording of a run from its fleet; ``last`` is the run that began last. Raises Fault."""
    from pallas.client.rest_client import part
    from pallas.model import Fault, FaultType
    from pallas.recordings.recording_folder import MAX_BYTES, BadRecording, read_archive

    run = await run_named(api, run)
    data = await api.download(f"/runs/{part(run)}/recording", timeout=_SECONDS, most=MAX_BYTES)
    try:
        return await asyncio.to_thread(read_archive, data, f"run {run}")
    except BadRecording as error:
        raise Fault(
            FaultType.PROTOCOL, f"{api.place.origin} did not answer with a recording: {error}"
        ) from None


def _write(recording: "Recording", folder: Path) -> int:
    from pallas.recordings.recording_folder import BadRecording, write

    try:
        write(recording, folder)
    except (BadRecording, OSError) as error:
        complain(f"pallas record: {problem_text(error)}")
        return REFUSED
    steps = sum(len(run.steps) for run in recording.runs)
    print(f"{folder}: {count_of(len(recording.runs), 'run')}, {count_of(steps, 'step')}")
    for line in recording.missing:
        complain(f"{folder}: not recorded: {line}")
    return OK


def count_of(number: int, word: str) -> str:
    """``1 run`` or ``2 runs``."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def record(
    context: typer.Context,
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN...]", show_default=False, help="Their ids, as `pallas get runs` lists them."
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Record every run that ends from now on, until Ctrl-C.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="DIR",
            show_default=False,
            help="The folder of the recording (default: recordings/AGENT-RUN); with --all, of all of them.",
        ),
    ] = None,
    folder: FolderOption = None,
    url: UrlOption = "",
    token: TokenOption = "",
) -> None:
    """Write a run with all that it asked and got into a folder: readable, without secrets, to be replayed.

    \b
    pallas get runs
    pallas record last
    pallas record 3f1c9a0e7b52 -o tests/recordings/refund
    pallas record --all -o recordings
    """
    from pallas.recordings.recording_folder import RECORDINGS

    reach = reach_of(context, folder, url, token)
    if everything and not runs:
        raise typer.Exit(record_all(output or RECORDINGS, reach))
    if not runs or everything:
        complain("pallas record: name a run, or add --all; `pallas get runs` lists the runs")
        raise typer.Exit(USAGE)
    raise typer.Exit(record_runs(runs, output, reach))
