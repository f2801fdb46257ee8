"""`pallas verdict`: which recorded runs would go differently with the files as they are."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pallas.cli.resources.shared_options import FolderOption, TokenOption, UrlOption, reach_of

from .quiet_output import quietly
from .resources.fleet_requests import (
    OK,
    REFUSED,
    USAGE,
    FleetLocation,
    Wrong,
    complain,
    fault_text,
    project_at,
    run_with_fleet,
)
from .resources.text_tables import table, width_of

if TYPE_CHECKING:
    from pallas.client import RestClient
    from pallas.config import Project
    from pallas.model import RunVerdict, VerdictReached


def show_verdict(as_json: bool, reach: FleetLocation) -> int:
    """Print the last verdict of the running fleet, else judge the kept tests; returns the exit status.

    0 if every run goes as it was recorded, 1 if one does not, 2 for a mistake in a file.
    """
    found: list[VerdictReached] = []

    async def work(api: "RestClient") -> int:
        found.extend(_read(await api.get("/fleet/verdict")))
        return OK

    if _has_fleet(reach) and (status := run_with_fleet(reach, work)) != OK:
        return status
    if not found:
        judged = _judged(reach)
        if isinstance(judged, int):
            return judged
        found.append(judged)
    verdict = found[-1]
    _print(verdict, as_json)
    return OK if verdict.is_same else REFUSED


def _has_fleet(reach: FleetLocation) -> bool:
    """Whether a fleet is named, or one of the project runs on this machine."""
    import asyncio
    import os

    from pallas.client import URL_VARIABLE, place_of
    from pallas.client.own_fleet import is_there
    from pallas.config import ConfigError

    if reach.url.strip() or os.environ.get(URL_VARIABLE, "").strip():
        return True
    try:
        return asyncio.run(is_there(place_of(project=project_at(reach.folder))))
    except (Wrong, ConfigError):
        return False  # what is wrong is said when the project is judged


def _read(documents: Iterable[Any]) -> "list[VerdictReached]":
    from pallas.model import VerdictReached, codec

    return [codec.decode(VerdictReached, each) for each in documents]


def _judged(reach: FleetLocation) -> "VerdictReached | int":
    """Judge all tests with a recording in this process; or the exit status for a mistake."""
    from pallas.agent_tests.agent_test_file import FOLDER, find_tests
    from pallas.config import ConfigError

    try:
        project = project_at(reach.folder)
        names = [test.name for test in find_tests(project) if any(turn.recording for turn in test.turns)]
    except (Wrong, ConfigError) as error:
        complain(str(error))
        return USAGE
    if not names:
        complain(f"pallas verdict: no test in {FOLDER} has a recording; `pallas keep RUN` makes one of a run")
        return USAGE
    return _of_tests(project, tuple(names))


def _of_tests(project: "Project", names: tuple[str, ...]) -> "VerdictReached | int":
    from time import perf_counter

    from pallas.event_loop import run
    from pallas.fleet.child_processes import ending_children
    from pallas.fleet.reload.verdict_judge import JudgeRequest
    from pallas.model import Fault, VerdictReached
    from pallas.model.verdict import counts_of, sorted_runs
    from pallas.verdict.judge import Judge

    everyone = frozenset(project.agents)
    judge = Judge(project, JudgeRequest(root=project.root, affected=everyone, tests=names))

    async def judged() -> "list[RunVerdict]":
        return [each async for each in judge.verdicts()]

    began = perf_counter()
    try:
        with quietly(project), ending_children():
            runs = run(judged())
    except Fault as fault:
        complain(f"pallas verdict: {fault_text(fault)}")
        return USAGE
    return VerdictReached(
        agents=tuple(sorted(everyone)),
        runs=sorted_runs(runs),
        counts=counts_of(runs),
        seconds=perf_counter() - began,
    )


def _print(verdict: "VerdictReached", as_json: bool) -> None:
    from pallas.model import codec
    from pallas.model.verdict import verdict_text

    if as_json:
        print(codec.dumps(codec.encode_fields(verdict)).decode())
        return
    if verdict.runs:
        rows = [[each.name, each.word, each.why] for each in verdict.runs]
        print(f"{table(['RUN', 'VERDICT', 'FIRST DIFFERENCE'], rows, width_of())}\n")
    print(f"{verdict_text(verdict, 0)} in {verdict.seconds:.2f} s")


def verdict(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
    folder: FolderOption = None,
    url: UrlOption = "",
    token: TokenOption = "",
) -> None:
    """Say which recorded runs would go differently with the files as they are. No model and no tool is asked.

    Shows the last verdict of the running fleet; without one the kept tests are judged now.
    Ends with 1 if a run would go differently.
    """
    raise typer.Exit(show_verdict(as_json, reach_of(context, folder, url, token)))
