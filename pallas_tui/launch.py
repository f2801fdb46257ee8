"""``pallas dev``: the terminal is guarded first, then the workbench paints, then the fleet starts."""

import gc
import logging
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from typing import TYPE_CHECKING, Final, TextIO

from .browser import end_with_parent, web_session

if TYPE_CHECKING:
    from pallas.model import RunningFleet

    from .instances import Instances
    from .isolate import Guard
    from .screens.main_screen import LatePane
    from .settings import Settings

STOP_TIMEOUT: Final = 5.0
_PATIENCE: Final = 0.4
_NOT_A_TERMINAL: Final = (
    "pallas dev needs a terminal to draw on; for the same fleet without one use `pallas dev --serve`,"
    " or `pallas --serve`\n"
)


def main(root: Path, *, faults: Path | None = None) -> int:
    """Run the workbench on the project in ``root`` until its user leaves; returns the exit status.

    ``faults`` is a file with faults to be injected, by default ``faults.yaml`` of the project.

    0 when the user left or a signal ended it, 1 when the workbench itself broke, 2 without a terminal.
    The fleet is stopped, the terminal as it was before, and nothing printed in between has reached it.
    """

    def own(log: Path) -> WorkbenchSource:
        def make_fleet() -> "RunningFleet":
            from pallas.fleet.gc_policy import begin
            from pallas.processes import import_seam

            begin()
            import_seam.install()
            from pallas.fleet.threaded_fleet import ThreadedFleet
            from pallas.verdict.warm_judge import WarmJudge

            return ThreadedFleet(root, watch=True, faults=faults, judge=WarmJudge())

        return WorkbenchSource(root.absolute().name, make_fleet, log, root.absolute())

    return _main(own)


def attach(url: str, token: str = "", token_variable: str = "", root: Path | None = None) -> int:
    """Run the workbench on the fleet whose registry answers at ``url``; returns the exit status as ``main``.

    Without ``token`` it is the one in ``token_variable``, or where ``given_token`` and ``TokenSource`` look.
    The project in ``root`` may be the fleet's: then its ``.env`` counts too.
    The fleet goes on when its user leaves.
    """
    from pallas.model import Fault

    from .remote.fleet_address import control_origin, label
    from .remote.token_source import TokenSource, given_token, hide_tokens, read_project_env

    try:
        origin = control_origin(url)
        read_project_env(origin, root)
        tokens = TokenSource(origin, given_token(token, token_variable))
    except Fault as fault:
        sys.stderr.write(f"pallas dev --attach: {fault.message}\n")
        return 2
    hide_tokens(token_variable)
    with TemporaryDirectory(prefix="pallas-attached-") as folder:
        mirror = Path(folder) / "pallas.log"

        def elsewhere(_: Path) -> WorkbenchSource:
            def make_fleet() -> "RunningFleet":
                from .remote.remote_fleet import RemoteFleet

                return RemoteFleet(origin, tokens, log_mirror=mirror)

            return WorkbenchSource(label(origin), make_fleet, mirror, scratch=mirror.parent)

        return _main(elsewhere)


@dataclass(frozen=True, slots=True)
class WorkbenchSource:
    """What the workbench is opened on: a name, the fleet, and the log that the viewer shows.

    ``root`` is the folder of the project, None when that is elsewhere; ``scratch`` is one that ends with the
    process.
    """

    name: str
    make_fleet: "Callable[[], RunningFleet]"
    log: Path
    root: Path | None = None
    scratch: Path | None = None


def _main(show: Callable[[Path], WorkbenchSource]) -> int:
    """Guard the terminal, work on what ``show`` gives for our own log, and put everything back."""
    in_browser = web_session()
    terminal = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    if not terminal and not in_browser:
        sys.stderr.write(_NOT_A_TERMINAL)
        return 2
    for name in ("LINES",) if in_browser else ("COLUMNS", "LINES"):
        # Some shells export the size they started with; the screen would never follow a resize.
        os.environ.pop(name, None)
    # Before anything else is loaded: a module that prints while it is imported prints on the screen.
    from .isolate import isolate

    guard = isolate()
    # Nothing loaded so far is garbage; a collection takes a tenth of the time to the first paint.
    gc.disable()
    try:
        from pallas.telemetry.log import close_logging, setup_logging

        log = setup_logging(stderr=False)
        if in_browser:
            end_with_parent()
        from pallas.fleet.child_processes import ending_children

        with ending_children() as others:
            failure, report = _work(show(log), log, guard, others)
        guard.restore()
        close_logging(for_good=True)
    finally:
        guard.restore()
    if failure is None:
        return 0
    name = type(failure).__name__
    where = f"a report to pass on, without secrets, is {report}; the log" if report else "the whole report"
    sys.stderr.write(f"the workbench stopped on an error ({name}); {where} is in {log}\n")
    return 1


def _settle() -> None:
    from pallas.fleet.gc_policy import settle  # there by now

    settle()


def _work(
    shown: WorkbenchSource, log: Path, guard: "Guard", others: frozenset[int]
) -> tuple[BaseException | None, Path | None]:
    """Paint, serve, stop; returns what the workbench broke on, and the report of that.

    ``others`` are the processes below this one that are not the fleet's.
    """
    from pallas.commands import COMMANDS
    from pallas.plugins.slash_commands import plugin_commands
    from pallas.telemetry.log.printed_lines import logged_stream

    from .app import Workbench
    from .settings import settings_path
    from .shell.exit_signals import ExitSignals

    def stop_fleet() -> None:
        if app.fleet is not None:
            app.fleet.stop(STOP_TIMEOUT)

    COMMANDS.extend(plugin_commands)
    exit_signals = ExitSignals(stop_fleet, partial(_force, guard, others, shown.scratch))
    settings, instances = wishes()
    app = Workbench(
        shown.make_fleet,
        name=shown.name,
        root=shown.root,
        late=late_panes(shown.log),
        settings=settings,
        instances=instances,
        stray=(logged_stream(guard.stdout, "stdout"), logged_stream(guard.stderr, "stderr")),
        home=settings_path(),
        paths={"log": shown.log},
        reports=log.parent / "crashes",
        # What the start made stays. Looking through it for garbage now and then would hold up a key for
        # 150 ms.
        settle=_settle,
        exit_signals=exit_signals,
    )
    with exit_signals:
        try:
            app.run()
        finally:
            exit_signals.screen_gone()
            # The screen is gone, and so are the duties of those who would draw it again.
            for number in (signal.SIGCONT, signal.SIGTSTP, signal.SIGWINCH):
                signal.signal(number, signal.SIG_DFL)
            _stop(app.fleet, guard, exit_signals.seconds_left)
            guard.restore()
    return app.failure, app.report


def _stop(fleet: "RunningFleet | None", guard: "Guard", seconds_left: float | None) -> None:
    """Stop the fleet and say so if that takes long; ``seconds_left`` after a signal."""
    from .placeholder_fleet import outlives

    timeout = STOP_TIMEOUT if seconds_left is None else min(STOP_TIMEOUT, seconds_left)
    if fleet is not None and outlives(fleet):
        fleet.stop(timeout)
    elif fleet is not None:
        cut = _in_flight(fleet)
        with _shown_if_slow(guard.terminal, stopping_text(cut), at_once=cut > 0):
            fleet.stop(timeout)


def _force(guard: "Guard", others: frozenset[int], scratch: Path | None, status: int) -> None:
    """End this process and those below it, without waiting for terminal or fleet."""
    from pallas.fleet.child_processes import end_children

    end_children(but=others)
    guard.reset_terminal()
    logging.getLogger(__name__).warning("ended by force: the screen or the fleet did not stop in time")
    if scratch is not None:
        shutil.rmtree(scratch, ignore_errors=True)
    os._exit(status)


def wishes() -> "tuple[Settings, Instances]":
    """Read the user's files and environment; the settings hold the mistakes found in them."""
    from .instances import Instances
    from .instances.agent_poller import PollPace
    from .instances.health_metrics import HealthMetrics, metrics_port
    from .instances.health_polls import poll_interval
    from .instances.instance_store import InstanceStore
    from .settings import load_settings, state_path

    settings = load_settings()
    (interval, mistake), (port, other) = poll_interval(os.environ), metrics_port(os.environ)
    mistakes = tuple(each for each in (mistake, other) if each)
    settings = replace(settings, mistakes=(*settings.mistakes, *mistakes))
    store, metrics = InstanceStore(state_path("instances")), HealthMetrics(port)
    return settings, Instances(store=store, pace=PollPace(interval), metrics=metrics)


def late_panes(log: Path) -> "tuple[LatePane, ...]":
    """The panes that are made after the first paint; ``log`` is the file that the log viewer shows."""
    from .screens.main_screen import LatePane
    from .widgets.pane import Pane

    def make_chat() -> Pane:
        from .chat.saved_prompts import PromptBook
        from .json_file import JsonFile
        from .settings import state_path
        from .widgets.chat import ChatPane

        return ChatPane(id="chat", prompts=PromptBook(JsonFile(state_path("prompts"))))

    def make_logs() -> Pane:
        from .widgets.logs import LogsPane

        return LogsPane(log, id="logs")

    def make_credentials() -> Pane:
        from .widgets.credentials import CredentialsPane

        return CredentialsPane(id="credentials")

    return (
        LatePane("chat", "Chat", make_chat),
        LatePane("logs", "Logs", make_logs),
        LatePane("credentials", "Credentials", make_credentials),
    )


def _in_flight(fleet: "RunningFleet") -> int:
    """Runs that are not over; 0 where that cannot be told, since nothing may keep the fleet from its end."""
    with suppress(Exception):
        return sum(agent.runs_active + agent.runs_queued for agent in fleet.snapshot().agents)
    return 0


def stopping_text(cut: int) -> str:
    """Return the line shown while the fleet stops, with so many runs in flight."""
    if not cut:
        return "Stopping the fleet…\n"
    runs = "1 run is" if cut == 1 else f"{cut} runs are"
    return f"Stopping the fleet; {runs} cut short, and what they wrote is in the log…\n"


@contextmanager
def _shown_if_slow(terminal: TextIO, text: str, *, at_once: bool = False) -> Iterator[None]:
    """Say what takes so long, if it does."""

    def tell() -> None:
        with suppress(OSError, ValueError):
            terminal.write(text)
            terminal.flush()

    # In a thread: a terminal that is not read holds up who writes to it.
    timer = Timer(0.0 if at_once else _PATIENCE, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
