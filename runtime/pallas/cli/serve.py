"""`pallas serve`: a fleet without a workbench, until a signal stops it."""

import gc
import importlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pallas.config import ConfigError, Project, export_env, load_project
from pallas.config.database import MEMORY
from pallas.config.fault_file import served_faults
from pallas.config.listeners import has_console
from pallas.config.load import CERTFILE_VARIABLE, KEYFILE_VARIABLE
from pallas.config.unnamed_models import refuse_unnamed_models
from pallas.fleet.gc_policy import begin
from pallas.fleet.worker_process import WorkerProcess
from pallas.ledger.ledger_address import VARIABLE
from pallas.processes import import_seam
from pallas.telemetry.log import close_logging, redact_project, setup_logging
from pallas.telemetry.log.printed_lines import logging_prints

from .exit_status import CLEAN, UNUSABLE
from .process_signals import AT_ONCE, GO, RELOAD_SIGNAL, STOP_SIGNALS, Signals
from .systemd_notify import Notifier, ParentNotifier

_ORDERS: Final = {"go": GO, "stop": signal.SIGTERM, "reload": RELOAD_SIGNAL, "now": AT_ONCE}
"""What an order of the parent of worker processes is to them."""


def serve(
    root: Path,
    *,
    agent: str | None = None,
    dev: bool = False,
    certfile: Path | None = None,
    keyfile: Path | None = None,
    watch: bool = False,
    workers: int | None = None,
    faults: Path | None = None,
    allow_faults: bool = False,
) -> int:
    """Serve the project at ``root`` until SIGINT or SIGTERM; returns the exit status (``cli.exit_status``).

    The first signal drains the fleet: runs in flight have ``drain_timeout`` to finish. A second one ends the
    process at once. SIGHUP reads the configuration again. If the project cannot be used, its mistakes go to
    stderr, one per line. ``certfile`` and ``keyfile`` make every port use TLS, and override the environment.
    With ``watch`` changed files are applied automatically. ``workers`` overrides the project's number of
    worker processes. Faults in ``faults``, by default in ``faults.yaml`` of the project, are injected if that
    is allowed, else the project is not served.
    """
    # First of all: from now on a signal asks for an orderly stop.
    with Signals() as signals:
        notifier = Notifier()
        worker = WorkerProcess.joined()
        if worker is not None:
            notifier = ParentNotifier(worker.report, worker.watchdog)
            worker.listen(lambda order: signals.note(_ORDERS[order]))
        for variable, path in ((CERTFILE_VARIABLE, certfile), (KEYFILE_VARIABLE, keyfile)):
            if path is not None:  # In the environment, so that later reads of the project find it too.
                os.environ[variable] = str(path.absolute())
        own = dict(os.environ)  # A worker process reads .env itself: at a reload its values may change.
        try:
            export_env(root)
            project = load_project(root)
            refuse_unnamed_models(project)
            plan = served_faults(root, faults, project, allowed=allow_faults)
        except ConfigError as error:
            print(error, file=sys.stderr)
            return UNUSABLE
        if agent is not None and agent not in project.agents:
            known = ", ".join(project.agents)
            print(f"{project.agents_file.name}: no agent {agent!r}; known: {known}", file=sys.stderr)
            return UNUSABLE
        gc.enable()  # reading the project made no garbage
        count = _processes(project, workers, dev=dev) if worker is None else 1
        if count > 1:
            options = ["--agent", agent] if agent is not None else []
            options += ["--watch"] if watch else []
            options += ["--allow-faults"] if allow_faults else []
            options += ["--faults", str(faults.absolute())] if faults is not None else []
            return _parent(project, count, signals, notifier, own, options)
        begin()
        import_seam.install()
        if not has_console(project.agents):  # It may ask the person at this terminal.
            _leave_stdin()
        log_file = setup_logging(project.log_level, project=project.root)
        redact_project(project)
        try:
            serving = importlib.import_module("pallas.cli.served_fleet")
            if worker is not None and not _may_go(signals):
                return CLEAN
            with logging_prints(passes=True):
                status: int = serving.ServedFleet(
                    project,
                    signals,
                    notifier,
                    log_file,
                    agent=agent,
                    dev=dev,
                    watch=watch,
                    worker=worker,
                    faults=plan,
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


def _processes(project: Project, requested: int | None, *, dev: bool) -> int:
    """How many processes serve the project. Says on stderr why there is only one in spite of ``workers``."""
    count = project.workers if requested is None else requested
    if count == 1:
        return 1
    why = ""
    if dev:
        why = "pallas dev is one process"
    elif has_console(project.agents):
        why = "the project's console asks the person at this terminal"
    elif sys.platform != "linux":
        why = "worker processes need Linux"
    if why:
        print(f"[{project.name}] workers: {count} is not used: {why}", file=sys.stderr)
        return 1
    return count


def _parent(
    project: Project,
    count: int,
    signals: Signals,
    notifier: Notifier,
    environ: Mapping[str, str],
    options: Sequence[str],
) -> int:
    """Serve from ``count`` worker processes; returns the exit status."""
    if (os.environ.get(VARIABLE, "").strip() or project.database_url) == MEMORY:
        print(
            f"{project.agents_file.name}: workers: {count} processes cannot share a database in memory; "
            f"choose another one with database_url: or {VARIABLE}, or leave workers out",
            file=sys.stderr,
        )
        return UNUSABLE
    setup_logging(project.log_level, project=project.root)
    redact_project(project)
    module = importlib.import_module("pallas.cli.worker_parent")
    command = [
        sys.executable,
        "-P",
        "-m",
        "pallas.server",
        "--serve",
        "--project",
        str(project.root),
        *options,
    ]
    try:
        parent = module.WorkerParent(
            project.name,
            count,
            command,
            signals,
            notifier,
            environ=environ,
            drain_timeout=project.drain_timeout,
        )
        status: int = parent.run()
        return status
    finally:
        close_logging()


def _may_go(signals: Signals) -> bool:
    """Wait until this worker process may start its fleet; False if it is asked to end instead."""
    while True:
        heard = signals.wait()
        if heard == GO:
            return True
        if heard in STOP_SIGNALS or heard == AT_ONCE:
            return False
