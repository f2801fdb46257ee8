"""`pallas diff`: what differs between two runs."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pallas.cli.resources.shared_options import FolderOption, TokenOption, UrlOption, reach_of
from pallas.safe_text import one_line

from .record import fetch_recording
from .resources.fleet_requests import OK, FleetLocation, complain, problem_text, run_with_fleet

if TYPE_CHECKING:
    from pallas.client import RestClient
    from pallas.model import Recording

DIFFERENT: Final = 1
ERROR: Final = 2
"""The exit status if one of the runs could not be read, as of diff(1)."""
_INTERRUPTED: Final = 130
FORMATS: Final = ("text", "json")


def compare(names: Sequence[str], reach: FleetLocation, output: str, *, everything: bool) -> int:
    """Print what differs between two runs; returns 0 if nothing does, else 1, or 2 after an error."""
    from pallas.recordings.run_diff import diff

    from .resources.diff_output import diff_json, diff_text

    found: list[Recording] = []
    if (status := _read(names, reach, found)) != OK:
        return status if status == _INTERRUPTED else ERROR
    result = diff(*found)
    if output == "json":
        print(diff_json(result, everything=everything))
    else:
        print(diff_text(result, (names[0], names[1]), everything=everything), end="")
    sys.stdout.flush()
    return OK if result.is_same else DIFFERENT


def _read(names: Sequence[str], reach: FleetLocation, found: "list[Recording]") -> int:
    """Read the recordings in folders and archives, and make those of runs of the fleet."""
    from pallas.recordings.recording_folder import BadRecording, read

    async def work(api: "RestClient") -> int:
        for name in names:
            found.append(read(Path(name)) if is_path(name) else await fetch_recording(api, name))
        return OK

    try:
        if all(map(is_path, names)):
            found += [read(Path(name)) for name in names]
            return OK
        status = run_with_fleet(reach, work)
        for name in names:
            if status not in (OK, _INTERRUPTED) and not is_path(name):
                complain(
                    f"{one_line(name, 80)}: there is no such folder or archive here, so it was read "
                    "as the id of a run"
                )
        return status
    except (BadRecording, OSError) as error:
        complain(f"pallas diff: {problem_text(error)}")
        return ERROR


def is_path(name: str) -> bool:
    """Whether a name is that of a folder or an archive, and not the id of a run."""
    from pallas.config.files import is_there

    return "/" in name or name.endswith(".tar") or name in (".", "..") or is_there(Path(name))


def diff(
    context: typer.Context,
    before: Annotated[
        str, typer.Argument(metavar="RUN_A", help="A folder or an archive of `pallas record`, or a run's id.")
    ],
    after: Annotated[
        str, typer.Argument(metavar="RUN_B", help="The run to compare it with, given in the same way.")
    ],
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 1 if the runs differ, and with 0 if they do not.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Show the steps that do not differ, too.")
    ] = False,
    output: Annotated[str, typer.Option("-o", "--output", metavar="FORMAT", help="text or json.")] = "text",
    folder: FolderOption = None,
    url: UrlOption = "",
    token: TokenOption = "",
) -> None:
    """Show what differs between two runs: steps, prompts, tools, parameters, arguments, texts.

    Ids, token counts and times are not compared. Exit status: 0, or 2 if a run cannot be read.

    \b
    pallas diff recordings/desk-3f1c9a0e7b52 recordings/desk-9b1c44aa0d21
    pallas diff 3f1c9a0e7b52 9b1c44aa0d21                 two runs of the fleet
    pallas diff --exit-code tests/refund.tar 9b1c44aa0d21 in CI
    pallas diff -o json A B                               with both texts
    """
    if output not in FORMATS:
        complain(f"pallas diff: --output {one_line(output, 40)}: allowed: {', '.join(FORMATS)}")
        raise typer.Exit(ERROR)
    status = compare((before, after), reach_of(context, folder, url, token), output, everything=everything)
    raise typer.Exit(OK if status == DIFFERENT and not exit_code else status)
