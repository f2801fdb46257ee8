"""The step from which a run goes on, and what is other there. Nothing in here imports the screen."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pallas.model import Fault, Params, RecordedRun, Recording, StepDetail
from pallas.recordings.fork_point import forked_request
from pallas.recordings.run_diff import diff
from pallas.runs.version_fork import forked_version
from pallas.safe_text import one_line, without_controls

from .exchange_text import parsed
from .run_comparison import CannotCompare, Comparison
from .step_text import name_of

MAX_EDITED: Final = 100_000
"""Characters of a question or a result that can be edited."""
_SHORT: Final = 12
"""Characters of a commit that are shown."""


@dataclass(frozen=True, slots=True)
class ForkChange:
    """What is other in the new run: an empty question or model is that of the run.

    A call is made again where ``result`` is None. ``version`` is a revision of git, empty for the agents as
    they are now.
    """

    message: str = ""
    result: str | None = None
    model: str = ""
    version: str = ""


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


async def version_comparison(recording: Recording, number: int, change: ForkChange, root: Path) -> Comparison:
    """Go on from a step with another version of the project in ``root``, and compare both runs.

    Raises CannotCompare.
    """
    given = {"message": change.message or None, "result": change.result, "model": change.model or None}
    changes = {"step": number, **{name: value for name, value in given.items() if value is not None}}
    try:
        fork = await forked_version(recording, changes, change.version, root)
    except Fault as fault:
        raise CannotCompare(fault.message) from None
    after = fork.recording.first
    how = "" if after.status == "ok" else f"; it failed: {one_line(after.fault, 200)}"
    text = f"from step {number} on with version {fork.version[:_SHORT]}{how}"
    found = await asyncio.to_thread(diff, recording, fork.recording)
    return Comparison(found, text, is_same=after.status == "ok")


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
