"""Runs started over REST: each has its own task and writes to its log, whether or not a client reads."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from pallas.deadlines import cancel_and_wait
from pallas.model import (
    Event,
    Fault,
    FaultType,
    RunContinued,
    RunFinished,
    RunRequest,
    RunResult,
    RunStarted,
    TextDelta,
)
from pallas.model.run_values import STREAMED_SURFACES
from pallas.runs.kernel import Kernel
from pallas.runs.run import ActiveRun

from .chat_chunks import Chunks, answer_of
from .run_replay import RunLog, RunReplay

log = logging.getLogger(__name__)

COME_BACK: Final = 30.0
"""Seconds that a run goes on after its only reader disconnected, so that one may come back."""
GONE: Final = "its caller went away and did not come back"
CLOSE_TIMEOUT: Final = 2.0


class RestRuns:
    """Starts runs and owns their tasks. One event loop only; ``close`` cancels those that still run."""

    def __init__(self, kernel: Kernel, replay: RunReplay, *, come_back: float = COME_BACK) -> None:
        self._kernel = kernel
        self._replay = replay
        self._come_back = come_back
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    async def begin(self, request: RunRequest, *, leave: bool, keyed: bool = False) -> RunLog:
        """Start a run and return its log once the kernel has admitted it. Raises Fault if it is not
        admitted.

        With ``leave`` the run is cancelled if no client reads its log for a while; ``keyed`` stores its
        complete answer as well as its chunks.
        """
        started: asyncio.Future[RunLog] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._run(request, started, keyed), name=f"rest run of {request.agent}")
        self._tasks[task] = ""
        task.add_done_callback(self._ended)
        waited: set[asyncio.Future[object]] = {task, started}  # type: ignore[arg-type]
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not started.done():
            task.result()  # the Fault that it was refused with
            raise Fault(FaultType.INTERNAL, "the run ended before it began; the log has the details")
        run_log = started.result()
        if not task.done():
            self._tasks[task] = run_log.run_id
        if leave:
            run_log.when_left = partial(self._left, run_log)
            self._left(run_log)
        return run_log

    def watch(self, run: ActiveRun) -> RunLog:
        """Return the log of a run that another surface or fleet started: the text so far, then all that is
        new."""
        # Begun here after it waited in another fleet, or continued.
        is_ours = run.surface in STREAMED_SURFACES
        run_log = self._replay.open(run.id, claim=run.claim, is_stored=is_ours, attempt=run.attempt)
        said = run.said.messages if run.said is not None else ()
        texts = [each.text for each in said if each.role == "assistant" and each.text]
        chunks, before, task = Chunks(run.agent, texts), run.listener, run.task
        if is_ours:
            run_log.agent, run_log.owner, run_log.thread = run.agent, run.owner, run.about
        if is_ours and run.said is not None:
            run_log.add({"type": "rollback"})  # of the step in which the other fleet ended
            for event in run.events:
                if isinstance(event, RunContinued):
                    _tell(run_log, chunks.hear, event)
        if written := run.draft.text():
            _tell(run_log, chunks.hear, TextDelta(run_id=run.id, agent=run.agent, text=written))

        def hear(event: Event) -> None:
            if before is not None:
                with suppress(Exception):  # as for a run started here
                    before(event)
            _tell(run_log, chunks.hear, event)
            if isinstance(event, RunFinished):
                # Its task reports the result; close does not wait for a task that does not end.
                asyncio.get_running_loop().call_later(CLOSE_TIMEOUT, late)

        def late() -> None:
            if not run_log.done:
                _tell(run_log, chunks.fault, _cancelled(run))
                run_log.end()

        def on_done(done: asyncio.Task[RunResult]) -> None:
            if run_log.done:
                return
            error = None if done.cancelled() else done.exception()
            if done.cancelled() or error is not None:
                run_log.fault = error if isinstance(error, Fault) else _cancelled(run)
                _tell(run_log, chunks.fault, run_log.fault)
            else:
                run_log.result = done.result()
                _tell(run_log, chunks.result, run_log.result)
            run_log.end()

        run.listener = hear
        if task is not None:
            task.add_done_callback(on_done)
        return run_log

    def abandon(self, run_id: str) -> None:
        """Cancel a run whose answer no client wants, and forget it."""
        for task, running in self._tasks.items():
            if running == run_id:
                task.cancel()

    async def close(self) -> None:
        """Cancel the runs in flight and wait a moment for them."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        tasks = set(self._tasks)
        await cancel_and_wait(*tasks, seconds=CLOSE_TIMEOUT)

    async def _run(self, request: RunRequest, started: asyncio.Future[RunLog], keyed: bool) -> None:
        chunks = Chunks(request.agent)
        run_log: RunLog | None = None

        def hear(event: Event) -> None:
            nonlocal run_log
            if isinstance(event, RunStarted) and run_log is None:
                run = self._kernel.in_flight.get(event.run_id)
                run_log = self._replay.open(event.run_id, claim=run.claim if run is not None else "")
                run_log.agent, run_log.owner = request.agent, request.principal.id
                if self._kernel.remembers(request.agent):
                    run_log.thread = request.conversation or ""
                started.set_result(run_log)
            elif run_log is not None:
                _tell(run_log, chunks.hear, event)

        try:
            result = await self._kernel.run(request, hear)
            if run_log is not None:
                run_log.result = result
                _tell(run_log, chunks.result, result)
                if keyed:
                    run_log.store({"type": "answer", **answer_of(result)})
        except Fault as fault:
            if run_log is None:
                raise
            run_log.fault = fault
            _tell(run_log, chunks.fault, fault)
        except asyncio.CancelledError:
            if run_log is not None:
                run_log.fault = _cancelled()
                _tell(run_log, chunks.fault, run_log.fault)
            raise
        finally:
            if run_log is not None:
                run_log.end()

    def _left(self, run_log: RunLog) -> None:
        """Cancel a run that no client reads, unless one comes back in time."""
        if (timer := self._timers.pop(run_log.run_id, None)) is not None:
            timer.cancel()
        loop = asyncio.get_running_loop()
        self._timers[run_log.run_id] = loop.call_later(self._come_back, self._give_up, run_log)

    def _give_up(self, run_log: RunLog) -> None:
        self._timers.pop(run_log.run_id, None)
        if run_log.readers or run_log.done:
            return
        if (run := self._kernel.in_flight.get(run_log.run_id)) is not None:
            run.cut(GONE)  # the text it has written so far stays in the thread

    def _ended(self, task: asyncio.Task[None]) -> None:
        run_id = self._tasks.pop(task, "")
        if (timer := self._timers.pop(run_id, None)) is not None:
            timer.cancel()
        # Read the exception here: asyncio must not report it as never retrieved.
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, Fault):
            log.error("a run failed outside of the kernel", exc_info=error)


def _cancelled(run: ActiveRun | None = None) -> Fault:
    because = f": {run.why}" if run is not None and run.why else ""
    return Fault(FaultType.UPSTREAM, f"the run was cancelled{because}", data={"cancelled": True})


def _tell[T](run_log: RunLog, say: Callable[[T], object], what: T) -> None:
    """Add the chunks that ``say`` makes of ``what``; an exception there is logged and does not end the
    run."""
    try:
        for chunk in say(what):  # type: ignore[attr-defined]
            run_log.add(chunk)
    except Exception:
        log.exception("run %s: an event could not be sent", run_log.run_id)
