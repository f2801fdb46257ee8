"""What differs in a step that two runs have."""

import json
from collections.abc import Iterator, Mapping
from typing import Final

from pallas.model import RecordedRun

from .alignment import merged, refined
from .diff_tree import DiffPart, PartChange
from .step_alignment import AlignedStep
from .step_contents import NewMessage, StepContents

_SHORT: Final = 60
"""Characters up to which a JSON text stays on one line."""


class StepComparison:
    """Compares the steps of two runs, in their order."""

    def __init__(self, before: RecordedRun | None, after: RecordedRun | None) -> None:
        self._questions = tuple(each.question.strip() for each in (before, after) if each is not None)
        # Once a step differs, so may messages that repeat it.
        self._has_diverged = False
        # How the last request with a frame differed beside its messages: those behind it do in the same way.
        self._reported: dict[tuple[str, str], list[PartChange]] = {}

    def changes(self, aligned: AlignedStep) -> Iterator[PartChange]:
        """What differs in the next step; nothing for one that only one run has."""
        before, after = aligned.before, aligned.after
        if before is None or after is None:
            self._has_diverged = True
            return
        self._has_diverged |= aligned.is_moved or aligned.follows_moved
        found = self._model(before, after) if before.detail.step.kind == "model" else _call(before, after)
        changes = [*found, *_state(before, after)]
        self._has_diverged |= bool(changes)
        yield from changes

    def _model(self, before: StepContents, after: StepContents) -> Iterator[PartChange]:
        changes = list(_frame(before, after))
        key = before.detail.step.name, before.frame.digest
        reported = self._reported.get(key, ())
        self._reported[key] = changes
        yield from (each for each in changes if each not in reported)
        if before.opens == after.opens:
            yield from self._messages(before, after)
        if before.reasoning != after.reasoning:
            yield PartChange("reasoning", "", before.reasoning, after.reasoning)
        if before.answer != after.answer:
            yield PartChange("answer", "", before.answer, after.answer)

    def _messages(self, before: StepContents, after: StepContents) -> Iterator[PartChange]:
        old = [each for each in before.messages if self._counts(each, 0)]
        new = [each for each in after.messages if self._counts(each, -1)]
        pairs = refined((), [each.meaning for each in old], [each.meaning for each in new])
        pairs = refined(pairs, [each.role for each in old], [each.role for each in new])
        for a, b in merged(pairs, len(old), len(new)):
            was, now = old[a] if a is not None else None, new[b] if b is not None else None
            if was is None and now is not None:
                yield PartChange("messages", now.role, None, now.text)
            elif now is None and was is not None:
                yield PartChange("messages", was.role, was.text, None)
            elif was is not None and now is not None and was.meaning != now.meaning:
                is_text = was.text != now.text
                texts = (was.text, now.text) if is_text else (was.meaning, now.meaning)
                yield PartChange("messages", now.role, *texts)

    def _counts(self, message: NewMessage, side: int) -> bool:
        """Whether a message is no consequence: the question of the run is compared with the run."""
        if message.is_repeated:
            return not self._has_diverged
        question = self._questions[side] if self._questions else ""
        return message.text.replace("[image]", "").strip() != question or not question


def _frame(before: StepContents, after: StepContents) -> Iterator[PartChange]:
    old, new = before.frame, after.frame
    if before.detail.step.name != after.detail.step.name:
        yield PartChange("model", "", before.detail.step.name, after.detail.step.name)
    if old.digest == new.digest:
        return
    if old.meaning != new.meaning:
        yield PartChange("instructions", "", old.instructions, new.instructions)
    yield from _named("tools", old.tools, new.tools)
    yield from _named("parameters", old.params, new.params)


def _named(part: DiffPart, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[PartChange]:
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            yield PartChange(part, name, _readable(old.get(name)), _readable(new.get(name)))


def _call(before: StepContents, after: StepContents) -> Iterator[PartChange]:
    if before.arguments != after.arguments and before.detail.step.kind != "compaction":
        yield PartChange("arguments", "", _readable(before.arguments), _readable(after.arguments))
    if before.result != after.result:
        is_text = before.answer != after.answer
        texts = (before.answer, after.answer) if is_text else (before.result, after.result)
        yield PartChange("result", "", *texts)


def _state(before: StepContents, after: StepContents) -> Iterator[PartChange]:
    old, new = before.detail.step, after.detail.step
    return state_change(old.state, old.fault, new.state, new.fault)


def state_change(state: str, fault: str, new_state: str, new_fault: str) -> Iterator[PartChange]:
    """How something ended, if that differs."""
    old, new = (": ".join(filter(None, each)) for each in ((state, fault), (new_state, new_fault)))
    if old != new:
        yield PartChange("state", "", old, new)


def _readable(text: str | None) -> str | None:
    """A JSON text, over several lines if it is long."""
    if text is None or len(text) <= _SHORT:
        return text
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text
