"""The health of servers that get their callers' tokens: it is that of all callers, and of no single one."""

import dataclasses
from pathlib import Path

import pytest
from support.live import ERAS, agent_module, client, running, tool_call, write_project
from support.outages import Outage, answer_and_missing, outages
from support.waiting import poll, until

from pallas.fleet.fleet import Fleet
from pallas.fleet.health_monitor import CheckIntervals
from pallas.model import Downstream, HealthStatus, ProbeResult
from pallas.model.codec import encode

PACE = CheckIntervals(health=0.2, confirm=0.1)
GOOD, BAD = "good-token-4711", "bad-token-0815"


def project(root: Path, server: Outage, era: str) -> Path:
    entry = {
        "url": server.url,
        "forward_inbound_auth": True,
        "protocol_mode": "legacy" if era == "legacy" else "auto",
    }
    return write_project(
        root, {"one": agent_module("one", (server.name,))}, config={"mcp": {"servers": {server.name: entry}}}
    )


def shown(fleet: Fleet) -> Downstream:
    return fleet.snapshot().agents[0].downstreams[0]


def is_ok(fleet: Fleet) -> bool:
    return fleet.snapshot().agents[0].health.status is HealthStatus.OK


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("strangers", [401, 403, 302])
async def test_the_connections_of_callers_count_and_a_refused_caller_does_not(
    tmp_path: Path, strangers: int, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PI-12, PR-25
    monkeypatch.setattr("pallas.health.probe.prober.CACHE_SECONDS", 0.0)
    async with outages("right") as (right,):
        right.token, right.strangers = GOOD, strangers
        async with running(project(tmp_path, right, era), pace=PACE) as fleet:
            reach = ProbeResult.OK if strangers == 401 else None
            first = await poll(lambda: _now(fleet), lambda found: found.reach is not ProbeResult.UNKNOWN)
            assert (first.reach is ProbeResult.OK) == (reach is ProbeResult.OK)

            async with (
                client(fleet, "one", era=era, bearer=GOOD) as good,
                client(fleet, "one", era=era, bearer=BAD) as bad,
            ):
                text, missing = await answer_and_missing(good, tool_call("right__say", text="x"))
                assert ("right:x" in text, missing) == (True, {})
                await until(lambda: is_ok(fleet))
                await until(lambda: "1 connection with callers' tokens" in shown(fleet).detail)

                _, missing = await answer_and_missing(bad, "hi")
                assert "refused the caller's bearer (HTTP 401)" in missing["right"]
                await until(lambda: "1 without it: refused the caller's bearer" in shown(fleet).detail)
                assert is_ok(fleet)
                connection = shown(fleet).connection
                assert connection is not None
                assert (connection.open_count, connection.failed_count) == (1, 1)
                assert connection.failed_at > connection.since > 0
                for text in (encode(fleet.snapshot()).decode(), str(dataclasses.asdict(shown(fleet)))):
                    assert GOOD not in text
                    assert BAD not in text

                await right.stop()
                await until(lambda: shown(fleet).reach is ProbeResult.UNREACHABLE)
                await until(lambda: not is_ok(fleet))


async def _now(fleet: Fleet) -> Downstream:
    return shown(fleet)
