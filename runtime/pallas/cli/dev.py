"""`pallas dev`: the workbench on a project, on a remote fleet, or in a browser."""

import importlib
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pallas.telemetry.log.server_output import log_by_default

WEB_HOST: Final = "127.0.0.1"
WEB_PORT: Final = 8024


@dataclass(frozen=True, slots=True)
class DevOptions:
    """The options as typed; None or empty for those not given."""

    root: Path
    serve: bool = False
    attach: str | None = None
    token: str = field(default="", repr=False)
    token_variable: str = ""
    web: bool = False
    host: str | None = None
    port: int | None = None
    faults: Path | None = None
    allow_faults: bool = False


def dev(options: DevOptions) -> int:
    """Run the workbench. Returns the exit status, 2 for options that do not go together."""
    if problem := _problem(options):
        print(f"pallas dev: {problem}", file=sys.stderr)
        return 2
    log_by_default()
    if options.serve:
        from pallas.cli.serve import serve

        return serve(
            options.root, dev=True, watch=True, faults=options.faults, allow_faults=options.allow_faults
        )
    if options.web:
        return int(
            _workbench("pallas_tui.web").main(
                options.root,
                attach=options.attach,
                token=options.token,
                token_variable=options.token_variable,
                host=options.host or WEB_HOST,
                port=WEB_PORT if options.port is None else options.port,
                faults=options.faults,
            )
        )
    if options.attach is not None:
        launch = _workbench("pallas_tui.launch")
        return int(launch.attach(options.attach, options.token, options.token_variable, options.root))
    given = {"faults": options.faults} if options.faults is not None else {}
    return int(_workbench("pallas_tui.launch").main(options.root, **given))


def _problem(options: DevOptions) -> str:
    if options.serve and (options.attach is not None or options.web):
        return "--serve starts a fleet without a workbench; leave it out with --attach and --web"
    if options.attach is None and (options.token or options.token_variable):
        return "--token and --token-env need --attach URL"
    if options.token and options.token_variable:
        return "give --token or --token-env, not both"
    if not options.web and (options.host is not None or options.port is not None):
        return "--host and --port are for --web only; those of agents and registry are in agents.yaml"
    if options.attach is not None and options.faults is not None:
        return "--faults is for a fleet that is started here; leave it out with --attach"
    if options.allow_faults and not options.serve:
        return "--allow-faults is for --serve only; the workbench injects faults without it"
    return ""


class _NotInstalled(SystemExit):
    """The workbench package is not installed; the process ends with status 2."""


def _workbench(module: str) -> Any:
    # By name, at run time: the runtime does not depend on the workbench.
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pallas_tui", "textual"):
            raise
        print("the workbench is not installed; install pallas-mcp, or use --serve", file=sys.stderr)
        raise _NotInstalled(2) from None
