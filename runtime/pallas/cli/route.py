"""`pallas route`: show which agent would be chosen for a question, and why."""

from typing import Annotated

import typer

from pallas.cli.resources.shared_options import FolderOption, TokenOption, UrlOption, reach_of


def route(
    context: typer.Context,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="The question to route.")],
    capability: Annotated[
        str,
        typer.Option(
            "--capability",
            "-c",
            metavar="WORD",
            show_default=False,
            help="Only agents that list this capability.",
        ),
    ] = "",
    router: Annotated[
        str,
        typer.Option(
            "--router",
            metavar="NAME",
            show_default=False,
            help="Choose as this router does (default: among all agents).",
        ),
    ] = "",
    by: Annotated[
        str,
        typer.Option(
            "--by",
            metavar="METHOD",
            show_default=False,
            help="capability, examples or model; only model runs an agent, the one in --ask.",
        ),
    ] = "",
    asked: Annotated[
        str,
        typer.Option(
            "--ask",
            metavar="AGENT",
            show_default=False,
            help="For --by model: the agent that chooses (default: the router's).",
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    project: FolderOption = None,
    url: UrlOption = "",
    token: TokenOption = "",
) -> None:
    """Show which agent would answer a question and why, the other candidates, and the agents left out.

    Runs no agent, unless --by model. If the fleet of the project runs, the current status of its agents
    counts; if not, only the files decide, and stderr says so. Exit status: 1 if no agent fits.

    \b
    pallas route "Why does this test fail?"
    pallas route "Write a post about the release" --router front --json
    pallas route "Is this safe?" --capability code-review
    """
    from pallas.cli.resources.route_preview import RouteOptions
    from pallas.cli.resources.route_preview import route as show

    options = RouteOptions(question, capability, router, by, asked, as_json)
    raise typer.Exit(show(options, reach_of(context, project, url, token)))
