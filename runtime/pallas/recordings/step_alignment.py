"""Finds the counterparts of the steps of two runs."""

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from .alignment import Pair, PairOrSingle, merged, refined
from .step_contents import StepContents

type _Key = Callable[[StepContents], Hashable]


@dataclass(frozen=True, slots=True)
class AlignedStep:
    """A step of one or both runs. ``parent`` is the index of the step above it, -1 for none."""

    before: StepContents | None
    after: StepContents | None
    is_moved: bool
    follows_moved: bool  # in the first run, a step that is elsewhere in the second
    parent: int
    depth: int  # how many steps are above it


def align(before: Sequence[StepContents], after: Sequence[StepContents]) -> list[AlignedStep]:
    """The steps of two runs in one order, each above those that it caused.

    Steps that are below counterparts are aligned with each other first, so a step stays where it was as long
    as the one that caused it does.
    """
    return list(_Alignment(_Steps(before), _Steps(after)).rows())


class _Steps:
    """The steps of a run as a tree: indices stand for steps, each smaller than those below it."""

    def __init__(self, steps: Sequence[StepContents]) -> None:
        places: dict[int, int] = {}
        listed: dict[int, list[int]] = defaultdict(list)
        for index, each in enumerate(steps):
            listed[places.get(each.detail.step.parent, -1)].append(index)
            places.setdefault(each.detail.step.number, index)
        self.steps: list[StepContents] = []
        self.below: dict[int, list[int]] = defaultdict(list)
        waiting = [(index, -1) for index in reversed(listed[-1])]
        while waiting:
            index, above = waiting.pop()
            self.below[above].append(len(self.steps))
            waiting += [(each, len(self.steps)) for each in reversed(listed[index])]
            self.steps.append(steps[index])

    def keys(self, places: Iterable[int], key: _Key) -> list[Hashable]:
        """The keys of some steps."""
        return [key(self.steps[each]) for each in places]


class _Alignment:
    def __init__(self, old: _Steps, new: _Steps) -> None:
        self._old = old
        self._new = new
        self._counterparts: dict[int, int] = {}  # of steps of the second run, in the first
        self._taken: set[int] = set()  # the values of these
        self._shifted: set[int] = set()  # steps of the second run that are not in the order of the first
        self._moved: set[int] = set()
        self._waiting = deque([(-1, -1)])
        while self._waiting:
            self._align_below(*self._waiting.popleft())
            if not self._waiting:
                self._match(range(len(old.steps)), range(len(new.steps)), is_moved=True)

    def _align_below(self, old_above: int, new_above: int) -> None:
        """Align what is below two counterparts."""
        old, new = self._old.below[old_above], self._new.below[new_above]
        pairs: list[Pair] = []
        for key in _STRICT:
            pairs = refined(pairs, self._old.keys(old, key), self._new.keys(new, key))
        for a, b in pairs:
            self._pair(old[a], new[b])
        # The calls that one answer wants are made at once: their order is that of its text.
        is_answer = old_above >= 0 and self._old.steps[old_above].detail.step.kind == "model"
        self._match(old, new, is_moved=not is_answer)
        for key in _LOOSE:
            left = [None if each in self._taken else key(self._old.steps[each]) for each in old]
            right = [None if each in self._counterparts else key(self._new.steps[each]) for each in new]
            found = refined(pairs, left, right)
            for a, b in set(found) - set(pairs):
                self._pair(old[a], new[b])
            pairs = found

    def _match(self, old: Iterable[int], new: Iterable[int], *, is_moved: bool) -> None:
        """Pair steps without a counterpart that are the same, in any order."""
        left = [each for each in old if each not in self._taken]
        right = [each for each in new if each not in self._counterparts]
        for key in (_whole, _call):
            places: dict[Hashable, deque[int]] = defaultdict(deque)
            for index, value in zip(left, self._old.keys(left, key), strict=True):
                if index not in self._taken and value is not None:
                    places[value].append(index)
            for index, value in zip(right, self._new.keys(right, key), strict=True):
                if index not in self._counterparts and places.get(value):
                    self._pair(places[value].popleft(), index)
                    self._shifted.add(index)
                    if is_moved:
                        self._moved.add(index)

    def _pair(self, old: int, new: int) -> None:
        self._counterparts[new] = old
        self._taken.add(old)
        self._waiting.append((old, new))

    def rows(self) -> Iterator[AlignedStep]:
        first_moved = min((self._counterparts[each] for each in self._moved), default=len(self._old.steps))
        count = 0
        waiting = [(place, -1, 0) for place in reversed(self._below(-1, -1))]
        while waiting:
            (a, b), parent, depth = waiting.pop()
            yield AlignedStep(
                self._old.steps[a] if a is not None else None,
                self._new.steps[b] if b is not None else None,
                b in self._moved,
                a is not None and a > first_moved,
                parent,
                depth,
            )
            waiting += [(place, count, depth + 1) for place in reversed(self._below(a, b))]
            count += 1

    def _below(self, old_above: int | None, new_above: int | None) -> list[PairOrSingle]:
        """The steps below one, in the order of the second run, without those that are elsewhere there."""
        old = self._old.below[old_above] if old_above is not None else []
        new = self._new.below[new_above] if new_above is not None else []
        at = {index: place for place, index in enumerate(old)}
        pairs = [
            (at[self._counterparts[index]], place)
            for place, index in enumerate(new)
            if index in self._counterparts and index not in self._shifted
        ]
        found: list[PairOrSingle] = []
        for a, b in merged(pairs, len(old), len(new)):
            if b is not None:
                found.append((self._counterparts.get(new[b]), new[b]))
            elif a is not None and old[a] not in self._taken:
                found.append((old[a], None))
        return found


def _whole(contents: StepContents) -> Hashable:
    """What was asked, without what earlier steps said, and what came back.

    What all requests of a run have, such as instructions, is no part of it: it differs in all steps at once.
    """
    step = contents.detail.step
    if step.kind == "model":
        # A step inserted before the first one takes over what the conversation begins with.
        new = () if contents.opens else contents.messages
        return "model", tuple(each.meaning for each in new if not each.is_repeated), contents.answer
    return step.kind, step.name, _arguments(contents), contents.result


def _answer(contents: StepContents) -> Hashable:
    return contents.answer or None if contents.detail.step.kind == "model" else None


def _request(contents: StepContents) -> Hashable:
    step = contents.detail.step
    if step.kind == "model":
        return "model", tuple(each.meaning for each in contents.messages)
    return step.kind, step.name, _arguments(contents)


def _call(contents: StepContents) -> Hashable:
    """A call in any place."""
    return None if contents.detail.step.kind in ("model", "compaction") else _request(contents)


def _arguments(contents: StepContents) -> str:
    """What identifies the arguments. Those of a summary say only how long the conversation is."""
    step = contents.detail.step
    # Without the number of the form, which makes no difference to calls.
    return "" if step.kind == "compaction" else step.digest.rpartition(":")[2] or contents.arguments


def _frame(contents: StepContents) -> Hashable:
    return *_name(contents), contents.frame.digest


def _name(contents: StepContents) -> tuple[str, str]:
    return contents.detail.step.kind, contents.detail.step.name


def _model(contents: StepContents) -> Hashable:
    return "model" if contents.detail.step.kind == "model" else None


_STRICT: Final[tuple[_Key, ...]] = (_whole, _answer, _call)
_LOOSE: Final[tuple[_Key, ...]] = (_request, _frame, _name, _model)
