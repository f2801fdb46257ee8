"""Goes on with what a dead fleet left in the ledger: another replica, or the process before this one.

A run whose caller is gone has its answer in its thread, like any other.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final

from pallas import __version__
from pallas.model import (
    AgentState,
    Cost,
    Fault,
    FaultType,
    Notice,
    RunRecord,
    RunRequest,
    Said,
    StoredRequest,
    TaskRecord,
)
from pallas.model.codec import decode, loads
from pallas.runs.kernel import Kernel
from pallas.runs.run import Listener
from pallas.safe_text import one_line
from pallas.tasks import MakeRun, TaskOutcome
from pallas.telemetry.event_hub import EventHub

if TYPE_CHECKING:  # the database is imported by a fleet that has one
    from pallas.ledger import Ledger
    from pallas.ledger.claims import ClaimedRun, Estate
    from pallas.ledger.thread_queue import QueuedRun
    from pallas.tasks import Tasks

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""Seconds between two looks for fleets that died."""
SOON_SECONDS: Final = 0.25
"""The same while a heartbeat of one is late."""
LOOKS: Final = 10
"""Of more fleets than that about so many look at a time, whose cost would grow with their square."""
READY_SECONDS: Final = 120.0
"""Seconds that a run waits until its agent takes runs."""
_PAUSE: Final = 0.1
_NAMED: Final = 5
"""Releases that one warning names."""


async def no_session(session: str) -> None:
    """For a fleet without sessions."""


class Takeover:
    """Takes over runs, and the tasks whose work they are, for one fleet. One event loop only.

    ``taken_over`` counts the runs. ``begin_session`` is called with the session of a run, if it has one.
    """

    def __init__(
        self,
        ledger: "Ledger",
        kernel: Kernel,
        hub: EventHub,
        tasks: "Tasks | None",
        begin_session: Callable[[str], Awaitable[None]] = no_session,
    ) -> None:
        self._begin_session = begin_session
        self._ledger = ledger
        self._kernel = kernel
        self._hub = hub
        self._of_fleet = tasks
        self.taken_over = 0
        self._releases = {__version__}
        self._tasks: set[asyncio.Task[None]] = set()
        # Runs that were claimed and do not go on yet; runs that the last look did not know.
        self._claimed: set[str] = set()
        self._unknown: set[str] = set()

    async def watch(self) -> None:
        """Look again and again until cancelled, which cancels the runs that go on here too."""
        try:
            while True:
                try:
                    fleets = 1 + len(self._ledger.other_releases)
                    if self._kernel.takes_runs and is_due(fleets):
                        await self.look()
                    await self._tend_own()
                except Fault as fault:
                    log.warning("the runs of dead fleets could not be looked up: %s", fault.message)
                await asyncio.sleep(SOON_SECONDS if self._ledger.is_beat_late else LOOK_SECONDS)
        finally:
            for task in self._tasks:
                task.cancel()

    async def look(self) -> None:
        """Take over what dead fleets left by now. Raises Fault (TRANSPORT, TIMEOUT)."""
        estate = await self._ledger.inherit(self._kernel.serves)
        self.taken_over += len(estate.claimed) + len(estate.queued)
        self._take(estate)
        self._compare_releases()

    def _take(self, estate: "Estate") -> None:
        if any(estate):
            self._tell(estate)
        for claimed in estate.claimed:
            self._claimed.add(claimed.record.id)
            self._own(self._go_on(claimed), f"go on with {claimed.record.id}")
        for queued in estate.queued:
            self._own(self._wait_on(queued), f"wait with {queued.run_id}")

    async def _tend_own(self) -> None:
        """Cancel runs that other fleets were asked to cancel; go on with runs that this one does not know.

        A write may be done although its answer was lost: then the ledger has a run that nobody works on.
        """
        mine = await self._ledger.runs.mine()
        for run_id in mine.to_cancel:
            if (run := self._kernel.in_flight.get(run_id)) is not None:
                run.cut()
        unknown = {each for each in mine.begun if each not in self._claimed and not self._kernel.knows(each)}
        lost, self._unknown = unknown & self._unknown, unknown
        if lost:
            self._take(await self._ledger.reclaim(lost))

    def _own(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _tell(self, estate: "Estate") -> None:
        counts = {
            "continued here": len(estate.claimed),
            "put into error": len(estate.ended),
            "wait here": len(estate.queued),
        }
        what = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        text = f"runs that another fleet left unfinished: {what}"
        log.warning("%s", text)
        self._hub.publish(Notice(level="warning", text=text))

    def _compare_releases(self) -> None:
        """Report when the replicas come to have different releases, and when they have one again."""
        found = Counter([__version__, *(one_line(each, 40) for each in self._ledger.other_releases)])
        before, self._releases = self._releases, set(found)
        if before == self._releases:
            return
        if len(found) == 1:
            text = f"all replicas have release {__version__} now"
            log.info("%s", text)
            self._hub.publish(Notice(level="info", text=text))
            return
        named = ", ".join(f"{count} x {release}" for release, count in sorted(found.items())[:_NAMED])
        more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        text = f"the replicas of this project have different releases: {named}{more}; update all to the same"
        log.warning("%s", text)
        self._hub.publish(Notice(level="warning", text=text))

    async def _go_on(self, claimed: "ClaimedRun") -> None:
        record = claimed.record
        try:
            stored = decode(StoredRequest, loads(claimed.request))
            request = await self._request_of(stored)
            so_far = await _patiently(lambda: self._ledger.threads.said(record.id))
            if so_far is None:
                raise Fault(FaultType.UPSTREAM, "its question is not stored")
            if request.within and await self._is_over(request.within):
                raise Fault(FaultType.UPSTREAM, "the run that asked for it is over")
            assert self._kernel.nested is not None
            nested, steps = self._kernel.nested, self._ledger.steps
            known = await _patiently(lambda: nested.begun(record, so_far))
            unmade = await _patiently(lambda: self._ledger.questions.unmade(record.id, so_far.part))
            made, used = await _patiently(lambda: steps.adopt(record.id))
            spent = await _patiently(lambda: steps.spent(record.id))
            said = so_far._replace(
                steps=made, used=used.tokens, cost=Cost.of(used), spent=spent, nested=known, unmade=unmade
            )
            question = said.messages[0]
            request = replace(request, text=question.text, images=question.images)
            task = await _patiently(lambda: self._ledger.tasks.of_run(record.id))
            if task is not None and self._of_fleet is not None:
                self._of_fleet.adopt(task, self._work_of(task, request, record, said))
            else:
                await self._kernel.resume(request, record, said)
        except Fault as fault:
            # A run that began has written how it ended; that is not written twice.
            if self._kernel.takes_runs:
                await self._end(record, fault.message)
            else:
                await self._leave(record.id, self._ledger.threads.hand_over(record))
        except Exception:
            log.exception("run %s could not be continued", record.id)
            await self._end(record, "it could not be continued; the log has the details")
        finally:
            self._claimed.discard(record.id)

    async def _is_over(self, run_id: str) -> bool:
        record = await _patiently(lambda: self._ledger.runs.get(run_id))
        return record is not None and record.status != "running"

    async def _wait_on(self, queued: "QueuedRun") -> None:
        """Have a run wait here that waited for its thread elsewhere."""
        try:
            stored = decode(StoredRequest, loads(queued.request))
            request = replace(await self._request_of(stored), run_id=queued.run_id)
            await self._kernel.run(request, place=queued.position)
        except Fault as fault:
            log.warning("run %s, which waited elsewhere: %s", queued.run_id, fault.message)
            threads = self._ledger.threads
            leave = threads.stop_waiting if self._kernel.takes_runs else threads.hand_over_place
            await self._leave(queued.run_id, leave(queued.run_id))

    async def _leave(self, run_id: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Fault as fault:
            log.warning("run %s is left as it is: %s", run_id, fault.message)

    async def _request_of(self, stored: StoredRequest) -> RunRequest:
        """The request, once its agent takes runs. Raises Fault."""
        name = stored.request.agent
        agent = self._kernel.agent(name)
        until = monotonic() + READY_SECONDS
        while agent.state in _STARTING and monotonic() < until:
            await asyncio.sleep(_PAUSE)
            agent = self._kernel.agent(name)
        if stored.request.leased:
            await _patiently(lambda: self._begin_session(stored.request.leased))
        left = None if stored.until is None else max(0.1, stored.until - time())
        return replace(stored.request, timeout=left, bearer_lost=stored.had_bearer)

    def _work_of(self, task: TaskRecord, request: RunRequest, record: RunRecord, said: Said) -> MakeRun:
        async def run(hear: Listener) -> TaskOutcome:
            # Imported by a fleet that needs them.
            from pallas.sessions import DelegationOutcome
            from pallas.surfaces.bridge import task_tools
            from pallas.surfaces.send_message_task import outcome_of

            result = await self._kernel.resume(request, record, said, hear)
            if task.kind == task_tools.DELEGATE.name:
                return task_tools.outcome_of(DelegationOutcome(request.leased, record.agent, result))
            return outcome_of(result)

        return run

    async def _end(self, record: RunRecord, reason: str) -> None:
        ended = replace(record, status="error", finished_at=time(), fault=one_line(reason, 500))
        try:
            _, used = await self._ledger.steps.adopt(record.id)
            ended = replace(ended, cost=used.cost, unpriced=used.unpriced)
            await self._ledger.threads.fail(record.thread, ended, one_line(reason, 300))
        except Fault as fault:
            log.info("run %s: %s", record.id, fault.message)


def is_due(fleets: int) -> bool:
    """Whether one of so many ``fleets`` looks now for those that died."""
    return random.random() * fleets < LOOKS


async def _patiently[T](read: Callable[[], Awaitable[T]]) -> T:
    """Read of the ledger, which may be away for a moment. Raises Fault."""
    until = monotonic() + READY_SECONDS
    while True:
        try:
            return await read()
        except Fault as fault:
            if fault.type not in (FaultType.TRANSPORT, FaultType.TIMEOUT) or monotonic() > until:
                raise
        await asyncio.sleep(LOOK_SECONDS)


_STARTING: Final = frozenset(
    {AgentState.WAITING, AgentState.IMPORTING, AgentState.CONNECTING, AgentState.BACKOFF}
)
