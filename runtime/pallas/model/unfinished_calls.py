"""What becomes of a call that was begun, and whose answer was lost with the process that made it."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Literal

from .fault import Fault, FaultType

UnfinishedPolicy = Literal["repeat", "ask", "fail", "tell"]
"""Make the call again; ask a person; end the run; tell the model, which decides."""

LOST: Final = (
    "outcome unknown: the call was begun before a restart and its answer was lost; check before repeating it"
)
"""The result that a model gets for a call with ``tell``."""


@dataclass(frozen=True, slots=True)
class UnfinishedRules:
    """The rules of an agent: patterns of ``server__tool`` and ``agent:NAME``, the first that fits decides.

    ``trusted`` are the servers whose word is taken for what their tools do.
    """

    patterns: tuple[tuple[str, UnfinishedPolicy], ...] = ()
    trusted: tuple[str, ...] = ()

    def policy(self, name: str, *, server: str = "", is_safe: bool = False) -> UnfinishedPolicy:
        """What becomes of a call of that name; ``is_safe`` as its server says of the tool."""
        found = next((policy for pattern, policy in self.patterns if fnmatchcase(name, pattern)), None)
        return found or ("repeat" if is_safe and server in self.trusted else "tell")

    def check_repeatable(self, agent: str) -> None:
        """Let an agent be asked again that cannot go on in the middle. Raises Fault (UPSTREAM)."""
        if self.policy(f"agent:{agent}") != "repeat":
            raise Fault(
                FaultType.UPSTREAM,
                f"the fleet was stopped in the middle of this turn, and {agent} is not asked again "
                f'automatically; write `unfinished_calls: {{"agent:{agent}": repeat}}` in agents.yaml '
                "where that is safe",
            )


NO_RULES: Final = UnfinishedRules()
