"""fast-agent as the lock needs it: one place for every request to a server, and what it has listed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fast_agent.mcp.mcp_aggregator import MCPAggregator
from support.live import running
from support.locked import ORDER, SHOP, STOCK, calls_of, list_now, locked_project
from support.waiting import until

from pallas.executors.fastagent import aggregator_seam, lock_seam, servers_seam
from pallas.mcp_client.library_hooks import install
from pallas.model import Fault


@asynccontextmanager
async def aggregator(root: Path, **options: Any) -> AsyncIterator[Any]:
    """The connections of the agent's first instance."""
    locked_project(root, **options)
    async with running(root) as fleet:
        (agent,) = fleet.agents
        (instance,) = agent.executor._instances.values()  # type: ignore[union-attr]
        yield servers_seam.aggregator_of(instance.agent)


def test_the_hooks_fit() -> None:
    for hook in lock_seam.HOOKS:
        install(hook)
        assert hasattr(MCPAggregator, hook.attribute)


async def test_what_is_held_is_in_no_list_and_cannot_be_used(tmp_path: Path) -> None:
    async with aggregator(tmp_path) as found:
        assert [each.name for each in (await found.list_tools()).tools] == ["shop__order", "shop__stock"]
        greet = {"name": "greet", "description": "Say hello to mallory."}
        list_now(tmp_path, {**SHOP, "tools": [{**ORDER, "description": "Other."}, STOCK], "prompts": [greet]})
        await until(lambda: "shop__order" not in found._namespaced_tool_map)
        await lock_seam.list_again(found, 30)
        assert [each.name for each in (await found.list_tools()).tools] == ["shop__stock"]
        assert [each.name for each in (await found.list_mcp_tools("shop"))["shop"]] == ["stock"]
        assert (await found.list_prompts("shop"))["shop"] == []
        for name in ("shop__order", "shop__unheard_of"):
            result = await found.call_tool(name, {})
            assert result.is_error and "is held, because it is not as tools.lock has it" in str(
                result.content
            )
        assert calls_of(tmp_path) == []
        with pytest.raises(Fault, match="the prompt greet of shop is held"):
            await found._execute_on_server("shop", "prompts/get", "greet", "get_prompt", {"name": "greet"})
        assert not (await found.call_tool("shop__stock", {})).is_error


async def test_a_copy_of_an_instance_is_guarded_too(tmp_path: Path) -> None:
    async with aggregator(tmp_path) as found:
        copy = MCPAggregator(
            server_names=["shop"], connection_persistence=False, context=found.context, name="copy"
        )
        assert lock_seam.gate_of(copy) is lock_seam.gate_of(found) is not None


async def test_instructions_that_the_configuration_leaves_out_are_no_difference(tmp_path: Path) -> None:
    async with aggregator(tmp_path, server={"include_instructions": False}) as found:
        connection = aggregator_seam.connection_of(found, "shop")
        assert connection.server_instructions is None and not connection.server_instructions_enabled
        gate = lock_seam.gate_of(found)
        assert gate is not None and gate.changes() == ()
