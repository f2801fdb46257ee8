"""What real calls say of a downstream, out of the events of runs."""

from dataclasses import replace
from time import time

import pytest

from pallas.config.models import DownstreamConfig
from pallas.health.probe import CALL_SECONDS, CallRecord, health_of
from pallas.model import (
    AgentState,
    AuthHop,
    CallOutcome,
    CredentialSource,
    Downstream,
    HealthStatus,
    Outcome,
    ProbeResult,
    RunFinished,
    TextDelta,
    ToolEvent,
    ToolPhase,
)

SHOP = DownstreamConfig("shop", "http", url="http://x/mcp")


def _hop(
    status: int | None,
    method: str = "tools/call",
    source: CredentialSource = "configured",
    *,
    run: str = "r",
    server: str = "shop",
) -> AuthHop:
    return AuthHop(
        run_id=run, agent="a", downstream=server, source=source, status=status, method=method, at=5
    )


def _tool(phase: ToolPhase, *, server: str = "shop", nested: bool = False) -> ToolEvent:
    return ToolEvent(
        run_id="r", agent="a", server=server, tool="buy", phase=phase, call_id="c", nested=nested, at=6
    )


def _end(outcome: Outcome = "ok", run: str = "r") -> RunFinished:
    return RunFinished(run_id=run, agent="a", outcome=outcome, seconds=1)


def _health(record: CallRecord, reach: ProbeResult = ProbeResult.OK, *, age: float = 0.0) -> tuple[str, str]:
    call = record.last("shop")
    call = replace(call, at=time() - age) if call else None
    shop = Downstream("shop", "http", "http://x/mcp", reach, last_call=call)
    health = health_of(AgentState.READY, (shop,))
    return health.status.value, health.message


@pytest.mark.parametrize(
    ("status", "reach", "message"),
    [
        (401, ProbeResult.AUTH_REQUIRED, "Auth required: shop (last call: HTTP 401)"),
        (403, ProbeResult.AUTH_REQUIRED, "Auth required: shop (last call: HTTP 403)"),
        (500, ProbeResult.UNREACHABLE, "Failing: shop (last call: HTTP 500)"),
        (503, ProbeResult.UNREACHABLE, "Failing: shop (last call: HTTP 503)"),
    ],
)
def test_a_real_call_that_is_refused_says_so_though_the_probe_is_answered(
    status: int, reach: ProbeResult, message: str
) -> None:
    record = CallRecord((SHOP,))
    assert _health(record) == ("ok", "")
    assert record.observe(_hop(status))
    assert not record.observe(_hop(status))  # nothing new
    assert record.last("shop") == CallOutcome(False, 5, f"HTTP {status}", reach)
    assert not record.observe(_tool("failed"))  # the same call, as the run tells it
    assert _health(record) == ("degraded", message)
    assert record.observe(_tool("completed"))
    assert record.last("shop") == CallOutcome(True, 6)
    assert _health(record) == ("ok", "")


def test_a_call_contradicts_the_probe_only_while_the_probe_says_ok() -> None:
    record = CallRecord((SHOP,))
    record.observe(_hop(503))
    assert _health(record, ProbeResult.UNREACHABLE) == ("degraded", "Unreachable: shop")
    assert _health(record, ProbeResult.AUTH_REQUIRED) == ("degraded", "Auth required: shop")
    assert _health(record, age=CALL_SECONDS - 5)[0] == HealthStatus.DEGRADED
    assert _health(record, age=CALL_SECONDS + 5) == ("ok", "")


def test_a_tool_that_answers_with_an_error_is_no_matter_of_health() -> None:
    record = CallRecord((SHOP,))
    record.observe(_hop(200))
    assert not record.observe(_tool("failed"))
    assert record.last("shop") == CallOutcome(False, 6, "buy failed", ProbeResult.OK)
    assert _health(record) == ("ok", "")


@pytest.mark.parametrize(("source", "forwards"), [("forwarded", True), ("none", True)])
def test_a_callers_own_bad_token_does_not_make_the_agent_ill_for_everybody(
    source: CredentialSource, forwards: bool
) -> None:
    record = CallRecord((replace(SHOP, forward_inbound_auth=forwards),))
    assert not record.observe(_hop(401, source=source))
    last = record.last("shop")
    assert last is not None
    assert (last.ok, last.reach) == (False, ProbeResult.UNKNOWN)
    assert last.detail == "HTTP 401 to the caller's own credential"
    assert _health(record) == ("ok", "")


def test_no_answer_counts_when_the_run_was_not_cancelled() -> None:
    record = CallRecord((SHOP,))
    for run, outcome in (("one", "cancelled"), ("two", "error")):
        assert not record.observe(_hop(None, run=run))
        assert record.observe(_end(outcome, run)) is (outcome == "error")  # type: ignore[arg-type]
    assert _health(record) == ("degraded", "Failing: shop (last call: no answer)")
    answered = CallRecord((SHOP,))
    answered.observe(_hop(None))
    answered.observe(_hop(200))  # the second try
    assert not answered.observe(_end())
    assert answered.last("shop") is None


def test_an_answered_list_does_not_make_up_for_a_refused_call() -> None:
    record = CallRecord((SHOP,))
    record.observe(_hop(503))
    assert not record.observe(_hop(200, "tools/list"))
    assert record.observe(_hop(200, "tools/call"))
    record.observe(_hop(503, "initialize"))
    assert record.observe(_hop(200, "initialize"))
    assert _health(record) == ("ok", "")


def test_what_is_no_call_to_a_known_server_is_left_out() -> None:
    record = CallRecord((SHOP,))
    for event in (
        _hop(503, ""),
        _hop(500, "server/discover"),
        _hop(404),
        _hop(503, server="other"),
        _tool("failed", server="other"),
        _tool("failed", nested=True),
        _tool("started"),
        TextDelta(run_id="r", agent="a", text="x"),
    ):
        assert not record.observe(event)
    assert record.last("shop") is None
    assert record.last("other") is None


def test_however_many_runs_get_no_answer_little_is_kept() -> None:
    record = CallRecord((SHOP,))
    for number in range(10_000):
        record.observe(_hop(None, run=f"run-{number}"))
        record.observe(_hop(None, run=f"run-{number}", server=f"made-up-{number}"))
    assert len(record._silent) <= 1_000
    for number in range(10_000):
        record.observe(_end("cancelled", f"run-{number}"))
    assert record._silent == {}


def _probed(record: CallRecord, *reaches: ProbeResult, began: float = 9) -> str:
    for reach in reaches:
        record.probed([Downstream("shop", "http", "http://x/mcp", reach)], began)
    return _health(record)[1]


def test_a_server_that_answers_probes_again_is_well_unless_they_were_answered_all_the_time() -> None:
    # PI-12
    ok, gone = ProbeResult.OK, ProbeResult.UNREACHABLE
    record = CallRecord((SHOP,))
    failing = "Failing: shop (last call: HTTP 503)"
    record.observe(_hop(503))
    assert _probed(record, ok, ok) == failing
    assert _probed(record, gone, ok, began=1) == failing  # before the call
    assert _probed(record, gone, ok) == ""
    assert record.last("shop") == CallOutcome(False, 5, "HTTP 503", ok)
    record.observe(_hop(503))  # and it counts once more
    assert _probed(record, ok) == failing
    record.observe(_hop(None))
    record.observe(_end())
    assert _health(record)[1] == "Failing: shop (last call: no answer)"
    assert _probed(record, ok) == ""
