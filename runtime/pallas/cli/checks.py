"""`pallas check` with its parts, and `pallas lock`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from pallas.cli.command_help import CommandGroup
from pallas.cli.project_option import PlaceOption, folder_of, root_of_project


class _CheckGroup(CommandGroup):
    """``pallas check [DIR]`` is ``pallas check project [DIR]``; other checks are named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the word for the usual check where no other is named."""
        if not args or args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["project", *args]
        return super().parse_args(ctx, args)


checks = typer.Typer(cls=_CheckGroup, rich_markup_mode=None)


@checks.command("project")
def check_project(
    context: typer.Context,
    directory: Annotated[Path | None, typer.Argument(metavar="[DIR]", show_default=False)] = None,
    project: PlaceOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    do_import: Annotated[
        bool, typer.Option("--import", help="Also import each agent's module, in a process of its own.")
    ] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not ask the providers of the models.")
    ] = False,
) -> None:
    """Check the project's files and its models' providers (the default). Starts nothing, asks no model.

    Exit status: 0 if there is no mistake, 2 if there is one. A warning is not a mistake.
    """
    from pallas.cli.check import check

    raise typer.Exit(check(root_of_project(context, directory), as_json, do_import, ask=not offline))


@checks.command("bearer")
def check_bearer(
    context: typer.Context,
    directory: Annotated[Path | None, typer.Argument(metavar="[DIR]", show_default=False)] = None,
    project: PlaceOption = None,
    callers: Annotated[
        int, typer.Option(min=2, max=500, metavar="N", help="Concurrent callers, each with its own token.")
    ] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Test with canary tokens that no caller's bearer reaches another caller's call."""
    from pallas.cli.check_bearer import check_bearer as run_check

    raise typer.Exit(run_check(folder_of(context, directory), callers, as_json))


ServersOption = Annotated[
    list[str] | None,
    typer.Option("--server", metavar="NAME", show_default=False, help="Only this server; may be repeated."),
]
BearerEnvOption = Annotated[
    str,
    typer.Option(
        "--bearer-env",
        metavar="VARIABLE",
        show_default=False,
        help="The variable that holds a token for servers that take a caller's (forward_inbound_auth).",
    ),
]


@checks.command("tools")
def check_tools(
    context: typer.Context,
    directory: Annotated[Path | None, typer.Argument(metavar="[DIR]", show_default=False)] = None,
    project: PlaceOption = None,
    servers: ServersOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    as_sarif: Annotated[bool, typer.Option("--sarif", help="A SARIF 2.1.0 log on stdout, for CI.")] = False,
    bearer_env: BearerEnvOption = "",
) -> None:
    """Compare what the project's MCP servers list with tools.lock.

    Exit status: 1 if something differs, 2 if a server could not be compared.
    """
    from pallas.cli.lock import LockOptions
    from pallas.cli.lock import check_tools as compare

    options = LockOptions(root_of_project(context, directory), tuple(servers or ()), bearer_env)
    raise typer.Exit(compare(options, as_json=as_json, as_sarif=as_sarif))


def lock(
    context: typer.Context,
    directory: Annotated[Path | None, typer.Argument(metavar="[DIR]", show_default=False)] = None,
    project: PlaceOption = None,
    servers: ServersOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Write tools.lock without asking.")] = False,
    bearer_env: BearerEnvOption = "",
) -> None:
    """Accept what the project's MCP servers list: show what changes, and write tools.lock."""
    from pallas.cli.lock import LockOptions
    from pallas.cli.lock import lock as accept

    options = LockOptions(root_of_project(context, directory), tuple(servers or ()), bearer_env)
    raise typer.Exit(accept(options, yes=yes))
