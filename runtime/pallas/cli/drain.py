"""`pallas drain`: have replicas finish their runs and end."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from pallas.cli.resources.shared_options import FolderOption, TokenOption, UrlOption, reach_of
from pallas.safe_text import one_line

from .resources.fleet_requests import (
    HOW,
    NO_FLEET,
    OK,
    REFUSED,
    FleetLocation,
    complain,
    fault_text,
    run_with_fleet,
)

if TYPE_CHECKING:
    from pallas.client import RestClient


def drain_replicas(replicas: Sequence[str], yes: bool, reach: FleetLocation) -> int:
    """Ask each to drain, and return the exit status: 1 if one was refused; the others drain then."""
    if not yes and sys.stdin.isatty() and not _sure(replicas):
        complain("nothing drains")
        return REFUSED

    async def work(api: "RestClient") -> int:
        if api.own:
            complain(f"pallas drain: no fleet runs that could pass this on; {HOW}")
            return NO_FLEET
        return max([await _drain(api, each) for each in replicas])

    return run_with_fleet(reach, work)


def _sure(replicas: Sequence[str]) -> bool:
    names = ", ".join(f"replica/{one_line(each, 20)}" for each in replicas)
    print(f"Drain {names}? Its process ends. [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


async def _drain(api: "RestClient", replica: str) -> int:
    from pallas.client import NoFleetAnswers
    from pallas.client.rest_client import part
    from pallas.model import Fault

    shown = f"replica/{one_line(replica, 20)}"
    try:
        await api.post(f"/fleet/replicas/{part(replica)}/drain")
    except NoFleetAnswers:
        raise
    except Fault as fault:
        complain(f"{shown}: {fault_text(fault)}")
        return REFUSED
    print(f"{shown} drains")
    return OK


def drain(
    context: typer.Context,
    replicas: Annotated[
        list[str], typer.Argument(metavar="ID...", help="The replicas, as `pallas get replicas` lists them.")
    ],
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
    folder: FolderOption = None,
    url: UrlOption = "",
    token: TokenOption = "",
) -> None:
    """Have replicas take no new runs, finish those under way or hand them over, and end. Asks on a terminal.

    Any replica passes this on to any other one. It needs the control token of the fleet that is asked.

    \b
    pallas get replicas
    pallas drain b44d07c1
    """
    raise typer.Exit(drain_replicas(replicas, yes, reach_of(context, folder, url, token)))
