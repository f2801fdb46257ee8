"""An agent of the fleet as a value: what every surface shows of it."""

import json
from typing import Final, Protocol

from pallas.config import AgentConfig
from pallas.executors import Executor
from pallas.model import AgentSnapshot, AgentState
from pallas.runs.kernel import Kernel

from .agent_context import AgentContext
from .agent_health import AgentHealth
from .supervisor.supervisor import Supervisor

# Characters of an example that a tool's description holds.
_MAX_EXAMPLE: Final = 2_000


class SnapshotSource(Protocol):
    """The agent, as far as its snapshot shows it."""

    @property
    def name(self) -> str: ...
    @property
    def config(self) -> AgentConfig: ...
    @property
    def state(self) -> AgentState: ...
    @property
    def since(self) -> float: ...
    @property
    def story(self) -> str: ...
    @property
    def url(self) -> str: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def watched(self) -> AgentHealth: ...
    @property
    def supervisor(self) -> Supervisor: ...
    @property
    def context(self) -> AgentContext: ...
    @property
    def executor(self) -> Executor | None: ...


def snapshot_of(
    agent: SnapshotSource,
    kernel: Kernel,
    *,
    version: int,
    previous: int,
    restarts: int,
    reloads: int,
    started_in: float | None,
) -> AgentSnapshot:
    """The agent now; the numbers as in ``AgentSnapshot``. Safe from any thread."""
    executor = agent.executor
    info = executor.info if executor is not None else None
    stats = kernel.stats(agent.name)
    return AgentSnapshot(
        name=agent.name,
        title=agent.config.title,
        description=agent.config.description,
        state=agent.state,
        since=agent.since,
        health=agent.watched.shown,
        port=agent.config.port,
        url=agent.url,
        model=info.model if info else "",
        vision=info.vision if info else False,
        depends_on=agent.config.depends_on,
        downstreams=agent.watched.downstreams,
        runs_active=stats.active,
        runs_queued=stats.waiting,
        runs_waiting=executor.waiting if executor is not None else 0,
        runs_total=stats.total,
        last_latency=stats.last_latency,
        latency_p50=stats.latency_p50,
        latency_p95=stats.latency_p95,
        tokens_in=stats.tokens_in,
        tokens_out=stats.tokens_out,
        cost=stats.cost.cost,
        unpriced=stats.cost.unpriced,
        source=str(agent.config.where),
        version=version,
        previous=previous,
        restarts=restarts,
        reloads=reloads,
        started_in=started_in,
        error=agent.story,
        booted=agent.is_open,
        crashes=agent.supervisor.crashes,
        restart_at=agent.supervisor.restart_at,
        started_again=agent.supervisor.restarts,
        isolation=agent.config.isolation,
        pid=executor.pid if executor is not None else None,
        kind=agent.config.kind,
        capabilities=tuple(dict.fromkeys((*agent.config.capabilities, *(info.capabilities if info else ())))),
        sessions=kernel.session_counts.of(agent.name),
        full=_is_full(agent, kernel, executor, stats.active),
        shadows=agent.config.shadows,
        peers=agent.config.peers,
        serves=info.serves if info else "",
        warnings=info.warnings if info else (),
        context=agent.context.bill(executor, agent.config, version),
    )


def takes(executor: Executor | None) -> str:
    """What callers have to know of the messages of a typed handler, empty for agents that take text."""
    payload = executor.info.payload if executor is not None else None
    if payload is None:
        return ""
    example = json.dumps(payload.example_json, ensure_ascii=False)
    text = "" if payload.text_field is None else f", or the text of `{payload.text_field}` alone"
    shown = f"for example {example}, " if len(example) <= _MAX_EXAMPLE else ""
    return f"The message is {payload.name} as JSON, {shown}or as XML{text}."


def _is_full(agent: SnapshotSource, kernel: Kernel, executor: Executor | None, active: int) -> bool:
    """Whether it takes no more sessions now, or no more runs than those that it answers (DR-31)."""
    own = executor.info.capacity if executor is not None else 0
    waits = executor is not None and executor.waiting > 0
    if executor is not None and executor.full:
        return True
    return waits or 0 < own <= active or kernel.session_counts.full(agent.name, agent.config.kind, own)
