"""The step from which a run goes on, and what is other there. Nothing in here imports the screen."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pallas.model import Params, RecordedRun, Recording, StepDetail
from pallas.recordings.fork_point import forked_request
from pallas.safe_text import one_line, without_controls

from .exchange_text import parsed
from .step_text import name_of

MAX_EDITED: Final = 100_000
"""Characters of a question or a result that can be edited."""


@dataclass(frozen=True, slots=True)
class ForkChange:
    """What is other in the new run: an empty question or model is that of the run.

    A call is made again where ``result`` is None.
    """

    message: str = ""
    result: str | None = None
    model: str = ""


@dataclass(frozen=True, slots=True)
class ForkStep:
    """A step from which a run can go on, with what was recorded of it."""

    run: str
    """The id of the run."""
    number: int
    title: str
    name: str
    """That of the model, the tool or the agent."""
    question: str = ""
    """That of the run."""
    result: str = ""
    """What the call gave, if it is one."""
    is_call: bool = False
    fixed: str = ""
    """Why the question cannot be another one."""
    remark: str = ""
    """What of the result cannot be edited."""


def fork_step(recording: Recording, number: int) -> ForkStep:
    """The step of the first run of a recording. Raises Fault if no run can go on from it."""
    forked_request(recording, number, params=Params({}))
    run = recording.first
    detail = next(each for each in run.steps if each.step.number == number)
    title, name = (one_line(each, 60) for each in (name_of(detail.step), detail.step.name))
    if detail.step.kind == "model":
        question = run.question if len(run.question) <= MAX_EDITED else ""
        return ForkStep(run.id, number, title, name, question, fixed=_why_fixed(run))
    result, remark = _result_of(detail)
    return ForkStep(run.id, number, title, name, result=result, is_call=True, remark=remark)


def _why_fixed(run: RecordedRun) -> str:
    if run.params.get("messages") is not None:
        return "The run was given its whole conversation as messages: the question stays as it was."
    if len(run.question) > MAX_EDITED:
        return f"The question has {len(run.question)} characters, too many to edit here: it stays as it was."
    return ""


def _result_of(detail: StepDetail) -> tuple[str, str]:
    """The text of a result, and what is not in it."""
    blocks = list(_blocks(parsed(detail.response)))
    texts = [each["text"] for each in blocks if isinstance(each.get("text"), str)]
    text = without_controls("\n".join(texts)) if detail.response else detail.step.fault
    if len(text) > MAX_EDITED:
        return "", f"The recorded one has {len(text)} characters, too many to edit here: write another one."
    return text, "Pictures and data of the recorded result are not in it." if len(texts) < len(blocks) else ""


def _blocks(response: Any) -> Iterator[dict[str, Any]]:
    found = response.get("content") if isinstance(response, dict) else None
    yield from (each for each in found if isinstance(each, dict)) if isinstance(found, list) else ()
