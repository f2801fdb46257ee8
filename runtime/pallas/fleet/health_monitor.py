"""Looks again and again at the health of agents and model providers, and at the log."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pallas.config import Project
from pallas.health.preflight import ProviderReport, preflight
from pallas.health.probe import Steady
from pallas.model import AgentState, Event, Notice, RunEvent
from pallas.safe_text import one_line
from pallas.telemetry.event_hub import EventHub
from pallas.telemetry.log import log_state

from .agent_factory import is_typed
from .context import FleetContext
from .loop_watch import LoopWatch
from .supervisor.dependency_health import DependencyHealth

log = logging.getLogger(__name__)

LOG_EVERY: Final = 2.0
"""Seconds between two looks at the log."""


@dataclass(frozen=True, slots=True)
class CheckIntervals:
    """How long to wait between two looks, in seconds.

    ``health`` between two rounds of probes, ``confirm`` while one found what another must confirm;
    ``providers`` between two checks of the model providers, ``retry`` after one that failed, doubled
    with each that follows until it is ``providers`` again.
    """

    health: float = 15.0
    confirm: float = 5.0
    providers: float = 300.0
    retry: float = 30.0

    def until_check(self, failures: int) -> float:
        """Seconds until the providers are asked again, after so many failed checks in a row."""
        return min(self.providers, self.retry * 2.0 ** min(failures - 1, 30)) if failures else self.providers


CHECK_INTERVALS: Final = CheckIntervals()


class ProviderChecks:
    """What the model providers say of the project's keys and model, asked at the start and ever again.

    A refused key and a missing model count at once, other trouble when two checks in a row meet it; the
    first check always. A change of a report is a Notice and a log record, a check that finds what the last
    one found is neither. ``changed`` is called after each change.
    """

    def __init__(
        self,
        project: Project,
        hub: EventHub,
        changed: Callable[[], None],
        pace: CheckIntervals = CHECK_INTERVALS,
    ) -> None:
        self._project = project
        self._hub = hub
        self._changed = changed
        self._pace = pace
        self._steady: dict[str, Steady[ProviderReport]] = {}
        self._failures = 0
        self.reports: tuple[ProviderReport, ...] = ()

    def problem(self) -> str:
        """The problem of the active provider, empty without one; the others do no harm."""
        return "; ".join(report.message for report in self.reports if report.active and not report.ok)

    async def check(self) -> None:
        """Ask once, about 5 s at most, and tell what changed. Never raises."""
        try:
            found = await preflight(self._project)
        except Exception:
            log.exception("the model providers could not be checked")
            return
        self._failures = self._failures + 1 if any(not report.ok for report in found) else 0
        before = {report.provider: report for report in self.reports}
        self.reports = tuple(self._steadied(report) for report in found)
        for report in self.reports:
            self._tell(before.get(report.provider), report)
        if self.reports != tuple(before.values()):
            self._changed()

    async def check_now(self, project: Project) -> None:
        """From now on these are the providers; ask them at once. Never raises."""
        self._project = project
        await self.check()

    async def watch(self) -> None:
        """Ask for ever; the owner cancels."""
        while True:
            await asyncio.sleep(self._pace.until_check(self._failures))
            await self.check()

    def _steadied(self, report: ProviderReport) -> ProviderReport:
        steady = self._steady.setdefault(report.provider, Steady(recovers_at_once=True))
        return steady.take(report, report.message, good=report.ok, certain=report.certain)

    def _tell(self, before: ProviderReport | None, now: ProviderReport) -> None:
        if now.message == (before.message if before is not None else ""):
            return
        extra = {"provider": now.provider}
        if now.ok:
            text = f"{now.provider}: the provider check passes again"
            log.info("%s", text, extra=extra)
            self._hub.publish(Notice(level="info", text=text))
        else:
            log.warning("provider check failed: %s", now.message, extra=extra)
            self._hub.publish(Notice(level="warning", text=now.message))


class HealthMonitor:
    """Looks at the agents, model providers and event loop of one fleet. Belongs to that loop."""

    def __init__(self, context: FleetContext, intervals: CheckIntervals) -> None:
        self._context = context
        self._intervals = intervals
        self.providers = ProviderChecks(context.project, context.hub, self._refresh, intervals)
        self._dependencies = DependencyHealth(lambda: context.agents.all, context.hub)
        lag = context.project.loop_lag
        self._loop_watch = (
            LoopWatch(context.hub, context.project.root, lag, self._may_be_isolated) if lag else None
        )
        self._unlisten = context.hub.listen(self._hear)

    def start(self) -> None:
        """Look again and again, from the moment that the fleet runs; it cancels its tasks itself."""
        self._context.tasks.start(self._watch_agents())
        self._context.tasks.start(self.providers.watch())
        if self._loop_watch is not None:
            self._loop_watch.start()

    def check_providers(self, project: Project) -> None:
        """Ask the providers of this project at once, and those from now on; returns at once."""
        self._context.tasks.start(self.providers.check_now(project))

    def close(self) -> None:
        """Hear and look no more."""
        self._unlisten()
        self._dependencies.close()
        if self._loop_watch is not None:
            self._loop_watch.stop()

    async def _watch_agents(self) -> None:
        """Look at every agent for ever, all at once, whether or not a client asks."""
        agents, intervals = self._context.agents, self._intervals
        while True:
            unconfirmed = any(agent.watched.unconfirmed for agent in agents.all)
            await asyncio.sleep(intervals.confirm if unconfirmed else intervals.health)
            await asyncio.gather(*(agent.check_health() for agent in agents.all))

    def _refresh(self) -> None:
        for agent in self._context.agents.all:
            if agent.state is AgentState.READY:  # the others have better reasons
                agent.watched.refresh()

    def _may_be_isolated(self, agent: str) -> bool:
        # Read from another thread; the tuple of agents is replaced and never changed.
        found = next((each for each in self._context.agents.all if each.name == agent), None)
        return found is None or found.config.kind == "llm" or is_typed(found.config)

    def _hear(self, event: Event) -> None:
        if isinstance(event, RunEvent) and (agent := self._context.agents.get(event.agent)) is not None:
            agent.watched.hear(event)


async def watch_log(hub: EventHub) -> None:
    """Tell when records of the log are lost, and when it goes on, until cancelled."""
    reported, lost_before = "", 0
    while True:
        state = log_state()
        if state is not None and state.trouble != reported:
            if state.trouble:
                if not reported:
                    lost_before = state.lost - 1
                text = (
                    f"the log {state.path} cannot be written ({state.trouble}), its records are lost; make "
                    "room, or set PALLAS_LOG_FILE to another file"
                )
                hub.publish(Notice(level="error", text=one_line(text, 400)))
            else:
                text = f"the log {state.path} is written again; {state.lost - lost_before} records were lost"
                hub.publish(Notice(level="warning", text=one_line(text, 400)))
            reported = state.trouble
        await asyncio.sleep(LOG_EVERY)
