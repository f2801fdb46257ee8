"""fast-agent as the filter of tools needs it."""

from fast_agent.mcp.mcp_aggregator import MCPAggregator

from pallas.executors.fastagent import tool_filter_seam
from pallas.mcp_client.library_hooks import install, installed


def test_the_hooks_fit() -> None:
    for hook in tool_filter_seam.HOOKS:
        install(hook)
        assert hook.name in installed(MCPAggregator, hook.attribute)
