"""`pallas test`: run the tests of a project's agents, from recordings or live."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Final, Protocol

import typer

from pallas.cli.resources.shared_options import FolderOption, TokenOption, UrlOption, reach_of
from pallas.safe_text import one_line

from .quiet_output import own_output, quietly
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
from .resources.text_tables import table, width_of

if TYPE_CHECKING:
    from pallas.agent_tests.agent_test import AgentTest, AgentTestResult, Trial
    from pallas.client import RestClient
    from pallas.config import Project
    from pallas.model import Cost

FORMATS: Final = ("text", "json")


class _Bench(Protocol):
    async def run(self, test: "AgentTest") -> "Trial": ...


@dataclass(frozen=True, slots=True)
class AgentTestOptions:
    """How tests are run, and how that is reported.

    ``own``: live in a fleet of their own. The recordings of all runs are written to ``record``.
    """

    exact: bool
    live: bool
    own: bool
    repeat: int
    concurrency: int
    max_tokens: int | None
    max_cost: int | None  # nano-US-dollars
    output: str
    junit: Path | None
    summary: Path | None
    record: Path | None


def run_agent_tests(patterns: Sequence[str], options: AgentTestOptions, reach: FleetLocation) -> int:
    """Run tests, report, and return the exit status: 1 if one did not pass, 2 for wrong use."""
    from pallas.agent_tests.agent_test_file import FOLDER, find_tests
    from pallas.config import ConfigError

    try:
        _check(options)
        project = project_at(reach.folder)
        tests = find_tests(project, patterns, exact=options.exact)
    except (Wrong, ConfigError) as error:
        complain(str(error))
        return USAGE
    if not tests:
        which = "of that name " if patterns else ""
        complain(f"pallas test: no tests {which}in {FOLDER}; `pallas keep RUN` makes one from a run")
        return USAGE
    with own_output() as output:
        show = partial(print, file=output, flush=True)
        if options.live and not options.own:
            return _live(project, tests, options, reach, show)
        return _recorded(project, tests, options, show)


def _check(options: AgentTestOptions) -> None:
    if options.output not in FORMATS:
        raise Wrong(f"pallas test: --output {options.output[:40]}: allowed: {', '.join(FORMATS)}")
    bounds = options.max_tokens, options.max_cost
    if not options.live and (options.repeat > 1 or bounds != (None, None)):
        raise Wrong(
            "pallas test: --repeat, --max-tokens and --max-cost are for --live: a recording always gives the "
            "same"
        )


def _live(
    project: "Project",
    tests: Sequence["AgentTest"],
    options: AgentTestOptions,
    reach: FleetLocation,
    show: Callable[[str], None],
) -> int:
    if options.output == "text" and (told := _recorded_before(tests, options.repeat)):
        show(told)
    found: list[tuple[list[AgentTestResult], float]] = []

    async def work(api: "RestClient") -> int:
        from pallas.agent_tests.live_bench import LiveBench
        from pallas.agent_tests.scorers import Scorers

        found.append(await _all(LiveBench(api, Scorers(project.root)), tests, options, show))
        return OK

    status = run_with_fleet(reach, work, starts=True)
    return _report(*found[0], options) if found else status


def _recorded(
    project: "Project",
    tests: Sequence["AgentTest"],
    options: AgentTestOptions,
    show: Callable[[str], None],
) -> int:
    """Run tests in fleets of this process: from their recordings, or live."""
    from pallas.agent_tests.recorded_bench import RecordedBench, own_bench
    from pallas.agent_tests.scorers import Scorers
    from pallas.fleet.child_processes import ending_children
    from pallas.model import Fault
    from pallas.processes.event_loop import run

    scorers = Scorers(project.root)

    async def work() -> tuple[list["AgentTestResult"], float]:
        if options.live:
            async with own_bench(project, [test.agent for test in tests], scorers) as live:
                return await _all(live, tests, options, show)
        async with RecordedBench.opened(project, tests, scorers) as recorded:
            return await _all(recorded, tests, options, show)

    try:
        with quietly(project), ending_children():
            results, seconds = run(work())
    except Fault as fault:
        complain(f"pallas test: {fault_text(fault)}")
        return USAGE
    return _report(results, seconds, options)


def _recorded_before(tests: Sequence["AgentTest"], repeat: int) -> str:
    """What the recorded runs of these tests took, so often; empty if it is not known."""
    from pallas.agent_tests.expectations import cost_of, tokens_of
    from pallas.model import NO_COST
    from pallas.recordings.recording_folder import BadRecording, read

    total, cost = 0, NO_COST
    for turn in (turn for test in tests for turn in test.turns):
        if turn.recording is not None:
            try:
                recording = read(turn.recording)
            except (BadRecording, OSError):
                continue
            total, cost = total + tokens_of(recording), cost + cost_of(recording)
    paid = f", {words}" if (words := cost.times(repeat).words) else ""
    return f"about {total * repeat} tokens{paid}, as recorded" if total else ""


async def _all(
    bench: _Bench, tests: Sequence["AgentTest"], options: AgentTestOptions, show: Callable[[str], None]
) -> tuple[list["AgentTestResult"], float]:
    """Run each test so often, some at a time; show the lines of each when it is over."""
    from pallas.agent_tests.agent_test import AgentTestResult, Trial
    from pallas.agent_tests.expectations import Unmet
    from pallas.agent_tests.reports import lines_of
    from pallas.model import NO_COST

    began = perf_counter()
    free = asyncio.Semaphore(options.concurrency)
    used, spent = 0, NO_COST

    async def trial(test: "AgentTest") -> "Trial":
        nonlocal used, spent
        async with free:
            if options.max_tokens is not None and used >= options.max_tokens:
                why = f"{used} tokens are used, of at most {options.max_tokens}"
                return Trial("skipped", (Unmet("--max-tokens", why),))
            if options.max_cost is not None and (why := _too_dear(spent, options.max_cost)):
                return Trial("skipped", (Unmet("--max-cost", why),))
            done = await bench.run(test)
            used, spent = used + done.tokens, spent + done.cost
            return done

    async def result(test: "AgentTest") -> "AgentTestResult":
        trials = await asyncio.gather(*(trial(test) for _ in range(options.repeat)))
        found = AgentTestResult(test, tuple(trials))
        if options.output == "text":
            for line in lines_of(found):
                show(line)
        return found

    results = await asyncio.gather(*map(result, tests))
    return list(results), perf_counter() - began


def _too_dear(spent: "Cost", most: int) -> str:
    """Why no further test begins; empty if one does."""
    from pallas.model.money import usd_text

    if (spent.cost or 0) >= most:
        return f"{spent.text} is spent; the limit is {usd_text(most)}"
    if spent.unpriced:
        return "the prices of these models are not known; add them under prices: in agents.yaml"
    return ""


def _record(results: Sequence["AgentTestResult"], folder: Path) -> bool:
    """Write the recordings of tests; whether all were written."""
    from pallas.agent_tests.reports import recordings_of
    from pallas.recordings.recording_folder import BadRecording, write

    is_complete = True
    for name, recording in (each for result in results for time in recordings_of(result) for each in time):
        try:
            write(recording, folder / name)
        except (BadRecording, OSError) as error:
            complain(f"pallas test: {one_line(problem_text(error), 300)}")
            is_complete = False
    return is_complete


def _report(results: Sequence["AgentTestResult"], seconds: float, options: AgentTestOptions) -> int:
    from pallas.agent_tests.reports import append_summary, as_json, as_junit, as_markdown, summary, table_of

    if options.output == "json":
        print(as_json(results, seconds))
    else:
        if len(results) > 1:
            print(f"\n{table(*table_of(results), width_of())}")
        print(summary(results, seconds))
    if options.record is not None and not _record(results, options.record):
        return USAGE
    try:
        if options.junit is not None:
            options.junit.parent.mkdir(parents=True, exist_ok=True)
            options.junit.write_bytes(as_junit(results, seconds))
        if options.summary is not None:
            append_summary(options.summary, as_markdown(results, seconds))
    except OSError as error:
        complain(f"pallas test: {problem_text(error)}")
        return USAGE
    return OK if all(each.verdict in ("passed", "skipped") for each in results) else REFUSED


def _run_against(
    patterns: Sequence[str], against: str, given: AgentTestOptions, max_cost: str, root: Path
) -> int:
    """Compare the project with what ``against`` names; the exit status."""
    from .version_tests import ComparedTests, compare_versions

    try:
        _check(given)
        if given.junit is not None:
            raise Wrong("pallas test: --against writes no JUnit report; leave out --junit")
    except Wrong as error:
        complain(str(error))
        return USAGE
    options = ["--concurrency", str(given.concurrency)]
    if given.live:
        options += ["--repeat", str(given.repeat)]
        options += ["--max-tokens", str(given.max_tokens)] if given.max_tokens is not None else []
        options += ["--max-cost", max_cost] if max_cost else []
    chosen = ComparedTests(
        patterns, against, given.exact, given.live, options, given.record, given.output, given.summary
    )
    return compare_versions(chosen, root)


def test(
    context: typer.Context,
    patterns: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATTERN...]",
            show_default=False,
            help="Names, or parts of them (default: all).",
        ),
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Match whole names of tests only.")] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Ask models and tools for real, instead of the recordings.")
    ] = False,
    repeat: Annotated[
        int, typer.Option(min=1, max=1_000, metavar="N", help="With --live: run each test N times.")
    ] = 1,
    concurrency: Annotated[
        int, typer.Option(min=1, max=100, metavar="N", help="Run N tests at the same time.")
    ] = 4,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            show_default=False,
            help="With --live: start no further test once N tokens are used.",
        ),
    ] = None,
    max_cost: Annotated[
        str,
        typer.Option(
            metavar="USD",
            show_default=False,
            help="With --live: start no further test once this much is spent, in US dollars.",
        ),
    ] = "",
    own: Annotated[
        bool,
        typer.Option("--own", help="With --live: use a fleet of its own, in memory, even if one runs."),
    ] = False,
    against: Annotated[
        str,
        typer.Option(
            "--against",
            metavar="REV|DIR|RECORDING",
            show_default=False,
            help="Compare with another version of the project, a revision of git or a folder, or with a "
            "recording.",
        ),
    ] = "",
    record: Annotated[
        Path | None,
        typer.Option(
            "--record", metavar="DIR", show_default=False, help="Write the recordings of all runs to DIR."
        ),
    ] = None,
    output: Annotated[str, typer.Option("-o", "--output", metavar="FORMAT", help="text or json.")] = "text",
    junit: Annotated[
        Path | None,
        typer.Option("--junit", metavar="FILE", show_default=False, help="Also write a JUnit report."),
    ] = None,
    summary: Annotated[
        str,
        typer.Option(
            "--summary",
            metavar="FILE",
            envvar="GITHUB_STEP_SUMMARY",
            show_default=False,
            help="Also append a table in Markdown to FILE; on GitHub to the summary of the job.",
        ),
    ] = "",
    folder: FolderOption = None,
    url: UrlOption = "",
    token: TokenOption = "",
) -> None:
    """Run the tests in tests/agents: from their recordings, without a model, or live.

    Exit status: 0 if all tests pass, 1 if one does not, 2 for wrong use.

    \b
    pallas test
    pallas test refund --live --repeat 20 --max-tokens 100000
    pallas test refund --live --repeat 20 --max-cost 0.50
    pallas test --against HEAD
    pallas test --against HEAD --live --repeat 5
    pallas test --junit report.xml
    """
    reach = reach_of(context, folder, url, token)
    most = _usd(max_cost)
    given = AgentTestOptions(
        exact,
        live or own,
        own,
        repeat,
        concurrency,
        max_tokens,
        most,
        output,
        junit,
        Path(summary) if summary else None,
        record,
    )
    if against:
        if url:
            complain("pallas test: --against runs here: leave out --url")
            raise typer.Exit(USAGE)
        raise typer.Exit(_run_against(patterns or (), against, given, max_cost, reach.folder))
    raise typer.Exit(run_agent_tests(patterns or (), given, reach))


def _usd(text: str) -> int | None:
    """US dollars of an option in nano-US-dollars, None without one. Ends the program for any other text."""
    from pallas.model.money import nano_usd

    found = nano_usd(text) if text else None
    if text and not found:
        complain(f"pallas test: --max-cost {one_line(text, 40)}: write US dollars, for example 0.50")
        raise typer.Exit(USAGE)
    return found
