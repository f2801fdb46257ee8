"""Runs are counted by who asked for them, under few names."""

from prometheus_client.parser import text_string_to_metric_families

from pallas.model import (
    AgentSnapshot,
    AgentState,
    Event,
    FleetSnapshot,
    FleetState,
    Health,
    HealthStatus,
    Principal,
    RunFinished,
    RunStarted,
)
from pallas.surfaces.metrics import MAX_CALLERS, Metrics

HARPER = AgentSnapshot(
    name="harper", title="Harper", description="", state=AgentState.READY, since=0,
    health=Health(HealthStatus.OK), port=1, url="",
)  # fmt: skip


def asked(number: int, who: Principal) -> tuple[Event, Event]:
    run = {"run_id": f"r{number}", "agent": "harper"}
    return (
        RunStarted(**run, principal=who.fingerprint, identity=who.name),
        RunFinished(**run, outcome="ok", seconds=1.0),
    )


def counted(*callers: Principal) -> dict[str, float]:
    metrics = Metrics(lambda: FleetSnapshot("p", FleetState.RUNNING, 0, "", (HARPER,)))
    events = [asked(number, who) for number, who in enumerate(callers)]
    for started, _ in events:
        metrics.observe(started)
    for _, finished in events:
        metrics.observe(finished)
    families = text_string_to_metric_families(metrics.render().decode())
    return {
        sample.labels["caller"]: sample.value
        for family in families
        for sample in family.samples
        if sample.name == "pallas_runs_by_caller_total"
    }


def test_a_caller_is_the_name_of_a_token_or_of_an_issuer() -> None:
    found = counted(
        Principal(), Principal("bearer:0a1b", "0a1b"), Principal("token:ci", "1"), Principal("token:ci", "2"),
        Principal("jwt:corp:0123456789abcdef", "3"), Principal("jwt:corp:fedcba9876543210", "4"),
    )  # fmt: skip
    assert found == {"anonymous": 1, "unverified": 1, "token:ci": 2, "jwt:corp": 2}


def test_however_many_come_there_are_few_series() -> None:
    found = counted(*(Principal(f"jwt:corp:{number:016x}", "x") for number in range(3_000)))
    assert set(found) <= {"jwt:corp", "other"}
    named = counted(*(Principal(f"token:t{number}", "x") for number in range(MAX_CALLERS + 50)))
    assert len(named) == MAX_CALLERS + 1
    assert named["other"] == 50


def test_a_principal_shows_who_it_is_and_no_more() -> None:
    assert Principal("jwt:my:corp:0123456789abcdef", "9").name == "jwt:my:corp:01234567"
    assert Principal("token:ci", "9").name == "token:ci"
    assert Principal("bearer:0a1b", "0a1b").name == Principal().name == ""
    assert Principal("token:ci", "1") == Principal("token:ci", "2")
    assert hash(Principal("token:ci", "1")) == hash(Principal("token:ci", "2"))
