"""What ``servers_seam`` uses of fast-agent's aggregator and of its connections."""

import inspect

import pytest
from fast_agent.agents.mcp_agent import McpAgent
from fast_agent.mcp import mcp_aggregator, mcp_connection_manager
from fast_agent.mcp.mcp_aggregator import MCPAggregator, MCPAttachOptions
from fast_agent.mcp.mcp_connection_manager import MCPConnectionManager, ServerConnection
from mcp.client.session import ClientSession
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher


@pytest.mark.parametrize(
    ("owner", "name", "parameters"),
    [
        (MCPAggregator, "_attach_server_locked", ["self", "server_name", "server_config", "options"]),
        (MCPAggregator, "_detach_server_locked", ["self", "server_name"]),
        (MCPAggregator, "_reset_runtime_indexes", ["self"]),
        (MCPAggregator, "_fetch_server_tools", ["self", "server_name", "cache_mode"]),
        (McpAgent, "_apply_instruction_templates", ["self"]),
        (MCPAggregator, "_require_server_registry", ["self"]),
        (ServerConnection, "is_healthy", ["self"]),
        (ServerConnection, "cancel_lifecycle", ["self"]),
    ],
)
def test_what_it_calls_is_there(owner: type, name: str, parameters: list[str]) -> None:
    assert list(inspect.signature(getattr(owner, name)).parameters) == parameters


def test_an_aggregator_has_the_attributes_that_it_reads() -> None:
    aggregator = MCPAggregator(["a", "b"], context=None)
    assert aggregator._configured_server_names == ["a", "b"]
    assert aggregator._attached_server_names == []
    assert aggregator._attachment_locks == {}
    assert aggregator._namespaced_tool_map == {}
    assert aggregator._persistent_connection_manager is None
    assert (aggregator._closed, aggregator.initialized) == (False, False)
    assert "self.running_servers: dict[str, ServerConnection]" in inspect.getsource(MCPConnectionManager)
    assert MCPAttachOptions().force_reconnect is False


def test_the_end_of_a_stdio_server_shows_in_the_dispatcher_of_its_session() -> None:
    assert "self._dispatcher" in inspect.getsource(ClientSession.__init__)
    assert "self._closed = True" in inspect.getsource(JSONRPCDispatcher.run)


def test_a_lost_connection_is_taken_out_of_those_that_run() -> None:
    source = inspect.getsource(MCPConnectionManager._clear_running_server_state)
    assert "self.running_servers.pop(server_name, None)" in source
    assert "_reconnect_for_future_operations" in inspect.getsource(mcp_aggregator)
    assert "_error_occurred = True" in inspect.getsource(mcp_connection_manager)
