"""Where fast-agent lists and calls its tools: the gate is before each way to call one."""

import inspect
from types import SimpleNamespace
from typing import Any

from fast_agent.agents.mcp_agent import McpAgent
from fast_agent.agents.tool_agent import ToolAgent
from fast_agent.agents.workflow.agents_as_tools_agent import AgentsAsToolsAgent
from fast_agent.mcp.mcp_aggregator import ToolNameResolution
from fast_agent.types import PromptMessageExtended
from mcp_types import CallToolRequest, CallToolRequestParams, ListToolsResult, Tool

from pallas.downstreams.offer import Offer
from pallas.executors.fastagent.downstreams_seam import Downstreams
from pallas.executors.fastagent.tool_gate_seam import GatedAgent, identity_of


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


class Offering(Downstreams):
    """The servers of an agent, which offer these tools; a server ``crm`` is configured as ``crm-1``."""

    def __init__(self, tools: tuple[tuple[str, str], ...]) -> None:
        names = [f"{server}-1" for server in dict.fromkeys(server for server, _ in tools)]
        entries = {name: SimpleNamespace(name=name.removesuffix("-1"), load_on_start=True) for name in names}
        registry = SimpleNamespace(get_server_config=entries.get)
        super().__init__(names, name="clerk", context=SimpleNamespace(server_registry=registry))
        for name in names:
            offered = tuple(
                Tool(name=tool, input_schema={"type": "object"})
                for server, tool in tools
                if f"{server}-1" == name
            )
            connection: Any = SimpleNamespace(offer=Offer(tools=offered), is_open=True)
            self._servers._connections[name] = connection


def agent(*tools: tuple[str, str], **children: Any) -> Any:
    """An agent with these tools of servers."""
    return SimpleNamespace(_aggregator=Offering(tools), _resolve_child_agent=children.get)


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
    assert names("unknown") == ("unknown",)  # none is called by it


def test_a_name_that_several_tools_have_is_all_of_them_and_what_is_called_stands_last() -> None:
    both = agent(("docs", "delete"), ("crm", "Delete"))
    for name, last in (("Delete", "crm__Delete"), ("delete", "docs__delete")):
        tool = identity_of(both, name, frozenset(), {})
        assert set(tool.names) == {"docs__delete", "crm__Delete"}
        assert tool.names[-1] == last
        assert tool.server == last.partition("__")[0]


async def test_a_tool_that_bears_the_name_of_another_servers_tool_is_judged_as_what_is_called() -> None:
    one = agent(("docs", "crm__delete_all"), ("crm", "read"), ("crm", "delete_all"))
    # The name of a tool that a server lists means that tool, whatever another one calls its own.
    tool = identity_of(one, "crm__delete_all", frozenset(), {})
    assert (tool.names[-1], tool.server) == ("crm__delete_all", "crm")
    assert one._aggregator.resolve_tool_name("crm__delete_all") == ToolNameResolution("crm-1", "delete_all")
    # One that no server lists is not called at all, so nothing is hidden behind the other's name.
    hidden = agent(("docs", "crm__delete_all"), ("crm", "read"))
    tool = identity_of(hidden, "crm__delete_all", frozenset(), {})
    assert (tool.names[-1], tool.server) == ("docs__crm__delete_all", "docs")
    assert hidden._aggregator.resolve_tool_name("crm__delete_all").server_name == "docs-1"
    assert hidden._aggregator.resolve_tool_name("crm-1__delete_all").server_name is None
    assert (await hidden._aggregator.call_tool("crm-1__delete_all", {})).is_error


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
