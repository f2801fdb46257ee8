"""Turns of an agent that answers at once, in conversations that go on."""

import asyncio
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from pallas.executors import Emit, Executor, ExecutorInfo, ExecutorTurn, TurnResult
from pallas.ledger import Ledger
from pallas.model import (
    NO_PARAMS,
    AgentState,
    FaultType,
    Health,
    HealthStatus,
    Message,
    Notice,
    Params,
    RunRequest,
    RunVersion,
    ServerChange,
    ServerConnection,
)
from pallas.model.ids import mint
from pallas.model.server_offer import StoredOffer
from pallas.model.tool_rules import NO_TOOL_RULES
from pallas.model.unfinished_calls import NO_RULES, UnfinishedRules
from pallas.runs.kernel import Kernel
from pallas.telemetry.event_hub import EventHub

QUESTION = "How many lamps of the kind with the green shade are in stock, and when do the next ones come?"
ANSWER = "There are seven of them in stock. The next ones come on Thursday, twenty of them, from Larkmoor."
TURNS = 300
"""Of each side, one after the other; a conversation has ten."""
LENGTH = 10
EACH = 1_280
"""Turns of all threads together where there are many at once, about."""


@dataclass
class _Instant:
    """An executor that waits for nothing."""

    info: ExecutorInfo = field(default_factory=lambda: ExecutorInfo(model="instant"))
    pid: int | None = None

    async def load(self, *, fresh: bool = False) -> None: ...
    async def start(self) -> None: ...
    async def close(self, timeout_s: float) -> None: ...
    async def park(self, timeout_s: float) -> None: ...
    @property
    def waiting(self) -> int:
        return 0

    @property
    def full(self) -> bool:
        return False

    def when_failed(self, tell: Callable[[str], None]) -> None: ...
    def when_noticed(self, tell: Callable[[Notice], None]) -> None: ...
    def release(self, lease: str) -> None: ...

    def problems(self) -> tuple[str, ...]:
        return ()

    def lock_changes(self) -> tuple[ServerChange, ...]:
        return ()

    def connections(self) -> tuple[ServerConnection, ...]:
        return ()

    def offers(self) -> Mapping[str, StoredOffer]:
        return {}

    async def check_connection(self, server: str, seconds: float) -> None: ...

    async def run(self, turn: ExecutorTurn, emit: Emit) -> TurnResult:
        return TurnResult((ANSWER,), (Message("user", turn.text), Message("assistant", ANSWER)))


@dataclass
class _Agent:
    executor: Executor | None = field(default_factory=_Instant)
    name: str = "instant"
    params: Params = NO_PARAMS
    window: int = 1_000_000
    state: AgentState = AgentState.READY
    reason: str = ""
    run_timeout: float = 60.0
    failure: FaultType | None = None
    retry_after: float | None = None
    tool_rules = NO_TOOL_RULES
    unfinished: UnfinishedRules = NO_RULES
    forwards_bearer: bool = False
    run_version: RunVersion | None = None

    async def health(self) -> Health:
        return Health(HealthStatus.OK)


def kernel_with(ledger: Ledger | None) -> Kernel:
    """A kernel with an agent that answers at once."""
    kernel = Kernel(EventHub())
    if ledger is not None:
        kernel.use_ledger(ledger)
    kernel.attach(_Agent())
    return kernel


async def conversation(kernel: Kernel, turns: int) -> list[float]:
    """Talk so many turns; returns the seconds of each."""
    handle, times = mint(), []
    for number in range(turns):
        request = RunRequest("instant", QUESTION, conversation=handle, new_conversation=number == 0)
        began = perf_counter()
        await kernel.run(request)
        times.append(perf_counter() - began)
    return times


async def side_by_side(ledger: Ledger) -> tuple[float, float]:
    """Median seconds of a turn without and with the ledger, conversations of both in turns."""
    bare, kept = kernel_with(None), kernel_with(ledger)
    without: list[float] = []
    with_it: list[float] = []
    for kernel in (bare, kept):
        await conversation(kernel, LENGTH)
    for _ in range(TURNS // LENGTH):
        without += await conversation(bare, LENGTH)
        with_it += await conversation(kept, LENGTH)
    await kept.close()
    await kept.close_records()
    return statistics.median(without), statistics.median(with_it)


async def at_once(ledger: Ledger, threads: int) -> tuple[float, list[float]]:
    """Seconds for all turns of that many conversations at once, and those of each turn."""
    kernel = kernel_with(ledger)
    began = perf_counter()

    async def one() -> list[float]:
        rounds = EACH // threads // LENGTH
        return [each for _ in range(rounds or 1) for each in await conversation(kernel, LENGTH)]

    found = await asyncio.gather(*(one() for _ in range(threads)))
    seconds = perf_counter() - began
    await kernel.close()
    await kernel.close_records()
    return seconds, [each for times in found for each in times]


def quantile(times: Sequence[float], percent: int) -> float:
    """The time that so many of a hundred are within."""
    return statistics.quantiles(times, n=100, method="inclusive")[percent - 1]
