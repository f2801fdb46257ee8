"""The executor of an agent whose questions a recording answers: a worker, a remote one, or any other."""

import asyncio
import json
from dataclasses import replace
from typing import Any

from pallas.config import AgentConfig, Project
from pallas.model import Fault, FaultType, Message, RecordedRun, StepDetail, Usage
from pallas.model.redaction import redact_text
from pallas.recordings.first_difference import loaded
from pallas.telemetry.step_record import RunSteps
from pallas.telemetry.trace_context import current_run

from ..base import Emit, Executor, ExecutorInfo, ExecutorTurn, TurnResult
from .replay import Replay, current_replay, miss_fault


class RecordedAgent(Executor):
    """Answers a question as its recorded run did, in the order of the recording where it was asked again.

    The steps of that run are recorded once more. Raises Fault (CONFIG) for a question that was not recorded.
    ``shape`` is the executor of a typed handler: it is loaded for the class of its messages, and never run.
    """

    def __init__(self, project: Project, config: AgentConfig, shape: Executor | None = None) -> None:
        self._name = config.name
        self._info = ExecutorInfo(vision=True)
        self._shape = shape

    @property
    def info(self) -> ExecutorInfo:
        """The facts about it: it takes pictures, whether or not the recorded one did."""
        return self._info

    async def load(self, *, fresh: bool = False) -> None:
        """Import the class of a typed handler's messages; no program is looked for. Raises Fault (CONFIG)."""
        if self._shape is not None:
            await self._shape.load(fresh=fresh)
            self._info = replace(self._info, payload=self._shape.info.payload, files=self._shape.info.files)

    async def start(self) -> None:
        """Do nothing: no program is started and no connection is made."""

    async def run(self, turn: ExecutorTurn, emit: Emit) -> TurnResult:
        """Answer one turn. Raises Fault: for a miss, and the one with which the recorded run ended."""
        replay = current_replay()
        if replay is None:
            raise Fault(FaultType.INTERNAL, f"{self._name} answers in a replay only")
        run = self._recorded(replay, turn)
        if replay.plan.is_timed:
            await asyncio.sleep(run.seconds)
        if (trace := current_run()) is not None and trace.steps is not None:
            _record(run.steps, trace.steps)
        if run.status != "ok":
            raise Fault(FaultType.UPSTREAM, run.fault or f"{self._name} did not answer in the recording")
        messages = Message("user", turn.text, turn.images), Message("assistant", run.answer)
        return TurnResult((run.answer,), messages, Usage(run.tokens_in, run.tokens_out))

    async def park(self, timeout_s: float) -> None:
        """Do nothing."""

    async def close(self, timeout_s: float) -> None:
        """End what a typed handler was loaded in."""
        if self._shape is not None:
            await self._shape.close(timeout_s)

    def _recorded(self, replay: Replay, turn: ExecutorTurn) -> RecordedRun:
        replay.recorded_run(turn.run_id)
        found = replay.session().steps.run_of(turn.run_id, self._name, turn.text)
        if isinstance(found, RecordedRun):
            return found
        why = f"{self._name} was asked this less often in the recording"
        if found is not None:
            was = f"it is {found.after}, and was {found.before}"
            why = f"a question to {self._name} is not in the recording: {was}"
        fault = miss_fault(why, "--models live", call=question_to(self._name, turn.text))
        replay.note(fault)
        raise fault


def question_to(agent: str, text: str) -> str:
    """A question to an agent, as the request of the step of a call."""
    return json.dumps({"name": agent, "arguments": {"message": redact_text(text)}}, ensure_ascii=False)


def _record(details: tuple[StepDetail, ...], steps: RunSteps) -> None:
    """Record these steps again, as steps of a run."""
    numbers: dict[int, int] = {0: 0}
    for detail in details:
        value, request = detail.step, _dict(detail.request)
        name, arguments = str(request.get("name", value.name)), _dict(request.get("arguments"))
        step = steps.begin(
            value.kind,
            name=value.name,
            provider=value.provider,
            parent=numbers.get(value.parent, 0),
            call_id=value.call_id,
            request=steps.split_call(name, arguments) if request else None,
        )
        numbers[value.number] = step.number
        response = _dict(detail.response)
        if response:
            structured, is_error = response.get("structuredContent"), bool(response.get("isError"))
            step.content(response.get("content", ()), is_error=is_error, structured=structured)
        step.finish(value.state if value.state in ("failed", "cancelled") else "done", value.fault)


def _dict(value: Any) -> dict[str, Any]:
    found = loaded(value) if isinstance(value, str) else value
    return found if isinstance(found, dict) else {}
