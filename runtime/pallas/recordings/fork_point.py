"""Goes on from a step of a recorded run: what had been said before it, and what is kept of its steps."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any, Final

from pallas.model import (
    Fault,
    FaultType,
    Image,
    Message,
    Params,
    RecordedRun,
    Recording,
    RunFork,
    RunRequest,
    StepDetail,
    ToolAnswer,
    ToolCall,
)
from pallas.model.long_strings import LEFT_OUT
from pallas.model.redaction import MASK
from pallas.safe_text import one_line

from .first_difference import loaded
from .loose_match import is_stored
from .said_by_model import said_by_model
from .sent_history import results_in, sent_history

SURFACE: Final = "fork"
"""The surface of a run that goes on from another one."""
_CALLS: Final = ("tool", "agent")
_NO_PICTURE: Final = "[a picture that was not recorded]"


def forked_request(
    recording: Recording,
    step: int,
    *,
    message: str | None = None,
    result: str | None = None,
    params: Params,
) -> RunRequest:
    """The request that goes on from a step of the first run of a recording, and does that step once more.

    With ``message`` the run is asked that instead of its question. With ``result`` the step, which must be a
    call, has that text as its result and is not made again. ``params`` go over those of the recorded run.

    Raises Fault (PROTOCOL) for a step that a run cannot go on from; ``data["key"]`` is ``step``, ``message``
    or ``result``. No run goes on from one whose parameters are not recorded: it would ask without them.
    """
    first = recording.first
    if first.params_lost:
        raise _wrong(
            "step",
            f"the parameters of run {first.id} were too large to be recorded, and a run that continues would "
            "ask without them: send its question again, with its parameters",
        )
    if message is not None and first.params.get("messages") is not None:
        raise _wrong("message", "the run was given its whole conversation as `messages`: leave message out")
    return RunRequest(
        first.agent,
        first.question if message is None else message,
        first.images,
        history=sent_history(recording),
        surface=SURFACE,
        params=params.over(Params(first.params)),
        provider=first.provider,
        fork=_ForkedRun(first).at(step, result),
    )


class _ForkedRun:
    """A run from which another one goes on."""

    def __init__(self, run: RecordedRun) -> None:
        self._run = run
        self._by_number = {each.step.number: each for each in run.steps}
        # The agent's own questions to its model, one after the other; others belong to a call.
        self._asked = [each for each in run.steps if each.step.kind == "model" and not each.step.parent]

    def at(self, number: int, result: str | None) -> RunFork:
        """Where a run goes on from that step; ``result`` as in ``forked_request``. Raises Fault."""
        target = self._found(number)
        if target.step.kind in _CALLS:
            return self._at_call(target, result)
        if result is not None:
            raise _wrong("result", f"step {number} is not a call, and only a call has a result")
        before = self._answered(number - 1)
        said = tuple(self._said(before, target))
        if said and not said[-1].calls:
            raise _wrong(
                "step",
                f"the model was asked again in step {number}, although it had called nothing: take step "
                f"{before[-1].step.number}",
            )
        kept = tuple(each for each in self._run.steps if each.step.number < number)
        return RunFork(self._run.id, number, said, self._results(before[-1]) if before else {}, kept)

    def _at_call(self, target: StepDetail, result: str | None) -> RunFork:
        asking = self._by_number[target.step.parent]
        call = next((each for each, step in self._calls(asking) if step is target), None)
        if call is None:
            raise _wrong(
                "step", f"no call of step {asking.step.number} is like that of step {target.step.number}"
            )
        if result is None and not _is_recorded(call.arguments):
            raise _wrong(
                "step",
                f"the arguments of step {target.step.number} were recorded in part only, so the call cannot "
                f"be made again: give its result, or take step {asking.step.number}",
            )
        results, kept = self._results(asking), self._kept(target)
        del results[call.id]
        if result is not None:
            results[call.id] = response = _text_result(result)
            done = replace(target.step, state="done", fault="", span_id="")  # no run did this
            kept = [*kept, replace(target, step=done, response=response)]
            kept.sort(key=lambda each: each.step.number)
        said = tuple(self._said(self._answered(asking.step.number), asking))
        return RunFork(self._run.id, target.step.number, said, results, tuple(kept))

    def _found(self, number: int) -> StepDetail:
        """The step of that number, from which a run can go on. Raises Fault."""
        run, found = self._run, self._by_number.get(number)
        if found is None:
            known = f"{run.steps[0].step.number} to {run.steps[-1].step.number}" if run.steps else "none"
            raise _wrong("step", f"run {run.id} of {run.agent} has no step {number}; it has {known}")
        above = self._by_number.get(found.step.parent)
        if found in self._asked or (found.step.kind in _CALLS and above in self._asked):
            return found
        if above is not None and above.step.kind in _CALLS:
            name = one_line(above.step.name, 80)
            advice = f"it belongs to step {above.step.number}, {name}: take that one"
        else:
            own = ", ".join(str(each.step.number) for each in self._asked) or "there is none"
            advice = f"take a question of {run.agent} to its model ({own}), or one of its calls"
        raise _wrong("step", f"no run can continue from step {number}, of kind {found.step.kind}; {advice}")

    def _answered(self, last: int) -> list[StepDetail]:
        """The agent's questions to its model up to a step that were answered."""
        return [
            each
            for each in self._asked
            if each.step.number <= last and each.step.state == "done" and each.response
        ]

    def _said(self, answered: Sequence[StepDetail], target: StepDetail) -> Iterator[Message]:
        """What the model said in these steps, and the results of its calls in all but the last.

        The request of ``target`` has these results as the model got them.
        """
        results = list(results_in(loaded(target.request)))
        times = Counter(call_id for call_id, _ in results)
        # Some providers give an id again in each answer.
        sent = {call_id: text for call_id, text in results if times[call_id] == 1}
        for detail in answered:
            calls = self._calls(detail)
            text = said_by_model(loaded(detail.response)).text
            yield Message("assistant", text, calls=tuple(call for call, _ in calls))
            if detail is not answered[-1] and calls:
                answers = tuple(_answer(call, step, sent) for call, step in calls)
                images = tuple(image for _, step in calls if step is not None for image in _images(step))
                text = "\n".join(each.text for each in answers if each.text)
                yield Message("tool", text, images, answers=answers)

    def _calls(self, asking: StepDetail) -> list[tuple[ToolCall, StepDetail | None]]:
        """The calls that the model asked for in a step, each with its own step if it has one."""
        number = asking.step.number
        left = [each for each in self._run.steps if each.step.parent == number and each.step.kind in _CALLS]
        found: list[tuple[ToolCall, StepDetail | None]] = []
        for index, call in enumerate(said_by_model(loaded(asking.response)).calls):
            step = _step_of(call, left)
            if step is not None:
                left.remove(step)
            # Not every provider gives ids.
            found.append((call if call.id else replace(call, id=f"call-{number}-{index}"), step))
        return found

    def _results(self, asking: StepDetail) -> dict[str, str]:
        """The recorded results of the calls of a step, as MCP has them, by the id of the call."""
        return {call.id: _result(step) for call, step in self._calls(asking) if step is not None}

    def _kept(self, target: StepDetail) -> list[StepDetail]:
        """The steps up to the next question to the model, without the target and those below it."""
        following = (each.step.number for each in self._asked if each.step.number > target.step.number)
        end = next(following, None)
        dropped = {target.step.number}
        kept: list[StepDetail] = []
        for each in takewhile(lambda each: each.step.number != end, self._run.steps):
            if each is target or each.step.parent in dropped:
                dropped.add(each.step.number)
            else:
                kept.append(each)
        return kept


def _step_of(call: ToolCall, steps: Sequence[StepDetail]) -> StepDetail | None:
    """The step of a call: one with its arguments, else the first of its name.

    The arguments in a step are masked and shortened, those that the model wrote may not be.
    """
    alike = [each for each in steps if _dict(each.request).get("arguments", {}) == call.arguments]
    named = [each for each in steps if each.step.name == call.name]
    # An agent's tool may have another name.
    return next(iter((*(each for each in alike if each in named), *alike, *named)), None)


def _is_recorded(arguments: Any) -> bool:
    """Whether the arguments of a call are those that it had, with nothing masked or shortened."""
    text = json.dumps(arguments, ensure_ascii=False)
    return MASK not in text and LEFT_OUT.search(text) is None


def _answer(call: ToolCall, step: StepDetail | None, sent: Mapping[str, str]) -> ToolAnswer:
    """The result of a call as the model got it."""
    response = _dict(step.response) if step is not None else {}
    is_error = response.get("isError") or (step is not None and step.step.state in ("failed", "cancelled"))
    text = sent.get(call.id, "")
    return ToolAnswer(call.id, _text(response) if not text or is_stored(text) else text, not is_error)


def _result(detail: StepDetail) -> str:
    """A result without pictures of which only the length was recorded; the reason of a call that failed."""
    response = _dict(detail.response)
    if not response:
        return json.dumps({"content": [_text_block(detail.step.fault)], "isError": True})
    return json.dumps({**response, "content": list(map(_readable, _blocks(response)))})


def _text_result(text: str) -> str:
    return json.dumps({"content": [_text_block(text)]})


def _text_block(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _readable(block: dict[str, Any]) -> dict[str, Any]:
    data = block.get("data")
    return _text_block(_NO_PICTURE) if isinstance(data, str) and is_stored(data) else block


def _images(step: StepDetail) -> Iterator[Image]:
    """The pictures in the result of a call, but for those of which only the length was recorded."""
    for block in _blocks(_dict(step.response)):
        data = block.get("data")
        if block.get("type") == "image" and isinstance(data, str) and not is_stored(data):
            yield Image(data, str(block.get("mimeType", "image/png")))


def _text(response: Mapping[str, Any]) -> str:
    texts = (each.get("text") for each in _blocks(response))
    return "\n".join(each for each in texts if isinstance(each, str))


def _blocks(response: Mapping[str, Any]) -> list[dict[str, Any]]:
    blocks = response.get("content")
    return [each for each in blocks if isinstance(each, dict)] if isinstance(blocks, list) else []


def _dict(text: str) -> dict[str, Any]:
    found = loaded(text)
    return found if isinstance(found, dict) else {}


def _wrong(key: str, problem: str) -> Fault:
    return Fault(FaultType.PROTOCOL, f"{key}: {problem}", data={"key": key})
