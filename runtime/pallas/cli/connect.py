"""`pallas connect`: print the configuration that connects an MCP client to an agent."""

from typing import Annotated

import typer

from pallas.cli.resources.shared_options import (
    ShortFolderOption,
    UrlOption,
    complete_agent,
    complete_client,
    complete_project,
    reach_of,
)


def connect(
    context: typer.Context,
    agent: Annotated[
        str,
        typer.Argument(
            metavar="[AGENT]",
            show_default=False,
            help="One agent (default: all).",
            autocompletion=complete_agent,
        ),
    ] = "",
    client: Annotated[
        str,
        typer.Option(
            "--client",
            metavar="NAME",
            help="claude-desktop, claude-code, cursor, vscode, codex, gemini, inspector or generic.",
            autocompletion=complete_client,
        ),
    ] = "generic",
    virtual: Annotated[
        bool,
        typer.Option(
            "--virtual", help="The server that has only the tool `chat`; without AGENT the project's."
        ),
    ] = False,
    project: Annotated[
        str,
        typer.Option(
            "--project",
            metavar="NAME",
            show_default=False,
            help="All agents of this project of the fleet, at one address.",
            autocompletion=complete_project,
        ),
    ] = "",
    bridge: Annotated[
        str,
        typer.Option(
            "--bridge",
            metavar="HOW",
            show_default=False,
            help="One entry for all agents, the bridge: command (the client starts `pallas bridge`) or url.",
            autocompletion=lambda: ["command", "url"],
        ),
    ] = "",
    folder: ShortFolderOption = None,
    url: UrlOption = "",
) -> None:
    """Print the configuration that connects an MCP client to one agent or to all.

    The configuration goes to stdout; stderr says where to put it and what else to do. It never contains a
    token: clients take it from PALLAS_TOKEN.

    \b
    pallas connect reviewer --client claude-code > .mcp.json
    pallas connect --client cursor
    pallas connect --bridge command --client claude-desktop
    pallas connect reviewer --client codex --virtual >> ~/.codex/config.toml
    """
    from pallas.cli.resources.client_config import ConnectOptions
    from pallas.cli.resources.client_config import connect as show

    raise typer.Exit(
        show(ConnectOptions(agent, client, virtual, project, bridge), reach_of(context, folder, url, ""))
    )
