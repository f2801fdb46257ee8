"""The runs of a fleet that are not over: find them, wait for them, cut them short."""

import asyncio
from collections.abc import Collection, Iterator

from pallas.executors import Executor
from pallas.model import Fault, TraceContext
from pallas.runs.run import ActiveRun


class InFlight:
    """Runs from admission to end, oldest first, including those that wait for their turn."""

    def __init__(self) -> None:
        self._runs: dict[str, ActiveRun] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[ActiveRun]:
        return iter(tuple(self._runs.values()))

    def get(self, run_id: str) -> ActiveRun | None:
        """The run of that id, None if it is over or unknown."""
        return self._runs.get(run_id)

    def add(self, run: ActiveRun) -> None:
        """Add a run that was admitted. It is removed when its task ends."""
        assert run.task is not None
        self._runs[run.id] = run
        run.task.add_done_callback(lambda _: self._runs.pop(run.id, None))

    def of(self, agent: str, on: Executor | None = None) -> tuple[ActiveRun, ...]:
        """The runs of an agent; with ``on`` only those that this executor answers."""
        return tuple(run for run in self if run.agent == agent and on in (None, run.executor))

    def has_call(self, trace: TraceContext | None) -> bool:
        """Whether a run in flight made the request that carries this span.

        The trace id proves nothing, since the caller chooses it. The span does: the run made it for a call
        that is open now, and sent it only to the server it calls.
        """
        return trace is not None and any(run.calls(trace) for run in self._runs.values())

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

    async def break_off(self, runs: Collection[ActiveRun], fault: Fault, seconds: float) -> None:
        """End these runs because their executor broke. Each caller gets ``fault``, as with ``cut``."""
        for run in runs:
            run.break_off(fault)
        await self._leave(runs, seconds)

    async def _leave(self, runs: Collection[ActiveRun], seconds: float) -> None:
        for run in await self.wait_ended(seconds, runs):
            self._runs.pop(run.id, None)
            run.leave()
