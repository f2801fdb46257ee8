"""Refuses calls of tools that the ``tools`` filter of an agent's definition leaves out.

fast-agent does not show such a tool to the model, but calls it for a model that knows or guesses its name,
and lists it below the server's instructions. Every call of a server's tool goes through ``call_tool`` of the
agent's aggregator, also those of copies of the agent. ``tests/contract/test_tool_filter_seam.py`` fails when
that changes.
"""

from fnmatch import fnmatch
from typing import Any, Final

from fast_agent.mcp.mcp_aggregator import MCPAggregator
from mcp_types import CallToolResult, TextContent

from pallas.mcp_client.library_hooks import Hook
from pallas.safe_text import one_line


def filter_refusal(aggregator: Any, name: str) -> str:
    """Return why the filter allows no caller the server's tool that has this name; empty if it does."""
    target = aggregator.resolve_tool_name(name)
    if target.server_name is None:
        return ""
    server = aggregator.server_display_name(target.server_name)
    if not _leaves_out(aggregator, server, target.local_name):
        return ""
    return f"{one_line(name, 100)} was not called: the tools filter of this agent leaves it out."


def _leaves_out(aggregator: Any, server: str, tool: str) -> bool:
    """Whether the filter has patterns for the server and none fits the tool, as fast-agent compares them."""
    patterns = (getattr(aggregator.config, "tools", None) or {}).get(server)
    return patterns is not None and not any(fnmatch(tool, each) for each in patterns)


def _refusing(original: Any) -> Any:
    async def call_tool(
        self: Any,
        name: str,
        arguments: Any = None,
        tool_use_id: Any = None,
        *,
        request_tool_handler: Any = None,
    ) -> Any:
        if not self.initialized:
            await self.load_servers()
        if not (why := filter_refusal(self, name)):
            return await original(
                self, name, arguments, tool_use_id, request_tool_handler=request_tool_handler
            )
        handler = request_tool_handler or self._tool_handler
        if handler is not None:
            target = self.resolve_tool_name(name)
            server = self.server_display_name(target.server_name)
            await handler.on_tool_permission_denied(target.local_name, server, tool_use_id)
        return CallToolResult(content=[TextContent(type="text", text=why)], is_error=True)

    return call_tool


def _without_filtered(original: Any) -> Any:
    async def get_server_instructions(self: Any) -> Any:
        return {
            server: (text, [each for each in tools if not _leaves_out(self, server, each)])
            for server, (text, tools) in (await original(self)).items()
        }

    return get_server_instructions


HOOKS: Final = (
    Hook(
        "filter.calls",
        MCPAggregator,
        "call_tool",
        ("self", "name", "arguments", "tool_use_id", "request_tool_handler"),
        _refusing,
    ),
    Hook("filter.instructions", MCPAggregator, "get_server_instructions", ("self",), _without_filtered),
)
