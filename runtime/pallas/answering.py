"""What the kernel asks of an agent that is alive."""

from typing import Protocol

from pallas.executors import Executor
from pallas.model import AgentState, Health


class Answering(Protocol):
    """What the kernel asks of an agent that is alive: the fleet's own object offers it."""

    @property
    def name(self) -> str: ...
    @property
    def state(self) -> AgentState: ...
    @property
    def executor(self) -> Executor | None: ...
    @property
    def reason(self) -> str: ...
    @property
    def retry_after(self) -> float | None: ...
    @property
    def run_timeout(self) -> float: ...
    async def health(self) -> Health: ...
