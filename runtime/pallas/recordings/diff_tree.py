"""The difference of two recordings as a tree of runs and steps."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from pallas.model import NO_COST, Cost, RecordedRun, RunVersion, StepDetail

from .word_diff import Piece, word_diff

DiffMark = Literal["same", "changed", "inserted", "removed", "moved"]
"""``moved``: the same request in another place. Its response may be another one."""
DiffPart = Literal[
    "agent", "question", "model", "instructions", "tools", "parameters", "messages", "arguments", "reasoning",
    "answer", "result", "state",
]  # fmt: skip
_DIGESTS: Final = ("files", "instruction", "tools")
_RESPONSES: Final = ("result", "state")


@dataclass(frozen=True, slots=True)
class PartChange:
    """One difference of a step or a run."""

    part: DiffPart
    name: str  # of a tool or a parameter, the role of a message; empty for others
    before: str | None  # None where only the second one has it
    after: str | None

    def words(self) -> tuple[Piece, ...]:
        """The difference word by word."""
        return word_diff(self.before or "", self.after or "")


def _either[T](after: T | None, before: T | None) -> T:
    found = after if after is not None else before
    assert found is not None
    return found


@dataclass(frozen=True, slots=True)
class StepDiff:
    """A step of one or both runs, with what is below it.

    ``is_same`` says that neither it nor anything below it differs. Tokens and time are no differences.
    """

    mark: DiffMark
    before: StepDetail | None
    after: StepDetail | None
    changes: tuple[PartChange, ...] = ()
    steps: tuple["StepDiff", ...] = ()
    runs: tuple["RunDiff", ...] = ()  # to which it led
    is_same: bool = False

    @property
    def shown(self) -> StepDetail:
        """The step of the second run, else that of the first."""
        return _either(self.after, self.before)

    @property
    def below(self) -> tuple["DiffNode", ...]:
        """The steps and the runs below it."""
        return (*self.steps, *self.runs)

    @property
    def is_asked_otherwise(self) -> bool:
        """Whether it differs in more than what came back after the steps below it."""
        return self.mark in ("inserted", "removed", "moved") or any(
            each.part not in _RESPONSES for each in self.changes
        )


@dataclass(frozen=True, slots=True)
class RunDiff:
    """A run of one or both recordings. ``is_same`` as in ``StepDiff``."""

    mark: DiffMark
    before: RecordedRun | None
    after: RecordedRun | None
    changes: tuple[PartChange, ...] = ()
    steps: tuple[StepDiff, ...] = ()
    runs: tuple["RunDiff", ...] = ()  # to which it led by a step that was not recorded
    is_same: bool = False

    @property
    def shown(self) -> RecordedRun:
        """The run of the second recording, else that of the first."""
        return _either(self.after, self.before)

    @property
    def below(self) -> tuple["DiffNode", ...]:
        """The steps and the runs below it."""
        return (*self.steps, *self.runs)

    @property
    def is_asked_otherwise(self) -> bool:
        """Whether it differs in more than how it ended."""
        return self.mark in ("inserted", "removed") or any(
            each.part not in ("answer", *_RESPONSES) for each in self.changes
        )


@dataclass(frozen=True, slots=True)
class VersionChange:
    """Two runs of an agent had other versions of it. ``parts`` are what their digests tell apart."""

    agent: str
    before: RunVersion
    after: RunVersion
    parts: tuple[str, ...]


type DiffNode = StepDiff | RunDiff


@dataclass(frozen=True, slots=True)
class RunTotals:
    """What a recording took, in seconds and in tokens, which are None if no provider counted them."""

    runs: int
    steps: int
    seconds: float
    tokens_in: int | None
    tokens_out: int | None
    cost: Cost = NO_COST


@dataclass(frozen=True, slots=True)
class DiffRow:
    """A line of the tree."""

    depth: int
    node: DiffNode


@dataclass(frozen=True, slots=True)
class RecordingDiff:
    """Two recordings, aligned."""

    run: RunDiff
    before: RunTotals
    after: RunTotals

    @property
    def versions(self) -> tuple[VersionChange, ...]:
        """The agents that had another version, in the order of their runs. By itself no difference."""
        nodes = (row.node for row in self.rows())
        found = (version_change(node) for node in nodes if isinstance(node, RunDiff))
        return tuple(dict.fromkeys(each for each in found if each is not None))

    @property
    def is_same(self) -> bool:
        """Whether nothing differs but versions, ids, tokens and time."""
        return self.run.is_same

    @property
    def first_divergence(self) -> DiffNode | None:
        """The step or the run that differs first, in the order in which things happened. None if none does.

        A result comes after the steps that led to it.
        """
        waiting: list[tuple[DiffNode, bool]] = [(self.run, False)]
        while waiting:
            node, is_over = waiting.pop()
            if node.is_asked_otherwise or (is_over and node.mark != "same"):
                return node
            if not is_over and not node.is_same:
                waiting.append((node, True))
                waiting += [(each, False) for each in reversed(node.below)]
        return None

    def rows(self) -> Iterator[DiffRow]:
        """All runs and steps, each before what is below it."""
        waiting = [DiffRow(0, self.run)]
        while waiting:
            row = waiting.pop()
            yield row
            waiting += [DiffRow(row.depth + 1, each) for each in reversed(row.node.below)]


def version_change(node: RunDiff) -> VersionChange | None:
    """What tells the versions of both runs apart; None if nothing does, or one is not known.

    Numbers do not: each start of a fleet begins to count again.
    """
    before, after = node.before, node.after
    if before is None or after is None or before.version is None or after.version is None:
        return None
    if before.agent != after.agent:
        return None
    sides = before.version, after.version
    pairs = {name: tuple(getattr(each, name) for each in sides) for name in _DIGESTS}
    parts = tuple(
        name for name, (old, new) in pairs.items() if old != new and (name != "files" or (old and new))
    )
    return VersionChange(after.agent, *sides, parts) if parts else None
