"""The order in which agents start: those that others depend on first."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final
from weakref import WeakSet

from pallas.config import AgentConfig
from pallas.config.models import Need
from pallas.model import AgentChanged, AgentState, Event, Fault, HealthChanged, HealthStatus, Notice
from pallas.safe_text import one_line
from pallas.telemetry.event_hub import EventHub

from .agent import FleetAgent
from .context import FleetContext
from .ports import answers

log = logging.getLogger(__name__)

READY_TIMEOUT: Final = 60.0
"""Seconds that an agent waits for all it depends on."""
# Seconds between two looks, should nothing tell of a change; nothing tells that a port has opened.
_LOOK_EVERY: Final = 1.0
_LOOK_SOON: Final = 0.05
# An agent in one of these does not get ready by itself.
_HOPELESS: Final = frozenset({AgentState.ERROR, AgentState.CRASH_LOOP, AgentState.STOPPED})


class StartOrder:
    """Starts agents of one fleet, each after those it depends on (PR-5, PR-6).

    An agent that is served alone waits for no other (PR-4). ``programs`` is set once the project's own
    programs were started. ``prepare`` is called while they start: it runs no code of the project.
    """

    def __init__(
        self,
        context: FleetContext,
        programs: asyncio.Event,
        prepare: Callable[[AgentConfig], Awaitable[None]] | None = None,
    ) -> None:
        self._context = context
        self._programs = programs
        self._prepare = prepare
        self._begun: WeakSet[FleetAgent] = WeakSet()

    async def start(self, agent: FleetAgent) -> None:
        """Serve its port and start it. Never raises.

        Each agent once: one that is made while the fleet starts is started by what made it.
        """
        if agent in self._begun:
            return
        self._begun.add(agent)
        if not self._context.is_alone:
            await asyncio.gather(*(self._wait_for(agent, need) for need in agent.config.needs))
        try:
            await agent.open()
        except Exception as error:
            known = isinstance(error, Fault)
            agent.fail(str(error) if known else f"its port cannot be served ({type(error).__name__})", error)
            return
        if self._prepare is not None and not self._programs.is_set():
            await self._prepare(agent.config)
        await self._programs.wait()  # bounded by each program's own start_timeout
        await agent.start()

    async def _wait_for(self, agent: FleetAgent, need: Need) -> None:
        """Until what it needs is as it has to be, 60 s at most; then go on with a warning."""
        needed = self._context.agents.get(need.name)
        if needed is None:  # it has been removed
            return
        with _Changes(self._context.hub, needed.name) as changes:
            try:
                async with asyncio.timeout(READY_TIMEOUT):
                    problem = await _fulfilled(needed, need, changes)
            except TimeoutError:
                problem = f"it was not {need.condition} within {READY_TIMEOUT:g} s"
                if needed.state is not AgentState.READY:
                    problem += f" ({needed.state.value}{f': {needed.reason}' if needed.reason else ''})"
                elif needed.watched.shown.message:
                    problem += f" ({needed.watched.shown.message})"
        if problem:
            text = f"{agent.name} starts without {needed.name}, which it depends on: {problem}"
            log.warning("%s", text, extra={"agent": agent.name})
            self._context.hub.publish(Notice(level="warning", text=one_line(text, 300), agent=agent.name))


class _Changes:
    """Whether an agent's state or health has changed since it was asked last."""

    def __init__(self, hub: EventHub, agent: str) -> None:
        self._hub = hub
        self._agent = agent
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()

    def __enter__(self) -> "_Changes":
        self._unlisten = self._hub.listen(self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        self._unlisten()

    async def wait(self, seconds: float) -> None:
        """Until something is different, ``seconds`` at most."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass
        self._changed.clear()

    def _hear(self, event: Event) -> None:
        if isinstance(event, AgentChanged | HealthChanged) and event.agent == self._agent:
            self._loop.call_soon_threadsafe(self._changed.set)


async def _fulfilled(needed: FleetAgent, need: Need, changes: _Changes) -> str:
    """Until the condition holds: empty then, else why it never will. The caller bounds it.

    An agent that is started again after a failure is waited for.
    """
    while not _holds(needed, need):
        hopeless = needed.state in _HOPELESS and not (need.condition == "started" and needed.is_open)
        if hopeless:
            return needed.reason or needed.state.value
        await changes.wait(_LOOK_EVERY if need.condition != "started" else _LOOK_SOON)
        if need.condition == "healthy" and needed.state is AgentState.READY:
            await needed.check_health()  # nothing else looks while the fleet starts
    await answers(needed.url)
    return ""


def _holds(needed: FleetAgent, need: Need) -> bool:
    if need.condition == "started":
        return needed.is_open
    if needed.state is not AgentState.READY:
        return False
    return need.condition == "ready" or needed.watched.shown.status is HealthStatus.OK
