"""`pallas tasks`: list, show, cancel and follow long-running tasks."""

from typing import Annotated

import typer

from pallas.cli.command_help import CommandGroup
from pallas.cli.resources.shared_options import (
    FolderOption,
    LimitOption,
    OutputOption,
    TokenOption,
    UrlOption,
    complete_agent,
    reach_of,
)

JsonOption = Annotated[bool, typer.Option("--json", help="Same as -o json.")]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The task, or its first eight characters.")]

tasks = typer.Typer(cls=CommandGroup, rich_markup_mode=None, no_args_is_help=True)


@tasks.command("list")
def list_tasks(
    context: typer.Context,
    agent: Annotated[
        str,
        typer.Option(
            "--agent",
            metavar="NAME",
            show_default=False,
            help="Only this agent's.",
            autocompletion=complete_agent,
        ),
    ] = "",
    status: Annotated[
        str,
        typer.Option(
            "--status",
            metavar="STATUS",
            show_default=False,
            help="working, input_required, completed, failed, cancelled.",
        ),
    ] = "",
    limit: LimitOption = 0,
    output: OutputOption = "table",
    as_json: JsonOption = False,
    folder: FolderOption = None,
    url: UrlOption = "",
    token: TokenOption = "",
) -> None:
    """List tasks, the newest first."""
    from pallas.cli.resources.task_commands import TaskOptions, show_list

    options = TaskOptions("json" if as_json else output, agent, status, limit)
    raise typer.Exit(show_list(options, reach_of(context, folder, url, token)))


@tasks.command("show")
def show_task(
    context: typer.Context,
    task: IdArgument,
    output: OutputOption = "table",
    as_json: JsonOption = False,
    folder: FolderOption = None,
    url: UrlOption = "",
    token: TokenOption = "",
) -> None:
    """Show everything about a task: its progress, or its result."""
    from pallas.cli.resources.task_commands import show

    output = "json" if as_json else output
    raise typer.Exit(show(task, output, reach_of(context, folder, url, token)))


@tasks.command("cancel")
def cancel_task(
    context: typer.Context,
    found: Annotated[list[str], typer.Argument(metavar="ID...", help="The tasks.")],
    folder: FolderOption = None,
    url: UrlOption = "",
    token: TokenOption = "",
) -> None:
    """Cancel tasks. Finished tasks stay as they are."""
    from pallas.cli.resources.task_commands import cancel

    raise typer.Exit(cancel(found, reach_of(context, folder, url, token)))


@tasks.command("attach")
def attach_task(
    context: typer.Context,
    task: IdArgument,
    output: OutputOption = "table",
    as_json: JsonOption = False,
    folder: FolderOption = None,
    url: UrlOption = "",
    token: TokenOption = "",
) -> None:
    """Follow a task to its end and print the answer. Ctrl-C stops following; the task goes on.

    Exit status: 0 if the task was answered, 1 if it failed or was cancelled.
    """
    from pallas.cli.resources.task_commands import attach

    output = "json" if as_json else output
    raise typer.Exit(attach(task, output, reach_of(context, folder, url, token)))
