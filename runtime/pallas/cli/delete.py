"""`pallas delete`: delete things, after a confirmation when a person is there to give it."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from pallas.cli.resources.shared_options import FolderOption, TokenOption, UrlOption, complete_words, reach_of
from pallas.safe_text import one_line

from .resources.fleet_requests import OK, REFUSED, USAGE, FleetLocation, complain, explained, run_with_fleet
from .resources.resource_kinds import DELETABLE, KindInfo, NoSuchKind, how_to_list, split

if TYPE_CHECKING:
    from pallas.client import RestClient


def delete_named(words: Sequence[str], yes: bool, reach: FleetLocation) -> int:
    """Delete each, and return the exit status: 1 if one was refused; the others are deleted then."""
    try:
        should_be_deleted = split(list(words), DELETABLE)
    except NoSuchKind as error:
        complain(f"pallas delete: {error}")
        return USAGE
    if not all(name for _, name in should_be_deleted):
        kind = should_be_deleted[0][0]
        complain(f"pallas delete: name the {kind.word}; `{how_to_list(kind.word)}` lists them")
        return USAGE
    if not yes and sys.stdin.isatty() and not _sure(should_be_deleted):
        complain("nothing was deleted")
        return REFUSED

    async def work(api: "RestClient") -> int:
        return max([await _delete_one(api, kind, name) for kind, name in should_be_deleted])

    return run_with_fleet(reach, work)


def _sure(should_be_deleted: Sequence[tuple[KindInfo, str]]) -> bool:
    names = ", ".join(f"{kind.word}/{one_line(name, 80)}" for kind, name in should_be_deleted)
    threads = " and all its threads" if any(kind.word == "agent" for kind, _ in should_be_deleted) else ""
    print(f"Delete {names}{threads}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


async def _delete_one(api: "RestClient", kind: KindInfo, name: str) -> int:
    from pallas.client import NoFleetAnswers
    from pallas.client.rest_client import part
    from pallas.model import Fault

    try:
        await api.delete(f"{kind.path}/{part(name)}")
    except NoFleetAnswers:
        raise
    except Fault as fault:
        complain(f"{kind.word}/{name}: {await explained(api, fault)}")
        return REFUSED
    print(f"{kind.word}/{name} deleted")
    return OK


def delete(
    context: typer.Context,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="KIND NAME...",
            help="agent, llm, secret, project or thread, and its name.",
            autocompletion=complete_words,
        ),
    ],
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
    folder: FolderOption = None,
    url: UrlOption = "",
    token: TokenOption = "",
) -> None:
    """Delete resources. Asks first on a terminal.

    An LLM or a secret that is in use is not deleted; the error names its users. Deleting an agent deletes
    its threads; deleting a project keeps its agents.

    \b
    pallas delete agent reviewer
    pallas delete llm/qwen3-thinking secret/litellm-key --yes
    """

    raise typer.Exit(delete_named(words, yes, reach_of(context, folder, url, token)))
