"""Advice of fast-agent that only its own program can follow is left out of what people read."""

import pytest
from fast_agent.core.exceptions import ModelConfigError
from fast_agent.mcp import mcp_connection_manager

from pallas.executors.fastagent.fastagent_faults import fault_of, without_options


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Try increasing --timeout or verify server/network startup.", ""),
        ("It was not completed in time; retry /mcp connect.", "It was not completed in time;"),
        ("error: unrecognized arguments: --port", "error: unrecognized arguments: --port"),
        ("the well--known name; e.g. a-b", "the well--known name; e.g. a-b"),
        ("ValueError: it is made of sand", "ValueError: it is made of sand"),
    ],
)
def test_options_of_its_command_line_are_left_out(text: str, left: str) -> None:
    assert without_options(text) == left


def test_what_a_server_without_registration_needs_is_said_without_them() -> None:
    details = mcp_connection_manager._format_oauth_registration_404_details(
        "registration failed: 404", "https://api.githubcopilot.com/mcp"
    )
    assert "--auth" in details
    told = without_options(details)
    assert "--" not in told
    assert told.splitlines()[-1] == "registration failed: 404"


def test_a_missing_model_is_said_without_them() -> None:
    advice = "Set an agent model, --model, FAST_AGENT_MODEL, or default_model in fast-agent.yaml."
    fault = fault_of(ModelConfigError("No model configured for MCP sampling", advice))
    assert fault.message == (
        "No model configured for MCP sampling: Set an agent model, or default_model in fastagent.config.yaml."
    )
