"""How many sessions are open with which agent, and whether there is room for one more (SPEC 7.4)."""

from collections import Counter
from collections.abc import Callable
from typing import Final

from pallas.config.kinds import SessionLimits
from pallas.model import AgentKind
from pallas.runs.agent_directory import IN_PROCESS

CAPACITY: Final = 1_000
"""Sessions that a worker or a remote agent may have, each of them, where it says nothing else itself."""


class Leases:
    """Counted by ``Sessions``, in the fleet's event loop; read from any thread.

    ``limits`` are those of the project, asked each time.
    """

    def __init__(self, limits: Callable[[], SessionLimits] = SessionLimits) -> None:
        self.limits = limits
        self._of: Counter[str] = Counter()
        self._in_process = 0

    def taken(self, agent: str, kind: AgentKind) -> None:
        """One more session."""
        self._of[agent] += 1
        self._in_process += kind in IN_PROCESS

    def given_back(self, agent: str, kind: AgentKind) -> None:
        """One less."""
        self._of[agent] -= 1
        if not self._of[agent]:
            del self._of[agent]
        self._in_process -= kind in IN_PROCESS

    @property
    def active(self) -> int:
        """All that there are."""
        return sum(list(self._of.values()))

    def of(self, agent: str) -> int:
        """Those of one agent."""
        return self._of.get(agent, 0)

    def capacity(self, kind: AgentKind, own: int = 0) -> int:
        """How many sessions there may be where this agent's count: ``own`` is its ``ExecutorInfo.capacity``.

        Those that answer in this process have one number together, the others one each.
        """
        if kind in IN_PROCESS:
            return self.limits().max
        return own if own and kind == "worker" else CAPACITY

    def full(self, agent: str, kind: AgentKind, own: int = 0) -> bool:
        """Whether no more sessions can be opened with it now."""
        held = self._in_process if kind in IN_PROCESS else self.of(agent)
        return held >= self.capacity(kind, own)
