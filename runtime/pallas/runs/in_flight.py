"""The runs of a fleet that are not over: find them, wait for them, cut them short."""

import asyncio
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from pallas.executors import Executor
from pallas.model import Fault, TraceContext, Usage
from pallas.model.refusals import handed_over
from pallas.runs.run import ActiveRun


class InFlight:
    """Runs from admission to end, oldest first, including those that wait for their turn."""

    def __init__(self) -> None:
        self._runs: dict[str, ActiveRun] = {}
        # Runs that nobody waits for any more, and whose end is not written yet.
        self._left: set[str] = set()
        # Whether the server that an agent calls by this name is an agent of this fleet.
        self.leads_to: Callable[[str, str, str], bool] = lambda caller, server, agent: False

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[ActiveRun]:
        return iter(tuple(self._runs.values()))

    def get(self, run_id: str) -> ActiveRun | None:
        """The run of that id, None if it is over or unknown."""
        return self._runs.get(run_id)

    def knows(self, run_id: str) -> bool:
        """Whether a run is in flight, or still ends though nobody waits for it."""
        return run_id in self._runs or run_id in self._left

    def add(self, run: ActiveRun) -> None:
        """Add a run that was admitted. It is removed when its task ends."""
        assert run.task is not None
        self._runs[run.id] = run
        run.task.add_done_callback(lambda _: self._remove(run))

    def of(self, agent: str, on: Executor | None = None) -> tuple[ActiveRun, ...]:
        """The runs of an agent; with ``on`` only those that this executor answers."""
        return tuple(run for run in self if run.agent == agent and on in (None, run.executor))

    def has_call(self, trace: TraceContext | None) -> bool:
        """Whether a run in flight made the request that carries this span.

        The trace id proves nothing, since the caller chooses it. The span does: the run made it for a call
        that is open now, and sent it only to the server it calls.
        """
        return bool(self.caller_of(trace))

    def caller_of(self, trace: TraceContext | None) -> str:
        """The id of the run in flight that made the request with this span; empty if none did."""
        found = (run.id for run in self._runs.values() if trace is not None and run.calls(trace))
        return next(found, "")

    def add_cost(self, run: ActiveRun, usage: Usage) -> None:
        """Count a run that is over for the one that it belongs to. ``usage`` is that of its turn."""
        if (caller := self._runs.get(run.caused_by)) is not None:
            caller.below += run.below + run.priced(usage)

    def chain(self, run_id: str) -> tuple[ActiveRun, ...]:
        """A run and those that wait for it, outermost last, as far as they are in flight here.

        Empty for a run that is over.
        """
        found: dict[str, ActiveRun] = {}
        run = self._runs.get(run_id)
        while run is not None and run.id not in found:
            found[run.id] = run
            run = self._runs.get(run.within) or self._caller(run)
        return tuple(found.values())

    def _caller(self, run: ActiveRun) -> ActiveRun | None:
        """The run that called the agent of ``run`` over MCP, with the span that it sent.

        The span alone is not enough: another server that was called could show it.
        """
        if run.within or not run.parent_span or run.context is None:
            return None
        trace = replace(run.context, span_id=run.parent_span)
        for each in self._runs.values():
            if each is not run and (server := each.called(trace)) is not None:
                return each if self.leads_to(each.agent, server, run.agent) else None
        return None

    async def wait_ended(
        self, seconds: float, runs: Collection[ActiveRun] | None = None
    ) -> tuple[ActiveRun, ...]:
        """Wait until these runs, or all current ones, are over; returns those that still run after
        ``seconds``.
        """
        waited = {run.task: run for run in (self if runs is None else runs) if run.task is not None}
        if not waited:
            return ()
        _, late = await asyncio.wait(waited, timeout=seconds)
        return tuple(run for task, run in waited.items() if task in late)

    async def cut(self, runs: Collection[ActiveRun], why: str, seconds: float) -> None:
        """Cancel these runs. Each caller gets ``why`` within ``seconds``, even if the work does not end."""
        for run in runs:
            run.cut(why)
        await self._leave(runs, seconds)

    async def hand_over(self, runs: Collection[ActiveRun], why: str, seconds: float) -> None:
        """End these runs, so that another fleet goes on with the durable ones; as ``cut`` for the others."""
        for run in runs:
            if run.turn_journal is not None or run.place is not None:
                run.break_off(handed_over(run.id))
            else:
                run.cut(why)
        await self._leave(runs, seconds)

    async def break_off(self, runs: Collection[ActiveRun], fault: Fault, seconds: float) -> None:
        """End these runs because their executor broke. Each caller gets ``fault``, as with ``cut``."""
        for run in runs:
            run.break_off(fault)
        await self._leave(runs, seconds)

    async def _leave(self, runs: Collection[ActiveRun], seconds: float) -> None:
        for run in await self.wait_ended(seconds, runs):
            self._remove(run)
            if run.task is not None:
                self._left.add(run.id)
                run.task.add_done_callback(partial(self._has_ended, run.id))
            run.leave()

    def _remove(self, run: ActiveRun) -> None:
        if self._runs.get(run.id) is run:  # else this fleet has claimed the run again since
            del self._runs[run.id]

    def _has_ended(self, run_id: str, task: asyncio.Task[Any]) -> None:
        self._left.discard(run_id)
