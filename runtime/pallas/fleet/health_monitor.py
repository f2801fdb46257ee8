"""Looks again and again at the health of agents and model providers, and at the log."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

from pallas.config import Project
from pallas.executors.replay.replay import current_replay
from pallas.health.preflight import AT_ONCE, AT_START, ProviderReport, own_hosts, preflight
from pallas.health.probe import Steady
from pallas.model import AgentChanged, AgentState, Event, Notice, RunEvent, RunFinished
from pallas.safe_text import one_line
from pallas.telemetry.event_hub import EventHub
from pallas.telemetry.log import log_state

from .agent_factory import is_typed
from .context import FleetContext
from .loop_watch import LoopWatch
from .supervisor.dependency_health import DependencyHealth

log = logging.getLogger(__name__)

_SPACING: Final = 1.0
"""Seconds between two checks of the providers, however many ask for one."""
LOG_EVERY: Final = 2.0
"""Seconds between two looks at the log."""


@dataclass(frozen=True, slots=True)
class CheckIntervals:
    """How long to wait between two looks, in seconds.

    ``health`` between two rounds of probes, ``confirm`` while one found what another must confirm and while
    a downstream is out of reach; ``providers`` between two checks of the model providers, ``retry`` after one
    that failed. After refused keys alone it doubles with each that follows until it is ``providers`` again:
    a new key is in our files, and is checked at once.
    """

    health: float = 15.0
    confirm: float = 5.0
    providers: float = 300.0
    retry: float = 15.0

    def until_check(self, failures: int, refused: int = 0) -> float:
        """Seconds until the providers are asked again, after so many failed checks in a row.

        The last ``refused`` of them found only refused keys.
        """
        if not failures:
            return self.providers
        return min(self.providers, self.retry * 2.0 ** min(refused, 30))


CHECK_INTERVALS: Final = CheckIntervals()


class ProviderChecks:
    """What the model providers say of keys and models, asked at the start and ever again.

    ``used`` are the models of the agents that are loaded, as ``provider.model``. A refused key and a missing
    model count at once, other trouble when two checks in a row meet it; the first check always. A change of
    a report is a Notice and a log record, a check that finds what the last one found is neither. ``changed``
    is called after each change. ``advice`` as for ``preflight``. Until ``are_servers_up``, servers that the
    fleet itself starts are not asked.
    """

    def __init__(
        self,
        project: Project,
        hub: EventHub,
        changed: Callable[[], None],
        pace: CheckIntervals = CHECK_INTERVALS,
        *,
        used: Callable[[], Iterable[str]] = lambda: (),
        advice: str = AT_ONCE,
        are_servers_up: Callable[[], bool] = lambda: True,
    ) -> None:
        self._project = project
        self._hub = hub
        self._changed = changed
        self._pace = pace
        self._used = used
        self._advice = advice
        self._are_servers_up = are_servers_up
        self._asked: frozenset[str] = frozenset()
        self._steady: dict[str, Steady[ProviderReport]] = {}
        self._failures = 0
        self._refused = 0
        self._due = asyncio.Event()
        self.reports: tuple[ProviderReport, ...] = ()

    def problem(self, models: Collection[str] | None = None) -> str:
        """What is wrong with these models, else with the default one; empty if nothing is."""
        if models is None:
            return "; ".join(report.message for report in self.reports if report.active and not report.ok)
        bad = [report for report in self.reports if not report.ok]
        found = {report.message: None for spec in models for report in bad if _is_about(report, spec)}
        return "; ".join(found)

    def check_soon(self) -> None:
        """Ask without waiting for the next round; returns at once."""
        self._due.set()

    def welcome(self, models: Collection[str]) -> None:
        """An agent uses these models: ask soon if one was not asked for, or something is wrong with it."""
        if not self._asked.issuperset(models) or self.problem(models):
            self.check_soon()

    async def check(self) -> None:
        """Ask once, about 5 s at most, and tell what changed. Never raises."""
        self._due.clear()
        models = frozenset(self._used())
        skip = frozenset() if self._are_servers_up() else own_hosts(self._project)
        try:
            found = await preflight(self._project, sorted(models), advice=self._advice, skip=skip)
        except Exception:
            log.exception("the model providers could not be checked")
            return
        self._asked = models | {f"{self._project.provider}.{self._project.model}"}
        bad = [report for report in found if not report.ok]
        self._failures = self._failures + 1 if bad else 0
        only_keys = bad and all(report.certain and not report.missing for report in bad)
        self._refused = self._refused + 1 if only_keys and self._failures > 1 else 0
        before = {report.provider: report for report in self.reports}
        self.reports = tuple(self._steadied(report) for report in found)
        for report in self.reports:
            self._tell(before.get(report.provider), report)
        if self.reports != tuple(before.values()):
            self._changed()

    def adopt(self, project: Project) -> None:
        """From now on these are the providers; ask them soon."""
        self._project = project
        self.check_soon()

    async def watch(self) -> None:
        """Ask for ever; the owner cancels."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pace.until_check(self._failures, self._refused)):
                    await self._due.wait()
            await self.check()
            await asyncio.sleep(min(_SPACING, self._pace.retry))

    def _steadied(self, report: ProviderReport) -> ProviderReport:
        steady = self._steady.setdefault(report.provider, Steady(recovers_at_once=True))
        return steady.take(report, report.message, good=report.ok, certain=report.certain)

    def _tell(self, before: ProviderReport | None, now: ProviderReport) -> None:
        if _told(now) == (_told(before) if before is not None else ""):
            return
        extra = {"provider": now.provider}
        if not _told(now):
            text = f"{now.provider}: the provider check passes again"
            log.info("%s", text, extra=extra)
            self._hub.publish(Notice(level="info", text=text))
        else:
            log.warning("provider check failed: %s", now.message, extra=extra)
            self._hub.publish(Notice(level="warning", text=now.message))


def _told(report: ProviderReport) -> str:
    """The problem to show to people: none with a key that no agent needs."""
    return report.message if report.needed else ""


def _is_about(report: ProviderReport, spec: str) -> bool:
    """Whether a problem concerns who uses this model."""
    provider, _, model = spec.partition(".")
    return report.provider == spec or (report.provider == provider and report.missing in ("", model))


class HealthMonitor:
    """Looks at the agents, model providers and event loop of one fleet. Belongs to that loop."""

    def __init__(
        self, context: FleetContext, intervals: CheckIntervals, servers_started: asyncio.Event
    ) -> None:
        self._context = context
        self._intervals = intervals
        self._servers_started = servers_started
        self.providers = ProviderChecks(
            context.project,
            context.hub,
            self._refresh,
            intervals,
            used=lambda: {model for agent in context.agents.all for model in agent.models or ()},
            advice=AT_ONCE if context.options.watch else AT_START,
            are_servers_up=servers_started.is_set,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._dependencies = DependencyHealth(lambda: context.agents.all, context.hub)
        lag = context.project.loop_lag
        self._loop_watch = (
            LoopWatch(context.hub, context.project.root, lag, self._may_be_isolated) if lag else None
        )
        self._unlisten = context.hub.listen(self._hear)

    def start(self) -> None:
        """Look again and again, from the moment that the fleet runs; it cancels its tasks itself.

        In a replay nothing is there to look at.
        """
        if current_replay() is not None:
            return
        self._context.tasks.start(self._watch_agents())
        if self._loop_watch is not None:
            self._loop_watch.start()

    def begin(self) -> asyncio.Task[None]:
        """Ask the providers from now on, also before the fleet runs; return the first check."""
        if current_replay() is not None:
            return self._context.tasks.start(asyncio.sleep(0))
        self._loop = asyncio.get_running_loop()
        first = self._context.tasks.start(self.providers.check())
        self._context.tasks.start(self._watch_providers(first))
        return first

    def close(self) -> None:
        """Hear and look no more."""
        self._unlisten()
        self._dependencies.close()
        if self._loop_watch is not None:
            self._loop_watch.stop()

    async def _watch_providers(self, first: asyncio.Task[None]) -> None:
        await asyncio.wait({first})
        if self._context.project.servers and not self._servers_started.is_set():
            await self._servers_started.wait()
            self.providers.check_soon()
        await self.providers.watch()

    async def _watch_agents(self) -> None:
        """Look at every agent for ever, all at once, whether or not a client asks.

        Those that lack a downstream, or have to confirm something, are looked at more often.
        """
        agents, intervals = self._context.agents, self._intervals
        looked = monotonic()
        while True:
            await asyncio.sleep(min(intervals.health, intervals.confirm))
            self._refresh()  # a server may list other tools since
            due = agents.all
            if monotonic() - looked < intervals.health:
                due = tuple(agent for agent in due if agent.watched.uneasy)
            else:
                looked = monotonic()
            await asyncio.gather(*(agent.check_health() for agent in due))

    def _refresh(self) -> None:
        for agent in self._context.agents.all:
            if agent.state is AgentState.READY:  # the others have better reasons
                agent.watched.refresh()

    def _may_be_isolated(self, agent: str) -> bool:
        # Read from another thread; the tuple of agents is replaced and never changed.
        found = next((each for each in self._context.agents.all if each.name == agent), None)
        return found is None or found.config.kind == "llm" or is_typed(found.config)

    def _hear(self, event: Event) -> None:
        if not isinstance(event, RunEvent | AgentChanged):
            return
        if (agent := self._context.agents.get(event.agent)) is None:
            return
        if isinstance(event, AgentChanged):
            if event.state is AgentState.READY and agent.models:
                self._soon(self.providers.welcome, agent.models)
            return
        if agent.watched.hear(event):
            self._soon(agent.check_health_soon)
        if isinstance(event, RunFinished) and event.of_agent and agent.models:
            self._soon(self.providers.check_soon)

    def _soon(self, call: Callable[..., None], *args: Any) -> None:
        # Events may come from any thread.
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *args)


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
