"""The command line. Nothing heavy is imported until a subcommand needs it."""

import gc
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from pallas import __version__
from pallas.cli.answer import answer
from pallas.cli.apply import apply
from pallas.cli.bridge import bridge
from pallas.cli.chat import chat
from pallas.cli.checks import checks, lock
from pallas.cli.command_help import EXAMPLES, CommandGroup
from pallas.cli.connect import connect
from pallas.cli.create import creations
from pallas.cli.delete import delete
from pallas.cli.diff import diff
from pallas.cli.drain import drain
from pallas.cli.fork import fork
from pallas.cli.get import describe, get
from pallas.cli.keep import keep
from pallas.cli.pallas_group import PallasGroup
from pallas.cli.project_option import HERE, PlaceOption, ProjectOption, folder_of, root_of_project
from pallas.cli.record import record
from pallas.cli.replay import replay
from pallas.cli.route import route
from pallas.cli.tasks import tasks
from pallas.cli.test import test
from pallas.cli.verdict import verdict
from pallas.safe_text import one_line

app = typer.Typer(
    name="pallas",
    cls=PallasGroup,
    epilog=f"Example: {EXAMPLES['pallas']}",
    help="Serve a fleet of LLM agents over MCP, or work on it live with `pallas dev`.",
    add_completion=True,
    no_args_is_help=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

FaultsOption = Annotated[
    Path | None,
    typer.Option(
        "--faults",
        metavar="FILE",
        show_default=False,
        help="Inject the faults in FILE into calls of models and tools (default: faults.yaml).",
    ),
]
AllowFaultsOption = Annotated[
    bool, typer.Option("--allow-faults", help="Allow faults while serving without the workbench.")
]


def _version(is_requested: bool) -> None:
    if is_requested:
        print(f"pallas {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def serve(
    context: typer.Context,
    agent: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Serve one agent only: no registry, no dependencies."),
    ] = None,
    headless: Annotated[
        bool,
        typer.Option(
            "--serve", help="Serve all agents and the registry, as `pallas` without a command does."
        ),
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Apply changed files while serving, as `pallas dev` does.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=64,
            metavar="N",
            show_default=False,
            help="Serve from N processes (default: workers: of agents.yaml, else 1).",
        ),
    ] = None,
    certfile: Annotated[
        Path | None,
        typer.Option(
            "--ssl-certfile", metavar="PEM", help="Serve over TLS with this certificate and its chain."
        ),
    ] = None,
    keyfile: Annotated[
        Path | None,
        typer.Option(
            "--ssl-keyfile", metavar="PEM", help="Its private key, if it is not in the certificate's file."
        ),
    ] = None,
    faults: FaultsOption = None,
    allow_faults: AllowFaultsOption = False,
    project: ProjectOption = HERE,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Serve every agent of the project and its registry until Ctrl-C."""
    if context.invoked_subcommand is not None:
        if context.invoked_subcommand != "check":
            gc.enable()
        context.obj = project
        return
    from pallas.cli.serve import serve as serve_fleet

    raise typer.Exit(
        serve_fleet(
            project,
            agent=agent,
            certfile=certfile,
            keyfile=keyfile,
            watch=watch,
            workers=workers,
            faults=faults,
            allow_faults=allow_faults,
        )
    )


@app.command()
def dev(
    context: typer.Context,
    directory: Annotated[Path | None, typer.Argument(metavar="[DIR|FILE]", show_default=False)] = None,
    project: PlaceOption = None,
    headless: Annotated[
        bool, typer.Option("--serve", help="Run the same fleet without the workbench.")
    ] = False,
    attach: Annotated[
        str | None,
        typer.Option(
            "--attach",
            metavar="URL",
            help="Open the workbench on another fleet: its registry's http://host:port.",
        ),
    ] = None,
    token: Annotated[
        str,
        typer.Option(
            "--token",
            metavar="TOKEN",
            show_default=False,
            help="For --attach. Everyone on this machine can read it in the list of processes: better export "
            "PALLAS_CONTROL_TOKEN, or use --token-env. For your own fleet on this machine none is needed.",
        ),
    ] = "",
    token_env: Annotated[
        str,
        typer.Option(
            "--token-env",
            metavar="NAME",
            show_default=False,
            help="For --attach: the variable that holds the token.",
        ),
    ] = "",
    web: Annotated[
        bool, typer.Option("--web", help="Open the workbench in a browser; also with --attach.")
    ] = False,
    host: Annotated[
        str | None,
        typer.Option(
            "--host", metavar="HOST", help="For --web: the address to listen on (default: 127.0.0.1)."
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", min=0, max=65535, metavar="PORT", help="For --web (default: 8024; 0: any free one)."
        ),
    ] = None,
    faults: FaultsOption = None,
    allow_faults: AllowFaultsOption = False,
) -> None:
    """Open the workbench on the project in DIR (default: this folder), bound to loopback.

    FILE is a single agent: a card (.md) or a module (.py) with a FastAgent object named fast.
    """
    from pallas.cli.dev import DevOptions
    from pallas.cli.dev import dev as run_dev

    root = root_of_project(context, directory)
    options = DevOptions(
        root, headless, attach, token, token_env, web, host, port, faults, allow_faults=allow_faults
    )
    raise typer.Exit(run_dev(options))


app.add_typer(
    checks,
    name="check",
    help="Check the project's files and models (pallas check [DIR]), its bearers, or its tools.",
)
app.command()(lock)

tokens = typer.Typer(cls=CommandGroup, rich_markup_mode=None, no_args_is_help=True)
app.add_typer(
    tokens, name="token", help="Make tokens for callers of agents; a project stores only their hashes."
)


@tokens.command("new")
def token_new(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    scopes: Annotated[str, typer.Option(metavar="A,B", show_default=False, help="The token's scopes.")] = "",
    expires: Annotated[
        str,
        typer.Option(
            metavar="WHEN", show_default=False, help="Its last day, or how long it is valid: 90d, 6m, 1y."
        ),
    ] = "",
) -> None:
    """Print a new token on stdout, once, and on stderr the lines for agents.yaml that make it known."""
    from pallas.cli.token import new

    raise typer.Exit(new(name, scopes, expires))


@tokens.command("hash")
def token_hash() -> None:
    """Read a token from stdin, without an echo, and print its SHA-256 for agents.yaml."""
    from pallas.cli.token import hash_token

    raise typer.Exit(hash_token())


_COMMANDS = (
    chat, bridge, route, get, describe, answer, apply, delete, drain, record, diff, replay, fork, keep, test,
    verdict, connect,
)  # fmt: skip
for _command in _COMMANDS:
    app.command()(_command)
app.add_typer(creations, name="create", help="Create an agent, an LLM, a secret or a project.")
app.add_typer(
    tasks,
    name="tasks",
    help="List, show, cancel and follow tasks: work that continues after the call that began it.",
)


@app.command()
def console(
    context: typer.Context,
    directory: Annotated[Path | None, typer.Argument(metavar="[DIR]", show_default=False)] = None,
    project: PlaceOption = None,
) -> None:
    """Talk to every agent of the project in DIR (default: this folder) at one prompt: `@agent text`."""
    from pallas.cli.console import console as hold

    raise typer.Exit(hold(root_of_project(context, directory).absolute()))


@app.command()
def init(
    directory: Annotated[str, typer.Argument(metavar="NAME")],
    model: Annotated[
        str, typer.Option(metavar="PROVIDER.MODEL", show_default=False, help="The model that answers.")
    ] = "",
    model_url: Annotated[
        str,
        typer.Option(
            "--model-url",
            metavar="URL",
            show_default=False,
            help="A server that speaks OpenAI's protocol, for example http://127.0.0.1:8080/v1. It is asked "
            "for its models; --model chooses one.",
        ),
    ] = "",
) -> None:
    """Write a project of one agent with a tool server into the folder NAME.

    Without a model it follows a script and needs no key and no network.
    """
    from pallas.cli.init import init as write_project

    if not directory.strip():  # of a variable that is not set; as a path it would be this folder
        raise typer.BadParameter("is empty; name the folder, or write . for this one", param_hint="NAME")
    raise typer.Exit(write_project(Path(directory), model, model_url))


@app.command()
def schema(
    of: Annotated[
        str, typer.Argument(metavar="[OF]", help="agents: of agents.yaml; recording: of a recording's files.")
    ] = "agents",
) -> None:
    """Print the JSON Schema of agents.yaml, with which editors complete and check it. Needs no project.

    `pallas init` writes it to .pallas/agents.schema.json and names it in the first line of agents.yaml. After
    an update of Pallas write it again: pallas schema > .pallas/agents.schema.json
    """
    from pallas.config import json_schema
    from pallas.recordings import recording_schema

    texts = {"agents": json_schema.schema_text, "recording": recording_schema.schema_text}
    if of not in texts:
        problem = f"there is no schema of {one_line(of, 40)}; allowed: {', '.join(texts)}"
        raise typer.BadParameter(problem, param_hint="OF")
    print(texts[of](), end="")


@app.command()
def ready(
    context: typer.Context,
    directory: Annotated[Path | None, typer.Argument(metavar="[DIR]", show_default=False)] = None,
    project: PlaceOption = None,
    wait: Annotated[
        float,
        typer.Option(min=0, max=3600, metavar="SECONDS", help="Wait up to this long until it is ready."),
    ] = 0.0,
) -> None:
    """Report whether the fleet of the project in DIR (default: this folder) is ready on this machine.

    Exit status: 0 if it is ready, 1 if it is not, 2 if the project cannot be read.
    """
    from pallas.cli.ready import ready as ask

    raise typer.Exit(ask(root_of_project(context, directory), wait))


@app.command()
def systemd(
    context: typer.Context,
    directory: Annotated[Path | None, typer.Argument(metavar="[DIR]", show_default=False)] = None,
    project: PlaceOption = None,
    name: Annotated[
        str,
        typer.Option(
            "--name", metavar="NAME", help="Name of the service: pallas-NAME (default: the project's)."
        ),
    ] = "",
    user: Annotated[bool, typer.Option("--user", help="Make a user unit instead of a system unit.")] = False,
    run_as: Annotated[
        str,
        typer.Option(
            "--run-as", metavar="USER", help="Run as this user (default: a dynamic user of systemd)."
        ),
    ] = "",
    credential: Annotated[
        list[str] | None,
        typer.Option(
            "--credential",
            metavar="NAME=FILE",
            help="A variable whose value is in FILE, readable only by the service.",
        ),
    ] = None,
    writable: Annotated[
        list[Path] | None,
        typer.Option(
            "--writable", metavar="PATH", help="A path that agents may write to; all others are read-only."
        ),
    ] = None,
) -> None:
    """Print a systemd unit for the project in DIR (default: this folder)."""
    from pallas.cli.systemd import UnitOptions
    from pallas.cli.systemd import systemd as print_unit

    options = UnitOptions(
        folder_of(context, directory), name, user, run_as, tuple(credential or ()), tuple(writable or ())
    )
    raise typer.Exit(print_unit(options))


def run(arguments: list[str]) -> int:
    """Run the command line; returns its exit status: 2 for wrong use or a wrong project."""
    if os.environ.get("CREDENTIALS_DIRECTORY"):
        from pallas.config import ConfigError
        from pallas.config.credentials import export_credentials

        try:
            export_credentials()
        except ConfigError as error:
            print(error, file=sys.stderr)
            return 2
    try:
        app(args=arguments, prog_name="pallas")
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 0
    return 0
