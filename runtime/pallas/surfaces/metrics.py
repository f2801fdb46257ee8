"""The fleet's metrics for Prometheus."""

from collections.abc import Callable, Collection, Iterator
from time import monotonic
from typing import Final, get_args
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from pallas.model import (
    AgentSnapshot,
    AgentState,
    AuthHop,
    Availability,
    BackendChosen,
    CredentialSource,
    Downstream,
    Event,
    FleetSnapshot,
    HealthStatus,
    LoopBlocked,
    LoopStop,
    LoopStopped,
    Outcome,
    ProbeResult,
    RunContinued,
    RunEvent,
    RunFinished,
    RunStarted,
    StepStarted,
    ToolEvent,
)
from pallas.model.money import USD

MAX_BACKENDS: Final = 100
"""The limit of backends with series of their own, including removed ones."""
OTHER_BACKEND: Final = "other"
LLM_OUTCOMES: Final = ("ok", "busy", "limited", "failed", "refused", "unreachable", "timeout", "cancelled")

_LLM_WAITS: Final = (0.01, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_LLM_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)

_POLLED: Final = ("daedalus_agent_health", "1 ok, 0.5 degraded, 0 error, as get_health says")
"""The gauge of a client for the fleets it polls; a fleet serves the same for its own agents."""
CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4

_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
# A model may name servers that do not exist: names the fleet does not know are counted under this.
OTHER: Final = "other"
# Tool names come from foreign servers, or from a model that invents them: this many have a series of
# their own, in the whole fleet. A name that never worked may not take the last of these places.
MAX_TOOLS: Final = 200
_FOR_TOOLS_THAT_WORK: Final = 50
# The limit of callers with a series of their own, and of runs whose caller is remembered until they end.
MAX_CALLERS: Final = 200
MAX_UNDER_WAY: Final = 2_000
MAX_MODELS: Final = 100
"""Models with a series of their own."""
_PAID: Final = ("agent", "model")
_OUTCOMES: Final = get_args(Outcome)
_REASONS: Final = get_args(LoopStop)
_SOURCES: Final = get_args(CredentialSource)
_REFRESH: Final = 1.0


class LlmMetrics:
    """Counters of handlers' questions to models, by backend (HC-28, HC-29). Safe from any thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._backends: set[str] = set()

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"pallas_llm_{name}", about, labels, registry=registry)

        self._requests = counter("requests", "Questions of handlers that ended", "backend", "outcome")
        self._tokens = counter("tokens", "Tokens of handlers' questions", "backend", "direction")
        self._failovers = counter(
            "failovers", "Questions sent to a backend after another one failed", "backend"
        )
        self._waits = Histogram(
            "pallas_llm_wait_seconds",
            "How long questions waited for a backend's limits",
            ["backend"],
            buckets=_LLM_WAITS,
            registry=registry,
        )
        self._seconds = Histogram(
            "pallas_llm_request_seconds",
            "How long the backends that answered took",
            ["backend"],
            buckets=_LLM_SECONDS,
            registry=registry,
        )

    def observe(self, event: BackendChosen) -> None:
        """Count an event."""
        backend = self._backend(event.backend)
        if not event.outcome:
            self._waits.labels(backend).observe(event.seconds)
            if event.instead:
                self._failovers.labels(backend).inc()
            return
        outcome = event.outcome if event.outcome in LLM_OUTCOMES else OTHER_BACKEND
        self._requests.labels(backend, outcome).inc()
        if outcome == "ok":
            self._seconds.labels(backend).observe(event.seconds)
        for direction, tokens in (("in", event.tokens_in), ("out", event.tokens_out)):
            if tokens is not None and tokens > 0:
                self._tokens.labels(backend, direction).inc(tokens)

    def _backend(self, name: str) -> str:
        if name not in self._backends and len(self._backends) >= MAX_BACKENDS:
            return OTHER_BACKEND
        self._backends.add(name)
        return name


class Metrics:
    """Counters fed by events, and gauges read from the snapshot at each scrape (PR-23).

    Each object has its own registry, so that several fleets may run in one process. Labels hold only names
    that the fleet knows, never text from a caller or a model. Safe from any thread.

    ``instance`` returns the public ``host:port`` of the fleet; if it is empty, the snapshot's is used.
    """

    def __init__(self, snapshot: Callable[[], FleetSnapshot], instance: Callable[[], str] = str) -> None:
        self._names = _Names(snapshot)
        self._callers = _Callers()
        registry = self._registry = CollectorRegistry()

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"pallas_{name}", about, labels, registry=registry)

        self._runs = counter("runs", "Runs that ended", "agent", "outcome")
        self._request_counts = counter(
            "runs_by_caller", "Runs that ended, by caller", "agent", "caller", "outcome"
        )
        self._messages = counter("send_message", "Calls of send_message that ended", "agent", "outcome")
        self._tools = counter(
            "tool_calls", "Downstream calls that ended", "agent", "server", "tool", "outcome"
        )
        self._steps = counter("loop_steps", "Steps of the agent's loop", "agent", "kind")
        self._tokens = counter("tokens", "Tokens as the provider counted them", "agent", "direction")
        self._cost = counter("cost_usd", "US dollars that models cost, as far as prices are known", *_PAID)
        self._unpriced = counter("unpriced_steps", "Answers of models without a known price", *_PAID)
        self._hops = counter(
            "auth_hops",
            "HTTP requests of runs, by the credential that was sent",
            "agent",
            "downstream",
            "source",
        )
        self._aborts = counter("agent_loop_aborted", "Loops stopped by a guard", "agent", "reason")
        self._continued = counter("runs_continued", "Runs that another fleet had left unfinished", "agent")
        self._blocked = counter("loop_blocked", "Times that code blocked the event loop", "agent")
        self._seconds = Histogram(
            "pallas_run_seconds", "Wall time of a run", ["agent"], buckets=_SECONDS, registry=registry
        )
        self._llm = LlmMetrics(registry)
        registry.register(_Gauges(snapshot, instance))
        ProcessCollector(registry=registry)

    def observe(self, event: Event) -> None:
        """Count an event. Subscribed to the event hub; returns at once."""
        if isinstance(event, LoopBlocked) and not event.over:
            self._blocked.labels(self._names.agent(event.agent) if event.agent else OTHER).inc()
        if not isinstance(event, RunEvent):
            return
        if isinstance(event, RunStarted):
            self._callers.started(event)
        elif isinstance(event, RunFinished):
            self._finished(event)
        elif isinstance(event, StepStarted):
            self._step(event)
        elif isinstance(event, ToolEvent):
            self._tool(event)
        elif isinstance(event, BackendChosen):
            self._llm.observe(event)
        elif isinstance(event, RunContinued):
            self._continued.labels(self._names.agent(event.agent)).inc()
        elif isinstance(event, LoopStopped):
            reason = _one_of(event.reason, _REASONS)
            self._aborts.labels(self._names.agent(event.agent), reason).inc()
        elif isinstance(event, AuthHop):
            server = self._names.server(event.downstream)
            source = _one_of(event.source, _SOURCES)
            self._hops.labels(self._names.agent(event.agent), server, source).inc()

    def render(self) -> bytes:
        """Return the metrics in Prometheus' text format, whose content type is ``CONTENT_TYPE``."""
        return generate_latest(self._registry)

    def _finished(self, run: RunFinished) -> None:
        agent, outcome = self._names.agent(run.agent), _one_of(run.outcome, _OUTCOMES)
        self._runs.labels(agent, outcome).inc()
        caller, surface = self._callers.finished(run.run_id)
        self._request_counts.labels(agent, caller, outcome).inc()
        if surface in ("mcp", ""):  # the caller is forgotten: assume the most common case
            self._messages.labels(agent, outcome).inc()
        self._seconds.labels(agent).observe(run.seconds)
        for direction, tokens in (("in", run.tokens_in), ("out", run.tokens_out)):
            if tokens is not None and tokens > 0:
                self._tokens.labels(agent, direction).inc(tokens)
        for each in run.models:
            labels = agent, self._names.model(each.model)
            self._cost.labels(*labels).inc((each.cost or 0) / USD)
            if each.unpriced:
                self._unpriced.labels(*labels).inc(each.unpriced)

    def _step(self, step: StepStarted) -> None:
        # Steps of another agent of the fleet are counted with that agent's own run.
        agent = self._names.agent(step.agent)
        if step.actor == step.agent or not self._names.is_agent(step.actor):
            self._steps.labels(agent, _one_of(step.kind, ("llm", "tool"))).inc()

    def _tool(self, call: ToolEvent) -> None:
        # The calls of a called agent are counted where it runs.
        if call.phase == "started" or call.nested:
            return
        server = self._names.server(call.server)
        tool = self._names.tool(server, call.tool, worked=call.phase == "completed")
        outcome = _one_of(call.phase, ("completed", "failed"))
        self._tools.labels(self._names.agent(call.agent), server, tool, outcome).inc()


class _Callers:
    """The callers of the runs in flight, as labels: the names of tokens and issuers, and a few others."""

    def __init__(self) -> None:
        self._under_way: dict[str, tuple[str, str]] = {}
        self._known: set[str] = set()

    def started(self, run: RunStarted) -> None:
        if len(self._under_way) < MAX_UNDER_WAY:
            self._under_way[run.run_id] = self._label(run), run.surface

    def finished(self, run_id: str) -> tuple[str, str]:
        """Return the caller and surface of an ended run; empty strings if they are not known."""
        return self._under_way.pop(run_id, (OTHER, ""))

    def _label(self, run: RunStarted) -> str:
        if not run.identity or run.identity.startswith("unverified:"):
            return "unverified" if run.principal else "anonymous"
        # An issuer may have any number of subjects: they count as one caller here.
        kind, _, rest = run.identity.partition(":")
        label = f"jwt:{rest.rpartition(':')[0]}" if kind == "jwt" else run.identity
        if label not in self._known and len(self._known) >= MAX_CALLERS:
            return OTHER
        self._known.add(label)
        return label


def _one_of(value: str, known: Collection[str]) -> str:
    return value if value in known else OTHER


class _Names:
    """The names that may become labels, read again when an unknown one comes."""

    def __init__(self, snapshot: Callable[[], FleetSnapshot]) -> None:
        self._snapshot = snapshot
        self._agents: frozenset[str] = frozenset()
        self._servers: frozenset[str] = frozenset()
        self._tools: set[tuple[str, str]] = set()
        self._models: set[str] = set()
        self._looked = -_REFRESH

    def is_agent(self, name: str) -> bool:
        return name in self._agents

    def agent(self, name: str) -> str:
        if name not in self._agents:
            self._look()
        return name if name in self._agents else OTHER

    def server(self, name: str) -> str:
        # A model that invents names must not make us build a snapshot for each of them.
        if name not in self._servers and monotonic() - self._looked >= _REFRESH:
            self._look()
        return name if name in self._servers else OTHER

    def tool(self, server: str, tool: str, *, worked: bool) -> str:
        if server == OTHER:
            return OTHER
        if (server, tool) not in self._tools:
            if len(self._tools) >= MAX_TOOLS - (0 if worked else _FOR_TOOLS_THAT_WORK):
                return OTHER
            self._tools.add((server, tool))
        return tool

    def model(self, name: str) -> str:
        if name and name not in self._models and len(self._models) < MAX_MODELS:
            self._models.add(name)
        return name if name in self._models else OTHER

    def _look(self) -> None:
        self._looked = monotonic()
        fleet = self._snapshot()
        agents = {agent.name for agent in fleet.agents}
        # A removed agent may still have a run that ends, so names are only added.
        self._agents |= agents
        self._servers |= agents | {each.name for agent in fleet.agents for each in agent.downstreams}


class _Gauges(Collector):
    """The gauges, read from the snapshot at each scrape."""

    def __init__(self, snapshot: Callable[[], FleetSnapshot], instance: Callable[[], str]) -> None:
        self._snapshot = snapshot
        self._instance = instance

    def describe(self) -> list[Metric]:
        """Return nothing: the fleet may not be complete while the collector is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Return the gauges of every agent of the fleet."""
        health = GaugeMetricFamily("pallas_agent_health", "1 ok, 0.5 degraded, 0 error", labels=["agent"])
        polled = GaugeMetricFamily(*_POLLED, labels=["instance", "agent"])
        active = GaugeMetricFamily("pallas_runs_in_flight", "Runs that are being answered", labels=["agent"])
        queued = GaugeMetricFamily("pallas_runs_queued", "Runs that wait for their turn", labels=["agent"])
        waiting = GaugeMetricFamily(
            "pallas_runs_waiting", "Runs that wait for a free instance of the agent", labels=["agent"]
        )
        reach = GaugeMetricFamily(
            "pallas_downstream_health",
            "1 reachable, 0.5 asks for credentials, 0 unreachable",
            labels=["agent", "server"],
        )
        supervision = _Supervision()
        fleet = self._snapshot()
        for agent in fleet.agents:
            supervision.add(agent)
            health.add_metric([agent.name], agent.health.status.gauge)
            instance = self._instance() or urlsplit(fleet.registry_url or agent.url).netloc
            polled.add_metric([instance, agent.name], agent.health.status.gauge)
            active.add_metric([agent.name], agent.runs_active)
            queued.add_metric([agent.name], agent.runs_queued)
            waiting.add_metric([agent.name], agent.runs_waiting)
            for downstream in agent.downstreams:
                if (value := _reach(downstream)) is not None:
                    reach.add_metric([agent.name, downstream.name], value)
        yield from (health, polled, active, queued, waiting, reach)
        yield from supervision.families


class _Supervision:
    """The gauges of supervision: lifecycle state, readiness and failures of each agent."""

    def __init__(self) -> None:
        self._state = GaugeMetricFamily(
            "pallas_agent_state",
            "1 for the state that the agent is in, 0 for others",
            labels=["agent", "state"],
        )
        self._booted = GaugeMetricFamily(
            "pallas_agent_booted", "1 when its port answers and gives its health", labels=["agent"]
        )
        self._ready = GaugeMetricFamily("pallas_agent_ready", "1 when it takes runs", labels=["agent"])
        self._healthy = GaugeMetricFamily(
            "pallas_agent_healthy", "1 when it takes runs and nothing is wrong with it", labels=["agent"]
        )
        self._crashes = GaugeMetricFamily(
            "pallas_agent_crashes", "Failures in the window of its restart policy", labels=["agent"]
        )
        self._restarts = CounterMetricFamily(
            "pallas_agent_restarts", "Automatic restarts after a failure", labels=["agent"]
        )
        self._reloads = CounterMetricFamily(
            "pallas_agent_reloads", "Versions that a reload or a rollback put in place", labels=["agent"]
        )
        self._status = GaugeMetricFamily(
            "pallas_agent_status",
            "1 for what discovery says of the agent (ready, busy, unavailable), 0 for others",
            labels=["agent", "status"],
        )
        self._sessions = GaugeMetricFamily(
            "pallas_sessions", "Sessions that are open with the agent", labels=["agent"]
        )

    def add(self, agent: AgentSnapshot) -> None:
        for state in AgentState:
            self._state.add_metric([agent.name, state.value], float(agent.state is state))
        self._booted.add_metric([agent.name], float(agent.booted))
        self._ready.add_metric([agent.name], float(agent.ready))
        self._healthy.add_metric([agent.name], float(agent.healthy))
        self._crashes.add_metric([agent.name], agent.crashes)
        self._restarts.add_metric([agent.name], agent.started_again)
        self._reloads.add_metric([agent.name], agent.reloads)
        for status in get_args(Availability):
            self._status.add_metric([agent.name, status], float(agent.availability == status))
        self._sessions.add_metric([agent.name], agent.sessions)

    @property
    def families(self) -> tuple[Metric, ...]:
        stages = (self._state, self._booted, self._ready, self._healthy)
        return (*stages, self._crashes, self._restarts, self._reloads, self._status, self._sessions)


def _reach(downstream: Downstream) -> float | None:
    known = {
        ProbeResult.OK: 1.0,
        ProbeResult.AUTH_REQUIRED: 0.5,
        ProbeResult.UNREACHABLE: 0.0,
        ProbeResult.NOT_CONFIGURED: 0.0,
    }
    return known.get(downstream.reach)


class ClientHealth:
    """The gauge of a client that polls fleets: ``daedalus_agent_health{instance,agent}`` (PI-16)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._gauge = Gauge(*_POLLED, ["instance", "agent"], registry=registry)
        self._seen: set[tuple[str, str]] = set()

    def set(self, instance: str, agent: str, status: HealthStatus) -> None:
        """Set the result of a poll; a poll that failed is an error."""
        self._seen.add((instance, agent))
        self._gauge.labels(instance, agent).set(status.gauge)

    def forget(self, instance: str) -> None:
        """Remove every agent of an instance that was detached."""
        for pair in [pair for pair in self._seen if pair[0] == instance]:
            self._gauge.remove(*pair)
            self._seen.discard(pair)
