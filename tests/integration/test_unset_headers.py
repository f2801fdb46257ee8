"""A server whose header refers to a variable that is not set: said by name, never called, no outage."""

import logging
from pathlib import Path

import pytest
from support.live import ERAS, agent_module, client, running, tool_call, write_project
from support.outages import outages

from pallas.model import HealthStatus
from pallas.model.redaction import redact_text

pytestmark = pytest.mark.usefixtures("forked_children")

META = "local.pallas/missingServers"
WHY = "not configured: UNSET_TOKEN is unset"


@pytest.mark.slow
@pytest.mark.parametrize("header", ["Authorization", "X-Api-Key"])
@pytest.mark.parametrize("isolation", ["none", "process"])
async def test_a_server_with_an_unset_variable_is_said_to_be_not_configured_and_is_not_called(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    header: str,
    isolation: str,
) -> None:
    # PR-9, PI-12
    monkeypatch.delenv("UNSET_TOKEN", raising=False)
    async with outages("left", "right") as (left, right):
        entries = {
            "left": {"url": left.url},
            "right": {"url": right.url, "headers": {header: "Bearer ${UNSET_TOKEN}"}},
        }
        root = write_project(
            tmp_path,
            {"one": agent_module("one", ("left", "right"))},
            config={"mcp": {"servers": entries}},
            keys={"one": {"isolation": isolation}},
        )
        with caplog.at_level(logging.WARNING):
            async with running(root) as fleet:
                (agent,) = fleet.snapshot().agents
                assert agent.health.status is HealthStatus.DEGRADED
                assert agent.health.message == f"right {WHY}"
                (found,) = [each for each in agent.downstreams if each.name == "right"]
                assert found.detail == WHY
                for era in ERAS:
                    async with client(fleet, "one", era=era) as one:
                        call = tool_call("left__say", text="x")
                        result = await one.call_tool("send_message", {"message": call})
                        assert not result.is_error
                        assert "left:x" in result.content[0].text  # type: ignore[union-attr]
                        assert (result.meta or {})[META] == {"right": WHY}
        assert right.seen == 0
        (warning,) = [redact_text(each) for each in caplog.messages if "which is not set" in each]
        assert "UNSET_TOKEN" in warning
        assert f"mcp.servers.right.headers.{header}" in warning
        assert "fastagent.config.yaml:" in warning
