"""Where fast-agent calls its tools: each call of a durable turn passes by the journal."""

import inspect
from types import SimpleNamespace
from typing import Any

from fast_agent.agents.mcp_agent import McpAgent
from fast_agent.agents.tool_agent import ToolAgent
from mcp_types import CallToolResult, TextContent

from pallas.executors.fastagent.journaled_calls import JournaledCalls, watch_calls


class Journal:
    """Notes what it is asked, in order."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def committed(self) -> None:
        self.asked.append("committed")

    async def still_ours(self) -> None:
        self.asked.append("still ours")

    async def step_over(self) -> None:
        self.asked.append("step over")

    def returned(self, call_id: str, native: str) -> None:
        self.asked.append((call_id, CallToolResult.model_validate_json(native).content[0].text))  # type: ignore[union-attr]


def agent(journal: Journal, calls: JournaledCalls | None, *, own: bool) -> Any:
    """An agent whose calls answer with the name of their tool."""

    async def call_tool(name: str, arguments: Any = None, tool_use_id: Any = None, **options: Any) -> Any:
        journal.asked.append(name)
        return CallToolResult(content=[TextContent(type="text", text=f"{name} {options}")])

    made = SimpleNamespace(call_tool=call_tool)
    watch_calls(made, own=own, current=lambda: calls)
    return made


def test_fast_agent_makes_each_call_by_the_method_that_is_watched() -> None:
    assert "self.call_tool(" in inspect.getsource(ToolAgent._execute_tool_for_plan)
    parameters = ("self", "name", "arguments", "tool_use_id")
    for kind in (ToolAgent, McpAgent):
        assert tuple(inspect.signature(kind.call_tool).parameters)[:4] == parameters


async def test_results_of_several_calls_are_stored_one_by_one_and_that_of_a_single_call_is_not() -> None:
    journal = Journal()
    calls = JournaledCalls(journal, "r", 1)
    one = agent(journal, calls, own=True)
    await calls.begin("a", "b")
    await one.call_tool("read", {}, "a", request_params=None)
    await calls.begin("c")
    await one.call_tool("write", {}, "c")
    assert journal.asked == [
        "committed", "still ours", "read", ("a", "read {'request_params': None}"),
        "committed", "still ours", "write",
    ]  # fmt: skip


async def test_calls_of_sub_agents_are_made_only_for_a_run_of_this_fleet_and_are_not_stored() -> None:
    journal = Journal()
    calls = JournaledCalls(journal, "r", 1)
    await calls.begin("a", "b")
    await agent(journal, calls, own=False).call_tool("read", {}, "a")
    assert journal.asked == ["committed", "still ours", "read"]


async def test_a_turn_that_is_not_durable_makes_its_calls_as_they_are() -> None:
    journal = Journal()
    await agent(journal, None, own=True).call_tool("read", {}, "a")
    assert journal.asked == ["read"]
