"""Counts the open sessions of each agent, and says whether there is room for another one."""

from collections import Counter
from collections.abc import Callable
from typing import Final

from pallas.config.kinds import SessionLimits
from pallas.model import AgentKind
from pallas.model.discovery import IN_PROCESS

CAPACITY: Final = 1_000
"""Sessions that each worker or remote agent may have if it reports no capacity of its own."""


class SessionCounts:
    """Open sessions by agent. ``Sessions`` counts them in the fleet's event loop; any thread may read them.

    ``limits`` returns the project's limits and is called each time.
    """

    def __init__(self) -> None:
        self.limits: Callable[[], SessionLimits] = SessionLimits
        self._of: Counter[str] = Counter()
        self._in_process = 0

    def taken(self, agent: str, kind: AgentKind) -> None:
        """Count a session that was opened."""
        self._of[agent] += 1
        self._in_process += kind in IN_PROCESS

    def given_back(self, agent: str, kind: AgentKind) -> None:
        """Count a session that ended."""
        self._of[agent] -= 1
        if not self._of[agent]:
            del self._of[agent]
        self._in_process -= kind in IN_PROCESS

    @property
    def active(self) -> int:
        """The number of open sessions."""
        return sum(list(self._of.values()))

    def of(self, agent: str) -> int:
        """The number of open sessions of one agent."""
        return self._of.get(agent, 0)

    def capacity(self, kind: AgentKind, own: int = 0) -> int:
        """How many sessions an agent may have. ``own`` is its ``ExecutorInfo.capacity``.

        Agents in this process share one limit; each other agent has its own.
        """
        if kind in IN_PROCESS:
            return self.limits().max
        return own if own and kind == "worker" else CAPACITY

    def full(self, agent: str, kind: AgentKind, own: int = 0) -> bool:
        """Whether no more sessions can be opened with the agent now."""
        held = self._in_process if kind in IN_PROCESS else self.of(agent)
        return held >= self.capacity(kind, own)
