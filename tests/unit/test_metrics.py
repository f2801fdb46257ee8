"""The numbers of a fleet."""

import re
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pallas.model import (
    AgentSnapshot,
    AgentState,
    AuthHop,
    BackendChosen,
    Downstream,
    FleetSnapshot,
    FleetState,
    Health,
    HealthStatus,
    LoopBlocked,
    LoopStopped,
    ModelCost,
    Notice,
    ProbeResult,
    RunContinued,
    RunFinished,
    RunStarted,
    StepStarted,
    TextDelta,
    ToolEvent,
)
from pallas.surfaces.metrics import MAX_TOOLS, ClientHealth, Metrics
from pallas.telemetry.event_hub import EventHub

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS))
import registry_pages  # noqa: E402

sys.path.remove(str(DOCS))
HARPER = AgentSnapshot(
    name="harper",
    title="Harper",
    description="",
    state=AgentState.READY,
    since=0,
    health=Health(HealthStatus.OK),
    port=1,
    url="",
    downstreams=(Downstream("argos", "http", "", ProbeResult.OK), Downstream("neo4j", "http", "")),
)


class Fleet:
    """Gives a snapshot that a test may change."""

    def __init__(self, *agents: AgentSnapshot) -> None:
        self.agents = agents
        self.asked = 0

    def __call__(self) -> FleetSnapshot:
        self.asked += 1
        return FleetSnapshot("p", FleetState.RUNNING, 0, "", self.agents)


def _values(text: bytes, name: str) -> dict[tuple[str, ...], float]:
    """The samples of that name by the values of their labels, in the order of the labels' names."""
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if sample.name == name
    }


def _finished(agent: str = "harper", outcome: str = "ok", **more: object) -> RunFinished:
    return RunFinished(run_id="r", agent=agent, outcome=outcome, seconds=2.0, **more)  # type: ignore[arg-type]


def _tool(server: str, tool: str, phase: str = "completed", *, nested: bool = False) -> ToolEvent:
    return ToolEvent(
        run_id="r",
        agent="harper",
        server=server,
        tool=tool,
        phase=phase,  # type: ignore[arg-type]
        call_id="c",
        nested=nested,
    )


def test_a_run_that_came_in_another_way_is_no_call_of_send_message() -> None:
    metrics, hub = Metrics(Fleet(HARPER)), EventHub()
    hub.listen(metrics.observe)
    for surface in ("mcp", "bridge", "rest"):
        hub.publish(RunStarted(run_id="r", agent="harper", surface=surface))
        hub.publish(_finished())
    text = metrics.render()
    assert _values(text, "pallas_runs_total") == {("harper", "ok"): 3}
    assert _values(text, "pallas_send_message_total") == {("harper", "ok"): 1}


def test_runs_are_counted_by_agent_and_outcome() -> None:  # PR-23
    metrics, hub = Metrics(Fleet(HARPER)), EventHub()
    hub.listen(metrics.observe)
    for outcome in ("ok", "ok", "error", "cancelled"):
        hub.publish(RunStarted(run_id="r", agent="harper"))
        hub.publish(_finished(outcome=outcome, tokens_in=10, tokens_out=3))
    hub.publish(_finished(tokens_in=None, tokens_out=0))
    text = metrics.render()
    assert _values(text, "pallas_runs_total") == {
        ("harper", "ok"): 3,
        ("harper", "error"): 1,
        ("harper", "cancelled"): 1,
    }
    assert _values(text, "pallas_send_message_total") == _values(text, "pallas_runs_total")
    assert _values(text, "pallas_run_seconds_count") == {("harper",): 5}
    assert _values(text, "pallas_run_seconds_sum") == {("harper",): 10}
    assert _values(text, "pallas_tokens_total") == {("harper", "in"): 40, ("harper", "out"): 12}


def test_steps_and_tool_calls_are_counted() -> None:
    metrics = Metrics(Fleet(HARPER))
    for step, kind in ((1, "llm"), (2, "tool"), (3, "llm")):
        metrics.observe(StepStarted(run_id="r", agent="harper", actor="child", step=step, kind=kind))
    for phase in ("started", "completed", "started", "failed", "started"):
        metrics.observe(
            ToolEvent(run_id="r", agent="harper", server="argos", tool="t", phase=phase, call_id="c")
        )
    metrics.observe(TextDelta(run_id="r", agent="harper", text="x"))
    metrics.observe(Notice(level="info", text="x", agent="harper"))
    metrics.observe(LoopStopped(run_id="r", agent="harper", reason="repeat", tool="argos/t", count=3))
    metrics.observe(AuthHop(run_id="r", agent="harper", downstream="argos", source="forwarded"))
    text = metrics.render()
    assert _values(text, "pallas_loop_steps_total") == {("harper", "llm"): 2, ("harper", "tool"): 1}
    assert _values(text, "pallas_tool_calls_total") == {
        ("harper", "completed", "argos", "t"): 1,
        ("harper", "failed", "argos", "t"): 1,
    }
    assert _values(text, "pallas_agent_loop_aborted_total") == {("harper", "repeat"): 1}
    assert _values(text, "pallas_auth_hops_total") == {("harper", "argos", "forwarded"): 1}


def test_what_a_called_agent_does_is_counted_where_it_runs() -> None:
    metrics = Metrics(Fleet(HARPER, replace(HARPER, name="jarvis")))
    for actor in ("harper", "jarvis", "a-part-of-harper"):
        metrics.observe(StepStarted(run_id="r", agent="harper", actor=actor, step=1, kind="llm"))
    for nested in (False, True):
        metrics.observe(_tool("argos", "t", nested=nested))
    text = metrics.render()
    assert _values(text, "pallas_loop_steps_total") == {("harper", "llm"): 2}
    assert _values(text, "pallas_tool_calls_total") == {("harper", "completed", "argos", "t"): 1}


def test_gauges_are_what_the_snapshot_says_at_the_scrape() -> None:
    fleet = Fleet()
    metrics = Metrics(fleet)
    assert fleet.asked == 0  # a fleet makes its metrics before it is complete
    assert _values(metrics.render(), "pallas_agent_health") == {}
    fleet.agents = (
        replace(
            HARPER,
            health=Health(HealthStatus.DEGRADED, "x"),
            runs_active=2,
            runs_queued=5,
            runs_waiting=1,
        ),
        replace(HARPER, name="jarvis", health=Health(HealthStatus.ERROR, "x"), downstreams=()),
    )
    text = metrics.render()
    assert _values(text, "pallas_agent_health") == {("harper",): 0.5, ("jarvis",): 0}
    assert _values(text, "pallas_runs_in_flight") == {("harper",): 2, ("jarvis",): 0}
    assert _values(text, "pallas_runs_queued") == {("harper",): 5, ("jarvis",): 0}
    assert _values(text, "pallas_runs_waiting") == {("harper",): 1, ("jarvis",): 0}
    assert _values(text, "pallas_downstream_health") == {("harper", "argos"): 1}  # neo4j was not probed yet
    fleet.agents = (HARPER,)
    assert _values(metrics.render(), "pallas_agent_health") == {("harper",): 1}


def test_names_that_a_caller_or_a_model_made_up_become_no_labels() -> None:
    fleet = Fleet(HARPER)
    metrics = Metrics(fleet)
    for number in range(1_000):
        metrics.observe(_finished(agent=f"made-up-{number}"))
        tool = ToolEvent(
            run_id="r", agent="harper", server=f"evil-{number}", tool="t", phase="failed", call_id="c"
        )
        metrics.observe(tool)
    text = metrics.render()
    assert _values(text, "pallas_runs_total") == {("other", "ok"): 1_000}
    assert _values(text, "pallas_tool_calls_total") == {("harper", "failed", "other", "other"): 1_000}


@pytest.mark.slow
def test_ten_thousand_names_that_somebody_made_up_become_few_series() -> None:
    # PR-23
    metrics, hub = Metrics(Fleet(HARPER)), EventHub()
    hub.listen(metrics.observe)
    hub.publish(_tool("argos", "real"))
    before = _series(metrics.render())
    for number in range(10_000):
        name = f'made up {number}"\n\\{{x="y"}}'
        more: dict[str, Any] = {"run_id": name, "agent": name if number % 2 else "harper"}
        for event in (
            _tool("argos", name, "failed"),
            _tool("argos", name),
            _tool(name, name, name),
            StepStarted(**more, actor=name, step=number, kind=name),  # type: ignore[arg-type]
            AuthHop(**more, downstream=name, source=name, fingerprint=name, method=name),  # type: ignore[arg-type]
            LoopStopped(**more, reason=name, tool=name),  # type: ignore[arg-type]
            RunStarted(**more, preview=name, conversation=name),
            RunFinished(**more, outcome=name, seconds=0.1, fault=name),  # type: ignore[arg-type]
            Notice(level="info", text=name, agent=name),
        ):
            hub.publish(event)
    text = metrics.render()
    tools = {tool for _, _, _, tool in _values(text, "pallas_tool_calls_total")}
    assert len(tools) == MAX_TOOLS + 1  # and the one for the rest
    assert {"real", "other"} <= tools
    # Two outcomes of each tool, each with the time it was first seen, and a handful of "other".
    assert _series(text) - before < 4 * MAX_TOOLS + 60
    assert _values(text, "pallas_tool_calls_total")["harper", "completed", "argos", "other"] > 9_000


def test_a_name_that_never_worked_leaves_places_for_those_that_do() -> None:
    metrics = Metrics(Fleet(HARPER))
    for number in range(1_000):
        metrics.observe(_tool("argos", f"invented-{number}", "failed"))
    metrics.observe(_tool("argos", "search"))
    values = _values(metrics.render(), "pallas_tool_calls_total")
    assert values["harper", "completed", "argos", "search"] == 1
    assert values["harper", "failed", "argos", "other"] == 1_000 - (len(values) - 2)


def test_the_documents_list_every_metric_with_its_labels() -> None:
    # PR-23
    metrics = Metrics(Fleet(HARPER))
    metrics.observe(_finished(tokens_in=1, models=(ModelCost("m", 5, 1),)))
    metrics.observe(_tool("argos", "t"))
    metrics.observe(StepStarted(run_id="r", agent="harper", actor="harper", step=1, kind="llm"))
    metrics.observe(AuthHop(run_id="r", agent="harper", downstream="argos", source="none"))
    metrics.observe(LoopStopped(run_id="r", agent="harper", reason="repeat"))
    metrics.observe(LoopBlocked(seconds=1.0, agent="harper"))
    metrics.observe(RunContinued(run_id="r", agent="harper", attempt=2))
    chosen = BackendChosen(run_id="r", agent="harper", actor="harper", model="m", backend="b", why="x")
    metrics.observe(replace(chosen, instead="c"))
    metrics.observe(replace(chosen, outcome="ok", tokens_in=1))
    served = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        name = family.name + ("_total" if family.type == "counter" else "")
        if name.startswith(("pallas_", "daedalus_")) and not name.endswith("_created"):
            served[name] = (family.type, set(family.samples[0].labels) - {"le"})
    listed = {}
    for line in registry_pages.metrics().splitlines():
        if line.startswith(("| `pallas_", "| `daedalus_")):
            _, name, kind, labels, _ = line.split("|", 4)
            listed[name.strip(" `")] = (kind.strip(), set(re.findall(r"`(\w+)`", labels)))
    assert listed == served


def _series(text: bytes) -> int:
    """How many series the exposition has; it must parse."""
    return sum(len(family.samples) for family in text_string_to_metric_families(text.decode()))


def test_an_agent_added_later_is_counted_under_its_name_also_after_it_is_gone() -> None:
    fleet = Fleet(HARPER)
    metrics = Metrics(fleet)
    metrics.observe(_finished())
    fleet.agents = (HARPER, replace(HARPER, name="jarvis"))
    metrics.observe(_finished("jarvis"))
    fleet.agents = (HARPER,)
    metrics.observe(_finished("jarvis"))
    assert _values(metrics.render(), "pallas_runs_total") == {("harper", "ok"): 1, ("jarvis", "ok"): 2}


def test_fleets_in_one_process_do_not_share_numbers() -> None:
    first, second = Metrics(Fleet(HARPER)), Metrics(Fleet(HARPER))
    first.observe(_finished())
    assert _values(first.render(), "pallas_runs_total") == {("harper", "ok"): 1}
    assert _values(second.render(), "pallas_runs_total") == {}


def test_threads_may_count_while_another_scrapes() -> None:
    metrics = Metrics(Fleet(HARPER))
    threads = [
        threading.Thread(target=lambda: [metrics.observe(_finished()) for _ in range(500)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        metrics.render()
    assert _values(metrics.render(), "pallas_runs_total") == {("harper", "ok"): 2_000}


@pytest.mark.parametrize(("status", "value"), [("ok", 1.0), ("degraded", 0.5), ("error", 0.0)])
def test_a_client_shows_the_health_it_polled(status: str, value: float) -> None:  # PI-16
    registry = CollectorRegistry()
    gauge = ClientHealth(registry)
    gauge.set("http://a:1", "harper", HealthStatus(status))
    gauge.set("http://b:1", "harper", HealthStatus.OK)
    labels = {"instance": "http://a:1", "agent": "harper"}
    assert registry.get_sample_value("daedalus_agent_health", labels) == value
    gauge.forget("http://a:1")
    gauge.forget("http://never:1")
    assert registry.get_sample_value("daedalus_agent_health", labels) is None
    assert _values(generate_latest(registry), "daedalus_agent_health") == {("harper", "http://b:1"): 1.0}
