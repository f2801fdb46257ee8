"""`pallas fork`: go on from a step of a run, and show what differs."""

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pallas.cli.resources.shared_options import FolderOption, TokenOption, UrlOption, reach_of
from pallas.safe_text import one_line, sanitize

from .diff import FORMATS, is_path
from .record import fetch_recording
from .replay_runs import with_replay_fleet
from .resources.fleet_requests import (
    OK,
    REFUSED,
    USAGE,
    FleetLocation,
    Wrong,
    complain,
    fault_text,
    problem_text,
    project_at,
    run_with_fleet,
)

if TYPE_CHECKING:
    from pallas.client import RestClient
    from pallas.model import Recording


def fork_run(
    name: str,
    changes: Mapping[str, Any],
    reach: FleetLocation,
    record: Path | None,
    output: str,
    version: str = "",
) -> int:
    """Continue from a step of a run or of a recording; returns the exit status.

    ``changes`` is the body of a request to fork it: ``step``, and what is different there. ``version`` is the
    version of the project that goes on, in a fleet of its own: a revision of git, or a folder.
    """
    found: list[Recording] = []

    async def work(api: "RestClient") -> int:
        found.append(await fetch_recording(api, name))
        if not api.own and not version:
            new = await api.fork(found[0].first.id, changes)
            found.append(await fetch_recording(api, new))
        return OK

    from pallas.config import ConfigError
    from pallas.model import Fault
    from pallas.recordings.recording_folder import BadRecording, read, write

    try:
        if is_path(name):
            found.append(read(Path(name)))
        elif (status := run_with_fleet(reach, work)) != OK:
            return status
        if len(found) == 1:
            with _at_version(version, reach.folder) as folder:
                found.append(_forked_here(found[0], changes, folder))
        before, after = found
    except Fault as fault:
        complain(f"pallas fork: {fault_text(fault)}")
        return REFUSED
    except (BadRecording, ConfigError, OSError, Wrong) as error:
        complain(f"pallas fork: {problem_text(error)}")
        return USAGE
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130
    print(_json(before, after, changes) if output == "json" else _text(before, after, changes))
    sys.stdout.flush()
    if record is not None:
        try:
            write(after, record)
        except (BadRecording, OSError) as error:
            complain(f"pallas fork: {problem_text(error)}")
            return USAGE
        for line in after.missing:
            complain(f"{record}: not recorded: {line}")
    return OK if after.first.status == "ok" else REFUSED


@contextmanager
def _at_version(version: str, folder: Path) -> Iterator[Path]:
    """The folder of a version of the project: a copy, unless it is the one that is there. Raises Wrong."""
    if not version:
        yield folder
        return
    from .project_version import copied_version, ended_by_sigterm

    root = project_at(folder).root
    with ended_by_sigterm(), TemporaryDirectory(prefix="pallas-fork-") as scratch:
        yield copied_version(root, version, Path(scratch) / "project", "--version")


def _forked_here(recording: "Recording", changes: Mapping[str, Any], folder: Path) -> "Recording":
    """The recording of a run that goes on from a step, in a fleet of its own with live models and tools."""
    from pallas.client.own_fleet import needed
    from pallas.executors.replay.replay import ReplayPlan
    from pallas.model import Params
    from pallas.model.host_places import HostPlaces
    from pallas.recordings.fork_point import forked_request

    project, model = project_at(folder), changes.get("model")
    recording = HostPlaces.of(project.root).all_placed(recording)
    request = forked_request(
        recording,
        changes["step"],
        message=changes.get("message"),
        result=changes.get("result"),
        params=Params.read({"model": model} if model else {}, strict=True),
    )
    if request.agent not in project.agents:
        raise Wrong(
            f"{request.agent}, which was recorded, is not in {project.agents_file.name}; fork it with its "
            "own project (--project)"
        )
    plan = ReplayPlan(recording, live_models=True, live_tools=True)
    return with_replay_fleet(needed(project, request.agent), plan, lambda fleet: fleet.ask(request)).recording


def _text(before: "Recording", after: "Recording", changes: Mapping[str, Any]) -> str:
    from pallas.recordings.run_diff import diff

    from .resources.diff_output import diff_text

    first = after.first
    names = before.first.id, f"{first.id}, from step {changes['step']}"
    said = sanitize(first.answer) if first.status == "ok" else f"it failed: {one_line(first.fault, 500)}"
    return f"{said}\n\n{diff_text(diff(before, after), names, everything=False)}".rstrip("\n")


def _json(before: "Recording", after: "Recording", changes: Mapping[str, Any]) -> str:
    from .resources.text_output import as_json

    first = after.first
    return as_json(
        {
            "id": first.id,
            "agent": first.agent,
            "forkedFrom": before.first.id,
            "forkedAtStep": changes["step"],
            "status": first.status,
            "answer": first.answer,
            "fault": first.fault or None,
        }
    )


def fork(
    context: typer.Context,
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="Its id, or `last`; or a folder or an archive of `pallas record`."
        ),
    ],
    step: Annotated[
        int,
        typer.Option(
            "--at", metavar="STEP", min=1, help="The step to repeat; `pallas describe run/RUN` lists them."
        ),
    ],
    message: Annotated[
        str | None, typer.Option("--message", metavar="TEXT", help="Ask this instead of the question.")
    ] = None,
    result: Annotated[
        str | None,
        typer.Option("--result", metavar="TEXT", help="The result of the call STEP, which is not made."),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", metavar="NAME", help="Ask another model.")] = None,
    version: Annotated[
        str,
        typer.Option(
            "--version",
            metavar="VERSION",
            show_default=False,
            help="Continue with this version of the project: a revision of git, or a folder.",
        ),
    ] = "",
    record: Annotated[
        Path | None,
        typer.Option(
            "--record", metavar="DIR", show_default=False, help="Write the recording of the new run there."
        ),
    ] = None,
    output: Annotated[str, typer.Option("-o", "--output", metavar="FORMAT", help="text or json.")] = "text",
    changes_file: Annotated[Path | None, typer.Option("--changes", hidden=True)] = None,
    folder: FolderOption = None,
    url: UrlOption = "",
    token: TokenOption = "",
) -> None:
    """Continue from a step of a run with the current agent, and show what differs. The run does not change.

    Steps before STEP are not done again. Models and tools are asked for real from there on.

    \b
    pallas fork last --at 3
    pallas fork 3f1c9a0e7b52 --at 3 --model sonnet
    pallas fork 3f1c9a0e7b52 --at 3 --version HEAD
    pallas fork 3f1c9a0e7b52 --at 2 --result "no such order"
    pallas fork recordings/desk-3f1c9a0e7b52 --at 1 --message "How many chairs?"
    """
    if output not in FORMATS:
        complain(f"pallas fork: --output {one_line(output, 40)}: allowed: {', '.join(FORMATS)}")
        raise typer.Exit(USAGE)
    given = {"step": step, "message": message, "result": result, "model": model}
    changes = {name: value for name, value in given.items() if value is not None}
    if changes_file is not None:  # of a fleet or a workbench, whose texts may be long
        changes |= json.loads(changes_file.read_text())
    reach = reach_of(context, folder, url, token)
    raise typer.Exit(fork_run(run, changes, reach, record, output, version))
