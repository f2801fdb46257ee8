"""A fleet in its own thread and event loop, for the workbench."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any

from pallas.config import ConfigError, export_env, load_project
from pallas.config.fault_file import load_faults
from pallas.config.files import absolute
from pallas.config.load import CERTFILE_VARIABLE, KEYFILE_VARIABLE
from pallas.config.unnamed_models import refuse_unnamed_models
from pallas.deadlines import cancel_and_wait
from pallas.mcp_client import import_client
from pallas.model import (
    EventBatch,
    Fault,
    FaultType,
    FleetChanged,
    FleetPort,
    FleetSnapshot,
    FleetState,
    Notice,
    Operation,
    RunningFleet,
)
from pallas.model.operations import REQUIRED
from pallas.processes.event_loop import run
from pallas.safe_text import one_line
from pallas.telemetry.event_hub import EventHub
from pallas.telemetry.log import reapply_logging, redact_project, setup_logging

if TYPE_CHECKING:
    from .fleet import Fleet
    from .reload.verdict_judge import VerdictJudge
    from .running_fleet import OtherFleet

log = logging.getLogger(__name__)


class ThreadedFleet(RunningFleet):
    """The FleetPort of a fleet in this process: an agent that blocks its loop never stops the caller's.

    ``start`` returns at once; a project with mistakes has the state ``failed`` and lists all of them in
    ``error``. With ``watch`` changed files are applied automatically. ``faults`` is a file with faults to be
    injected, by default ``faults.yaml`` of the project. ``judge`` judges saves. Every method may
    be called from any thread.
    """

    def __init__(
        self,
        root: Path,
        *,
        watch: bool = False,
        faults: Path | None = None,
        judge: "VerdictJudge | None" = None,
    ) -> None:
        self._root = root
        self._judge = judge
        self._faults = faults
        self._watch = watch
        self._hub = EventHub()
        self._fleet: Fleet | None = None
        self._port: FleetPort | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._main, name="fleet", daemon=True)
        self._since = time()
        self._state = FleetState.STARTING
        self._error = ""
        self._other: OtherFleet | None = None
        self._name = root.resolve().name
        self._stopping = threading.Event()

    def start(self) -> None:
        """Start the thread; call once."""
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Stop the fleet and wait for it, ``timeout`` seconds at most. Safe to call twice or unstarted."""
        self._stopping.set()
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None and loop.is_running():
            loop.call_soon_threadsafe(stop.set)
        if self._thread.is_alive():
            self._thread.join(timeout)

    def snapshot(self) -> FleetSnapshot:
        """The fleet as it is now."""
        fleet = self._fleet
        if fleet is None or self._error:
            failed = FleetSnapshot(self._name, self._state, self._since, "", error=self._error)
            if (other := self._other) is not None:
                failed = replace(failed, is_elsewhere=True, origin_elsewhere=other.origin)
            return failed
        return fleet.snapshot()

    def since(self, seq: int, limit: int = 5_000) -> EventBatch:
        """Events with a number above ``seq``."""
        return self._hub.since(seq, limit)

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` for each event; returns a function that stops that."""
        return self._hub.listen(lambda event: wake())

    async def _call(self, operation: Operation, arguments: dict[str, Any]) -> Any:
        """Have the fleet's loop do it; cancelling the caller cancels it. Raises Fault.

        The deadline is for a loop that some agent's code blocks: an operation gives up by itself before.
        """
        port, loop = self._port, self._loop
        if port is None or loop is None or not loop.is_running():
            if operation.when_stopped is not REQUIRED:
                return operation.when_stopped
            raise Fault(FaultType.TRANSPORT, self._absent())
        coroutine = getattr(port, operation.name)(**arguments)
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        except RuntimeError:  # it was closed in this very moment
            coroutine.close()
            raise Fault(FaultType.TRANSPORT, self._absent()) from None
        try:
            async with asyncio.timeout(operation.deadline_s):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise Fault(
                FaultType.TIMEOUT,
                f"the fleet did not answer in {operation.deadline_s:.0f} s: an agent's code blocks it; "
                "try again",
                retryable=True,
            ) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # It is not the caller that was cancelled: the loop ended, and all that was in it.
            raise Fault(FaultType.TRANSPORT, self._absent()) from None

    def _send(self, operation: Operation, arguments: dict[str, Any]) -> None:
        """Have the fleet's loop do it; without one a Notice says so."""
        port, loop = self._port, self._loop
        try:
            if port is None or loop is None or not loop.is_running():
                raise RuntimeError
            loop.call_soon_threadsafe(partial(getattr(port, operation.name), **arguments))
        except RuntimeError:  # it has just been closed
            if operation.when_stopped is not REQUIRED:
                return
            text = f"{one_line(operation.describe(arguments))} was not done: {self._absent()}"
            self._hub.publish(Notice(level="warning", text=text))

    def _port_of(self, fleet: "Fleet") -> FleetPort:
        """What does the operations, in the fleet's loop."""
        from .local_port import LocalPort

        return LocalPort(fleet)

    def _absent(self) -> str:
        """Why no fleet answers."""
        if self._state is FleetState.FAILED:
            return "the fleet could not start; fix what it reports and start it again"
        ended = self._thread.ident is not None and not self._thread.is_alive()
        stopped = ended or self._stopping.is_set()
        return "the fleet is not running any more" if stopped else "the fleet is starting; ask in a moment"

    def _main(self) -> None:
        try:
            run(self._run())
        except Exception as error:
            log.exception("the fleet ended")
            self._fail(f"{type(error).__name__}: {error}; the log has the details")

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        if self._stopping.is_set():
            return
        for variable in (CERTFILE_VARIABLE, KEYFILE_VARIABLE):
            # The workbench talks to its own fleet at 127.0.0.1, which no certificate names.
            os.environ[variable] = ""
        reapply_logging(absolute(self._root))
        try:
            export_env(self._root)
            project = load_project(self._root)
            refuse_unnamed_models(project)
            faults = load_faults(self._root, self._faults, project)
        except ConfigError as error:
            self._fail(str(error))
            return
        self._name = project.name
        log_file = setup_logging(project.log_level, project=project.root)
        redact_project(project)
        import_client()
        from pallas.toolbox.seen_tools import seen_path

        from .fleet import Fleet
        from .local_port import offer_control
        from .running_fleet import running_fleet
        from .storage import url_of

        try:
            seen = seen_path(project.root, log_file)
            database = url_of(project)
            fleet = Fleet(
                project,
                hub=self._hub,
                dev=True,
                seen=seen,
                watch=self._watch,
                database=database,
                faults=faults,
                judge=self._judge,
            )
            fleet.reserve()
        except (Fault, ConfigError) as error:
            self._other = await asyncio.to_thread(running_fleet, project, str(error))
            self._fail(self._other.text if self._other is not None else str(error))
            return
        port = self._port_of(fleet)
        offer_control(fleet, log_file, port)
        self._fleet, self._port = fleet, port
        starting = asyncio.create_task(fleet.start(), name="fleet start")
        stopped = asyncio.create_task(self._stop.wait(), name="fleet stop asked")
        try:
            await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
            problem = starting.exception() if starting.done() and not starting.cancelled() else None
            if problem is not None:
                log.error("the fleet could not start", exc_info=problem)
                known = isinstance(problem, Fault)
                self._fail(str(problem) if known else f"{type(problem).__name__}: {problem}")
            else:
                await stopped
        finally:
            await cancel_and_wait(starting, stopped, seconds=1.0)
            await fleet.stop()

    def _fail(self, error: str) -> None:
        self._error, self._state, self._since = error, FleetState.FAILED, time()
        self._hub.publish(FleetChanged(state=FleetState.FAILED, detail=error.split("\n", 1)[0][:200]))
