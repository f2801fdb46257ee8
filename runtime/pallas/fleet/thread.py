"""A fleet in a thread and event loop of its own, for the workbench."""

import asyncio
import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, Final

from pallas.config import ConfigError, export_env, load_project
from pallas.events import Hub
from pallas.log import redact_project, setup_logging
from pallas.model import (
    AgentDetail,
    EventBatch,
    Exchange,
    Fault,
    FaultType,
    FleetChanged,
    FleetSnapshot,
    FleetState,
    ToolOutcome,
    Verb,
)

from .loop import run

if TYPE_CHECKING:
    from .fleet import Fleet

log = logging.getLogger(__name__)

# Seconds that the fleet's loop has to answer a question.
ANSWER_TIMEOUT: Final = 30.0


class FleetThread:
    """The FleetPort of a fleet in this process: an agent that blocks its loop never stops the caller's.

    ``start`` returns at once; a project that cannot be used shows as state ``failed`` with all its
    mistakes in ``error``. Every method may be called from any thread.
    """

    can_control = True

    def __init__(self, root: Path, *, hub: Hub | None = None) -> None:
        self._root = root
        self._hub = hub or Hub()
        self._fleet: Fleet | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._main, name="fleet", daemon=True)
        self._since = time()
        self._state = FleetState.STARTING
        self._error = ""
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
            return FleetSnapshot(self._name, self._state, self._since, "", error=self._error)
        return fleet.snapshot()

    def since(self, seq: int, limit: int = 5_000) -> EventBatch:
        """Events with a number above ``seq``."""
        return self._hub.since(seq, limit)

    def cancel(self, run_id: str) -> None:
        """Ask for a run to be cancelled."""
        fleet, loop = self._fleet, self._loop
        if fleet is not None and loop is not None and loop.is_running():
            loop.call_soon_threadsafe(fleet.kernel.cancel, run_id)

    def control(self, agent: str, verb: Verb) -> None:
        """Ask for something to be done with one agent."""
        raise _unsupported()

    async def describe(self, agent: str) -> AgentDetail:
        """Everything about an agent. Raises Fault."""
        raise _unsupported()

    async def exchanges(self, run_id: str) -> tuple[Exchange, ...]:
        """What a run said over the wire. Raises Fault."""
        fleet, loop = self._fleet, self._loop
        if fleet is None or loop is None or not loop.is_running():
            return ()

        async def read() -> tuple[Exchange, ...]:
            return fleet.exchanges(run_id)

        try:
            async with asyncio.timeout(ANSWER_TIMEOUT):
                return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(read(), loop))
        except TimeoutError:
            raise Fault(
                FaultType.TIMEOUT,
                f"the fleet did not answer in {ANSWER_TIMEOUT:.0f} s: an agent's code blocks it; try again",
                retryable=True,
            ) from None

    async def call_tool(
        self, agent: str, server: str, tool: str, arguments: Mapping[str, Any], bearer: str | None = None
    ) -> ToolOutcome:
        """Call a tool by hand. Raises Fault."""
        raise _unsupported()

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
        try:
            export_env(self._root)
            project = load_project(self._root)
        except ConfigError as error:
            self._fail(str(error))
            return
        self._name = project.name
        log_file = setup_logging(project.log_level)
        redact_project(project)
        from .fleet import Fleet
        from .port import offer_control

        try:
            fleet = Fleet(project, hub=self._hub, dev=True)
            fleet.reserve()
        except (Fault, ConfigError) as error:
            self._fail(str(error))
            return
        offer_control(fleet, log_file)
        self._fleet = fleet
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
            for task in (starting, stopped):
                task.cancel()
            await asyncio.wait({starting, stopped}, timeout=1.0)
            await fleet.stop()

    def _fail(self, error: str) -> None:
        self._error, self._state, self._since = error, FleetState.FAILED, time()
        self._hub.publish(FleetChanged(state=FleetState.FAILED, detail=error.split("\n", 1)[0][:200]))


def _unsupported() -> Fault:
    return Fault(FaultType.CONFIG, "this fleet cannot do that yet")
