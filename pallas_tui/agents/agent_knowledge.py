"""Cache of agent details and of the last call of each tool, for the life of this process."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from textual.widget import Widget

from pallas.model import AgentDetail, Fault, FleetPort
from pallas.safe_text import one_line

if TYPE_CHECKING:
    from ..forms.form_memory import Memory

DEADLINE: Final = 40.0
"""Seconds that a description may take; a fleet gives up after 30 by itself."""


class LookupFailed(Exception):
    """Why nothing is known, in one line."""


class Knowledge:
    """Details by agent, as they were looked up last. Nothing of it is asked for twice at the same time."""

    def __init__(self) -> None:
        self._details: dict[str, AgentDetail] = {}
        self._tried: set[str] = set()
        self._doubtful: set[str] = set()
        self._memory: Memory | None = None

    @property
    def memory(self) -> "Memory":
        """The last call of each tool."""
        if self._memory is None:
            from ..forms.form_memory import Memory

            self._memory = Memory()
        return self._memory

    def detail(self, agent: str) -> AgentDetail | None:
        """Return the cached details of an agent, None before the first look-up."""
        return self._details.get(agent)

    def doubt(self, agent: str) -> None:
        """Mark the details as outdated: another version answers. They stay until the user asks again."""
        self._tried.discard(agent)
        self._doubtful.add(agent)

    def tools(self) -> Iterator[tuple[str, str, str]]:
        """Agent, server (empty for the agent itself) and name of every tool that is known."""
        for detail in self._details.values():
            for server in detail.servers:
                for tool in server.tools:
                    yield detail.name, server.server, tool.name

    async def look_up(self, fleet: FleetPort | None, agent: str) -> AgentDetail:
        """Ask the fleet. Raises LookupFailed and then keeps the cached details."""
        if fleet is None:
            raise LookupFailed("the fleet is not running; wait until it has started")
        try:
            async with asyncio.timeout(DEADLINE):
                detail = await fleet.describe(agent)
        except Fault as fault:
            raise LookupFailed(fault.message) from None
        except TimeoutError:
            raise LookupFailed(f"no answer within {DEADLINE:.0f} s") from None
        except Exception as error:  # a fleet elsewhere may fail in ways of its own
            raise LookupFailed(f"{type(error).__name__}: {one_line(str(error), 160)}") from None
        self._details[agent] = detail
        self._doubtful.discard(agent)
        return detail

    def ask_for_all(self, widget: Widget, fleet: FleetPort, agents: Iterable[str]) -> None:
        """Look up, one after the other and once each, those of which nothing is known yet."""
        known = self._details.keys() - self._doubtful
        wanted = [name for name in agents if name not in known and name not in self._tried]
        if not wanted:
            return
        self._tried.update(wanted)

        async def ask() -> None:
            for name in wanted:
                try:
                    await self.look_up(fleet, name)
                except LookupFailed:
                    self._tried.discard(name)

        widget.run_worker(ask(), group="knowledge", exclusive=False, description="look up tools")
