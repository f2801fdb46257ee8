"""Which recorded run stands for a run that another one asked for, by the call that led to it."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pallas.model import RecordedRun, Recording, Step


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """The call that led to a run of ``agent``, made by the run ``caller``.

    ``before`` are the earlier steps of that run, in order.
    """

    agent: str
    caller: str
    step: Step
    before: Sequence[Step] = ()


def runs_of_call(recording: Recording, caller: RecordedRun, call: RecordedCall) -> Iterator[RecordedRun]:
    """The recorded runs of its agent to which the same call of ``caller`` led; none without such a call."""
    if (step := _recorded_call(caller, call)) is not None:
        yield from (run for run in recording.led_to(caller, step.number) if run.agent == call.agent)


def _recorded_call(caller: RecordedRun, call: RecordedCall) -> Step | None:
    """The recorded call with the model's id, else the one of as many equal calls before it."""
    for key in _KEYS if call.step.tool_use_id else _KEYS[-1:]:
        wanted = key(call.step)
        equal = [each.step for each in caller.steps if key(each.step) == wanted]
        index = sum(1 for each in call.before if key(each) == wanted)
        if index < len(equal):
            return equal[index]
    return None


def _call_with_id(step: Step) -> Hashable:
    # Some models give several calls the same id.
    return step.kind, step.name, step.tool_use_id, _digest(step)


def _id(step: Step) -> Hashable:
    return step.kind, step.name, step.tool_use_id


def _call(step: Step) -> Hashable:
    return step.kind, step.name, _digest(step)


def _digest(step: Step) -> str:
    """That of a call, without the number of the form, which makes no difference to calls."""
    return step.digest.rpartition(":")[2]


_KEYS: Final[tuple[Callable[[Step], Hashable], ...]] = (_call_with_id, _id, _call)
