"""Runs the official MCP conformance suite against agents of Pallas; `make conformance` installs it first.

One line for each scenario run, then a summary. Names of agents as arguments choose among them. Exit status 1
when something failed that no baseline expects, when a baseline expects what passes, or when too few runs of
the fixture passed; 2 when it could not run.
"""

import asyncio
import logging
import sys
import warnings
from collections.abc import Collection
from pathlib import Path
from time import monotonic
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from conformance.report import ScenarioRun, summary
from conformance.suite import EXTENSION, VERSIONS, is_installed, run_scenario, run_suite
from conformance.targets import fixture, sample_fleet

AT_ONCE: Final = 2
# Of the 83 runs against the fixture.
LEAST: Final = {"fixture": 70}


async def run_all(chosen: Collection[str]) -> tuple[ScenarioRun, ...]:
    """The agents of the sample project and the fixture, those chosen or all, in both protocol versions.

    Against the fixture also the scenarios of the extension.
    """
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(agent: str, url: str, version: str, baseline: str) -> tuple[ScenarioRun, ...]:
        async with gate:
            runs = await run_suite(agent, url, version, baseline)
        for run in runs:
            print(run, flush=True)
        return runs

    async def extension(url: str, scenario: str) -> tuple[ScenarioRun, ...]:
        async with gate:
            run = await run_scenario("fixture", url, scenario, "fixture")
        print(run, flush=True)
        return (run,)

    async with sample_fleet() as agents, fixture() as url:
        targets = [*((name, each, "agent") for name, each in agents.items()), ("fixture", url, "fixture")]
        known = [name for name, _, _ in targets]
        if unknown := sorted(set(chosen) - set(known)):
            raise RuntimeError(f"no agent is named {', '.join(unknown)}; there are {', '.join(known)}")
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(one(name, each, version, baseline))
                for name, each, baseline in targets
                if not chosen or name in chosen
                for version in VERSIONS
            ]
            if not chosen or "fixture" in chosen:
                tasks += [group.create_task(extension(url, scenario)) for scenario in EXTENSION]
    return tuple(run for task in tasks for run in task.result())


def main(chosen: Collection[str]) -> int:
    """Run, print, and say how it went."""
    # What the suite provokes (refused hosts, failing tools, deprecated requests) is not for the screen.
    logging.disable(logging.CRITICAL)
    warnings.filterwarnings("ignore", message=".* is deprecated as of")
    if not is_installed():
        print("the suite is not installed; `make conformance` installs it", file=sys.stderr)
        return 2
    began = monotonic()
    try:
        runs = asyncio.run(run_all(chosen))
    except (RuntimeError, ExceptionGroup) as error:
        for each in error.exceptions if isinstance(error, ExceptionGroup) else [error]:
            if not isinstance(each, RuntimeError):
                raise
            print(each, file=sys.stderr)
        return 2
    least = {name: count for name, count in LEAST.items() if not chosen or name in chosen}
    lines, good = summary(runs, least=least)
    print(*["", *lines], f"{len(runs)} scenario runs in {monotonic() - began:.0f} s", sep="\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
