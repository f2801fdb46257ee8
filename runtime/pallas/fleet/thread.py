"""A fleet in a thread and event loop of its own, for the workbench."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, Final

from pallas.config import ConfigError, export_env, load_project
from pallas.config.load import CERTFILE_VARIABLE, KEYFILE_VARIABLE
from pallas.event_loop import run
from pallas.model import (
    AgentDetail,
    Envelope,
    EventBatch,
    Exchange,
    Fault,
    FaultType,
    FleetChanged,
    FleetSnapshot,
    FleetState,
    FleetVerb,
    MessageRecord,
    Notice,
    Page,
    TaskRecord,
    ThreadRecord,
    ToolOutcome,
    Verb,
)
from pallas.model.safe_text import one_line
from pallas.telemetry.events import Hub
from pallas.telemetry.log import redact_project, setup_logging

from . import kept

if TYPE_CHECKING:
    from .fleet import Fleet

log = logging.getLogger(__name__)

# Seconds that the fleet's loop has to answer a question; what is asked gives up by itself before.
ANSWER_TIMEOUT: Final = 30.0
CALL_TIMEOUT: Final = 305.0


class FleetThread:
    """The FleetPort of a fleet in this process: an agent that blocks its loop never stops the caller's.

    ``start`` returns at once; a project that cannot be used shows as state ``failed`` with all its
    mistakes in ``error``. With ``watch`` changed files are applied by themselves. Every method may be called
    from any thread.
    """

    can_control = True

    def __init__(self, root: Path, *, hub: Hub | None = None, watch: bool = False) -> None:
        self._root = root
        self._watch = watch
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
        """Ask for something to be done with one agent; what cannot be done is told in a Notice."""
        self._tell(lambda fleet: fleet.control(agent, verb), f"{one_line(agent, 80)}: {one_line(verb, 40)}")

    def control_fleet(self, verb: FleetVerb) -> None:
        """Ask for something to be done with the whole fleet; what cannot be done is told in a Notice."""
        self._tell(lambda fleet: fleet.control_fleet(verb), one_line(verb, 40))

    def _tell(self, what: Callable[["Fleet"], None], asked: str) -> None:
        fleet, loop = self._fleet, self._loop
        try:
            if fleet is None or loop is None or not loop.is_running():
                raise RuntimeError
            loop.call_soon_threadsafe(what, fleet)
        except RuntimeError:  # it has just been closed
            self._hub.publish(Notice(level="warning", text=f"{asked} was not done: {self._absent()}"))

    async def describe(self, agent: str) -> AgentDetail:
        """Everything about an agent, within 30 s. Raises Fault."""
        return await self._ask(lambda fleet: fleet.describe(agent), ANSWER_TIMEOUT)

    async def exchanges(self, run_id: str) -> tuple[Exchange, ...]:
        """What a run said over the wire; nothing of it where the fleet does not run. Raises Fault."""
        if self._fleet is None or self._loop is None or not self._loop.is_running():
            return ()

        async def read(fleet: "Fleet") -> tuple[Exchange, ...]:
            return fleet.exchanges(run_id)

        return await self._ask(read, ANSWER_TIMEOUT)

    async def envelopes(self, run_id: str, after: int = 0, limit: int = 1_000) -> tuple[Envelope, ...]:
        """Messages between the handlers of a run; none where the fleet does not run. Raises Fault."""
        if self._fleet is None or self._loop is None or not self._loop.is_running():
            return ()

        async def read(fleet: "Fleet") -> tuple[Envelope, ...]:
            return fleet.envelopes(run_id, after, limit)

        return await self._ask(read, ANSWER_TIMEOUT)

    async def call_tool(
        self, agent: str, server: str, tool: str, arguments: Mapping[str, Any], bearer: str | None = None
    ) -> ToolOutcome:
        """Call a tool by hand, within 300 s. Raises Fault."""
        return await self._ask(
            lambda fleet: fleet.call_tool(agent, server, tool, arguments, bearer), CALL_TIMEOUT
        )

    async def threads(self, agent: str = "", limit: int = 50, cursor: str = "") -> Page[ThreadRecord]:
        """Durable threads, the one that was used last first. Raises Fault."""
        return await self._ask(lambda fleet: kept.threads(fleet, agent, limit, cursor), ANSWER_TIMEOUT)

    async def thread(self, agent: str, thread: str) -> ThreadRecord:
        """One thread of an agent. Raises Fault."""
        return await self._ask(lambda fleet: kept.thread(fleet, agent, thread), ANSWER_TIMEOUT)

    async def thread_messages(
        self, thread: str, limit: int = 50, cursor: str = "", newest_first: bool = False
    ) -> Page[MessageRecord]:
        """Some rows of a thread. Raises Fault."""
        return await self._ask(
            lambda fleet: kept.messages(fleet, thread, limit, cursor, newest_first), ANSWER_TIMEOUT
        )

    async def rename_thread(self, thread: str, title: str) -> ThreadRecord:
        """Give a thread another title. Raises Fault."""
        return await self._ask(lambda fleet: kept.rename(fleet, thread, title), ANSWER_TIMEOUT)

    async def delete_thread(self, thread: str) -> None:
        """Delete a thread with all its messages. Raises Fault."""
        await self._ask(lambda fleet: kept.delete(fleet, thread), ANSWER_TIMEOUT)

    async def tasks(self, agent: str = "", limit: int = 50, cursor: str = "") -> Page[TaskRecord]:
        """Tasks, the newest first. Raises Fault."""
        return await self._ask(lambda fleet: kept.tasks(fleet, agent, limit, cursor), ANSWER_TIMEOUT)

    async def task(self, id: str) -> TaskRecord:  # noqa: A002 - the word of the record
        """One task with its answer. Raises Fault."""
        return await self._ask(lambda fleet: kept.task(fleet, id), ANSWER_TIMEOUT)

    async def cancel_task(self, id: str) -> TaskRecord:  # noqa: A002 - as above
        """Ask for a task to be cancelled. Raises Fault."""
        return await self._ask(lambda fleet: kept.cancel_task(fleet, id), ANSWER_TIMEOUT)

    async def save_params(self, agent: str, params: Mapping[str, Any]) -> str:
        """Keep parameters as the agent's own. Raises Fault."""
        return await self._ask(lambda fleet: kept.save_params(fleet, agent, params), ANSWER_TIMEOUT)

    async def _ask[T](self, work: Callable[["Fleet"], Coroutine[Any, Any, T]], seconds: float) -> T:
        """Have the fleet's loop do ``work``; cancelling the caller cancels it. Raises Fault.

        ``seconds`` is for a loop that some agent's code blocks: what is asked has a deadline of its own.
        """
        fleet, loop = self._fleet, self._loop
        if fleet is None or loop is None or not loop.is_running():
            raise Fault(FaultType.TRANSPORT, self._absent())
        coroutine = work(fleet)
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        except RuntimeError:  # it was closed in this very moment
            coroutine.close()
            raise Fault(FaultType.TRANSPORT, self._absent()) from None
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise Fault(
                FaultType.TIMEOUT,
                f"the fleet did not answer in {seconds:.0f} s: an agent's code blocks it; try again",
                retryable=True,
            ) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Not the caller was cancelled: the loop ended, and all that was in it.
            raise Fault(FaultType.TRANSPORT, self._absent()) from None

    def _absent(self) -> str:
        """Why there is nobody to ask."""
        if self._state is FleetState.FAILED:
            return "the fleet could not start; mend what it says and start it again"
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
        try:
            export_env(self._root)
            project = load_project(self._root)
        except ConfigError as error:
            self._fail(str(error))
            return
        self._name = project.name
        log_file = setup_logging(project.log_level)
        redact_project(project)
        from pallas.toolbox.seen import seen_path

        from .fleet import Fleet
        from .port import offer_control
        from .storage import url_of

        try:
            seen = seen_path(project.root, log_file)
            kept = url_of(project)
            fleet = Fleet(project, hub=self._hub, dev=True, seen=seen, watch=self._watch, database=kept)
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
