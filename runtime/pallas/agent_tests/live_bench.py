"""Runs tests against the fleet as it is: models and tools are asked for real."""

from collections.abc import Callable
from dataclasses import asdict, replace
from time import perf_counter
from typing import Any, Final

from pallas.client import RestClient
from pallas.client.rest_client import part
from pallas.model import Fault, Recording
from pallas.model.fault_rules import FaultPlan
from pallas.model.host_places import NOWHERE, HostPlaces
from pallas.recordings.recording_folder import MAX_BYTES, BadRecording, read_archive
from pallas.safe_text import one_line
from pallas.telemetry.trace_context import TRACEPARENT, child_of

from .agent_test import AgentTest, Trial, TurnTest
from .expectations import Unmet, cost_of, failures, tokens_of
from .scorers import Scorers

RECORDING_S: Final = 120.0
"""Seconds for the recording of a run to arrive."""
_FAULTS: Final = Unmet("faults", "are injected in fleets of their own only: add --own, or leave --live out")


class LiveBench:
    """Runs tests over the REST API of a fleet.

    ``inject`` has faults injected into the runs of a trace; without it tests with faults are skipped.
    """

    def __init__(
        self, api: RestClient, scorers: Scorers, inject: Callable[[str, FaultPlan], None] | None = None
    ) -> None:
        self._api = api
        self._scorers = scorers
        self._inject = inject
        root = api.place.project
        self._places = HostPlaces.of(root) if root is not None else NOWHERE

    async def run(self, test: AgentTest) -> Trial:
        """Run a test once, its turns in one conversation, up to the first that fails."""
        began, thread = perf_counter(), ""
        trial = Trial("passed")
        if self._inject is None and any(turn.faults is not None for turn in test.turns):
            return Trial("skipped", (_FAULTS,))
        for turn in test.turns:
            try:
                recording, thread = await self.ask(test.agent, turn, thread)
            except (Fault, BadRecording) as error:
                trial = replace(trial, verdict="error", failures=(Unmet("ask", one_line(str(error), 300)),))
                break
            here = self._places.all_placed(recording)
            met = failures(here, turn.expect)
            if not met and turn is test.turns[-1]:
                met = await self._scorers.failures(test, here)
            trial = replace(
                trial,
                verdict="failed" if met else "passed",
                failures=tuple(met),
                recordings=(*trial.recordings, recording),
                tokens=trial.tokens + tokens_of(recording),
                cost=trial.cost + cost_of(recording),
            )
            if met:
                break
        return replace(trial, seconds=perf_counter() - began).ended_in(turn, test)

    @property
    def url(self) -> str:
        """Where the REST API is."""
        return self._api.place.origin

    async def ask(self, agent: str, turn: TurnTest, thread: str = "") -> tuple[Recording, str]:
        """Ask in a thread, by default a new one; return the recording of the run and the thread's id.

        A run that fails is no error here. Raises Fault, BadRecording.
        """
        body: dict[str, Any] = {"message": turn.ask, "threadId": thread or None}
        if turn.images:
            body["images"] = [asdict(image) for image in turn.images]
        trace = child_of(None)
        if self._inject is not None and turn.faults is not None:
            self._inject(trace.trace_id, turn.faults)
        given = {name: value for name, value in body.items() if value}
        stream = self._api.chat(agent, given, {TRACEPARENT: trace.traceparent})
        try:
            async for _ in stream:
                pass
        finally:
            await stream.aclose()
        return await self._recording(stream.run_id), stream.thread_id

    async def _recording(self, run: str) -> Recording:
        data = await self._api.download(f"/runs/{part(run)}/recording", timeout=RECORDING_S, most=MAX_BYTES)
        return read_archive(data, f"run {run}")
