"""Runs started over REST: each has its own task and writes to its log, whether or not a client reads."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from pallas.model import Event, Fault, FaultType, RunFinished, RunRequest, RunResult, RunStarted, TextDelta
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
        made = started.result()
        if not task.done():
            self._tasks[task] = made.run_id
        if leave:
            made.when_left = partial(self._left, made)
            self._left(made)
        return made

    def watch(self, run: ActiveRun) -> RunLog:
        """Return the log of a run that another surface started: the text so far, then everything new."""
        made = self._replay.open(run.id, kept=False)
        chunks, before, task = Chunks(run.agent), run.listener, run.task
        if written := run.draft.text():
            _tell(made, chunks.hear, TextDelta(run_id=run.id, agent=run.agent, text=written))

        def hear(event: Event) -> None:
            if before is not None:
                with suppress(Exception):  # as for a run started here
                    before(event)
            _tell(made, chunks.hear, event)
            if isinstance(event, RunFinished):
                # Its task reports the result; close does not wait for a task that does not end.
                asyncio.get_running_loop().call_later(CLOSE_TIMEOUT, late)

        def late() -> None:
            if not made.done:
                _tell(made, chunks.fault, _cancelled(run))
                made.end()

        def over(done: asyncio.Task[RunResult]) -> None:
            if made.done:
                return
            error = None if done.cancelled() else done.exception()
            if done.cancelled() or error is not None:
                _tell(made, chunks.fault, error if isinstance(error, Fault) else _cancelled(run))
            else:
                _tell(made, chunks.result, done.result())
            made.end()

        run.listener = hear
        if task is not None:
            task.add_done_callback(over)
        return made

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
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_TIMEOUT)

    async def _run(self, request: RunRequest, started: asyncio.Future[RunLog], keyed: bool) -> None:
        chunks = Chunks(request.agent)
        told: RunLog | None = None

        def hear(event: Event) -> None:
            nonlocal told
            if isinstance(event, RunStarted) and told is None:
                told = self._replay.open(event.run_id)
                told.agent, told.owner = request.agent, request.principal.id
                if self._kernel.remembers(request.agent):
                    told.thread = request.conversation or ""
                started.set_result(told)
            elif told is not None:
                _tell(told, chunks.hear, event)

        try:
            result = await self._kernel.run(request, hear)
            if told is not None:
                told.result = result
                _tell(told, chunks.result, result)
                if keyed:
                    told.keep({"type": "answer", **answer_of(result)})
        except Fault as fault:
            if told is None:
                raise
            told.fault = fault
            _tell(told, chunks.fault, fault)
        except asyncio.CancelledError:
            if told is not None:
                told.fault = _cancelled()
                _tell(told, chunks.fault, told.fault)
            raise
        finally:
            if told is not None:
                told.end()

    def _left(self, made: RunLog) -> None:
        """Cancel a run that no client reads, unless one comes back in time."""
        if (timer := self._timers.pop(made.run_id, None)) is not None:
            timer.cancel()
        loop = asyncio.get_running_loop()
        self._timers[made.run_id] = loop.call_later(self._come_back, self._give_up, made)

    def _give_up(self, made: RunLog) -> None:
        self._timers.pop(made.run_id, None)
        if made.readers or made.done:
            return
        if (run := self._kernel.in_flight.get(made.run_id)) is not None:
            run.cut(GONE)  # the text it has written so far stays in the thread

    def _ended(self, task: asyncio.Task[None]) -> None:
        run_id = self._tasks.pop(task, "")
        if (timer := self._timers.pop(run_id, None)) is not None:
            timer.cancel()
        # Read the exception here: asyncio must not report it as never retrieved.
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, Fault):
            log.error("a run broke outside of the kernel", exc_info=error)


def _cancelled(run: ActiveRun | None = None) -> Fault:
    because = f": {run.why}" if run is not None and run.why else ""
    return Fault(FaultType.UPSTREAM, f"the run was cancelled{because}", data={"cancelled": True})


def _tell[T](made: RunLog, say: Callable[[T], object], what: T) -> None:
    """Add the chunks that ``say`` makes of ``what``; an exception there is logged and does not end the
    run."""
    try:
        for chunk in say(what):  # type: ignore[attr-defined]
            made.add(chunk)
    except Exception:
        log.exception("run %s: an event could not be told", made.run_id)
