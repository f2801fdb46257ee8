"""`pallas serve`: a fleet without a workbench, until a signal stops it."""

import importlib
import os
import sys
from pathlib import Path

from pallas.config import ConfigError, export_env, load_project
from pallas.config.listeners import has_console
from pallas.config.load import CERTFILE_VARIABLE, KEYFILE_VARIABLE
from pallas.fleet.gc_policy import begin
from pallas.telemetry.log import close_logging, redact_project, setup_logging

from .exit_status import UNUSABLE
from .process_signals import Signals
from .systemd_notify import Notifier


def serve(
    root: Path,
    *,
    agent: str | None = None,
    dev: bool = False,
    certfile: Path | None = None,
    keyfile: Path | None = None,
    watch: bool = False,
) -> int:
    """Serve the project at ``root`` until SIGINT or SIGTERM; returns the exit status (``cli.exit_status``).

    The first signal drains the fleet: runs in flight have ``drain_timeout`` to finish. A second one ends the
    process at once. SIGHUP reads the configuration again. If the project cannot be used, its mistakes go to
    stderr, one per line. ``certfile`` and ``keyfile`` make every port use TLS, and override the environment.
    With ``watch`` changed files are applied automatically.
    """
    # First of all: from now on a signal asks for an orderly stop.
    with Signals() as signals:
        notifier = Notifier()
        for variable, path in ((CERTFILE_VARIABLE, certfile), (KEYFILE_VARIABLE, keyfile)):
            if path is not None:  # In the environment, so that later reads of the project find it too.
                os.environ[variable] = str(path.absolute())
        try:
            export_env(root)
            project = load_project(root)
        except ConfigError as error:
            print(error, file=sys.stderr)
            return UNUSABLE
        if agent is not None and agent not in project.agents:
            known = ", ".join(project.agents)
            print(f"{project.agents_file.name}: no agent {agent!r}; known: {known}", file=sys.stderr)
            return UNUSABLE
        begin()
        if not has_console(project.agents):  # It may ask the person at this terminal.
            _leave_stdin()
        log_file = setup_logging(project.log_level)
        redact_project(project)
        try:
            serving = importlib.import_module("pallas.cli.served_fleet")
            status: int = serving.ServedFleet(
                project, signals, notifier, log_file, agent=agent, dev=dev, watch=watch
            ).run()
            return status
        finally:
            close_logging()


def _leave_stdin() -> None:
    """Close stdin for agents' code: from now on descriptor 0 returns end-of-file."""
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    if nowhere:
        os.close(nowhere)
