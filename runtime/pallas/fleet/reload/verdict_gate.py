"""Verdicts on saves: while new versions of agents go live, or before (``verdict: {gate: hold}``)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from time import monotonic
from typing import Final

from pallas.config import Project
from pallas.deadlines import cancel_and_wait
from pallas.model import (
    AgentChanged,
    AgentState,
    Event,
    Fault,
    FaultType,
    Reloaded,
    VerdictReached,
)

from ..context import FleetContext
from .affected_agents import ReloadPlan, with_settings
from .applier import Applier, agent_changes
from .hold_reasons import HoldReason, held_back, hold_reasons, not_judged
from .recent_runs import RecentRuns
from .save_effects import SaveEffects
from .verdicts import Judged, LeadingRuns, Save, Verdicts

log = logging.getLogger(__name__)

# Runs that one event names.
_MAX_TESTS: Final = 50
# Seconds that a verdict which is no longer wanted has to end.
_END: Final = 2.0
_NOBODY: Final = frozenset[str]()


class VerdictGate:
    """Applies plans, and has recorded runs judged: after them, or before, with new versions held back.

    ``is_outdated`` tells whether files changed since the plan was made; ``again`` has another plan made.
    Belongs to the fleet's event loop; ``testing`` and ``held`` may be read from any thread.
    """

    def __init__(
        self,
        applier: Applier,
        fleet: FleetContext,
        recent: RecentRuns,
        is_outdated: Callable[[], Awaitable[bool]],
        again: Callable[[], None],
    ) -> None:
        self._applier = applier
        self._fleet = fleet
        self.verdicts = Verdicts(fleet, recent)
        self._is_outdated = is_outdated
        self._again = again
        self._news = asyncio.Event()
        self.testing: tuple[str, ...] = ()
        """The agents whose next version waits for a verdict."""
        self.was_cut = False
        """Whether the last plan was given up in the middle, for files that changed meanwhile."""
        self._held: dict[str, Reloaded] = {}
        self._due: set[str] = set()
        """Agents whose version is due only because it waits, or waited, for a verdict."""
        self._let_through: frozenset[str] = _NOBODY
        """Agents of the last requested reload whose version is still due."""
        self._warning: asyncio.Task[None] | None = None
        self._unjudged: Save | None = None
        """What the verdict that is under way, or was given up, is about."""

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
                if event.agent in self._fleet.project.agents and not event.rolled_back:
                    self._judge_by_hand(event)
            return self._held.pop(event.agent, None) is not None
        if isinstance(event, AgentChanged) and event.state is AgentState.READY:
            held, agent = self._held.get(event.agent), self._fleet.agents.get(event.agent)
            if held is not None and agent is not None and agent.snapshot().version != held.version:
                del self._held[event.agent]  # it was started again by hand, with its files as they are
                self._applier.owed.pop(event.agent, None)
                return True
        return False

    async def apply(
        self,
        plan: ReloadPlan,
        new: Project,
        began: float,
        effects: SaveEffects,
        *,
        requested: bool,
    ) -> tuple[Reloaded, ...]:
        """Carry out a plan as ``Applier.apply``; for one that is ``requested`` the verdict comes beside it.

        What is held for the same reason as before is reported again only for a save of its own files.
        """
        self.was_cut = False
        self.verdicts.uncertain |= {name for name, why in plan.reload.items() if ".env" in why}
        for name in plan.remove:
            self._held.pop(name, None)
        gate = self.verdicts.gate_of(new)
        affected = effects.applied.union(plan.reload, plan.remove)
        save = Save(project=new, affected=affected, effects=effects, began=began, because=plan.reload)
        if gate == "hold" and not requested:
            return await self._hold_back(plan, save)
        if gate != "off" and affected:
            self._warn(save)
        outcomes = await self._applier.apply(plan, new, began)
        if requested or gate == "off":
            self._let_through = frozenset(plan.reload) & self._applier.owed.keys() if requested else _NOBODY
        return outcomes

    async def close(self) -> None:
        """End a verdict that is under way, and the judge."""
        await self._give_up()
        await self.verdicts.close()

    def _judge_by_hand(self, event: Reloaded) -> None:
        """Begin a verdict beside a version that no plan made: its agent was reloaded by hand."""
        project = self._fleet.project
        if event.agent not in self._applier.reloading and self.verdicts.gate_of(project) != "off":
            affected, began = frozenset({event.agent}), monotonic() - event.seconds
            self._warn(Save(project=project, affected=affected, effects=SaveEffects(), began=began))

    def _warn(self, save: Save) -> None:
        """Begin a verdict, which is about the saves of one that is given up for it, too."""
        before, self._unjudged = self._unjudged, save
        if before is not None:
            effects = replace(
                save.effects,
                files=tuple(dict.fromkeys((*before.effects.files, *save.effects.files))),
                servers={**before.effects.servers, **save.effects.servers},
            )
            because = {
                name: (*before.because.get(name, ()), *save.because.get(name, ()))
                for name in before.because.keys() | save.because.keys()
            }
            self._unjudged = replace(
                save, affected=before.affected | save.affected, effects=effects, because=because
            )
        earlier = self._warning
        self._warning = self._fleet.tasks.start(self._judge_beside(earlier, self._unjudged))

    async def _judge_beside(self, earlier: "asyncio.Task[None] | None", save: Save) -> None:
        """Reach a verdict beside the new versions; never raises."""
        if earlier is not None and not earlier.done():
            await cancel_and_wait(earlier, seconds=_END)
        try:
            leading = await self.verdicts.leading_to(save.project, save.affected)
            if leading.agents:
                await self._reach(save, leading, is_held=False)
        except Exception as error:
            self.verdicts.refuse(save, error, is_held=False)
        self._unjudged = None

    async def _reach(self, save: Save, leading: LeadingRuns, *, is_held: bool) -> VerdictReached:
        """Reach the verdict, with models if the project always wants that."""
        verdict = await self.verdicts.reach(save, leading, is_held=is_held)
        judged = self.verdicts.judged
        return await self.verdicts.ask(judged) if verdict.live == "asking" and judged else verdict

    def ask_models(self) -> VerdictReached:
        """Begin to ask models for the last verdict, and return it. Raises Fault (CONFIG) if none may be."""
        last, judged = self.verdicts.last, self.verdicts.judged
        if self.testing or (self._warning is not None and not self._warning.done()):
            asking = last is not None and last.live == "asking"
            raise _not_asked("that is under way" if asking else "a save is being judged; try again")
        if self._fleet.project.verdict.live == "never":
            where = self._fleet.project.agents_file.name
            raise _not_asked(f"write `live: ask` under verdict: in {where}, and save a file again")
        if judged is None:
            raise _not_asked(
                "there is no verdict yet; save a file"
                if last is None
                else "they were asked already; save a file"
                if last.live == "asked"
                else "no run of the last verdict has a request to a model that differs"
            )
        self._unjudged = judged.save if not judged.verdict.is_held else None
        self._warning = self._fleet.tasks.start(self._ask_beside(judged))
        return replace(judged.verdict, live="asking")

    async def _ask_beside(self, judged: Judged) -> None:
        """Ask models, and let versions through that only waited for what they say; never raises."""
        verdict = await self.verdicts.ask(judged)
        self._unjudged = None
        waiting = {name for name, each in self._held.items() if each.tests}
        reasons = hold_reasons(verdict, waiting, judged.save.effects.settings)
        passing = waiting.intersection(verdict.agents) - reasons.keys()
        if judged.verdict.is_held and passing:
            self._let_through |= passing
            self._again()

    async def _give_up(self) -> None:
        if (task := self._warning) is not None and not task.done():
            await cancel_and_wait(task, seconds=_END)

    async def _hold_back(self, plan: ReloadPlan, save: Save) -> tuple[Reloaded, ...]:
        """Carry out a plan except for what waits for the verdict, and the rest as that says."""
        await self._give_up()
        new, began, effects = save.project, save.began, save.effects
        whole = with_settings(plan, effects.settings, new)
        guarded = self._guarded(whole, effects.files)
        try:
            leading = await self.verdicts.leading_to(new, save.affected)
        except Exception as error:
            if not guarded:
                return await self._applier.apply(plan, new, began)
            reason = not_judged(self.verdicts.refuse(save, error, is_held=True).problem)
            return await self._apply(whole, save, guarded, reasons=dict.fromkeys(guarded, reason))
        concerned = {each for each in guarded if leading.agents & {each, *effects.settings.get(each, ())}}
        if not concerned:
            if leading.agents - self._let_through_of(plan, effects.files):
                self._warn(save)  # of what is applied at once, or repairs an agent
            return await self._applier.apply(plan, new, began)
        waiting = frozenset(held_back(dict.fromkeys(concerned, HoldReason()), whole, guarded))
        # Settings that no run has need no other version.
        due = _only(whole, plan.reload.keys() | waiting)
        return await self._apply(due, save, waiting, leading=leading)

    def _guarded(self, plan: ReloadPlan, saved: Collection[str]) -> frozenset[str]:
        """Whose version is to be kept until the tests pass: not of those that have none that answers."""
        answer = {each.name for each in self._fleet.agents.all if each.executor is not None}
        return frozenset(plan.reload.keys() & answer - self._let_through_of(plan, saved))

    def _let_through_of(self, plan: ReloadPlan, saved: Collection[str]) -> frozenset[str]:
        """Whose version is let through: those of which no file was saved since."""
        let = self._let_through
        return frozenset(name for name in let if not set(plan.reload.get(name, ())).intersection(saved))

    async def _apply(
        self,
        plan: ReloadPlan,
        save: Save,
        waiting: frozenset[str],
        reasons: Mapping[str, HoldReason] | None = None,
        leading: LeadingRuns | None = None,
    ) -> tuple[Reloaded, ...]:
        """Carry out a plan at once except for ``waiting``, and the rest of it as the verdict says."""
        new, began, owed = save.project, save.began, self._applier.owed
        self._due = (self._due & owed.keys()) | (waiting - owed.keys())
        owed |= {name: frozenset(plan.reload[name]) for name in waiting}
        outcomes = await self._applier.apply(_only(plan, plan.reload.keys() - waiting), new, began)
        if reasons is None:
            reasons = await self._judge(save, leading or LeadingRuns(), waiting)
        if reasons is None:
            self.was_cut = True
            return outcomes
        held = held_back(reasons, plan, waiting)
        passing = (waiting - held.keys()) & owed.keys()  # others were reloaded by hand meanwhile
        for name in passing & self._due:
            del owed[name]
        self._due -= passing
        failed = {each.agent for each in outcomes if each.outcome == "failed"}
        rest = _only(replace(plan, add=()), passing)
        outcomes += await self._applier.reload(rest, new, began, failed)
        told = [await self._hold(name, held[name], save) for name in sorted(held.keys() & owed.keys())]
        return (*outcomes, *(each for each in told if each is not None))

    async def _judge(
        self, save: Save, leading: LeadingRuns, waiting: frozenset[str]
    ) -> dict[str, HoldReason] | None:
        """Reach the verdict and return what is held back; None where the files changed meanwhile."""
        self.testing = tuple(sorted(waiting))
        self._news.clear()
        running = asyncio.ensure_future(self._reach(save, leading, is_held=True))
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
                await cancel_and_wait(running, seconds=_END)
        verdict = running.result()
        if verdict.problem:
            return dict.fromkeys(waiting, not_judged(verdict.problem))
        return hold_reasons(verdict, waiting, save.effects.settings)

    async def _hold(self, name: str, verdict: HoldReason, save: Save) -> Reloaded | None:
        """Keep the version of an agent, and tell so unless that is known."""
        agent = self._fleet.agents.get(name)
        if agent is None:
            return None
        why, known = self._applier.owed[name], self._held.get(name)
        if known is not None and known.story == verdict.story and not why.intersection(save.effects.files):
            return None
        root = self._fleet.project.root
        event = Reloaded(
            agent=name,
            outcome="held",
            version=agent.snapshot().version,
            files=tuple(each for each in sorted(why) if (root / each).is_file()),
            changes=(
                *await agent.unapplied(),
                *agent_changes(name, agent.config, save.project.agents.get(name, agent.config)),
            ),
            seconds=monotonic() - save.began,
            error=verdict.line,
            story=verdict.story,
            tests=verdict.tests[:_MAX_TESTS],
        )
        self._held[name] = event
        self._fleet.hub.publish(event)
        return event


def _not_asked(why: str) -> Fault:
    return Fault(FaultType.CONFIG, f"models are not asked: {why}")


def _only(plan: ReloadPlan, names: Collection[str]) -> ReloadPlan:
    """The plan without new versions of other agents."""
    layers = (tuple(name for name in layer if name in names or name in plan.add) for layer in plan.layers)
    return replace(
        plan,
        reload={name: why for name, why in plan.reload.items() if name in names},
        layers=tuple(layer for layer in layers if layer),
    )
