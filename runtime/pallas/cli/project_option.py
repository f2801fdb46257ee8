"""The option ``-p`` of the commands, and the project's folder that it names."""

import sys
from pathlib import Path
from typing import Annotated

import typer

ProjectOption = Annotated[
    Path,
    typer.Option(
        "--project", "-p", metavar="DIR", help="The project's folder (default: this one).", show_default=False
    ),
]
HERE = Path()


def _place(context: typer.Context, project: Path | None) -> Path | None:
    """Remember the folder for ``folder_of``: every command takes it as -p, too."""
    if project is not None:
        context.obj = project
    return project


PlaceOption = Annotated[
    Path | None,
    typer.Option(
        "--project",
        "-p",
        metavar="DIR",
        callback=_place,
        show_default=False,
        help="The project's folder, as DIR.",
    ),
]


def folder_of(context: typer.Context, directory: Path | None) -> Path:
    """The folder that an argument or -p names, else this one."""
    given = context.obj if isinstance(context.obj, Path) else HERE
    return directory if directory is not None else given


def root_of_project(context: typer.Context, path: Path | None) -> Path:
    """The project's folder, also of a file that is one agent."""
    root = folder_of(context, path)
    if not root.is_file():  # A file's folder takes the models of agents.yaml, and those take 0.1 s to import.
        return root
    from pallas.cli.single_agent import NotSingle, root_of

    try:
        return root_of(root)
    except NotSingle as error:
        print(error, file=sys.stderr)
        raise typer.Exit(2) from None
