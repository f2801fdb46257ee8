"""Runs of callers that may lose their connection and ask again with the same key.

Such a run goes on to its end without its caller. The second request joins it, in this fleet or in another
one, or gets the answer that it left.
"""

import asyncio
import hashlib
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pallas.model import Event, Fault, FaultType, RunRequest, RunResult, RunStarted
from pallas.model.codec import encode_sparse
from pallas.model.refusals import not_found

from .kernel import Kernel
from .run import Listener
from .run_keys import RunKeys
from .run_results import RunResults, followed, joined
from .thread_store import stored_request

if TYPE_CHECKING:  # the database is imported by a fleet that has one
    from pallas.ledger import Ledger

log = logging.getLogger(__name__)

LOOK_EVERY: Final = 0.5
"""Seconds between two looks whether another fleet was asked to cancel a run that the ledger does not know."""


class KeyedRuns:
    """Runs with keys, of one fleet. One event loop only; ``close`` cancels those under way."""

    def __init__(self, kernel: Kernel, ledger: "Ledger") -> None:
        self._kernel = kernel
        self._ledger = ledger
        self._keys = RunKeys(ledger)
        self._results = RunResults(kernel, ledger)
        self._tasks: dict[str, asyncio.Task[RunResult]] = {}
        self._watches: set[asyncio.Task[None]] = set()

    async def run(
        self, request: RunRequest, key: str, listener: Listener | None = None, *, joins: bool = False
    ) -> RunResult:
        """Run a message, or join the run that the same caller began with that key; returns its result.

        With ``joins`` the first request may have had another conversation, history or limits. The listener
        gets the events of a run of this fleet, also those from before it was joined. Cancelling this call
        does not cancel the run. Raises Fault: conflict for the key of another request.
        """
        owner = request.principal.id
        async with self._keys.asking(owner, key, _digest_of(request), joins=joins) as (run_id, is_new):
            task = self._tasks.get(run_id)
            run = self._kernel.in_flight.get(run_id)
            if task is None and run is None and (is_new or await self._never_began(run_id)):
                if not is_new and (await self._ledger.runs.key_state(owner, key, run_id)).is_cancelled:
                    raise _cancelled()
                task = await self._begun(replace(request, run_id=run_id), listener)
                self._watch(owner, key, run_id, task)
        if task is not None:
            with followed(run, listener):  # None for the one who has begun it
                return await asyncio.shield(task)
        if run is not None:
            return await joined(run, listener)
        found = await self._results.of(run_id, listener) if run_id else None
        if found is None:
            raise not_found("the run of this key was deleted with its thread; send a new key")
        return found

    @property
    def are_durable(self) -> bool:
        """Whether a run of this fleet is found again after the fleet was restarted."""
        return self._keys.are_durable

    async def cancel(self, owner: str, key: str) -> str:
        """Cancel the run that this caller began with that key, in any fleet; its id, empty without one.

        Returns when it is asked for. A run that did not begin yet never does.
        """
        run_id = await self._keys.run_to_cancel(owner, key)
        if run_id:
            self._kernel.cancel(run_id)
        return run_id

    async def close(self) -> None:
        """Cancel the runs under way. Safe to call twice."""
        for task in (*self._tasks.values(), *self._watches):
            task.cancel()

    def _watch(self, owner: str, key: str, run_id: str, task: asyncio.Task[RunResult]) -> None:
        if self.are_durable:  # else no other fleet knows the key
            watch = asyncio.create_task(self._heed(owner, key, run_id, task), name=f"cancels of {run_id}")
            self._watches.add(watch)
            watch.add_done_callback(self._watches.discard)

    async def _heed(self, owner: str, key: str, run_id: str, task: asyncio.Task[RunResult]) -> None:
        """Cancel the run if another fleet was asked to before the ledger knew of it; then its row says so."""
        while not task.done():
            try:
                state = await self._ledger.runs.key_state(owner, key, run_id)
            except Fault as fault:
                log.warning("whether run %s was cancelled is not known: %s", run_id, fault.message)
            else:
                if state.is_cancelled:
                    self._kernel.cancel(run_id)
                if state.is_cancelled or state.has_begun:
                    return
            await asyncio.wait({task}, timeout=LOOK_EVERY)

    async def _begun(self, request: RunRequest, listener: Listener | None) -> asyncio.Task[RunResult]:
        """Begin a run; returns its task once the kernel has admitted it. Raises the Fault of a refusal."""
        run_id = request.run_id
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def hear(event: Event) -> None:
            if isinstance(event, RunStarted) and not started.done():
                started.set_result(None)
            if listener is not None:
                listener(event)

        task = asyncio.create_task(self._kernel.run(request, hear), name=f"keyed run {run_id}")
        self._tasks[run_id] = task
        task.add_done_callback(lambda done: self._ended(run_id, done))
        waited: set[asyncio.Future[Any]] = {task, started}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if not started.done():
            task.result()
        return task

    def _ended(self, run_id: str, done: asyncio.Task[RunResult]) -> None:
        del self._tasks[run_id]
        if not done.cancelled():
            done.exception()  # nobody may wait for it

    async def _never_began(self, run_id: str) -> bool:
        """Whether no fleet has begun the run: the one that stored its key died before."""
        if not run_id or await self._ledger.runs.find(run_id) is not None:
            return False
        if self._kernel.recorder is not None:  # one without a thread is written when it is over
            await self._kernel.recorder.settle()
        return await self._ledger.runs.find(run_id) is None


def _cancelled() -> Fault:
    return Fault(FaultType.UPSTREAM, "the run was cancelled before it began", data={"cancelled": True})


def _digest_of(request: RunRequest) -> str:
    """The digests of what a caller asks, without what differs when it asks again, and of its message."""
    conversation = "new" if request.new_conversation else request.conversation
    asked = replace(request, conversation=conversation, session=None, trace=None, caller="", timeout=None)
    whole = encode_sparse(replace(stored_request(asked, whole=True), had_bearer=False))
    question = encode_sparse(RunRequest(request.agent, request.text, request.images))
    return ".".join(hashlib.sha256(each.encode()).hexdigest() for each in (whole, question))
