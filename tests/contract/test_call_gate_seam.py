"""Where fast-agent lists and calls its tools: the gate is before each way to call one."""

import inspect
from types import SimpleNamespace
from typing import Any

from fast_agent.agents.mcp_agent import McpAgent
from fast_agent.agents.tool_agent import ToolAgent
from fast_agent.agents.workflow.agents_as_tools_agent import AgentsAsToolsAgent
from fast_agent.mcp.mcp_aggregator import MCPAggregator, MCPToolCatalog, NamespacedTool
from fast_agent.types import PromptMessageExtended
from mcp_types import CallToolRequest, CallToolRequestParams, ListToolsResult, Tool

from pallas.executors.fastagent.call_gate_seam import GatedAgent, identity_of


def test_fast_agent_calls_tools_by_the_methods_that_are_gated() -> None:
    assert "self.call_tool(" in inspect.getsource(ToolAgent._execute_tool_for_plan)
    assert "self.list_tools()" in inspect.getsource(ToolAgent.run_tools)
    for kind in (ToolAgent, McpAgent, AgentsAsToolsAgent):
        assert tuple(inspect.signature(kind.call_tool).parameters)[:4] == (
            "self",
            "name",
            "arguments",
            "tool_use_id",
        )
        assert tuple(inspect.signature(kind.run_tools).parameters) == ("self", "request", "request_params")
    # These are called without call_tool, so run_tools asks about them.
    assert "_run_child_tools" in inspect.getsource(AgentsAsToolsAgent.run_tools)
    assert hasattr(AgentsAsToolsAgent, "_resolve_child_agent")


def test_fast_agent_finds_a_tool_by_more_names_than_its_own() -> None:
    source = inspect.getsource(MCPToolCatalog.resolve_tool_name)
    assert "namespaced_tool.tool.name == name" in source  # without its server
    assert "self._server_names[0]" in source  # an unknown one is called at the first server
    for name in ("resolve_tool_name", "server_display_name"):
        assert hasattr(MCPAggregator, name)


def agent(*tools: tuple[str, str], **children: Any) -> Any:
    """An agent with these tools of servers; a server ``crm`` is configured as ``crm-1``."""
    known, by_server = {}, dict[str, list[NamespacedTool]]()
    for server, name in tools:
        tool = NamespacedTool(
            tool=Tool(name=name, input_schema={"type": "object"}),
            server_name=f"{server}-1",
            namespaced_tool_name=f"{server}__{name}",
        )
        known[tool.namespaced_tool_name] = tool
        by_server.setdefault(tool.server_name, []).append(tool)
    catalog = MCPToolCatalog.snapshot(
        by_namespaced_name=known, by_server=by_server, server_names=list(by_server)
    )
    aggregator = SimpleNamespace(
        _namespaced_tool_map=known,
        server_names=list(by_server),
        server_display_name=lambda name: name.removesuffix("-1"),
        resolve_tool_name=catalog.resolve_tool_name,
    )
    return SimpleNamespace(_aggregator=aggregator, _resolve_child_agent=children.get)


def test_every_name_of_a_tool_leads_to_its_own() -> None:
    one = agent(("crm", "delete"), agent__clerk=SimpleNamespace(name="clerk"))
    local = frozenset({"add"})
    labels = {"research": ("research", "send_message")}

    def names(name: str) -> tuple[str, ...]:
        return identity_of(one, name, local, labels).names

    assert [names(each) for each in ("crm__delete", "CRM__Delete", "delete")] == [("crm__delete",)] * 3
    assert names("Research") == ("agent:research",)
    assert names("agent__clerk") == ("agent:clerk",)
    assert names("add") == ("add",)
    assert names("unknown") == ("crm__unknown", "unknown")


def test_a_name_that_several_tools_have_is_all_of_them_and_what_is_called_stands_last() -> None:
    both = agent(("docs", "delete"), ("crm", "Delete"))
    for name, last in (("Delete", "crm__Delete"), ("delete", "docs__delete")):
        tool = identity_of(both, name, frozenset(), {})
        assert set(tool.names) == {"docs__delete", "crm__Delete"}
        assert tool.names[-1] == last
        assert tool.server == last.partition("__")[0]


def test_a_tool_that_bears_the_name_of_another_servers_hidden_tool_is_judged_as_that() -> None:
    # fast-agent calls delete_all of crm-1, whatever server lists a tool of that name.
    one = agent(("docs", "crm-1__delete_all"), ("crm", "read"))
    assert one._aggregator.resolve_tool_name("crm-1__delete_all").server_name == "crm-1"
    tool = identity_of(one, "crm-1__delete_all", frozenset(), {})
    assert {"crm__delete_all", "docs__crm-1__delete_all"} <= set(tool.names)
    assert tool.server == "crm"


class Calling:
    """An agent that makes each call."""

    name = "clerk"

    def __init__(self) -> None:
        self.made: list[str] = []

    async def list_tools(self) -> Any:
        """It has none."""
        return ListToolsResult(tools=[])

    async def call_tool(self, name: str, arguments: Any = None, tool_use_id: str | None = None) -> Any:
        """Remember it."""
        self.made.append(name)

    async def run_tools(self, request: PromptMessageExtended, request_params: Any = None) -> Any:
        """Make them, without call_tool."""
        self.made += [call.params.name for call in (request.tool_calls or {}).values()]
        return PromptMessageExtended(role="user", content=[], tool_results={})


async def test_what_is_left_of_a_turn_that_is_over_calls_nothing() -> None:
    one: Any = Calling()
    GatedAgent(one, own=True, current=lambda: None).install()
    refused = await one.call_tool("crm__delete", {}, "c1")
    assert "its run is over" in refused.content[0].text
    call = CallToolRequest(params=CallToolRequestParams(name="crm__delete"))
    request = PromptMessageExtended(role="assistant", content=[], tool_calls={"c1": call})
    assert (await one.run_tools(request)).tool_results["c1"].is_error
    assert one.made == []
