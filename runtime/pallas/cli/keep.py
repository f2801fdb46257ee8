"""`pallas keep`: make a test of a run."""

from typing import TYPE_CHECKING, Annotated

import typer

from pallas.cli.resources.shared_options import FolderOption, TokenOption, UrlOption, reach_of

from .record import fetch_recording
from .resources.fleet_requests import (
    OK,
    REFUSED,
    USAGE,
    FleetLocation,
    complain,
    problem_text,
    run_with_fleet,
)

if TYPE_CHECKING:
    from pallas.client import RestClient


def keep_run(run: str, name: str, force: bool, reach: FleetLocation) -> int:
    """Make a test of a run in the project's folder; returns the exit status."""
    from pallas.agent_tests.kept_test import NameTaken, keep, name_of, name_problem

    if name and (problem := name_problem(name)):
        complain(f"pallas keep: {problem}")
        return USAGE

    async def work(api: "RestClient") -> int:
        recording = await fetch_recording(api, run)
        chosen = name or name_of(recording)
        try:
            path = keep(recording, reach.folder, chosen, replaces=force)
        except (NameTaken, OSError) as error:
            complain(f"pallas keep: {problem_text(error)}")
            return REFUSED
        for line in recording.missing:
            complain(f"{chosen}: not recorded: {line}")
        print(f"{path}: `pallas test {chosen}` runs it")
        return OK

    return run_with_fleet(reach, work)


def keep(
    context: typer.Context,
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Its id, as `pallas get runs` lists it, or `last`.")
    ],
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="The test's name (default: from agent and question).")
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace the test of that name.")] = False,
    folder: FolderOption = None,
    url: UrlOption = "",
    token: TokenOption = "",
) -> None:
    """Make a test of a run: tests/agents/NAME.yaml with what it did, and its recording next to it.

    \b
    pallas keep last
    pallas keep 3f1c9a0e7b52 refund-of-two-orders
    """
    raise typer.Exit(keep_run(run, name, force, reach_of(context, folder, url, token)))
