"""Which recorded runs would go differently with the files as they are, and where they would first differ."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

from .event_types import Event
from .money import UNKNOWN, Cost

VerdictWord = Literal["same", "other words", "other tool calls", "fails", "costs more", "not decided"]
"""``other words``: a request or an answer differs, and no call that is known. ``fails``: an agent cannot be
made, the run ends with a fault, or an expectation of its test is not met. ``not decided``: a replay cannot
say, for the reason that is given."""

VERDICT_WORDS: tuple[VerdictWord, ...] = get_args(VerdictWord)
LiveState = Literal["none", "can ask", "asking", "asked"]
"""Whether models are asked what becomes of runs whose requests differ: ``none`` if nothing is to be asked, or
the project does not want it; ``can ask`` waits to be told to."""
RunSource = Literal["test", "run"]
"""A kept test, or a run of the ledger."""


@dataclass(frozen=True, slots=True)
class ModelCalls:
    """Requests to models and what they cost, as ``Cost``: those that were made, or would be."""

    count: int = 0
    cost: int | None = None  # nano-US-dollars
    unpriced: int = 0  # those whose price is not known

    @classmethod
    def sum(cls, items: "Iterable[ModelCalls | None]") -> "ModelCalls | None":
        """All of these together; None without any."""
        known = [each for each in items if each is not None]
        total = Cost.sum(known)
        return cls(sum(each.count for each in known), total.cost, total.unpriced) if known else None

    @property
    def text(self) -> str:
        """``4 model calls, $0.0123``; ``4 model calls, price unknown``."""
        price = Cost.of(self).text
        price = f"price {price}" if price == UNKNOWN else price
        return f"{self.count} model call{'s' * (self.count != 1)}{', ' if price else ''}{price}"


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """What would become of a recorded run. Texts are sanitised, with secrets masked, and mostly one line."""

    name: str  # of the test, or the id of the run
    source: RunSource
    agent: str  # the one that was asked
    word: VerdictWord
    where: str = ""  # the first difference: ``step 1 of desk``
    what: str = ""  # what differs there, or the reason
    before: str = ""  # the recorded value, where there are two
    after: str = ""
    agents: tuple[str, ...] = ()  # those of the run that have another version
    seconds: float = 0.0  # that its replay took
    before_text: str = ""  # the recorded value with its line breaks, from a little before the difference on
    after_text: str = ""
    # What asking models would take, as far as the recording tells; None if that would decide nothing
    estimate: ModelCalls | None = None
    asked: ModelCalls | None = None  # what models were asked for it; None in a verdict without a model
    # Whether the expectations of its test are met, where models were asked; None if that is not known
    passes: bool | None = None
    request: str = ""  # where models were asked: the first request that differs

    @property
    def is_fine(self) -> bool:
        """Whether it goes as it was recorded, or models were asked and its test passes."""
        return self.word == "same" or self.passes is True

    @property
    def why(self) -> str:
        """``step 1 of desk: another model request: messages[0].content is "b", and was "a"``."""
        text = f"{self.where}: {self.what}" if self.where else self.what
        if self.before or self.after:
            text = f"{text} is {self.after}, and was {self.before}"
        return text

    @property
    def words(self) -> str:
        """Its word, with what is known of its test: ``other words, its test passes``."""
        return f"{self.word}, its test passes" if self.passes and self.word != "same" else self.word

    @property
    def line(self) -> str:
        """``other words: step 1 of desk: ...``, and ``same``."""
        return f"{self.words}: {self.why}" if self.why else self.words


@dataclass(frozen=True, slots=True)
class VerdictProgress:
    """How far a verdict is: ``judged`` of ``runs`` are known, and ``differing`` of them are not the same."""

    agents: tuple[str, ...]  # those that have another version
    runs: int
    is_held: bool = False  # whether versions wait for it
    judged: int = 0
    differing: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictBegun(Event):
    """Recorded runs are judged from now on; another save begins again, with this event."""

    agents: tuple[str, ...]  # those that have another version
    files: tuple[str, ...] = ()
    is_held: bool = False  # whether versions wait for it
    runs: int  # how many are judged


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictReached(Event):
    """What recorded runs would do after a save, or a reload that was asked for.

    ``runs`` are at most 500 of them, those that are not the same first; ``counts`` are all by word. The first
    ones have their texts, 64,000 characters of all together.
    """

    agents: tuple[str, ...]  # those that have another version
    files: tuple[str, ...] = ()
    is_held: bool = False  # whether versions waited for it
    runs: tuple[RunVerdict, ...] = ()
    counts: Mapping[str, int]
    seconds: float = 0.0  # since the first change was seen
    first_seconds: float = 0.0  # until the first run was judged
    problem: str = ""  # why none could be judged
    live: LiveState = "none"
    estimate: ModelCalls | None = None  # what asking models would take for all of them
    asked: ModelCalls | None = None  # what models were asked

    @property
    def cause(self) -> str:
        """``saved``, or ``reloaded`` where no file changed: a reload of these agents was asked for."""
        return "saved" if self.files else "reloaded"

    @property
    def is_same(self) -> bool:
        """Whether every run goes as it was recorded."""
        return not self.problem and not any(count for word, count in self.counts.items() if word != "same")


MAX_RUNS_TOLD = 500
"""Runs that one ``VerdictReached`` names."""
MAX_TEXTS: Final = 64_000
"""Characters of the texts of its runs."""


def counts_of(runs: Iterable[RunVerdict]) -> dict[str, int]:
    """How many runs have each word, in the order of the words."""
    found = Counter(each.word for each in runs)
    return {word: found[word] for word in VERDICT_WORDS if found[word]}


def counts_after(before: VerdictReached, runs: Iterable[RunVerdict]) -> dict[str, int]:
    """The counts of a verdict in which the runs that it names have these words now."""
    found = Counter(before.counts)
    found.subtract(counts_of(before.runs))
    found.update(counts_of(runs))
    return {word: found[word] for word in VERDICT_WORDS if found[word]}


def sorted_runs(runs: Iterable[RunVerdict]) -> tuple[RunVerdict, ...]:
    """Those that are not the same first, at most ``MAX_RUNS_TOLD``; else in their order.

    The first ones keep their texts, as far as ``MAX_TEXTS`` go.
    """
    found, room = list[RunVerdict](), MAX_TEXTS
    for run in sorted(runs, key=lambda each: each.word == "same")[:MAX_RUNS_TOLD]:
        room -= len(run.before_text) + len(run.after_text)
        found.append(run if room >= 0 else replace(run, before_text="", after_text=""))
    return tuple(found)


def verdict_text(event: VerdictReached, most: int = 3) -> str:
    """``3 same, 1 other tool calls (two-refunds: step 1 of desk: ...)``, with ``most`` reasons."""
    if event.problem:
        return f"no verdict: {event.problem}"
    words = ", ".join(f"{count} {word}" for word, count in event.counts.items()) or "no recorded run"
    words += live_text(event)
    differing = [each for each in event.runs if each.word != "same"]
    if not differing or not most:
        return words
    reasons = "; ".join(f"{each.name}: {each.why}" for each in differing[:most])
    return f"{words} ({reasons}{'; …' if len(differing) > most else ''})"


def live_text(event: VerdictReached) -> str:
    """What is to be said of asking models, behind the words: ``; asking models: 4 model calls, $0.0123``."""
    if event.asked is not None:
        return f"; asked {event.asked.text}"
    if event.estimate is None or event.live == "none":
        return ""
    begins = "asking models" if event.live == "asking" else "models can be asked (pallas verdict --live)"
    return f"; {begins}: {event.estimate.text}"
