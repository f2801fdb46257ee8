"""Executors and agents that do as a test says."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from pallas.executors import Emit, Executor, ExecutorInfo, ExecutorTurn, TurnResult
from pallas.model import (
    NO_PARAMS,
    AgentState,
    FaultType,
    Health,
    HealthStatus,
    Message,
    Notice,
    Params,
    RunVersion,
    ServerChange,
    ServerConnection,
)
from pallas.model.server_offer import StoredOffer
from pallas.model.tool_rules import NO_TOOL_RULES, ToolRules
from pallas.model.unfinished_calls import NO_RULES, UnfinishedRules

Answer = Callable[[ExecutorTurn, Emit], Awaitable[TurnResult]]


async def echo(turn: ExecutorTurn, emit: Emit) -> TurnResult:
    """Answers with what it was told and how many messages came before."""
    text = f"{len(turn.history)}:{turn.text}"
    return TurnResult((text,), (Message("user", turn.text), Message("assistant", text)))


@dataclass
class FakeExecutor:
    """Answers with ``answer``; remembers the turns it was given."""

    answer: Answer = echo
    info: ExecutorInfo = field(default_factory=lambda: ExecutorInfo(model="fake", vision=True))
    turns: list[ExecutorTurn] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    waiting: int = 0
    full: bool = False
    pid: int | None = None
    parked: int = 0
    tell: Callable[[str], None] | None = None

    async def load(self, *, fresh: bool = False) -> None: ...
    async def start(self) -> None: ...
    async def close(self, timeout_s: float) -> None: ...

    async def park(self, timeout_s: float) -> None:
        self.parked += 1

    def when_failed(self, tell: Callable[[str], None]) -> None:
        self.tell = tell

    def when_noticed(self, tell: Callable[[Notice], None]) -> None: ...

    def problems(self) -> tuple[str, ...]:
        return ()

    def lock_changes(self) -> tuple[ServerChange, ...]:
        return ()

    def offers(self) -> Mapping[str, StoredOffer]:
        """Nothing: it has no servers."""
        return {}

    def connections(self) -> tuple[ServerConnection, ...]:
        return ()

    async def check_connection(self, server: str, seconds: float) -> None: ...

    def release(self, lease: str) -> None:
        self.released.append(lease)

    async def run(self, turn: ExecutorTurn, emit: Emit) -> TurnResult:
        self.turns.append(turn)
        return await self.answer(turn, emit)


@dataclass
class FakeAgent:
    """What the kernel asks of an agent."""

    executor: Executor | None
    name: str = "echo"
    params: Params = NO_PARAMS
    window: int = 131_072
    state: AgentState = AgentState.READY
    reason: str = ""
    run_timeout: float = 60.0
    failure: FaultType | None = None
    retry_after: float | None = None
    unfinished: UnfinishedRules = NO_RULES
    tool_rules: ToolRules = NO_TOOL_RULES
    forwards_bearer: bool = False
    run_version: RunVersion | None = None

    async def health(self) -> Health:
        return Health(HealthStatus.OK)


class Gate:
    """An answer that says when it was reached and waits to be let through."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()
        self.cancelled = False

    async def answer(self, turn: ExecutorTurn, emit: Emit) -> TurnResult:
        self.reached.set()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return await echo(turn, emit)
