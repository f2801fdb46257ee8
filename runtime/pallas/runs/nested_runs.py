"""Runs that durable runs ask for: both go on after a kill, each in the fleet that takes it over.

The id of such a run is derived from the call that asks for it, so the call of another attempt finds it.
"""

import asyncio
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from pallas.model import Fault, RunRecord, RunRequest, RunResult, Said
from pallas.model.ids import mint
from pallas.model.refusals import OTHERS, REASON, handed_over, not_found

from .kernel import Kernel
from .run import Listener
from .run_results import LOOK_EVERY, RunResults

if TYPE_CHECKING:  # the database is imported by a fleet that has one
    from pallas.ledger import Ledger


class NestedCall(NamedTuple):
    """A call of a durable run: ``part`` is the index of its message in the thread."""

    run_id: str
    part: int
    call_id: str

    def run_in(self, attempt: int) -> str:
        """The id of the run that this call asks for in that attempt."""
        named = "\0".join((self.run_id, str(self.part), self.call_id, str(attempt)))
        return blake2b(named.encode(), digest_size=6).hexdigest()


class NestedRuns:
    """The nested runs of one fleet. One event loop only."""

    def __init__(self, kernel: Kernel, ledger: "Ledger") -> None:
        self._kernel = kernel
        self._ledger = ledger
        self._results = RunResults(kernel, ledger)
        # Those whose parent goes on elsewhere.
        self._orphans: set[asyncio.Task[RunResult]] = set()

    async def run(
        self, request: RunRequest, call: NestedCall, attempt: int, listener: Listener | None = None
    ) -> RunResult:
        """Run a message for the call, or join the run that it asked for in an earlier attempt.

        Cancelling this cancels the run, unless its parent goes on elsewhere. Raises Fault.
        """
        known = await self._known(call, attempt, request.principal.id) if attempt > 1 else None
        run_id = known or call.run_in(attempt)
        parent = self._kernel.in_flight.get(call.run_id)
        begins = None if known else self._kernel.run(_durable(request, run_id), listener)
        while True:
            task = asyncio.create_task(
                begins or self._joined(run_id), name=f"{call.run_id} waits for {run_id}"
            )
            try:
                while not task.done():
                    await asyncio.wait({task}, timeout=LOOK_EVERY)
                    if begins is None and parent is not None and parent.is_leaving:
                        # The run may be in another fleet: it does not hold up the end of this one.
                        parent.break_off(handed_over(parent.id))
                return task.result()
            except Fault as fault:
                if begins is None or fault.data.get(REASON) not in OTHERS:
                    raise
                begins = None
            except asyncio.CancelledError:
                if parent is not None and parent.goes_on_elsewhere:
                    self._leave(task)
                else:
                    task.cancel()
                    self._kernel.cancel(run_id)
                raise

    async def begun(self, record: RunRecord, said: Said) -> frozenset[str]:
        """The ids of a run's last calls that asked for runs which are stored. Raises Fault."""
        found = set()
        for each in said.messages[-1].calls:
            call = NestedCall(record.id, said.part, each.id)
            if await self._known(call, record.attempt, record.owner) is not None:
                found.add(each.id)
        return frozenset(found)

    async def close(self) -> None:
        """Stop waiting for runs whose parents went on elsewhere. Safe to call twice."""
        for task in self._orphans:
            task.cancel()

    async def _known(self, call: NestedCall, attempt: int, owner: str) -> str | None:
        """The id of the durable run that the call asked for in the last attempt before this one."""
        for earlier in range(attempt - 1, 0, -1):
            record = await self._ledger.runs.get(call.run_in(earlier))
            if record is not None and record.thread and (record.within, record.owner) == (call.run_id, owner):
                return record.id
        return None

    async def _joined(self, run_id: str) -> RunResult:
        found = await self._results.of(run_id)
        if found is None:
            raise not_found("the run was deleted with its thread")
        return found

    def _leave(self, task: asyncio.Task[RunResult]) -> None:
        """Let a run go on without its parent."""
        self._orphans.add(task)
        task.add_done_callback(self._left)

    def _left(self, task: asyncio.Task[RunResult]) -> None:
        self._orphans.discard(task)
        if not task.cancelled():
            task.exception()  # nobody waits for it


def _durable(request: RunRequest, run_id: str) -> RunRequest:
    if request.conversation is not None:
        return replace(request, run_id=run_id)
    return replace(request, run_id=run_id, conversation=mint(), new_conversation=True)
