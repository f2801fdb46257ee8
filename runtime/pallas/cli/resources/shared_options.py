"""Options that several commands share, and their shell completion."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final

import typer

from .fleet_requests import FleetLocation

ChatUrlOption = Annotated[
    str,
    typer.Option(
        "--url", metavar="URL", help="The registry's http://host:port of another fleet (or PALLAS_URL)."
    ),
]
ChatTokenOption = Annotated[
    str,
    typer.Option(
        "--token",
        metavar="TOKEN",
        show_default=False,
        help="Your token. Better export PALLAS_TOKEN: everyone on this machine can read an option.",
    ),
]
ProjectOption = Annotated[
    Path | None,
    typer.Option("--project", "-p", metavar="DIR", help="The project's folder (default: this one)."),
]


URL_HELP: Final = (
    "The registry's http://host:port of a fleet elsewhere (default: PALLAS_URL, else this project's)."
)
UrlOption = Annotated[str, typer.Option("--url", metavar="URL", show_default=False, help=URL_HELP)]
TokenOption = Annotated[
    str,
    typer.Option(
        "--token",
        metavar="TOKEN",
        show_default=False,
        help="Better export PALLAS_TOKEN: everyone on this machine can read an option. "
        "For your own fleet on this machine none is needed.",
    ),
]
_FOLDER_HELP: Final = "The project's folder (default: this one)."
FolderOption = Annotated[
    Path | None, typer.Option("--project", "-p", metavar="DIR", show_default=False, help=_FOLDER_HELP)
]
ShortFolderOption = Annotated[
    Path | None, typer.Option("--folder", "-p", metavar="DIR", show_default=False, help=_FOLDER_HELP)
]
"""For commands where ``--project`` names one of the fleet's projects."""
OutputOption = Annotated[str, typer.Option("-o", "--output", metavar="FORMAT", help="table, yaml or json.")]
LimitOption = Annotated[
    int,
    typer.Option(
        "--limit",
        min=0,
        max=10_000,
        metavar="N",
        show_default=False,
        help="Show at most this many (default: 100).",
    ),
]


def reach_of(context: typer.Context, folder: Path | None, url: str, token: str) -> FleetLocation:
    """Return which fleet is meant; without ``folder`` that of `pallas --project DIR`, or of this folder."""
    given = context.obj if isinstance(context.obj, Path) else Path()
    return FleetLocation(folder if folder is not None else given, url, token)


def complete_words(context: typer.Context, incomplete: str) -> list[str]:
    """Complete a kind first, then names of that kind."""
    from .resource_kinds import KINDS

    words = _said(context, "words")
    if not words:
        return [word for word in KINDS if word.startswith(incomplete)]
    kind = next((each for each in KINDS.values() if words[0].lower() in (each.word, each.plural)), None)
    if kind is None:
        return []
    taken = set(words[1:])
    return [name for name in _names(context, kind.word) if name not in taken and name.startswith(incomplete)]


def complete_agent(context: typer.Context, incomplete: str) -> list[str]:
    """Complete names of agents."""
    return [name for name in _names(context, "agent") if name.startswith(incomplete)]


def complete_llm(context: typer.Context, incomplete: str) -> list[str]:
    """Complete names of LLMs."""
    return [name for name in _names(context, "llm") if name.startswith(incomplete)]


def complete_project(context: typer.Context, incomplete: str) -> list[str]:
    """Complete names of projects."""
    return [name for name in _names(context, "project") if name.startswith(incomplete)]


def complete_client(incomplete: str) -> list[str]:
    """Complete programs that `pallas connect` knows."""
    from .mcp_clients import CLIENTS

    return [name for name in CLIENTS if name.startswith(incomplete)]


def _names(context: typer.Context, kind: str) -> list[str]:
    from .name_completion import names

    params = context.params
    given = params.get("folder") or context.find_root().params.get("project")
    folder = Path(str(given)) if given else Path()
    found = names(kind, folder, str(params.get("url") or ""), str(params.get("token") or ""))
    if kind == "agent" and not found:
        from pallas.cli.chat_completion import declared

        with suppress(Exception):
            found = list(declared(folder))
    return found


def _said(context: typer.Context, name: str) -> list[str]:
    value = context.params.get(name)
    return [str(each) for each in value] if isinstance(value, list | tuple) else []
