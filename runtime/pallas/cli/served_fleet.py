"""A fleet on its own thread, while the main thread handles signals even when the agents' code blocks."""

import asyncio
import faulthandler
import logging
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

from pallas.config import ConfigError, Project
from pallas.deadlines import cancel_and_wait
from pallas.fleet import gc_policy
from pallas.fleet.child_processes import end_children, ending_children
from pallas.fleet.fleet import Fleet
from pallas.fleet.local_port import offer_control
from pallas.fleet.storage import url_of
from pallas.fleet.worker_process import WorkerProcess
from pallas.model import Fault
from pallas.model.fault_rules import FaultPlan
from pallas.processes.event_loop import run
from pallas.telemetry.event_hub import EventHub
from pallas.telemetry.log import close_logging, is_on_stderr, log_state
from pallas.verdict.warm_judge import WarmJudge

from .exit_status import BLOCKED, CLEAN, CUT, SECOND_SIGNAL, UNUSABLE
from .process_signals import AT_ONCE, DONE, DRAINING, RELOAD_SIGNAL, STOP_SIGNALS, Signals
from .sighup import SighupReloads
from .startup_report import Narrator
from .systemd_notify import Notifier, ServiceReport

log = logging.getLogger(__name__)

_PULSE: Final = 1.0
_STANDSTILL: Final = 10.0
"""Seconds without a sign of life from this thread after which a stopping fleet is killed."""
PATIENCE: Final = 6.0
"""Seconds that an idle fleet has to begin its stop, and to stop after its drain."""


class ServedFleet:
    """Serves a project until it is stopped. ``agent`` serves only that one; ``dev`` binds loopback.

    ``worker`` is this process where it is one of several: their parent says when it ends at once. ``faults``
    are injected into calls of models and tools.
    """

    def __init__(
        self,
        project: Project,
        signals: Signals,
        notifier: Notifier,
        log_file: Path,
        *,
        agent: str | None = None,
        dev: bool = False,
        watch: bool = False,
        worker: WorkerProcess | None = None,
        faults: FaultPlan | None = None,
    ) -> None:
        self._project = project
        self._worker = worker
        self._agent = agent
        self._dev = dev
        self._watch = watch
        self._faults = faults
        self._log_file = log_file
        self._signals = signals
        self._notifier = notifier
        number = worker.number if worker is not None else 0
        self._narrator = Narrator(project.name, logged=is_on_stderr(), worker=number)
        self._reloading = SighupReloads(self._narrator)
        self._fleet: Fleet | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._end_by = 0.0
        self._stop_requested = threading.Event()
        self._drain_requested = False
        self._outcome: Future[int] = Future()

    def run(self) -> int:
        """Serve, and return the exit status. Does not return when the process has to be killed."""
        with ending_children():
            threading.Thread(target=self._main, name="fleet", daemon=True).start()
            try:
                return self._heed()
            finally:
                faulthandler.cancel_dump_traceback_later()

    def _heed(self) -> int:
        while True:
            heard = self._signals.wait()
            if heard == DONE:
                return self._outcome.result()
            if heard == RELOAD_SIGNAL:
                self._reloading.requested_early = True  # Takes effect once there is a loop.
                self._call(self._reloading.request)
            elif heard == AT_ONCE:
                self._at_once(signal.SIGTERM)
            elif heard in STOP_SIGNALS:
                return self._end()

    def _end(self) -> int:
        """Ask the fleet to stop and make sure that it does."""
        seconds = self._drain_timeout()
        self._end_by = monotonic() + seconds
        if self._worker is not None:
            self._worker.drains(seconds)
        self._stop_requested.set()
        self._call(self._stop.set)
        # A loop that does not answer may be busy with runs in flight, which have until their drain timeout.
        deadline = (self._end_by if self._in_flight() else monotonic()) + PATIENCE
        while True:
            heard = self._hear(deadline)
            if heard == DONE:
                return self._outcome.result()
            if heard == DRAINING:
                deadline = self._end_by + PATIENCE
            elif heard == RELOAD_SIGNAL:
                self._narrator.warn("warning: reload was not done: the fleet is stopping")
            elif heard == AT_ONCE:
                self._at_once(signal.SIGTERM)
            elif heard in STOP_SIGNALS and self._worker is None:
                self._at_once(signal.Signals(heard))
            elif heard is None:
                self._give_up()

    def _hear(self, deadline: float) -> int | None:
        """Return the signal or note that comes before the deadline, if any; a C thread watches this thread.

        C code that holds the interpreter would keep this thread from ending the process. The C thread then
        writes the stack to stderr and exits with status 1.
        """
        while True:
            faulthandler.dump_traceback_later(_STANDSTILL, exit=True)
            heard = self._signals.wait(min(_PULSE, max(0.0, deadline - monotonic())))
            if heard is not None or monotonic() >= deadline:
                return heard

    def _call(self, what: Callable[[], None]) -> None:
        """Call ``what`` on the fleet's loop, if there is one."""
        if self._loop is not None:
            with suppress(RuntimeError):  # It has just ended.
                self._loop.call_soon_threadsafe(what)

    def _main(self) -> None:
        try:
            own = self._worker.shares.own_ports if self._worker is not None else None
            self._outcome.set_result(run(self._serve(), own))
        except BaseException as error:
            self._outcome.set_exception(error)
        finally:
            self._signals.note(DONE)

    async def _serve(self) -> int:
        self._loop = asyncio.get_running_loop()
        if self._stop_requested.is_set():
            return CLEAN
        hub = EventHub()
        hub.listen(self._narrator.hear)
        try:
            fleet = self._fleet = Fleet(
                self._project,
                hub=hub,
                dev=self._dev,
                only=self._agent,
                watch=self._watch,
                database=url_of(self._project),
                worker=self._worker,
                end_process=self._drain_once,
                faults=self._faults,
                judge=WarmJudge() if self._watch else None,
            )
            fleet.reserve()
        except (Fault, ConfigError) as error:
            self._narrator.warn(str(error), bare=True)
            return UNUSABLE
        report = ServiceReport(self._notifier, fleet.snapshot, self._drain_timeout)
        hub.listen(report.hear)
        offer_control(fleet, self._log_file)
        self._introduce(fleet)
        starting = asyncio.create_task(fleet.start(), name="fleet start")
        stopped = asyncio.create_task(self._stop.wait(), name="fleet stop asked")
        beside = [
            asyncio.create_task(report.signs_of_life(), name="watchdog"),
            asyncio.create_task(self._reloading.run(fleet, report, starting), name="reload on SIGHUP"),
        ]
        try:
            await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                # Freeze what the start allocated. Scanning it for garbage would delay every caller by
                # a quarter of a second now and then, and cost a fifth of each message.
                gc_policy.settle()
                await stopped
            await cancel_and_wait(starting, seconds=1.0)
            self._signals.note(DRAINING)
            drained = await fleet.drain(max(0.0, self._end_by - monotonic()))
        except Fault as fault:
            self._narrator.warn(fault.message, bare=True)
            return UNUSABLE
        finally:
            for task in (starting, stopped, *beside[1:]):
                task.cancel()
            await asyncio.wait({starting, stopped}, timeout=1.0)
            await fleet.stop()
            beside[0].cancel()
        return CUT if drained.cut else CLEAN

    def _drain_timeout(self) -> float:
        """What the project says now: a reload may have changed it."""
        return (self._project if self._fleet is None else self._fleet.project).drain_timeout

    def _drain_once(self) -> None:
        """Drain and end, as the first SIGTERM does. A second one would end the fleet at once."""
        if not self._drain_requested:
            self._drain_requested = True
            self._signals.note(signal.SIGTERM)

    def _introduce(self, fleet: Fleet) -> None:
        self._narrator.say(f"log {self._log_file}")
        state = log_state()
        if state is not None and state.path != state.requested_path:
            self._narrator.warn(
                f"warning: the log {state.requested_path} cannot be written; it goes to {state.path}"
            )
        if fleet.registry_url:
            self._narrator.say(f"registry {fleet.registry_url}")
        if fleet.control_api is not None:
            self._narrator.say(f"attach with: pallas dev --attach {fleet.ports.origin}")

    def _in_flight(self) -> int:
        return len(self._fleet.kernel.in_flight) if self._fleet is not None else 0

    def _at_once(self, number: signal.Signals) -> None:
        cut = self._in_flight()
        _force(
            SECOND_SIGNAL + number,
            f"a second signal ({number.name}) ended the fleet at once"
            + (f", {cut} of its runs with it" if cut else ""),
            self._narrator,
        )

    def _give_up(self) -> None:
        cut = self._in_flight()
        blocked = "the fleet did not stop: an agent's code blocks it; ended by force"
        if self._fleet is None or (self._fleet.state.value == "starting" and not cut):
            # No caller knows yet that it serves: nothing is lost.
            _force(CLEAN, "the start was abandoned: an agent's code blocks it", self._narrator)
        _force(BLOCKED, blocked + (f", {cut} of its runs with it" if cut else ""), self._narrator)


def _force(status: int, text: str, narrator: Narrator) -> None:
    """End the process and its children now."""
    # The blocked code may hold the log's lock: it gets a second.
    last = threading.Timer(1.0, os._exit, (status,))
    last.daemon = True
    last.start()
    end_children()
    narrator.warn(text)
    log.error("%s", text)
    close_logging()
    os._exit(status)
