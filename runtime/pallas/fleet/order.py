"""The order in which agents start: those that others depend on first."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from pallas.events import Hub
from pallas.model import AgentState, Fault, Notice
from pallas.text import one_line

from .agent import FleetAgent
from .ports import answers

log = logging.getLogger(__name__)

READY_TIMEOUT: Final = 60.0
"""Seconds that an agent waits for one it depends on."""


class StartOrder:
    """Starts agents of one fleet, each after those it depends on (PR-5, PR-6).

    ``agents`` are those of now, by name; ``programs`` is set when the project's own programs were started.
    """

    def __init__(
        self, agents: Callable[[], Mapping[str, FleetAgent]], hub: Hub, programs: asyncio.Event
    ) -> None:
        self._agents = agents
        self._hub = hub
        self._programs = programs

    async def start(self, agent: FleetAgent, *, alone: bool = False) -> None:
        """Serve its port and start it; ``alone`` waits for no other agent (PR-4). Never raises."""
        if not alone:
            for need in agent.config.depends_on:
                await self._wait_for(agent, self._agents()[need])
        try:
            await agent.open()
        except Exception as error:
            known = isinstance(error, Fault)
            agent.fail(str(error) if known else f"its port cannot be served ({type(error).__name__})", error)
            return
        await self._programs.wait()  # bounded by each program's own start_timeout
        await agent.start()

    async def _wait_for(self, agent: FleetAgent, need: FleetAgent) -> None:
        """Until ``need`` is ready and its port answers, 60 s at most; then go on with a warning."""
        try:
            async with asyncio.timeout(READY_TIMEOUT):
                await need.settled.wait()
                if need.state is AgentState.READY:
                    await answers(need.url)
                    return
            problem = need.reason
        except TimeoutError:
            problem = f"it was not ready within {READY_TIMEOUT:.0f} s"
        text = f"{agent.name} starts without {need.name}, which it depends on: {problem}"
        log.warning("%s", text, extra={"agent": agent.name})
        self._hub.publish(Notice(level="warning", text=one_line(text, 300), agent=agent.name))
