"""An agent of the fleet as a value: what every surface shows of it."""

from typing import TYPE_CHECKING

from pallas.executors import Executor
from pallas.kernel import Kernel
from pallas.model import AgentSnapshot

if TYPE_CHECKING:
    from .agent import FleetAgent


def snapshot_of(
    agent: "FleetAgent",
    kernel: Kernel,
    *,
    version: int,
    previous: int,
    restarts: int,
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
        source=str(agent.config.where),
        version=version,
        previous=previous,
        restarts=restarts,
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
        sessions=kernel.leases.of(agent.name),
        full=_is_full(agent, kernel, executor, stats.active),
        shadows=agent.config.shadows,
    )


def _is_full(agent: "FleetAgent", kernel: Kernel, executor: Executor | None, active: int) -> bool:
    """Whether it takes no more sessions now, or no more runs than those that it answers (DR-31)."""
    own = executor.info.capacity if executor is not None else 0
    waits = executor is not None and executor.waiting > 0
    return waits or 0 < own <= active or kernel.leases.full(agent.name, agent.config.kind, own)
