"""Faults that are injected into calls of models and tools, and the decision which call gets one."""

import random
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Literal

FaultKind = Literal["401", "429", "500", "slow", "cut", "garbage", "dropped"]
"""An HTTP status; a late answer; one that breaks off; one that cannot be read; a connection that is lost."""

BLOCK: Final = 20
"""Calls in which a rule with a rate injects its share: 4 of 20 calls with 0.2."""
MAX_TARGETS: Final = 1_000
"""Models, servers and tools whose calls are counted; the one unused for longest begins again."""

AGENT: Final = "agent:"
"""Before the name of a worker or a remote agent, in place of a model or a server."""
BEDROCK: Final = "bedrock"
"""The provider whose models get no faults."""
UNCOVERED: Final = "models of Amazon Bedrock are not asked over the HTTP client in which faults are injected"

_ROUNDING: Final = 1e-9
"""0.29 * 100 is 28.999999999999996."""


@dataclass(frozen=True, slots=True)
class FaultRule:
    """Which calls get which fault. Either ``at`` or ``rate`` is given.

    ``to`` is ``MODEL``, ``PROVIDER.MODEL``, ``SERVER``, ``SERVER__TOOL`` or ``agent:NAME``, or a glob of one.
    ``at`` are the numbers of calls, from 1. ``rate`` is the share of calls, up to 1; a ``seed`` chooses the
    same ones again. ``seconds`` is how late a ``slow`` answer is, ``retry_after`` the seconds that a ``429``
    asks to wait.
    """

    to: str
    what: FaultKind
    at: tuple[int, ...] = ()
    rate: float = 0.0
    seed: int = 0
    seconds: float = 0.0
    retry_after: float | None = None

    def fits(self, name: str) -> bool:
        """Whether it is for what has this name."""
        return fnmatchcase(name, self.to)

    def __str__(self) -> str:
        late = f" ({self.seconds:g} s)" if self.what == "slow" else ""
        when = f"call {', '.join(map(str, self.at))}" if self.at else f"{self.rate:.4g} of the calls"
        return f"{self.what}{late} to {self.to} at {when}"


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """The rules of a fleet, in order: of several that fit a call the first one counts.

    ``source`` is the file that they are from.
    """

    rules: tuple[FaultRule, ...]
    source: str = ""

    def __str__(self) -> str:
        return "; ".join(map(str, self.rules))


@dataclass(frozen=True, slots=True)
class ChosenFault:
    """A rule that a call gets its fault from. ``name`` is what was called, ``number`` which call of it."""

    rule: FaultRule
    name: str
    number: int


class FaultSchedule:
    """Decides of each call whether it gets a fault. The same calls get the same ones each time."""

    def __init__(self, plan: FaultPlan) -> None:
        self.plan = plan
        self._counts: OrderedDict[tuple[int, str], int] = OrderedDict()

    def next_fault(self, names: Iterable[str]) -> ChosenFault | None:
        """Count a call, and return its fault; None if it has none.

        ``names`` are those that the call has, such as a server and its tool. A rule counts the calls of the
        first name that it fits, each name by itself.
        """
        names, found = tuple(names), None
        for place, rule in enumerate(self.plan.rules):
            name = next(filter(rule.fits, names), None)
            if name is None:
                continue
            number = self._count((place, name))
            if found is None and is_hit(rule, name, number):
                found = ChosenFault(rule, name, number)
        return found

    def _count(self, key: tuple[int, str]) -> int:
        number = self._counts[key] = self._counts.get(key, 0) + 1
        self._counts.move_to_end(key)
        if len(self._counts) > MAX_TARGETS:
            self._counts.popitem(last=False)
        return number


def is_hit(rule: FaultRule, name: str, number: int) -> bool:
    """Return whether a rule injects its fault into this call (from 1) of ``name``."""
    if rule.at:
        return number in rule.at
    block, place = divmod(number - 1, BLOCK)
    due = int((block + 1) * BLOCK * rule.rate + _ROUNDING) - int(block * BLOCK * rule.rate + _ROUNDING)
    # Chosen by text: the seeds of Random that are numbers would not differ by name.
    chosen = random.Random(f"{rule.seed} {rule.what} {name} {block}").sample(range(BLOCK), due)
    return place in chosen
