"""New versions of agents that wait until the tests of the project pass (``reload: {gate: tests}``)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Final

from pallas.config import ConfigError, Project
from pallas.model import AgentChanged, AgentState, Event, Fault, HoldingTest, Reloaded
from pallas.model.redaction import redact_text
from pallas.safe_text import one_line

from ..context import FleetContext
from .affected_agents import ReloadPlan
from .applier import Applier
from .failure_report import details_of

log = logging.getLogger(__name__)

# Tests that one event names, and those that one line names.
_MAX_TESTS: Final = 50
_MAX_NAMED: Final = 5
_MAX_WHY: Final = 300
# Seconds that tests which are no longer wanted have to end.
_END: Final = 2.0
_NOBODY: Final = frozenset[str]()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a version is held back: by ``tests``, else because of ``error``; ``of`` is how many were asked."""

    tests: tuple[HoldingTest, ...] = ()
    of: int = 0
    error: str = ""
    story: str = ""

    @property
    def line(self) -> str:
        """``1 of 5 tests fails: lamps (answer.contains: ...)``."""
        if not self.tests:
            return one_line(self.error, 400)
        first, *others = self.tests
        failing = (
            f"{len(self.tests)} of {self.of} test{'s' * (self.of != 1)} fail{'s' * (len(self.tests) == 1)}"
        )
        names = [f"{first.name} ({first.why})", *(each.name for each in others[: _MAX_NAMED - 1])]
        more = ", …" if len(self.tests) > _MAX_NAMED else ""
        return one_line(f"{failing}: {', '.join(names)}{more}", 400)


class ReloadGate:
    """Applies plans, and holds new versions back that recorded tests do not pass with.

    ``is_outdated`` tells whether files changed since the plan was made. Belongs to the fleet's event loop;
    ``testing`` and ``held`` may be read from any thread.
    """

    def __init__(
        self, applier: Applier, fleet: FleetContext, is_outdated: Callable[[], Awaitable[bool]]
    ) -> None:
        self._applier = applier
        self._fleet = fleet
        self._tests = fleet.options.tests
        self._is_outdated = is_outdated
        self._news = asyncio.Event()
        self.testing: tuple[str, ...] = ()
        """The agents whose next version waits for tests that run now."""
        self.was_cut = False
        """Whether the last plan was given up in the middle, for files that changed meanwhile."""
        self._held: dict[str, Reloaded] = {}
        self._due: set[str] = set()
        """Agents whose version is due only because it waits, or waited, for tests."""
        self._let_through: frozenset[str] = _NOBODY
        """Agents of the last requested reload whose version is still due."""

    @property
    def held(self) -> tuple[str, ...]:
        """The agents whose next version is held back."""
        return tuple(name for name in sorted(self._held) if self._fleet.agents.get(name) is not None)

    def wake(self) -> None:
        """Files changed, or a reload was requested: tests under way may be for nothing."""
        self._news.set()

    def hear(self, event: Event) -> bool:
        """Take in what became of an agent; returns whether another version than the held one answers."""
        if isinstance(event, Reloaded):
            if event.outcome == "held":
                return False
            if event.outcome == "live":
                self._applier.owed.pop(event.agent, None)
                self._news.set()  # by hand, perhaps, while its tests run
            return self._held.pop(event.agent, None) is not None
        if isinstance(event, AgentChanged) and event.state is AgentState.READY:
            held, agent = self._held.get(event.agent), self._fleet.agents.get(event.agent)
            if held is not None and agent is not None and agent.snapshot().version != held.version:
                del self._held[event.agent]  # it was started again by hand, with its files as they are
                self._applier.owed.pop(event.agent, None)
                return True
        return False

    async def apply(
        self, plan: ReloadPlan, new: Project, began: float, *, saved: Collection[str], requested: bool
    ) -> tuple[Reloaded, ...]:
        """Carry out a plan as ``Applier.apply``; one that is ``requested`` waits for no test.

        ``saved`` are the changed files as they are shown: what is held for the same reason as before is told
        again only for those.
        """
        self.was_cut = False
        for name in plan.remove:
            self._held.pop(name, None)
        if requested or self._tests is None or new.reload.gate == "none":
            outcomes = await self._applier.apply(plan, new, began)
            self._let_through = frozenset(plan.reload) & self._applier.owed.keys() if requested else _NOBODY
            return outcomes
        guarded = self._guarded(plan, saved)
        try:
            leading = await self._tests.leading_to(new, guarded) if guarded else {}
        except Exception as error:
            problem = _not_run(error)
            return await self._apply(plan, new, began, saved, guarded, dict.fromkeys(guarded, problem))
        concerned = _NOBODY.union(*leading.values())
        if not concerned:
            return await self._applier.apply(plan, new, began)
        waiting = frozenset(_held_back(dict.fromkeys(concerned, Verdict()), plan, guarded))
        return await self._apply(plan, new, began, saved, waiting, leading=leading)

    def _guarded(self, plan: ReloadPlan, saved: Collection[str]) -> frozenset[str]:
        """Whose version is to be kept until the tests pass: not of those that have none that answers."""
        answer = {each.name for each in self._fleet.agents.all if each.executor is not None}
        let = {name for name in self._let_through if not set(plan.reload.get(name, ())).intersection(saved)}
        return frozenset(plan.reload.keys() & answer - let)

    async def _apply(
        self,
        plan: ReloadPlan,
        new: Project,
        began: float,
        saved: Collection[str],
        waiting: frozenset[str],
        verdicts: Mapping[str, Verdict] | None = None,
        leading: Mapping[str, frozenset[str]] | None = None,
    ) -> tuple[Reloaded, ...]:
        """Carry out a plan at once except for ``waiting``, and the rest of it as the tests say."""
        owed = self._applier.owed
        self._due = (self._due & owed.keys()) | (waiting - owed.keys())
        owed |= {name: frozenset(plan.reload[name]) for name in waiting}
        outcomes = await self._applier.apply(_only(plan, plan.reload.keys() - waiting), new, began)
        if verdicts is None:
            verdicts = await self._judge(new, leading or {}, waiting)
        if verdicts is None:
            self.was_cut = True
            return outcomes
        held = _held_back(verdicts, plan, waiting)
        passing = (waiting - held.keys()) & owed.keys()  # others were reloaded by hand meanwhile
        for name in passing & self._due:
            del owed[name]
        self._due -= passing
        failed = {each.agent for each in outcomes if each.outcome == "failed"}
        rest = _only(replace(plan, add=()), passing)
        outcomes += await self._applier.reload(rest, new, began, failed)
        told = [
            await self._hold(name, held[name], began, saved) for name in sorted(held.keys() & owed.keys())
        ]
        return (*outcomes, *(each for each in told if each is not None))

    async def _judge(
        self, new: Project, leading: Mapping[str, frozenset[str]], waiting: frozenset[str]
    ) -> dict[str, Verdict] | None:
        """Run the tests and return what is held back; None where that says nothing of the files any more."""
        assert self._tests is not None
        self.testing = tuple(sorted(waiting))
        self._news.clear()
        running = asyncio.ensure_future(self._tests.failing(new.root, leading, new.reload.timeout))
        try:
            while not running.done():
                news = asyncio.ensure_future(self._news.wait())
                await asyncio.wait({running, news}, return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
                self._news.clear()
                if not waiting & self._applier.owed.keys() or await self._is_outdated():
                    return None
        finally:
            self.testing = ()
            if not running.done():
                running.cancel()
                await asyncio.wait({running}, timeout=_END)
            problem = running.exception() if running.done() and not running.cancelled() else None
        agents = _NOBODY.union(*leading.values())
        if problem is not None:
            return dict.fromkeys(agents, _not_run(problem))
        return _verdicts(agents, leading, running.result())

    async def _hold(
        self, name: str, verdict: Verdict, began: float, saved: Collection[str]
    ) -> Reloaded | None:
        """Keep the version of an agent, and tell so unless that is known."""
        agent = self._fleet.agents.get(name)
        if agent is None:
            return None
        why, known = self._applier.owed[name], self._held.get(name)
        if known is not None and known.story == verdict.story and not why.intersection(saved):
            return None
        root = self._fleet.project.root
        event = Reloaded(
            agent=name,
            outcome="held",
            version=agent.snapshot().version,
            files=tuple(each for each in sorted(why) if (root / each).is_file()),
            changes=await agent.unapplied(),
            seconds=monotonic() - began,
            error=verdict.line,
            story=verdict.story,
            tests=verdict.tests[:_MAX_TESTS],
        )
        self._held[name] = event
        self._fleet.hub.publish(event)
        return event


def _verdicts(
    agents: Collection[str], leading: Mapping[str, frozenset[str]], failing: Sequence[HoldingTest]
) -> dict[str, Verdict]:
    """Why each agent is held back, of those that a failing test leads to."""
    found: dict[str, Verdict] = {}
    for agent in agents:
        tests = sorted(
            (each for each in failing if agent in leading.get(each.name, _NOBODY)), key=lambda each: each.name
        )
        if tests:
            story = details_of("\n".join(f"{each.name}: {each.why}" for each in tests), None)
            of = sum(agent in reached for reached in leading.values())
            found[agent] = Verdict(tuple(map(_shown, tests)), of, story=story)
    return found


def _shown(test: HoldingTest) -> HoldingTest:
    why = one_line(redact_text(test.why), _MAX_WHY)
    return replace(test, name=one_line(test.name, 100), why=why)


def _not_run(error: BaseException) -> Verdict:
    if isinstance(error, ConfigError):
        reason, story = str(error.mistakes[0]), str(error)
    elif isinstance(error, Fault):
        reason = story = error.message
    else:
        log.error("the tests of a reload could not be run", exc_info=error)
        reason = story = f"{type(error).__name__}; the log has the details"
    reason = one_line(redact_text(reason), 350)
    return Verdict(error=f"its tests could not be run: {reason}", story=details_of(story, None))


def _held_back(
    verdicts: Mapping[str, Verdict], plan: ReloadPlan, among: Collection[str]
) -> dict[str, Verdict]:
    """These, and of ``among`` who needs one of them, directly or through others."""
    held = dict(verdicts)
    for name in (name for layer in plan.layers for name in layer if name in among):
        if name not in held and (late := plan.needs.get(name, _NOBODY) & held.keys()):
            text = f"{min(late)}, which it needs, is held back"
            held[name] = Verdict(error=text, story=text)
    return held


def _only(plan: ReloadPlan, names: Collection[str]) -> ReloadPlan:
    """The plan without new versions of other agents."""
    layers = (tuple(name for name in layer if name in names or name in plan.add) for layer in plan.layers)
    return replace(
        plan,
        reload={name: why for name, why in plan.reload.items() if name in names},
        layers=tuple(layer for layer in layers if layer),
    )
