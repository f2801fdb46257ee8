"""`pallas verdict`: which recorded runs would go differently with the files as they are."""

from typing import TYPE_CHECKING, Annotated, Final

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
    from pallas.agent_tests.agent_test import AgentTest
    from pallas.client import RestClient
    from pallas.config import Project
    from pallas.fleet.reload.verdict_judge import JudgeRequest
    from pallas.model import LiveState, Recording, RunVerdict, VerdictReached

_PAUSE_S: Final = 0.2
"""Between two looks whether models have answered."""


def show_verdict(as_json: bool, live: bool, reach: FleetLocation) -> int:
    """Print the last verdict of the running fleet, else judge the kept tests; returns the exit status.

    With ``live`` models are asked for it first. 0 if every run goes as it was recorded, 1 if one does not, 2
    for a mistake in a file, and if models are not asked.
    """
    found: list[VerdictReached] = []

    async def work(api: "RestClient") -> int:
        found.extend(await (_asked(api) if live else _last(api)))
        return OK

    if _has_fleet(reach) and (status := run_with_fleet(reach, work)) != OK:
        return USAGE if live else status
    if not found:
        tests = _recorded_tests(reach, live)
        if isinstance(tests, int):
            return tests
        judged = _of_tests(*tests, live, {})
        if isinstance(judged, int):
            return judged
        found.append(judged)
    verdict = found[-1]
    _print(verdict, as_json)
    return OK if verdict.is_same else REFUSED


async def _last(api: "RestClient") -> "list[VerdictReached]":
    from pallas.model import VerdictReached, codec

    return [codec.decode(VerdictReached, each) for each in await api.get("/fleet/verdict")]


async def _asked(api: "RestClient") -> "list[VerdictReached]":
    """The verdict after models were asked; without that if a file is saved meanwhile. Raises Fault."""
    import asyncio

    from pallas.config.kinds import MAX_VERDICT_S

    complain((await api.post("/fleet/verdict/live", {}))["said"])
    async with asyncio.timeout(MAX_VERDICT_S):
        while True:
            found = await _last(api)
            if not found or found[-1].live != "asking":
                break
            await asyncio.sleep(_PAUSE_S)
    if found and found[-1].live != "asked":
        complain("pallas verdict: a file was saved in the meantime; this is the verdict on the newer save")
    return found


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


def accept_runs(names: tuple[str, ...], reach: FleetLocation) -> int:
    """Ask models what becomes of tests that differ, and make those runs their recordings.

    Without names, of all tests. Returns the exit status: 0 if every test goes as it is recorded now, 1 if one
    does not, 2 for a mistake.
    """
    from pallas.agent_tests.accepted_test import NotAccepted, accept
    from pallas.recordings.recording_folder import BadRecording

    tests = _recorded_tests(reach, True, names)
    if isinstance(tests, int):
        return tests
    recordings: dict[str, tuple[Recording, ...]] = {}
    verdict = _of_tests(*tests, True, recordings)
    if isinstance(verdict, int):
        return verdict
    project, by_name, status = tests[0], {test.name: test for test in tests[1]}, OK
    for run in (each for each in verdict.runs if each.word != "same"):
        try:
            if run.name not in recordings:
                raise NotAccepted(
                    f"{run.line}; if that is meant, run `pallas test {run.name} --live`, and keep that run"
                )
            path = accept(by_name[run.name], recordings[run.name], project.root)
            print(f"{path.relative_to(project.root)}: accepted ({run.line})")
        except (NotAccepted, BadRecording, OSError) as error:
            complain(f"pallas verdict: {run.name} is not accepted: {error}")
            status = REFUSED
    if verdict.is_same:
        print("nothing to accept: no test differs from its recording")
    return status


def _recorded_tests(
    reach: FleetLocation, live: bool, names: tuple[str, ...] = ()
) -> "tuple[Project, list[AgentTest]] | int":
    """The tests with a recording, all or those of these names; or the exit status for a mistake."""
    from pallas.agent_tests.agent_test_file import FOLDER, find_tests
    from pallas.config import ConfigError

    try:
        project = project_at(reach.folder)
        tests = [
            test
            for test in find_tests(project, names, exact=bool(names))
            if any(turn.recording for turn in test.turns)
        ]
    except (Wrong, ConfigError) as error:
        complain(str(error))
        return USAGE
    if unknown := sorted(set(names) - {test.name for test in tests}):
        complain(f"pallas verdict: there is no test {unknown[0]} with a recording in {FOLDER}")
        return USAGE
    if not tests:
        complain(
            f"pallas verdict: no test in {FOLDER} has a recording; `pallas keep RUN` makes one from a run"
        )
        return USAGE
    if live and project.verdict.live == "never":
        where = project.agents_file.name
        complain(f"pallas verdict: models are not asked: write `live: ask` under verdict: in {where}")
        return USAGE
    return project, tests


def _of_tests(
    project: "Project", tests: "list[AgentTest]", live: bool, ended: "dict[str, tuple[Recording, ...]]"
) -> "VerdictReached | int":
    """Judge tests in this process. ``ended`` gets the runs for which models were asked."""
    from time import perf_counter

    from pallas.fleet.child_processes import ending_children
    from pallas.fleet.reload.verdict_judge import JudgeRequest
    from pallas.model import Fault, ModelCalls, VerdictReached
    from pallas.model.verdict import counts_of, live_text, sorted_runs
    from pallas.processes.event_loop import run

    found: dict[str, RunVerdict] = {}
    everyone, began = frozenset(project.agents), perf_counter()
    names = tuple(test.name for test in tests)
    request = JudgeRequest(root=project.root, affected=everyone, tests=names)

    def reached(state: "LiveState") -> "VerdictReached":
        runs = found.values()
        return VerdictReached(
            agents=tuple(sorted(everyone)),
            runs=sorted_runs(runs),
            counts=counts_of(runs),
            seconds=perf_counter() - began,
            live=state,
            estimate=ModelCalls.sum(each.estimate for each in runs),
            asked=ModelCalls.sum(each.asked for each in runs),
        )

    try:
        with quietly(project), ending_children():
            run(_judge_tests(project, request, found))
        if not any(each.estimate for each in found.values()):
            return reached("none")
        if not live:
            return reached("can ask")
        complain(live_text(reached("asking")).removeprefix("; "))
        with quietly(project), ending_children():
            ended |= run(_ask_for_tests(project, request, found))
    except Fault as fault:
        complain(f"pallas verdict: {fault_text(fault)}")
        return USAGE
    return reached("asked")


async def _judge_tests(project: "Project", request: "JudgeRequest", found: "dict[str, RunVerdict]") -> None:
    from pallas.verdict.judge import Judge

    async for each in Judge(project, request).verdicts():
        found[each.name] = each


async def _ask_for_tests(
    project: "Project", request: "JudgeRequest", found: "dict[str, RunVerdict]"
) -> "dict[str, tuple[Recording, ...]]":
    """Ask models what becomes of the tests whose requests differ, within the time that the project gives.

    Returns the recordings of those that came to their end.
    """
    import asyncio
    from contextlib import aclosing, suppress
    from dataclasses import replace

    from pallas.fleet.reload.verdicts import after_asking, live_request, undecided
    from pallas.verdict.live_judge import LiveJudge

    wanted = {name: each for name, each in found.items() if each.estimate is not None}
    asking = replace(request, tests=tuple(wanted), live=live_request(project.verdict, wanted.values()))
    late = f"models did not answer within {project.verdict.timeout:g} s"
    found |= {name: after_asking(each, undecided(each, late)) for name, each in wanted.items()}
    judge = LiveJudge(project, asking)
    with suppress(TimeoutError):
        async with asyncio.timeout(project.verdict.timeout), aclosing(judge.verdicts()) as verdicts:
            async for each in verdicts:
                found[each.name] = after_asking(wanted[each.name], each)
    return judge.recordings


def _print(verdict: "VerdictReached", as_json: bool) -> None:
    from pallas.model import codec
    from pallas.model.verdict import verdict_text

    if as_json:
        print(codec.dumps(codec.encode_fields(verdict)).decode())
        return
    if verdict.runs:
        rows = [[each.name, each.words, each.why] for each in verdict.runs]
        print(f"{table(['RUN', 'VERDICT', 'FIRST DIFFERENCE'], rows, width_of())}\n")
    print(f"{verdict_text(verdict, 0)} in {verdict.seconds:.2f} s")


def verdict(
    context: typer.Context,
    tests: Annotated[
        list[str] | None, typer.Argument(help="For --accept: only these tests.", metavar="[TEST]...")
    ] = None,
    accept: Annotated[
        bool,
        typer.Option(
            "--accept",
            help="Ask models as with --live, and record again the tests that differ.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Send the requests that differ to the models, and continue those runs; this costs money.",
        ),
    ] = False,
    folder: FolderOption = None,
    url: UrlOption = "",
    token: TokenOption = "",
) -> None:
    """Show which recorded runs would go differently with the files as they are now. Calls no tool.

    Shows the last verdict of the running fleet. If none runs, the tests that have a recording are judged now.
    Exit status: 1 if a run would go differently.

    With --live the models are asked, from the first request that differs on. The price is estimated first.

    With --accept the tests are judged now and the models are asked. A test whose run ends with other texts or
    calls is recorded again; a test whose expectations fail keeps its recording.
    """
    if tests and not accept:
        complain("pallas verdict: tests can only be named with --accept")
        raise typer.Exit(USAGE)
    if accept:
        raise typer.Exit(accept_runs(tuple(tests or ()), reach_of(context, folder, url, token)))
    raise typer.Exit(show_verdict(as_json, live, reach_of(context, folder, url, token)))
