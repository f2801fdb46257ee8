"""The runs of a fleet that are not over: which belong together, waiting for them, cutting them short."""

import asyncio
from collections.abc import Collection, Iterator

from pallas.executors import Executor
from pallas.model import Fault, TraceContext
from pallas.runs.run import ActiveRun


class InFlight:
    """Runs from their admission to their end, those that wait for their turn included; oldest first."""

    def __init__(self) -> None:
        self._runs: dict[str, ActiveRun] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[ActiveRun]:
        return iter(tuple(self._runs.values()))

    def get(self, run_id: str) -> ActiveRun | None:
        """The run of that id, while it is not over."""
        return self._runs.get(run_id)

    def add(self, run: ActiveRun) -> None:
        """A run is admitted; it goes by itself when its task ends."""
        assert run.task is not None
        self._runs[run.id] = run
        run.task.add_done_callback(lambda _: self._runs.pop(run.id, None))

    def of(self, agent: str, on: Executor | None = None) -> tuple[ActiveRun, ...]:
        """The runs of an agent; with ``on`` those that this executor answers."""
        return tuple(run for run in self if run.agent == agent and on in (None, run.executor))

    def asked_for(self, trace: TraceContext | None) -> bool:
        """Whether a run in flight made the request that came with this span.

        A trace alone proves nothing: its id is the caller's own. The span is one that the run made for a
        call which is open now, and nobody else was told of it but whom it calls.
        """
        return trace is not None and any(run.calls(trace) for run in self._runs.values())

    async def over(self, seconds: float, runs: Collection[ActiveRun] | None = None) -> tuple[ActiveRun, ...]:
        """Wait until these runs, or all there are now, are over; after ``seconds`` those that are not."""
        waited = {run.task: run for run in (self if runs is None else runs) if run.task is not None}
        if not waited:
            return ()
        _, late = await asyncio.wait(waited, timeout=seconds)
        return tuple(run for task, run in waited.items() if task in late)

    async def cut(self, runs: Collection[ActiveRun], why: str, seconds: float) -> None:
        """Cancel these; each caller is told ``why``, within ``seconds`` even where the work does not end."""
        for run in runs:
            run.cut(why)
        await self._leave(runs, seconds)

    async def break_off(self, runs: Collection[ActiveRun], fault: Fault, seconds: float) -> None:
        """End these, whose executor broke; each caller is told ``fault``, as with ``cut``."""
        for run in runs:
            run.break_off(fault)
        await self._leave(runs, seconds)

    async def _leave(self, runs: Collection[ActiveRun], seconds: float) -> None:
        for run in await self.over(seconds, runs):
            self._runs.pop(run.id, None)
            run.leave()
