"""The functions of fast-agent that are wrapped: this fails when one moves or takes something else."""

import inspect
from pathlib import Path
from typing import Any

import pytest
from support.live import running, write_project

from pallas.executors.fastagent import agent_loader, google_schema, log_seam
from pallas.mcp_client import library_hooks
from pallas.mcp_client.library_hooks import Hook
from pallas.model import AgentState


@pytest.mark.parametrize(
    "hook",
    (*agent_loader.HOOKS, google_schema.schema_hook()),
    ids=lambda hook: f"{hook.name}-{hook.attribute}",
)
def test_the_target_is_there_with_the_parameters_we_know(hook: Hook) -> None:
    # PR-29
    target = inspect.unwrap(vars(hook.owner)[hook.attribute])
    assert tuple(inspect.signature(target).parameters) == hook.parameters
    library_hooks.install(hook)
    library_hooks.install(hook)
    assert library_hooks.installed(hook.owner, hook.attribute).count(hook.name) == 1


def test_fast_agent_asks_the_functions_that_are_wrapped() -> None:
    # A wrapper around what nobody calls any more would do nothing, and say nothing.
    from fast_agent import context
    from fast_agent.mcp import client_gateway
    from fast_agent.mcp.mcp_aggregator import MCPAggregator

    def source(function: Any) -> str:
        return inspect.getsource(inspect.unwrap(function))

    dispatch = source(MCPAggregator._execute_on_server)
    assert "self._execute_initial_server_operation(" in dispatch
    assert "self._execute_session_method(" in dispatch
    assert "await self._execute_on_server(" in source(MCPAggregator.call_tool)
    assert "await self._reconnect_and_replay_server_operation(" in source(
        MCPAggregator._handle_connection_error
    )
    assert "return _managed_http_transport_context(" in source(client_gateway._create_transport)
    assert "async with http_client, transport_context" in source(
        client_gateway._managed_http_transport_context
    )
    assert "await configure_logger(" in source(context.initialize_context)
    assert "build_oauth_provider(" in source(client_gateway._prepare_headers_and_auth)


async def test_an_agent_does_not_start_on_a_fast_agent_that_changed_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PR-29: loudly, and before anything goes out without what the hook is for
    async def initialize(config: Any, another: Any) -> None: ...

    monkeypatch.setattr(log_seam.HOOK.owner, log_seam.HOOK.attribute, initialize)
    async with running(write_project(tmp_path, {"desk": None})) as fleet:
        (agent,) = fleet.agents
        assert agent.state is AgentState.ERROR
        assert "takes (config, another), not (config)" in agent.reason
        assert "fast-agent" in agent.reason
