"""A test of an agent, and how it went."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from pallas.config import Where
from pallas.model import NO_COST, Cost, Image, Recording
from pallas.model.fault_rules import FaultPlan

from .expectations import Expectations, Unmet
from .pass_rate import interval

Verdict = Literal["passed", "failed", "skipped", "error"]
"""``failed``: an expectation was not met; ``error``: it could not be run."""


@dataclass(frozen=True, slots=True)
class TurnTest:
    """One question of a conversation, and what is expected of its run."""

    ask: str
    images: tuple[Image, ...] = ()
    recording: Path | None = None
    expect: Expectations = field(default_factory=Expectations)
    faults: FaultPlan | None = None
    """What is injected into the run."""


@dataclass(frozen=True, slots=True)
class AgentTest:
    """A test: turns of one conversation with an agent.

    ``name`` is the name of its file without suffix, with the number of its case behind it if there are
    several. ``scorers`` are functions and evaluators of the project, as ``module:name``.
    """

    name: str
    agent: str
    turns: tuple[TurnTest, ...]
    where: Where
    scorers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trial:
    """One time that a test was run. ``recordings`` are those of its turns; the last may be missing."""

    verdict: Verdict
    failures: tuple[Unmet, ...] = ()
    recordings: tuple[Recording, ...] = ()
    seconds: float = 0.0
    tokens: int = 0
    cost: Cost = NO_COST

    def ended_in(self, turn: TurnTest, test: "AgentTest") -> "Trial":
        """The trial whose failures name the turn in which it ended, if the test has several."""
        if len(test.turns) == 1:
            return self
        number = next(number for number, each in enumerate(test.turns, 1) if each is turn)
        return replace(self, failures=tuple(replace(each, turn=number) for each in self.failures))


@dataclass(frozen=True, slots=True)
class AgentTestResult:
    """How a test went, each time that it was run."""

    test: AgentTest
    trials: tuple[Trial, ...]

    @property
    def passed(self) -> int:
        """How often it passed."""
        return sum(trial.verdict == "passed" for trial in self.trials)

    @property
    def verdict(self) -> Verdict:
        """The worst of all times."""
        found = {trial.verdict for trial in self.trials}
        order: tuple[Verdict, ...] = ("error", "failed", "skipped", "passed")
        return next(each for each in order if each in found)

    @property
    def rate(self) -> tuple[float, float, float]:
        """The rate at which it passed, and its 95 % interval."""
        return self.passed / len(self.trials), *interval(self.passed, len(self.trials))

    @property
    def tokens(self) -> int:
        """The tokens of all times."""
        return sum(trial.tokens for trial in self.trials)

    @property
    def cost(self) -> Cost:
        """The cost of all times."""
        return Cost.sum(trial.cost for trial in self.trials)
