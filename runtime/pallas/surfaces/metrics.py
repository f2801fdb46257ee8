"""The fleet in numbers, for Prometheus."""

from collections.abc import Callable, Iterator
from time import monotonic
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from pallas.model import (
    Downstream,
    Event,
    FleetSnapshot,
    HealthStatus,
    Reach,
    RunEvent,
    RunFinished,
    StepStarted,
    ToolEvent,
)

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
LoopAbort = Literal["repeat", "iterations"]

_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
# A model may name servers that do not exist: what the fleet does not know is counted under this.
OTHER: Final = "other"
_REFRESH: Final = 1.0


class Metrics:
    """Counters fed by events, and gauges read from the snapshot when they are asked for (PR-23).

    Each object has a registry of its own, so that several fleets may live in one process. Labels hold
    only names the fleet knows, never what a caller or a model wrote. Safe from any thread.
    """

    def __init__(self, snapshot: Callable[[], FleetSnapshot]) -> None:
        self._names = _Names(snapshot)
        registry = self._registry = CollectorRegistry()

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"pallas_{name}", about, labels, registry=registry)

        self._runs = counter("runs", "Runs that ended", "agent", "outcome")
        self._messages = counter("send_message", "Calls of send_message that ended", "agent", "outcome")
        self._tools = counter("tool_calls", "Downstream calls that ended", "agent", "server", "outcome")
        self._steps = counter("loop_steps", "Steps of the agent's loop", "agent", "kind")
        self._tokens = counter("tokens", "Tokens as the provider counted them", "agent", "direction")
        self._aborts = counter("agent_loop_aborted", "Loops stopped by a guard", "agent", "reason")
        self._seconds = Histogram(
            "pallas_run_seconds", "Wall time of a run", ["agent"], buckets=_SECONDS, registry=registry
        )
        registry.register(_Gauges(snapshot))
        ProcessCollector(registry=registry)

    def observe(self, event: Event) -> None:
        """Count an event; made to listen to the hub, and returns at once."""
        if not isinstance(event, RunEvent):
            return
        if isinstance(event, RunFinished):
            self._finished(event)
        elif isinstance(event, StepStarted):
            self._steps.labels(self._names.agent(event.agent), event.kind).inc()
        elif isinstance(event, ToolEvent) and event.phase != "started":
            server = self._names.server(event.server)
            self._tools.labels(self._names.agent(event.agent), server, event.phase).inc()

    def loop_aborted(self, agent: str, reason: LoopAbort) -> None:
        """Count a loop that a guard stopped: the same call again and again, or too many iterations."""
        self._aborts.labels(self._names.agent(agent), reason).inc()

    def render(self) -> bytes:
        """The metrics in Prometheus' text format, of which ``CONTENT_TYPE`` is the content type."""
        return generate_latest(self._registry)

    def _finished(self, run: RunFinished) -> None:
        agent = self._names.agent(run.agent)
        self._runs.labels(agent, run.outcome).inc()
        # Until agents can be reached in another way, every run is a call of send_message.
        self._messages.labels(agent, run.outcome).inc()
        self._seconds.labels(agent).observe(run.seconds)
        for direction, tokens in (("in", run.tokens_in), ("out", run.tokens_out)):
            if tokens is not None and tokens > 0:
                self._tokens.labels(agent, direction).inc(tokens)


class _Names:
    """The names that may become labels, looked up again when an unknown one comes."""

    def __init__(self, snapshot: Callable[[], FleetSnapshot]) -> None:
        self._snapshot = snapshot
        self._agents: frozenset[str] = frozenset()
        self._servers: frozenset[str] = frozenset()
        self._looked = -_REFRESH

    def agent(self, name: str) -> str:
        if name not in self._agents:
            self._look()
        return name if name in self._agents else OTHER

    def server(self, name: str) -> str:
        # A model that makes up names must not make us build a snapshot for each of them.
        if name not in self._servers and monotonic() - self._looked >= _REFRESH:
            self._look()
        return name if name in self._servers else OTHER

    def _look(self) -> None:
        self._looked = monotonic()
        fleet = self._snapshot()
        agents = {agent.name for agent in fleet.agents}
        # One that was removed since may still have a run that ends: names only come in addition.
        self._agents |= agents
        self._servers |= agents | {each.name for agent in fleet.agents for each in agent.downstreams}


class _Gauges(Collector):
    """What is true now, read from the snapshot at each scrape."""

    def __init__(self, snapshot: Callable[[], FleetSnapshot]) -> None:
        self._snapshot = snapshot

    def describe(self) -> list[Metric]:
        """Nothing is read while registering: the fleet may not be complete yet."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The gauges of every agent of the fleet."""
        health = GaugeMetricFamily("pallas_agent_health", "1 ok, 0.5 degraded, 0 error", labels=["agent"])
        active = GaugeMetricFamily("pallas_runs_in_flight", "Runs that are being answered", labels=["agent"])
        queued = GaugeMetricFamily("pallas_runs_queued", "Runs that wait for their turn", labels=["agent"])
        reach = GaugeMetricFamily(
            "pallas_downstream_health",
            "1 reachable, 0.5 asks for credentials, 0 unreachable",
            labels=["agent", "server"],
        )
        for agent in self._snapshot().agents:
            health.add_metric([agent.name], agent.health.status.gauge)
            active.add_metric([agent.name], agent.runs_active)
            queued.add_metric([agent.name], agent.runs_queued)
            for downstream in agent.downstreams:
                if (value := _reach(downstream)) is not None:
                    reach.add_metric([agent.name, downstream.name], value)
        yield from (health, active, queued, reach)


def _reach(downstream: Downstream) -> float | None:
    known = {Reach.OK: 1.0, Reach.AUTH_REQUIRED: 0.5, Reach.UNREACHABLE: 0.0}
    return known.get(downstream.reach)


class ClientHealth:
    """The gauge of whoever polls fleets: ``daedalus_agent_health{instance,agent}`` (SPEC PI-16)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._gauge = Gauge(
            "daedalus_agent_health", "1 ok, 0.5 degraded, 0 error", ["instance", "agent"], registry=registry
        )
        self._seen: set[tuple[str, str]] = set()

    def set(self, instance: str, agent: str, status: HealthStatus) -> None:
        """Note what a poll found; a poll that failed is an error."""
        self._seen.add((instance, agent))
        self._gauge.labels(instance, agent).set(status.gauge)

    def forget(self, instance: str) -> None:
        """Take out every agent of an instance that was detached."""
        for pair in [pair for pair in self._seen if pair[0] == instance]:
            self._gauge.remove(*pair)
            self._seen.discard(pair)
