"""What handlers ask of models, counted by backend and outcome."""

from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest
from support.backends import OK, backend, desk, failure, project

from pallas.model import BackendChosen, FleetSnapshot, FleetState, RunEvent
from pallas.surfaces.metrics import MAX_BACKENDS, LlmMetrics, Metrics


def _snapshot() -> FleetSnapshot:
    return FleetSnapshot(
        name="demo", state=FleetState.RUNNING, since=0, registry_url="", agents=(), servers=()
    )


async def test_requests_tokens_waits_and_failovers_are_counted_by_backend() -> None:
    # HC-28, HC-29
    asking = desk(
        project(backend("one"), backend("two", priority=2, rate_limit_tpm=6_000)),
        one=[failure(status=429), OK],
        two=[replace(OK, tokens_in=100, tokens_out=6_000)],
    )
    await asking.ask()
    await asking.ask()
    metrics = Metrics(_snapshot)
    for event in asking.events:
        assert isinstance(event, RunEvent)
        metrics.observe(event)
    lines = metrics.render().decode().splitlines()
    for line in (
        'pallas_llm_requests_total{backend="one",outcome="limited"} 1.0',
        'pallas_llm_requests_total{backend="two",outcome="ok"} 2.0',
        'pallas_llm_tokens_total{backend="two",direction="out"} 12000.0',
        'pallas_llm_failovers_total{backend="two"} 1.0',
        'pallas_llm_wait_seconds_count{backend="two"} 2.0',
        'pallas_llm_wait_seconds_sum{backend="two"} 2.0',
        'pallas_llm_request_seconds_count{backend="two"} 2.0',
    ):
        assert line in lines


def test_labels_are_bounded() -> None:
    registry = CollectorRegistry()
    metrics = LlmMetrics(registry)
    for number in range(3 * MAX_BACKENDS):
        chosen = BackendChosen(run_id="r", agent="a", actor="a", model="m", backend=f"b{number}", why="x")
        metrics.observe(replace(chosen, outcome=f"made up {number}"))
    said = generate_latest(registry).decode().splitlines()
    series = [line for line in said if line.startswith("pallas_llm_requests_total{")]
    assert len(series) == MAX_BACKENDS + 1
    assert f'pallas_llm_requests_total{{backend="other",outcome="other"}} {2.0 * MAX_BACKENDS}' in series
