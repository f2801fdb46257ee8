"""Why versions of agents are held back."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pallas.model import HoldingTest, VerdictReached
from pallas.model.redaction import redact_text
from pallas.safe_text import one_line

from .affected_agents import ReloadPlan
from .failure_report import details_of

# Runs that one line names.
_MAX_NAMED: Final = 5
_MAX_WHY: Final = 300
_NOBODY: Final = frozenset[str]()


@dataclass(frozen=True, slots=True)
class HoldReason:
    """Why a version is held back: by ``tests``, else because of ``error``; ``of`` is how many were judged."""

    tests: tuple[HoldingTest, ...] = ()
    of: int = 0
    error: str = ""
    story: str = ""

    @property
    def line(self) -> str:
        """``1 of 5 runs would go differently: lamps (other words: ...)``."""
        if not self.tests:
            return one_line(self.error, 400)
        first, *others = self.tests
        differing = f"{len(self.tests)} of {self.of} run{'s' * (self.of != 1)} would go differently"
        names = [f"{first.name} ({first.why})", *(each.name for each in others[: _MAX_NAMED - 1])]
        more = ", …" if len(self.tests) > _MAX_NAMED else ""
        return one_line(f"{differing}: {', '.join(names)}{more}", 400)


def hold_reasons(
    verdict: VerdictReached, waiting: Collection[str], settings: Mapping[str, frozenset[str]]
) -> dict[str, HoldReason]:
    """Why each agent is held back, of those that a run has which is not the same.

    A run has an agent also if it has one whose requests say its settings (``SaveEffects.settings``).
    """
    found: dict[str, HoldReason] = {}
    for agent in waiting:
        seen = {agent} | settings.get(agent, _NOBODY)
        runs = [
            each
            for each in verdict.runs
            if not each.is_fine and (not each.agents or seen.intersection(each.agents))
        ]
        if runs:
            tests = [
                _shown(HoldingTest(each.name, each.line)) for each in sorted(runs, key=lambda it: it.name)
            ]
            story = details_of("\n".join(f"{each.name}: {each.why}" for each in tests), None)
            of = sum(bool(seen.intersection(each.agents)) for each in verdict.runs)
            found[agent] = HoldReason(tuple(tests), max(of, len(tests)), story=story)
    return found


def not_judged(problem: str) -> HoldReason:
    """The reason of a version of which no run could be judged."""
    return HoldReason(error=problem, story=details_of(problem, None))


def held_back(
    reasons: Mapping[str, HoldReason], plan: ReloadPlan, among: Collection[str]
) -> dict[str, HoldReason]:
    """These, and of ``among`` who needs one of them, directly or through others."""
    held = dict(reasons)
    for name in (name for layer in plan.layers for name in layer if name in among):
        if name not in held and (late := plan.needs.get(name, _NOBODY) & held.keys()):
            text = f"{min(late)}, which it needs, is held back"
            held[name] = HoldReason(error=text, story=text)
    return held


def _shown(test: HoldingTest) -> HoldingTest:
    why = one_line(redact_text(test.why), _MAX_WHY)
    return replace(test, name=one_line(test.name, 100), why=why)
