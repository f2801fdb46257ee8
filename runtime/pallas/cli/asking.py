"""Options of the commands that ask a fleet, here or elsewhere, and start one where none runs."""

from pathlib import Path
from typing import Annotated

import typer

UrlOption = Annotated[
    str,
    typer.Option(
        "--url", metavar="URL", help="A fleet elsewhere (or PALLAS_URL): the registry's http://host:port."
    ),
]
TokenOption = Annotated[
    str,
    typer.Option(
        "--token",
        metavar="TOKEN",
        show_default=False,
        help="As whom to ask. Better export PALLAS_TOKEN: everyone on this machine can read an option.",
    ),
]
ProjectOption = Annotated[
    Path | None,
    typer.Option("--project", "-p", metavar="DIR", help="The project's folder (default: this one)."),
]
