"""`pallas replay`: run a recorded question again, with the recording in place of models and MCP servers."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pallas.cli.resources.shared_options import FolderOption
from pallas.safe_text import one_line, sanitize

from .record import count_of
from .replay_runs import with_replay_fleet
from .resources.fleet_requests import OK, REFUSED, USAGE, Wrong, complain, problem_text, project_at

if TYPE_CHECKING:
    from pallas.config import Project
    from pallas.fleet.replay_fleet import ReplayOutcome
    from pallas.model import RecordedRun, Recording

_SIDES: Final = ("replay", "live")


def replay(
    context: typer.Context,
    recording: Annotated[
        Path, typer.Argument(metavar="DIR", help="The recording: a folder of `pallas record`, or an archive.")
    ],
    models: Annotated[
        str,
        typer.Option(
            "--models", metavar="SIDE", help="replay, or live: models and workers are asked for real."
        ),
    ] = "replay",
    tools: Annotated[
        list[str] | None,
        typer.Option(
            "--tools",
            metavar="SIDE",
            show_default=False,
            help="replay (the default), live, or NAME=live for one MCP server; repeatable. "
            "local=live: functions of the agents' code.",
        ),
    ] = None,
    speed: Annotated[
        str,
        typer.Option("--speed", metavar="SPEED", help="fast, or recorded: answers take as long as they did."),
    ] = "fast",
    output: Annotated[str, typer.Option("-o", "--output", metavar="FORMAT", help="text or json.")] = "text",
    into: Annotated[
        Path | None,
        typer.Option(
            "--into", metavar="DIR", help="Record the replay into this folder; into an archive for FILE.tar."
        ),
    ] = None,
    folder: FolderOption = None,
) -> None:
    """Run a recorded question again, without a model, and say whether steps and answer are the same.

    Exit status: 1 if something differs, or if something was asked that is not in the recording.

    \b
    pallas replay recordings/lead-3f1c9a0e7b52
    pallas replay recordings/lead-3f1c9a0e7b52 --models live
    pallas replay recordings/lead-3f1c9a0e7b52 --tools shelf=live -o json
    pallas replay recordings/lead-3f1c9a0e7b52 --into replayed
    """
    given = context.obj if isinstance(context.obj, Path) else Path()
    try:
        _check("--models", models, _SIDES)
        _check("--speed", speed, ("fast", "recorded"))
        _check("--output", output, ("text", "json"))
        status = _run(folder or given, recording, models, tools or (), speed, output, into)
    except Wrong as error:
        complain(f"pallas replay: {error}")
        status = USAGE
    except (KeyboardInterrupt, asyncio.CancelledError):
        status = 130
    raise typer.Exit(status)


def _check(option: str, given: str, known: Sequence[str]) -> None:
    if given not in known:
        raise Wrong(f"{option} is {one_line(given, 40)}; allowed: {' or '.join(known)}")


def _run(
    folder: Path, path: Path, models: str, tools: Sequence[str], speed: str, output: str, into: Path | None
) -> int:
    from pallas.client.own_fleet import needed_by_all
    from pallas.config import ConfigError
    from pallas.executors.replay.replay import ReplayPlan
    from pallas.model import Fault
    from pallas.model.host_places import HostPlaces
    from pallas.recordings.recording_folder import BadRecording, read

    try:
        recording = read(path)
        for line in recording.missing:
            complain(f"# not in the recording: {line}")
        project = project_at(folder)
        plan = ReplayPlan(
            recording,
            live_models=models == "live",
            live_tools="live" in tools,
            live_servers=frozenset(_live_servers(project, tools)),
            is_timed=speed == "recorded",
        )
        needed = needed_by_all(project, [run.agent for run in recording.runs])
        outcome = with_replay_fleet(needed, plan, lambda fleet: fleet.replay())
        if into is not None:
            _write(outcome.recording, into)
        here = HostPlaces.of(project.root).all_placed(outcome.recording)
    except (BadRecording, ConfigError, OSError) as error:
        raise Wrong(problem_text(error)) from None
    except Fault as fault:
        raise Wrong(fault.message) from None
    outcome = replace(outcome, recording=here)
    print("\n".join(_text(outcome)) if output == "text" else _document(outcome))
    return OK if outcome.is_same else REFUSED


def _write(recording: "Recording", path: Path) -> None:
    """Write the recording of a replay. Raises BadRecording, OSError."""
    from pallas.recordings.recording_folder import archive_of, write

    if path.suffix == ".tar":
        path.write_bytes(archive_of(recording))
    else:
        write(recording, path)


def _live_servers(project: "Project", tools: Sequence[str]) -> Iterator[str]:
    from pallas.model.steps import OWN_CODE

    for each in tools:
        name, _, side = each.rpartition("=")
        if not name:
            _check("--tools", each, (*_SIDES, "NAME=live"))
            continue
        _check(f"--tools {name}", side, _SIDES)
        known = (*project.downstreams, *project.servers, OWN_CODE)
        if name not in known:
            raise Wrong(f"--tools: there is no MCP server {one_line(name, 60)}; there are {', '.join(known)}")
        if side == "live":
            yield name


def _text(outcome: "ReplayOutcome") -> Iterator[str]:
    for run in outcome.recording.runs:
        yield f"{run.agent}: {one_line(run.question, 100)}"
        yield from (
            f"  {each.step.number:>3}  {each.step.kind:<10} {each.step.name}  {each.step.state}"
            for each in run.steps
        )
    if answer := outcome.recording.first.answer:
        yield ""
        yield sanitize(answer)
    yield ""
    yield _verdict(outcome)


def _verdict(outcome: "ReplayOutcome") -> str:
    runs = outcome.recording.runs
    if outcome.is_miss:
        return sanitize(outcome.fault)
    if outcome.difference is not None:
        failed = f" (it failed: {one_line(outcome.fault, 300)})" if outcome.fault else ""
        return sanitize(f"it differs from the recording: {outcome.difference}{failed}")
    steps = sum(len(run.steps) for run in runs)
    counted = f"{count_of(len(runs), 'run')}, {count_of(steps, 'step')}"
    return f"the same as the recording: {counted}, {outcome.seconds:.2f} s"


def _document(outcome: "ReplayOutcome") -> str:
    from .resources.text_output import as_json

    found = outcome.difference
    document = {
        "same": outcome.is_same,
        "verdict": _verdict(outcome),
        "miss": outcome.fault if outcome.is_miss else None,
        "difference": {"text": str(found), **asdict(found)} if found is not None else None,
        "fault": outcome.fault or None,
        "answer": outcome.recording.first.answer,
        "seconds": round(outcome.seconds, 3),
        "runs": [_run_document(run) for run in outcome.recording.runs],
    }
    return as_json(document)


def _run_document(run: "RecordedRun") -> dict[str, Any]:
    steps = [
        {"number": each.step.number, "kind": each.step.kind, "name": each.step.name, "state": each.step.state}
        for each in run.steps
    ]
    return {"id": run.id, "agent": run.agent, "question": run.question, "answer": run.answer, "steps": steps}
